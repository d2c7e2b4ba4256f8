//! A workload of another tool: how many replicas it has, had before it was stopped, and who may
//! remove it.

use serde_json::Value;
use tenon_installer_core::kubernetes::object::{Object, annotation};
use tenon_installer_core::ownership::{ADOPTED_BY, REPLICAS};

/// What a workload says about itself.
pub(crate) trait Stopped {
    /// Replicas that are asked for now.
    fn replicas_now(&self) -> i64;

    /// Replicas that it has, or had before it was stopped.
    fn replicas(&self) -> i64;

    /// The installation that stopped it.
    fn stopped_by(&self) -> Option<&str>;

    /// How its owner removes it: as a Helm release, or the object itself.
    fn removal(&self) -> String;
}

impl Stopped for Object {
    fn replicas_now(&self) -> i64 {
        self.body.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
    }

    fn replicas(&self) -> i64 {
        let before = annotation(&self.body, REPLICAS).and_then(|text| text.parse().ok());
        before.unwrap_or_else(|| self.replicas_now())
    }

    fn stopped_by(&self) -> Option<&str> {
        annotation(&self.body, ADOPTED_BY)
    }

    fn removal(&self) -> String {
        let of_helm = |mark: &str| annotation(&self.body, &format!("meta.helm.sh/{mark}"));
        if let (Some(name), Some(namespace)) =
            (of_helm("release-name"), of_helm("release-namespace"))
        {
            return format!("helm -n {namespace} uninstall {name}");
        }
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let kind = self.resource.kind.to_lowercase();
        format!("kubectl -n {namespace} delete {kind} {}", self.name)
    }
}

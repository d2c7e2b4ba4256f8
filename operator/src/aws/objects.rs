//! What the provider's controllers ask the API server itself, because a watch may lag: which
//! machines, classes and profiles NodeClaims use.
//!
//! Only the fields that are needed are decoded. So a NodeClaim that does not parse as a whole still
//! protects what it uses.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::ClusterResourceScope;
use kube::api::{Api, ListParams};
use kube::core::ObjectMeta;
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tenon_crds::labels::aws as keys;
use tenon_crds::{EC2NodeClass, NodeClaim};

use super::provider_id::instance_id;
use tenon_state::guarded::Guarded;

/// What a NodeClaim uses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimUse {
    pub metadata: ObjectMeta,
    spec: ClaimSpec,
    status: ClaimStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSpec {
    node_class_ref: ClassReference,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClassReference {
    group: String,
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimStatus {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    conditions: Vec<ConditionType>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ConditionType {
    #[serde(rename = "type")]
    type_: String,
}

impl ClaimUse {
    /// `metadata.name`; empty if it is absent, which the API server never sends.
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its EC2NodeClass; `None` when it is another provider's.
    pub(super) fn class(&self) -> Option<&str> {
        let ClassReference { group, name } = &self.spec.node_class_ref;
        (group == keys::GROUP).then_some(name.as_str())
    }

    /// The id of its instance.
    pub(super) fn instance_id(&self) -> Option<&str> {
        instance_id(self.status.provider_id.as_deref()?)
    }

    /// Whether it has a machine, of whatever kind.
    pub(super) fn has_machine(&self) -> bool {
        self.status.provider_id.as_deref().is_some_and(|id| !id.is_empty())
    }

    /// Whether its status has a condition of this type.
    pub(super) fn has_condition(&self, type_: &str) -> bool {
        self.status.conditions.iter().any(|condition| condition.type_ == type_)
    }

    /// Its value, if it is set.
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        text(self.metadata.annotations.as_ref(), key)
    }

    /// Its value, if it is set.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        text(self.metadata.labels.as_ref(), key)
    }
}

fn text<'m>(all: Option<&'m BTreeMap<String, String>>, key: &str) -> Option<&'m str> {
    all?.get(key).map(String::as_str)
}

/// What an EC2NodeClass uses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClassUse {
    pub metadata: ObjectMeta,
    pub status: ClassStatus,
}

/// The part of the status that names things in AWS.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClassStatus {
    /// The instance profile of new machines.
    pub instance_profile: Option<String>,
}

/// Implements [`Resource`] under the coordinates of the whole object.
macro_rules! same_resource {
    ($part:ty, $whole:ty) => {
        impl Resource for $part {
            type DynamicType = ();
            type Scope = ClusterResourceScope;

            fn kind(dt: &()) -> Cow<'_, str> {
                <$whole>::kind(dt)
            }

            fn group(dt: &()) -> Cow<'_, str> {
                <$whole>::group(dt)
            }

            fn version(dt: &()) -> Cow<'_, str> {
                <$whole>::version(dt)
            }

            fn plural(dt: &()) -> Cow<'_, str> {
                <$whole>::plural(dt)
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

same_resource!(ClaimUse, NodeClaim);
same_resource!(ClassUse, EC2NodeClass);

/// What all NodeClaims use.
pub(super) async fn claims(client: &Client) -> kube::Result<Vec<ClaimUse>> {
    let api: Api<ClaimUse> = Api::all(client.clone());
    Ok(api.list(&ListParams::default()).await?.items)
}

/// What all EC2NodeClasses use.
pub(super) async fn classes(client: &Client) -> kube::Result<Vec<ClassUse>> {
    let api: Api<ClassUse> = Api::all(client.clone());
    Ok(api.list(&ListParams::default()).await?.items)
}

/// All objects of a kind that parse. The watches tell of those that don't.
pub(super) async fn parsed<K>(client: &Client) -> kube::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api: Api<Guarded<K>> = Api::all(client.clone());
    let listed = api.list(&ListParams::default()).await?;
    Ok(listed.items.into_iter().filter_map(|object| object.into_result().ok()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_nodeclaim_that_does_not_parse_still_protects_what_it_uses() {
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "odd", "annotations": {"karpenter.k8s.aws/instance-profile-name": "p"}},
            "spec": {
                "requirements": [{"key": "a", "operator": "Roughly"}],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            },
            "status": {"providerID": "aws:///a/i-1", "conditions": [{"type": "Drifted", "status": "Perhaps"}]},
        });
        assert!(serde_json::from_value::<NodeClaim>(claim.clone()).is_err());
        let claim: ClaimUse = serde_json::from_value(claim).unwrap();
        assert_eq!(claim.instance_id(), Some("i-1"));
        assert_eq!(claim.class(), Some("default"));
        assert_eq!(claim.annotation(keys::INSTANCE_PROFILE_NAME), Some("p"));
        assert!(claim.has_condition("Drifted"));
        assert!(!claim.has_condition("Launched"));
    }

    #[test]
    fn a_nodeclass_that_does_not_parse_still_names_its_profile() {
        let class = json!({
            "metadata": {"name": "odd"},
            "spec": {"amiSelectorTerms": "none"},
            "status": {"instanceProfile": "demo_1", "subnets": [{"id": 1}]},
        });
        assert!(serde_json::from_value::<EC2NodeClass>(class.clone()).is_err());
        let class: ClassUse = serde_json::from_value(class).unwrap();
        assert_eq!(class.status.instance_profile.as_deref(), Some("demo_1"));
    }

    #[test]
    fn a_claim_without_status_uses_no_machine() {
        let claim: ClaimUse =
            serde_json::from_value(json!({"metadata": {"name": "new"}, "spec": {}})).unwrap();
        assert!(!claim.has_machine());
        assert_eq!((claim.instance_id(), claim.class()), (None, None));
    }
}

//! Everything that exists in the cluster and in AWS, to prove what came and what is left.

use std::collections::BTreeSet;
use std::fmt;

use kube::api::{DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, ResourceExt};

use super::StoryError;
use crate::bed::Bed;

/// Kinds that Kubernetes itself makes and removes as time goes by.
const PASSING: &[&str] = &[
    "ComponentStatus",
    "ControllerRevision",
    "CSINode",
    "Endpoints",
    "EndpointSlice",
    "Event",
    "IPAddress",
    "Node",
    "Pod",
    "ReplicaSet",
];

/// One thing.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Item {
    /// A Kubernetes object.
    Kubernetes { kind: String, namespace: String, name: String },
    /// Something in AWS.
    Aws { kind: String, id: String },
}

impl Item {
    pub(super) const fn is_aws(&self) -> bool {
        matches!(self, Self::Aws { .. })
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubernetes { kind, namespace, name } if namespace.is_empty() => {
                write!(f, "{kind} {name}")
            }
            Self::Kubernetes { kind, namespace, name } => write!(f, "{kind} {namespace}/{name}"),
            Self::Aws { kind, id } => write!(f, "{kind} {id}"),
        }
    }
}

/// What exists.
#[derive(Clone, Debug, Default)]
pub(super) struct Inventory {
    items: BTreeSet<Item>,
}

impl Inventory {
    /// Looks at everything.
    pub(super) async fn take(bed: &Bed) -> Result<Self, StoryError> {
        let mut items = kubernetes(bed).await.map_err(|source| StoryError::Kubernetes {
            doing: "list all objects".to_owned(),
            source,
        })?;
        let aws = bed.aws_inventory().await.map_err(|source| StoryError::Bed {
            doing: "list what is in AWS".to_owned(),
            source: source.into(),
        })?;
        items.extend(aws.into_iter().map(|(kind, id)| Item::Aws { kind, id }));
        Ok(Self { items })
    }

    /// What is here and not there.
    pub(super) fn beyond(&self, other: &Self) -> Vec<Item> {
        self.items.difference(&other.items).cloned().collect()
    }
}

async fn kubernetes(bed: &Bed) -> Result<BTreeSet<Item>, kube::Error> {
    let client = bed.client();
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut items = BTreeSet::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if PASSING.contains(&resource.kind.as_str())
                || !capabilities.supports_operation(verbs::LIST)
            {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let objects = match api.list_metadata(&ListParams::default()).await {
                Ok(objects) => objects.items,
                // A CRD that has just gone.
                Err(kube::Error::Api(error)) if error.code == 404 => continue,
                Err(error) => return Err(error),
            };
            for object in objects {
                let namespace = match capabilities.scope {
                    Scope::Cluster => String::new(),
                    Scope::Namespaced => object.namespace().unwrap_or_default(),
                };
                // Heartbeats of nodes, which go some time after their nodes.
                if resource.kind == "Lease" && namespace == "kube-node-lease" {
                    continue;
                }
                items.insert(Item::Kubernetes {
                    kind: resource.kind.clone(),
                    namespace,
                    name: object.name_any(),
                });
            }
        }
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_is_only_here() {
        let aws = |id: &str| Item::Aws { kind: "role".to_owned(), id: id.to_owned() };
        let of = |ids: &[&str]| Inventory { items: ids.iter().map(|id| aws(id)).collect() };
        assert_eq!(of(&["a", "b"]).beyond(&of(&["a", "c"])), [aws("b")]);
        assert!(of(&[]).beyond(&of(&["a"])).is_empty());
    }
}

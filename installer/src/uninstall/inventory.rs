//! What there is to remove: everything that bears the installation's mark, and everything that its
//! operator made.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tenon_installer_core::apply::Context;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::kubernetes::object::{Object, label};
use tenon_installer_core::kubernetes::{aws_auth, freeze, helm};
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::ownership::{INSTALL_ID, Tags};
use tenon_installer_core::words::count;

use super::discovery::{Discovered, Known, Nodes};
use crate::errors::ExpectedError;

/// What there is to remove.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inventory {
    /// Nodes, and what makes them.
    pub nodes: Nodes,
    /// Objects of the operator that are ours.
    pub operator: Vec<Object>,
    /// Secrets of the Helm release.
    pub releases: Vec<String>,
    /// Namespace of the Helm release.
    pub release_namespace: String,
    /// The operator's Leases; there is one, unless it was told another name meanwhile.
    pub leases: Vec<Object>,
    /// CRDs that are ours.
    pub crds: Vec<Object>,
    /// The namespace, if it is ours.
    pub namespace: Option<Object>,
    /// Id of the association.
    pub association: Option<String>,
    /// ARN of the identity provider, if we made it and nobody else uses it.
    pub provider: Option<String>,
    /// Why an identity provider of ours stays.
    pub provider_stays: Option<String>,
    /// Principals of the access entries.
    pub access_entries: Vec<String>,
    /// The role that we added to `aws-auth`.
    pub aws_auth: Option<String>,
    /// Name of the nodes' instance profile.
    pub profile: Option<String>,
    /// Name of the Fargate profile.
    pub fargate: Option<String>,
    /// Rules with the ids of their targets.
    pub rules: Vec<(String, Vec<String>)>,
    /// Name and URL of the queue.
    pub queue: Option<(String, String)>,
    /// Subnets and security groups that we tagged.
    pub marked: Vec<String>,
    /// The tags that they got, key and value.
    pub discovery_tags: Tags,
    /// Names of roles.
    pub roles: Vec<String>,
    /// The installation is recorded in the cluster.
    pub has_record: bool,
    /// There is an installation of ours, or some of one.
    pub(super) is_installed: bool,
    /// What the next look needs of this one.
    pub(super) known: Known,
}

impl Inventory {
    /// Looks for everything. What only bears our names, and not our mark, is not in it.
    pub(crate) async fn read(
        context: &Context,
        desired: &Desired,
        actual: &Actual,
        namespace: &str,
    ) -> Result<Self, ExpectedError> {
        let found =
            Discovered::read(context, desired, actual, namespace, &Known::default()).await?;
        Ok(Self::of(desired, actual, found).of_ours_only())
    }

    /// The same once more.
    pub(crate) async fn again(
        &self,
        context: &Context,
        desired: &Desired,
        actual: &Actual,
        namespace: &str,
    ) -> Result<Self, ExpectedError> {
        let found = Discovered::read(context, desired, actual, namespace, &self.known).await?;
        Ok(Self::of(desired, actual, found).of_ours_only())
    }

    /// What is left of it. What was an installation's counts even when nothing else of that
    /// installation is there.
    pub(super) async fn left(
        &self,
        context: &Context,
        desired: &Desired,
        actual: &Actual,
        namespace: &str,
    ) -> Result<Self, ExpectedError> {
        let found = Discovered::read(context, desired, actual, namespace, &self.known).await?;
        let all = Self::of(desired, actual, found);
        Ok(if self.is_installed { all } else { all.of_ours_only() })
    }

    /// What bears the installation's mark, and all NodePools with what hangs on them.
    pub(crate) fn of(desired: &Desired, actual: &Actual, found: Discovered) -> Self {
        let installation = &desired.installation;
        let owns = |tags: &Tags| installation.owns(tags);
        let is_ours = |object: &&Object| {
            actual
                .objects
                .get(&object.key())
                .is_some_and(|live| label(live, INSTALL_ID) == Some(&installation.id))
        };
        let ours = |objects: &[Object]| objects.iter().filter(is_ours).cloned().collect::<Vec<_>>();
        let mut operator = ours(&desired.operator);
        operator.extend(desired.canary().filter(|canary| is_ours(&canary)));
        let surplus = desired.surplus(&actual.labelled).cloned();
        let (former_crds, former) = surplus
            .partition::<Vec<_>, _>(|object| object.resource.kind == "CustomResourceDefinition");
        operator.extend(former);
        let mut crds = ours(&desired.crds);
        crds.extend(former_crds);
        // Nobody wrote our mark on the Lease, but it is the operator's: it goes with the record of
        // an operator of ours.
        let has_record = found.record.as_ref() == Some(&installation.id);
        let mut leases = found.leases;
        leases.retain(|_| has_record || !operator.is_empty());
        let (provider, provider_stays) = match found.provider {
            Some(Ok(arn)) => (Some(arn), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let entry = actual.access_entry.as_ref().filter(|entry| owns(&entry.tags));
        let entries = entry.map(|_| desired.node_role.arn.clone());
        let roles = actual.roles.iter().filter(|(_, role)| owns(&role.tags));
        let roles = roles.map(|(name, _)| name.clone()).chain(found.former_roles);
        let all = Self {
            is_installed: false,
            known: found.known,
            leases,
            has_record,
            crds,
            namespace: ours(std::slice::from_ref(&desired.namespace)).pop(),
            association: actual
                .association
                .as_ref()
                .filter(|found| owns(&found.tags))
                .map(|found| found.id.clone()),
            access_entries: entries.into_iter().chain(found.former_entries).collect(),
            releases: helm::secrets_of(&actual.releases, &installation.id),
            release_namespace: desired.service_account.namespace.clone(),
            provider,
            provider_stays,
            aws_auth: actual
                .aws_auth
                .as_ref()
                .and_then(|live| aws_auth::added_by(live, &installation.id)),
            profile: actual
                .profile
                .as_ref()
                .filter(|found| owns(&found.tags))
                .map(|_| desired.profile_name.clone()),
            fargate: actual
                .fargate
                .as_ref()
                .filter(|found| owns(&found.tags))
                .map(|_| desired.fargate_name.clone()),
            rules: actual
                .rules
                .iter()
                .filter(|(_, rule)| owns(&rule.tags))
                .map(|(name, rule)| (name.clone(), rule.targets.keys().cloned().collect()))
                .collect(),
            queue: actual
                .queue
                .as_ref()
                .filter(|found| owns(&found.tags))
                .map(|found| (desired.queue_name.clone(), found.url.clone())),
            marked: actual.marked.iter().cloned().collect(),
            discovery_tags: desired.discovery_tags.clone(),
            roles: roles.collect::<BTreeSet<_>>().into_iter().collect(),
            nodes: found.nodes,
            operator,
        };
        let is_installed = all.has_record
            || !all.operator.is_empty()
            || !all.crds.is_empty()
            || !all.roles.is_empty()
            || all.association.is_some();
        Self { is_installed, ..all }
    }

    /// Without an installation of ours, NodePools and what hangs on them are somebody else's.
    fn of_ours_only(mut self) -> Self {
        if !self.is_installed {
            self.nodes = Nodes::default();
        }
        self
    }

    /// There is nothing to remove.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    /// One line per kind of thing.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let names = |objects: &[DynamicObject]| {
            objects.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
        };
        let keys = |objects: &[Object]| {
            objects.iter().map(|object| object.key().to_string()).collect::<Vec<_>>()
        };
        let mut add = |noun: &str, names: Vec<String>| {
            if !names.is_empty() {
                lines.push(format!(" - {}: {}", count(names.len(), noun), names.join(", ")));
            }
        };
        add("NodePool", names(&self.nodes.pools));
        add("NodeClaim", names(&self.nodes.claims));
        add("EC2 instance", self.nodes.instances.clone());
        add("EC2NodeClass", names(&self.nodes.classes));
        add("NodeOverlay", names(&self.nodes.overlays));
        add("operator object", keys(&self.operator));
        add("Helm revision", self.releases.clone());
        add("lease", self.leases.iter().map(|lease| lease.key().to_string()).collect());
        add("CRD", self.crds.iter().map(|crd| crd.name.clone()).collect());
        add("launch template", self.nodes.launch_templates.clone());
        add("instance profile", self.nodes.instance_profiles.clone());
        add("Pod Identity association", self.association.iter().cloned().collect());
        add("identity provider", self.provider.iter().cloned().collect());
        add("Fargate profile", self.fargate.iter().cloned().collect());
        add("aws-auth role", self.aws_auth.iter().cloned().collect());
        add("node instance profile", self.profile.iter().cloned().collect());
        add("EKS access entry", self.access_entries.clone());
        add("EventBridge rule", self.rules.iter().map(|(name, _)| name.clone()).collect());
        add("SQS queue", self.queue.iter().map(|(name, _)| name.clone()).collect());
        add("discovery tag", self.marked.clone());
        add("IAM role", self.roles.clone());
        add("namespace", self.namespace.iter().map(|namespace| namespace.name.clone()).collect());
        if self.has_record {
            lines.push(" - the record of the installation".to_owned());
        }
        lines
    }

    /// NodePools, NodeClasses and NodeOverlays as YAML that `kubectl apply` takes. NodeClaims are
    /// not in it: applied, they would launch instances.
    pub(crate) fn backup(&self) -> String {
        let Nodes { pools, classes, overlays, .. } = &self.nodes;
        let objects = classes.iter().chain(pools).chain(overlays);
        // One that stands still was made to by us: applied like that, it would launch nothing.
        let bodies = objects.map(|object| freeze::thawed(json!(object)));
        bodies.flat_map(|body| ["---\n".to_owned(), without_server_fields(body)]).collect()
    }
}

/// An object as its author wrote it: without what the API server and we added.
fn without_server_fields(mut body: Value) -> String {
    if let Some(body) = body.as_object_mut() {
        body.remove("status");
    }
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.retain(|key, _| matches!(key.as_str(), "name" | "labels" | "annotations"));
        for section in ["labels", "annotations"] {
            if let Some(entries) = metadata.get_mut(section).and_then(Value::as_object_mut) {
                entries.retain(|key, _| !key.starts_with("tenon.sh/"));
                if entries.is_empty() {
                    metadata.remove(section);
                }
            }
        }
    }
    serde_saphyr::to_string(&body).expect("JSON always goes into YAML")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_installer_core::kubernetes::merge_patch::merged;
    use tenon_installer_core::testing::desired;

    #[test]
    fn a_pool_that_stands_still_is_backed_up_as_its_owner_wrote_it() {
        let pool = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default", "resourceVersion": "7", "uid": "1"},
            "spec": {"limits": {"memory": "1Ti"}, "disruption": {"budgets": [{"nodes": "10%"}]}},
            "status": {"nodes": 1},
        });
        let frozen = merged(pool.clone(), &freeze::freeze(&pool).expect("not frozen yet"));
        let backup = |pool: Value| {
            let pools = vec![serde_json::from_value(pool).expect("an object")];
            Inventory { nodes: Nodes { pools, ..Nodes::default() }, ..Inventory::default() }
                .backup()
        };
        let text = backup(frozen);
        let saved: Value = serde_saphyr::from_str(&text).expect("YAML");
        let mut as_written = pool.clone();
        as_written.as_object_mut().expect("a map").remove("status");
        as_written["metadata"] = json!({"name": "default"});
        assert_eq!(saved, as_written);
        assert_eq!(text, backup(pool));
    }

    #[test]
    fn instances_are_seen_when_nothing_else_of_an_installation_is_left() {
        let found = Discovered {
            nodes: Nodes { instances: vec!["i-1".to_owned()], ..Nodes::default() },
            ..Discovered::default()
        };
        let all = Inventory::of(&desired(""), &Actual::default(), found);
        assert_eq!(all.lines(), [" - 1 EC2 instance: i-1"]);
        assert!(!all.is_installed);
        assert!(all.of_ours_only().is_empty(), "before an uninstall they are somebody else's");
    }
}

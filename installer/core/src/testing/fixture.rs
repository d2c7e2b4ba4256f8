//! Settings, what should be there for them, and actual states: nothing there yet, and everything
//! there.

use std::path::Path;

use tenon_iam_policies::Partition;

use crate::desired::Desired;
use crate::kubernetes::aws_auth;
use crate::kubernetes::helm::{self, Revision};
use crate::observe::actual::Actual;
use crate::observe::facts::{Caller, ClusterFacts, Facts};
use crate::observe::state::{
    AccessEntryState, AgentState, AssociationState, FargateState, ProfileState, ProviderState,
    QueueState, RoleState, RuleState,
};
use crate::ownership::Tags;
use crate::settings::{Inferred, Settings, Source};

/// What is known of the account and the cluster.
pub fn facts() -> Facts {
    Facts {
        caller: Caller {
            account: "111122223333".to_owned(),
            arn: "arn:aws:iam::111122223333:user/me".to_owned(),
        },
        cluster: ClusterFacts {
            name: "prod".to_owned(),
            region: "eu-central-1".to_owned(),
            partition: Partition::Aws,
            arn: "arn:aws:eks:eu-central-1:111122223333:cluster/prod".to_owned(),
            created_at: 1_700_000_000,
            status: "ACTIVE".to_owned(),
            version: "1.34".to_owned(),
            endpoint: Some("https://prod.example.com".to_owned()),
            certificate_authority: None,
            oidc_issuer: Some("https://oidc.eks.eu-central-1.amazonaws.com/id/0123".to_owned()),
            authentication_mode: "API_AND_CONFIG_MAP".to_owned(),
            subnet_ids: ["subnet-a", "subnet-b", "subnet-c"].map(str::to_owned).to_vec(),
            security_group: Some("sg-cluster".to_owned()),
            auto_mode: false,
            ipv6: false,
            tags: Tags::new(),
        },
        node_role_arn: None,
    }
}

/// Complete settings: the smallest ones and these lines.
pub fn settings(extra: &str) -> Settings {
    let text = format!(
        "apiVersion: tenon.sh/v1alpha1\nkind: Installation\ncluster:\n  name: prod\n  region: eu-central-1\n{extra}"
    );
    let source = Source::parse(Path::new("tenon.yaml"), &text);
    Settings::resolve(source, &Inferred::default()).expect("complete settings")
}

/// What should be there with these settings.
pub fn desired(extra: &str) -> Desired {
    Desired::new(&settings(extra), &facts()).expect("the cluster is fit")
}

/// A cluster as it is before anything is installed.
pub fn untouched() -> Actual {
    Actual {
        agent: AgentState::Addon("ACTIVE".to_owned()),
        spot_role: true,
        network: ["subnet-a", "subnet-b", "subnet-c", "sg-cluster"]
            .map(|id| (id.to_owned(), Tags::new()))
            .into(),
        ..Actual::default()
    }
}

/// The actual state in which everything is as it should be: what AWS and Kubernetes would say after
/// a complete installation.
pub fn complete(desired: &Desired) -> Actual {
    let mut actual = untouched();
    let fargate_role = desired.fargate.as_ref().map(|_| &desired.fargate_role);
    for role in [&desired.node_role, &desired.controller_role].into_iter().chain(fargate_role) {
        let Some(spec) = &role.spec else { continue };
        actual.roles.insert(
            spec.name.clone(),
            RoleState {
                arn: role.arn.clone(),
                trust: spec.trust.to_json_pretty(),
                attached: spec.attached.iter().cloned().collect(),
                inline: spec
                    .inline
                    .iter()
                    .map(|(name, document)| (name.clone(), document.to_json_pretty()))
                    .collect(),
                boundary: spec.boundary.clone(),
                tags: spec.tags.clone(),
            },
        );
    }
    actual.association = desired.association().map(|association| AssociationState {
        id: "a-1".to_owned(),
        arn: "arn:association".to_owned(),
        role_arn: association.role_arn.clone(),
        tags: association.tags.clone(),
    });
    actual.provider = desired.provider().map(|provider| ProviderState {
        audiences: vec![provider.audience.clone()],
        tags: provider.tags.clone(),
    });
    actual.access_entry = desired.access_entry().map(|entry| AccessEntryState {
        arn: "arn:entry".to_owned(),
        kind: entry.kind.to_owned(),
        tags: entry.tags.clone(),
    });
    actual.aws_auth = desired.aws_auth().and_then(|mapping| {
        aws_auth::with(None, mapping, &desired.installation.id).expect("there is none")
    });
    actual.profile = desired.profile.as_ref().map(|profile| ProfileState {
        arn: profile.arn.clone(),
        roles: vec![profile.role.clone()],
        tags: profile.tags.clone(),
    });
    actual.fargate = desired.fargate.as_ref().map(|profile| FargateState {
        arn: "arn:fargate".to_owned(),
        status: "ACTIVE".to_owned(),
        role_arn: profile.role_arn.clone(),
        subnet_ids: profile.subnet_ids.iter().cloned().collect(),
        selectors: vec![(profile.namespace.clone(), profile.labels.clone())],
        tags: profile.tags.clone(),
    });
    actual.queue = desired.queue.as_ref().map(|queue| {
        let mut attributes = queue.attributes.clone();
        attributes.insert("Policy".to_owned(), queue.policy.to_json());
        attributes.insert("VisibilityTimeout".to_owned(), "30".to_owned());
        QueueState { url: "http://queue".to_owned(), attributes, tags: queue.tags.clone() }
    });
    actual.releases = desired
        .helm
        .iter()
        .map(|record| Revision {
            secret: helm::secret_name(1),
            number: 1,
            status: "deployed".to_owned(),
            hash: Some(record.hash.clone()),
            install_id: Some(record.install_id.clone()),
        })
        .collect();
    for rule in &desired.rules {
        actual.rules.insert(
            rule.name.clone(),
            RuleState {
                arn: rule.arn.clone(),
                pattern: Some(rule.pattern.clone()),
                enabled: true,
                targets: [(rule.target_id.clone(), rule.target_arn.clone())].into(),
                tags: rule.tags.clone(),
            },
        );
    }
    for id in &desired.discovery {
        actual.network.insert(id.clone(), desired.discovery_tags.clone());
        actual.marked.insert(id.clone());
    }
    for object in desired.objects() {
        let mut live = object.body.clone();
        live["metadata"]["resourceVersion"] = "1".into();
        live["status"] = serde_json::json!({});
        actual.objects.insert(object.key(), live);
    }
    actual
}

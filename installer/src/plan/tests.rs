mod adoption;
mod model;
mod profiles;
mod stages;

use std::collections::BTreeSet;
use std::path::Path;

use clap::Parser;
use proptest::prelude::*;
use tenon_iam_policies::Partition;

use super::*;
use crate::apply::is_runnable;
use crate::cli::{Cli, Command};
use crate::desired::Desired;
use crate::kubernetes::helm::{self, Revision};
use crate::kubernetes::{aws_auth, freeze};
use crate::observe::facts::{Caller, ClusterFacts, Facts};
use crate::observe::world::{
    AccessEntryState, AgentState, AssociationState, FargateState, ProfileState, ProviderState,
    QueueState, RoleState, RuleState, World,
};
use crate::ownership::INSTALL_ID;
use crate::settings::{Inferred, Settings, Source};

pub(crate) fn facts() -> Facts {
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

fn settings(extra: &str) -> Settings {
    let text = format!(
        "apiVersion: tenon.sh/v1alpha1\nkind: Installation\ncluster:\n  name: prod\n  region: eu-central-1\n{extra}"
    );
    let cli =
        Cli::try_parse_from(["tenon", "plan", "--cluster", "prod", "--region", "eu-central-1"])
            .expect("valid");
    let Command::Plan(args) = &cli.command else { panic!("the command is plan") };
    let source = Source::parse(Path::new("tenon.yaml"), &text);
    Settings::resolve(source, &cli.global, &args.settings, &Inferred::default())
        .expect("complete settings")
}

pub(crate) fn desired(extra: &str) -> Desired {
    Desired::new(&settings(extra), &facts()).expect("the cluster is fit")
}

/// A cluster as it is before anything is installed.
pub(crate) fn untouched() -> World {
    World {
        agent: AgentState::Addon("ACTIVE".to_owned()),
        spot_role: true,
        network: ["subnet-a", "subnet-b", "subnet-c", "sg-cluster"]
            .map(|id| (id.to_owned(), Tags::new()))
            .into(),
        ..World::default()
    }
}

/// A world in which everything is as it should be: what AWS and Kubernetes would say after a complete installation.
pub(crate) fn complete(desired: &Desired) -> World {
    let mut world = untouched();
    let fargate_role = desired.fargate.as_ref().map(|_| &desired.fargate_role);
    for role in [&desired.node_role, &desired.controller_role].into_iter().chain(fargate_role) {
        let Some(spec) = &role.spec else { continue };
        world.roles.insert(
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
    world.association = desired.association.as_ref().map(|association| AssociationState {
        id: "a-1".to_owned(),
        arn: "arn:association".to_owned(),
        role_arn: association.role_arn.clone(),
        tags: association.tags.clone(),
    });
    world.provider = desired.provider.as_ref().map(|provider| ProviderState {
        audiences: vec![provider.audience.clone()],
        tags: provider.tags.clone(),
    });
    world.access_entry = desired.access_entry.as_ref().map(|entry| AccessEntryState {
        arn: "arn:entry".to_owned(),
        kind: entry.kind.to_owned(),
        tags: entry.tags.clone(),
    });
    world.aws_auth = desired.aws_auth.as_ref().and_then(|mapping| {
        aws_auth::with(None, mapping, &desired.installation.id).expect("there is none")
    });
    world.profile = desired.profile.as_ref().map(|profile| ProfileState {
        arn: profile.arn.clone(),
        roles: vec![profile.role.clone()],
        tags: profile.tags.clone(),
    });
    world.fargate = desired.fargate.as_ref().map(|profile| FargateState {
        arn: "arn:fargate".to_owned(),
        status: "ACTIVE".to_owned(),
        role_arn: profile.role_arn.clone(),
        subnet_ids: profile.subnet_ids.iter().cloned().collect(),
        selectors: vec![(profile.namespace.clone(), profile.labels.clone())],
        tags: profile.tags.clone(),
    });
    world.queue = desired.queue.as_ref().map(|queue| {
        let mut attributes = queue.attributes.clone();
        attributes.insert("Policy".to_owned(), queue.policy.to_json());
        attributes.insert("VisibilityTimeout".to_owned(), "30".to_owned());
        QueueState { url: "http://queue".to_owned(), attributes, tags: queue.tags.clone() }
    });
    world.releases = desired
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
        world.rules.insert(
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
        world.network.insert(id.clone(), desired.discovery_tags.clone());
        world.marked.insert(id.clone());
    }
    for object in desired.objects() {
        let mut live = object.body.clone();
        live["metadata"]["resourceVersion"] = "1".into();
        live["status"] = serde_json::json!({});
        world.objects.insert(object.key(), live);
    }
    world
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| step.id.as_str()).collect()
}

#[test]
fn an_untouched_cluster_gets_everything() {
    let plan = diff(&desired(""), &untouched()).expect("nothing is in the way");
    insta::assert_snapshot!(crate::printer::plan_text(&plan));
    assert!(is_runnable(&plan));
    let deployment =
        plan.steps.iter().find(|step| step.kind == "Deployment").expect("there is a Deployment");
    assert!(
        deployment.depends_on.contains(&"association".to_owned()),
        "pods get their identity when they are admitted"
    );
}

#[test]
fn a_complete_installation_needs_nothing() {
    for extra in [
        "",
        "interruption:\n  enabled: false\n",
        "network:\n  discovery: ids\n",
        "defaults:\n  enabled: false\n",
        "tags:\n  team: x\nidentity:\n  boundary: arn:aws:iam::111122223333:policy/b\n",
        "deploy:\n  namespace: tenon\n  crds: skip\n",
        "identity:\n  mode: irsa\n",
        "deploy:\n  helmRecord: false\n",
        "deploy:\n  host: fargate\n",
        "nodes:\n  authorization: aws-auth\n  instanceProfile: static\n",
        "interruption:\n  kmsKey: arn:aws:kms:eu-central-1:111122223333:key/k\n",
    ] {
        let desired = desired(extra);
        assert_eq!(diff(&desired, &complete(&desired)), Ok(Plan::default()), "{extra}");
    }
}

#[test]
fn each_change_from_outside_is_named_and_repaired() {
    let desired = desired("");
    let change = |change: &dyn Fn(&mut World)| {
        let mut world = complete(&desired);
        change(&mut world);
        let plan = diff(&desired, &world).expect("nothing is in the way");
        plan.steps
            .iter()
            .map(|step| format!("{} {} ({})", step.op.sign(), step.id, step.reasons.join("; ")))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let node_role = desired.node_role.name.clone();
    let controller_role = desired.controller_role.name.clone();
    let spot = desired.rules[0].name.clone();
    let report = [
        change(&|world| {
            let role = world.roles.get_mut(&node_role).expect("role");
            role.attached = ["arn:aws:iam::aws:policy/AdministratorAccess".to_owned()].into();
        }),
        change(&|world| {
            let role = world.roles.get_mut(&controller_role).expect("role");
            role.trust = "{}".to_owned();
        }),
        change(&|world| world.roles.get_mut(&controller_role).expect("role").inline.clear()),
        change(&|world| {
            let tags = &mut world.roles.get_mut(&node_role).expect("role").tags;
            tags.insert("tenon.sh/version".to_owned(), "0.0.1".to_owned());
        }),
        change(&|world| {
            world.roles.remove(&node_role);
        }),
        change(&|world| {
            let association = world.association.as_mut().expect("association");
            association.role_arn = "arn:other".to_owned();
        }),
        change(&|world| world.association = None),
        change(&|world| {
            let attributes = &mut world.queue.as_mut().expect("queue").attributes;
            attributes.insert("MessageRetentionPeriod".to_owned(), "60".to_owned());
        }),
        change(&|world| world.rules.get_mut(&spot).expect("rule").enabled = false),
        change(&|world| world.rules.get_mut(&spot).expect("rule").targets.clear()),
        change(&|world| {
            world.network.insert("subnet-b".to_owned(), Tags::new());
        }),
        change(&|world| {
            let deployment = desired.deployment().expect("a Deployment").key();
            world.objects.get_mut(&deployment).expect("Deployment")["spec"]["replicas"] = 5.into();
        }),
    ];
    insta::assert_snapshot!(report.join("\n"));
}

#[test]
fn what_is_no_longer_asked_for_is_removed() {
    let before = complete(&desired(""));
    let plan = diff(&desired("interruption:\n  enabled: false\nnetwork:\n  discovery: ids\ndefaults:\n  enabled: false\n"), &before).expect("nothing is in the way");
    insta::assert_snapshot!(crate::printer::plan_text(&plan));
    assert!(is_runnable(&plan));
}

#[test]
fn foreign_things_under_our_names_stop_everything() {
    let desired = desired("");
    let mut world = complete(&desired);
    for role in world.roles.values_mut() {
        role.tags.clear();
    }
    world.queue.as_mut().expect("queue").tags.insert(INSTALL_ID.into(), "ffffffff".into());
    world.association.as_mut().expect("association").tags.clear();
    world.access_entry.as_mut().expect("entry").tags.clear();
    for rule in world.rules.values_mut() {
        rule.tags.clear();
    }
    world.network.insert(
        "subnet-a".to_owned(),
        [("karpenter.sh/discovery".to_owned(), "other".to_owned())].into(),
    );
    for (key, object) in &mut world.objects {
        if key.kind == "Deployment" || key.kind == "CustomResourceDefinition" {
            object["metadata"]["labels"] =
                serde_json::json!({"app.kubernetes.io/managed-by": "Helm"});
        }
    }
    insta::assert_snapshot!(diff(&desired, &world).expect_err("refused").join("\n"));
}

#[test]
fn a_discovery_tag_that_was_there_before_is_used_and_never_removed() {
    let with_tags = desired("");
    let mut world = complete(&with_tags);
    world.network.insert(
        "subnet-a".to_owned(),
        [("karpenter.sh/discovery".to_owned(), "prod".to_owned())].into(),
    );
    world.marked.remove("subnet-a");
    assert_eq!(diff(&with_tags, &world), Ok(Plan::default()));
    let plan =
        diff(&desired("network:\n  discovery: ids\n"), &world).expect("nothing is in the way");
    assert!(!ids(&plan).contains(&"discovery/subnet-a"), "{:?}", ids(&plan));
    assert!(ids(&plan).contains(&"discovery/subnet-b"));
}

#[test]
fn a_node_pool_of_the_users_is_left_as_it_is() {
    let desired = desired("");
    let mut world = complete(&desired);
    for (key, object) in &mut world.objects {
        if key.kind == "NodePool" {
            *object = serde_json::json!({"metadata": {"name": "default"}, "spec": {"weight": 7}});
        }
    }
    let plan = diff(&desired, &world).expect("nothing is in the way");
    assert!(plan.steps.is_empty());
    assert_eq!(plan.warnings, ["NodePool default exists, and is left as it is"]);
}

#[test]
fn a_frozen_node_pool_is_left_frozen() {
    let desired = desired("");
    let mut world = complete(&desired);
    for (key, object) in &mut world.objects {
        if key.kind == "NodePool" {
            object["metadata"]["annotations"][freeze::FROZEN] = "{}".into();
            object["spec"]["limits"]["cpu"] = "0".into();
        }
    }
    let plan = diff(&desired, &world).expect("nothing is in the way");
    assert!(plan.steps.is_empty());
    assert_eq!(plan.warnings, ["NodePool default is frozen, and is left so: see `tenon unfreeze`"]);
}

#[test]
fn helm_s_own_revision_is_followed_by_one_of_ours_and_the_oldest_go() {
    let desired = desired("");
    let mut world = complete(&desired);
    let ours = world.releases[0].clone();
    world.releases = (1..=12)
        .map(|number| Revision {
            secret: helm::secret_name(number),
            number,
            status: if number == 12 { "deployed" } else { "superseded" }.to_owned(),
            hash: None,
            ..ours.clone()
        })
        .collect();
    let plan = diff(&desired, &world).expect("nothing is in the way");
    let [step] = plan.steps.as_slice() else { panic!("one step: {:?}", ids(&plan)) };
    let Action::WriteRelease { revision, deployed, old, .. } = &step.action else {
        panic!("{:?}", step.action)
    };
    assert_eq!(*revision, 13);
    assert_eq!(*deployed, [helm::secret_name(12)]);
    assert_eq!(*old, [1, 2, 3].map(helm::secret_name));
}

#[test]
fn each_way_of_identity_and_authorization_leads_to_every_other() {
    let ways = [
        "",
        "identity:\n  mode: irsa\n",
        "deploy:\n  host: fargate\n",
        "nodes:\n  authorization: aws-auth\n",
        "nodes:\n  instanceProfile: static\n",
        "deploy:\n  helmRecord: false\n",
        "interruption:\n  enabled: false\n",
    ];
    for from in ways {
        for to in ways {
            let (from, to) = (desired(from), desired(to));
            let plan = diff(&to, &complete(&from)).expect("nothing is in the way");
            assert!(is_runnable(&plan), "{:#?}", plan.steps);
        }
    }
}

#[test]
fn a_saved_plan_is_applied_as_it_is_or_not_at_all() {
    let settings = settings("");
    let desired = Desired::new(&settings, &facts()).expect("fit");
    let plan = diff(&desired, &untouched()).expect("nothing is in the way");
    let now = jiff::Timestamp::UNIX_EPOCH;
    let target = serde_json::json!({});
    let made = saved::SavedPlan::new(&plan, target, &settings.config, Path::new("/"), now);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("plan.json");
    made.write(&file).expect("written");
    let read = saved::SavedPlan::read(&file).expect("read");
    assert_eq!(read, made);
    read.check(&plan).expect("the same plan");
    let mut moved = untouched();
    let role = complete(&desired).roles.remove(&desired.node_role.name).expect("a role");
    moved.roles.insert(desired.node_role.name.clone(), role);
    let other = diff(&desired, &moved).expect("nothing is in the way");
    let Err(crate::errors::ExpectedError::Moved { changes }) = read.check(&other) else {
        panic!("the world has moved")
    };
    // What waited for that step is listed as well.
    assert_eq!(changes[0], format!("no longer needed: IAM role {}", desired.node_role.arn));
}

#[test]
fn a_role_of_somebody_else_is_used_and_not_touched() {
    let mut facts = facts();
    facts.node_role_arn = Some("arn:aws:iam::111122223333:role/their-nodes".to_owned());
    let text = "identity:\n  controllerRoleArn: arn:aws:iam::111122223333:role/their-controller\nnodes:\n  roleName: their-nodes\n";
    let desired = Desired::new(&settings(text), &facts).expect("fit");
    let mut world = untouched();
    let plan = diff(&desired, &world).expect("nothing is in the way");
    assert!(!ids(&plan).iter().any(|id| id.ends_with("-role")));
    assert!(ids(&plan).contains(&"access-entry"));
    world.access_entry = Some(AccessEntryState {
        arn: "arn:entry".into(),
        kind: "EC2_LINUX".into(),
        tags: Tags::new(),
    });
    let plan = diff(&desired, &world).expect("their entry for their role is used");
    assert!(!ids(&plan).contains(&"access-entry"));
}

#[test]
fn an_unfit_cluster_is_refused_with_every_reason() {
    let mut facts = facts();
    facts.cluster.status = "CREATING".to_owned();
    facts.cluster.authentication_mode = "CONFIG_MAP".to_owned();
    facts.cluster.subnet_ids.clear();
    facts.cluster.security_group = None;
    let mut settings = settings("nodes:\n  authorization: access-entry\n");
    settings.account_id = Some("999988887777".to_owned());
    insta::assert_snapshot!(Desired::new(&settings, &facts).expect_err("unfit").join("\n"));
}

/// Any subset of what we make, as a kill between any two steps would leave it.
fn partial(desired: &Desired, there: &[bool]) -> World {
    let full = complete(desired);
    let mut world = untouched();
    let mut there = there.iter().copied().cycle();
    let mut is_there = || there.next().unwrap_or(false);
    world.roles = full.roles.into_iter().filter(|_| is_there()).collect();
    world.rules = full.rules.into_iter().filter(|_| is_there()).collect();
    world.objects = full.objects.into_iter().filter(|_| is_there()).collect();
    world.queue = full.queue.filter(|_| is_there());
    world.association = full.association.filter(|_| is_there());
    world.access_entry = full.access_entry.filter(|_| is_there());
    world.provider = full.provider.filter(|_| is_there());
    world.aws_auth = full.aws_auth.filter(|_| is_there());
    world.profile = full.profile.filter(|_| is_there());
    world.fargate = full.fargate.filter(|_| is_there());
    world.releases = full.releases.into_iter().filter(|_| is_there()).collect();
    for id in full.marked {
        if is_there() {
            world.network.insert(id.clone(), desired.discovery_tags.clone());
            world.marked.insert(id);
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_partial_installation_is_completed_and_nothing_is_done_twice(there in proptest::collection::vec(any::<bool>(), 50)) {
        let desired = desired("");
        let world = partial(&desired, &there);
        let plan = diff(&desired, &world).expect("nothing is in the way");
        prop_assert!(is_runnable(&plan));
        let full = diff(&desired, &untouched()).expect("nothing is in the way");
        let all = ids(&full).into_iter().collect::<BTreeSet<_>>();
        let steps = ids(&plan);
        prop_assert_eq!(steps.iter().collect::<BTreeSet<_>>().len(), steps.len());
        for step in &plan.steps {
            prop_assert!(all.contains(step.id.as_str()));
        }
        for object in desired.objects() {
            if world.objects.contains_key(&object.key()) && object.resource.kind != "Deployment" {
                let id = step_id(object);
                prop_assert!(!steps.contains(&id.as_str()), "{} is there already", id);
            }
        }
    }
}

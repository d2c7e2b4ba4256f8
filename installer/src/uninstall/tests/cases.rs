//! Random accounts and clusters, with things of others under names of theirs and of ours, and
//! random settings one after the other: a plan that is carried out leaves nothing to do, a plan
//! that can't be is refused, and after an uninstall everything is what it was.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use tenon_installer_core::apply::is_runnable;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::kubernetes::aws_auth::Mapping;
use tenon_installer_core::kubernetes::helm::{self, Revision};
use tenon_installer_core::kubernetes::object::label;
use tenon_installer_core::observe::state::{
    AccessEntryState, AgentState, AssociationState, FargateState, ProfileState, ProviderState,
    QueueState, RoleState, RuleState,
};
use tenon_installer_core::ownership::{DISCOVERY, INSTALL_ID, Tags};
use tenon_installer_core::testing::{facts, ids, settings};

use super::account::Account;

/// Settings that one installation can have one after the other.
const WAYS: [&str; 16] = [
    "",
    "identity:\n  installAgent: true\n",
    "identity:\n  mode: irsa\n",
    "deploy:\n  host: fargate\n  replicas: 1\n",
    "nodes:\n  authorization: aws-auth\n",
    "nodes:\n  instanceProfile: static\n  extraPolicies: [\"arn:aws:iam::aws:policy/X\"]\n",
    "deploy:\n  helmRecord: false\n",
    "deploy:\n  crds: skip\n",
    "deploy:\n  values:\n    podDisruptionBudget:\n      name: other\n",
    "interruption:\n  enabled: false\n",
    "interruption:\n  kmsKey: arn:aws:kms:eu-central-1:111122223333:key/k\n  events: [spot, state]\n",
    "network:\n  discovery: ids\n",
    "network:\n  subnetIds: [subnet-a]\n",
    "defaults:\n  enabled: false\n",
    "nodes:\n  roleName: theirs\n",
    "identity:\n  controllerRoleArn: arn:aws:iam::111122223333:role/theirs\n",
];

static DESIRED: LazyLock<Vec<Desired>> = LazyLock::new(|| {
    let theirs = |way: &str| {
        let mut facts = facts();
        facts.node_role_arn =
            way.contains("roleName").then(|| "arn:aws:iam::111122223333:role/theirs".to_owned());
        Desired::new(&settings(way), &facts).expect("the cluster is fit")
    };
    WAYS.iter().map(|way| theirs(way)).collect()
});

/// What of others' may be there under our names. All of it at once would refuse every plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Foreign {
    Nothing,
    NodeRole,
    ControllerRole,
    Queue,
    Rule,
    Association,
    Entry,
    Profile,
    Fargate,
    Crd,
    Deployment,
    Subnet,
    BrokenAuth,
    UselessAuth,
}

const FOREIGN: [Foreign; 14] = [
    Foreign::Nothing,
    Foreign::NodeRole,
    Foreign::ControllerRole,
    Foreign::Queue,
    Foreign::Rule,
    Foreign::Association,
    Foreign::Entry,
    Foreign::Profile,
    Foreign::Fargate,
    Foreign::Crd,
    Foreign::Deployment,
    Foreign::Subnet,
    Foreign::BrokenAuth,
    Foreign::UselessAuth,
];

impl Foreign {
    /// Whether it stands in the way of what should be there.
    fn blocks(self, desired: &Desired) -> bool {
        match self {
            Self::Nothing => false,
            Self::NodeRole => desired.node_role.spec.is_some(),
            Self::ControllerRole => desired.controller_role.spec.is_some(),
            Self::Queue => desired.queue.is_some(),
            Self::Rule => desired.rules.iter().any(|rule| rule.name == DESIRED[0].rules[0].name),
            Self::Association => true,
            Self::Entry => {
                desired.access_entry().is_some()
                    && desired.node_role.arn == DESIRED[0].node_role.arn
            }
            Self::Profile => desired.profile.is_some(),
            Self::Fargate => desired.fargate.is_some(),
            Self::Crd => !desired.crds.is_empty(),
            Self::Deployment => {
                desired.deployment() == DESIRED[0].deployment() || {
                    let key = DESIRED[0].deployment().expect("one").key();
                    desired.objects().any(|object| object.key() == key)
                }
            }
            Self::Subnet => desired.discovery.iter().any(|id| id == "subnet-a"),
            Self::BrokenAuth => desired.aws_auth().is_some(),
            Self::UselessAuth => {
                desired.aws_auth().is_some() && desired.node_role.arn == DESIRED[0].node_role.arn
            }
        }
    }
}

/// How an account is before anything is installed.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that is there or not")]
struct Before {
    foreign: Foreign,
    agent: bool,
    spot_role: bool,
    /// None, one that takes other audiences, one that takes ours.
    provider: usize,
    /// None, a list by lines, a list on one line, and our role mapped by somebody else.
    aws_auth: usize,
    /// Tags of the subnets: none, a user's, the very discovery tag.
    subnets: [usize; 3],
    node_pool: bool,
    namespace: bool,
    old_release: bool,
}

fn before() -> impl Strategy<Value = Before> {
    let bits = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let foreign = prop_oneof![Just(Foreign::Nothing), select(&FOREIGN[..])];
    let subnets = [0_usize..3, 0..3, 0..3];
    (foreign, bits, 0_usize..3, 0_usize..4, subnets).prop_map(
        |(foreign, bits, provider, aws_auth, subnets)| {
            let (agent, spot_role, node_pool, namespace, old_release) = bits;
            Before {
                foreign,
                agent,
                spot_role,
                provider,
                aws_auth,
                subnets,
                node_pool,
                namespace,
                old_release,
            }
        },
    )
}

fn auth(text: &str) -> Value {
    json!({"metadata": {"name": "aws-auth", "resourceVersion": "1"}, "data": {"mapRoles": text}})
}

impl Before {
    fn account(&self) -> Account {
        let ours = &DESIRED[0];
        let mut account = Account {
            agent: if self.agent { AgentState::BuiltIn } else { AgentState::Missing },
            spot_role: self.spot_role,
            ..Account::default()
        };
        let arn = ours.provider_arn.clone().expect("there is an issuer");
        let audiences = ["other", "sts.amazonaws.com"].map(str::to_owned);
        if self.provider > 0 {
            let audiences = audiences[..self.provider].to_vec();
            account.providers.insert(arn, ProviderState { audiences, tags: Tags::new() });
        }
        let mapping = Mapping::of_nodes(&ours.node_role.arn);
        let element = |groups: &str| {
            format!("- rolearn: {}\n  username: x\n  groups: [{groups}]\n", mapping.role_arn)
        };
        account.aws_auth = match self.aws_auth {
            0 => None,
            1 => Some(auth("# theirs\n  - rolearn: arn:a\n    username: a\n    groups: [b]")),
            2 => Some(auth("[{rolearn: arn:a, username: a}]")),
            _ => Some(auth(&element("system:bootstrappers, system:nodes"))),
        };
        for (name, tags) in ["subnet-a", "subnet-b", "subnet-c"].into_iter().zip(self.subnets) {
            let tags = match tags {
                0 => Tags::new(),
                1 => [("team".to_owned(), "x".to_owned())].into(),
                _ => [(DISCOVERY.to_owned(), "prod".to_owned())].into(),
            };
            account.network.insert(name.to_owned(), tags);
        }
        account.network.insert("sg-cluster".to_owned(), Tags::new());
        let theirs = RoleState {
            arn: "arn:aws:iam::111122223333:role/theirs".to_owned(),
            ..RoleState::default()
        };
        account.roles.insert("theirs".to_owned(), theirs);
        if self.namespace {
            let live = json!({"metadata": {"name": "kube-system"}});
            account.objects.insert(ours.namespace.key(), live);
        }
        if self.node_pool {
            let pool = ours.node_objects.iter().find(|object| object.resource.kind == "NodePool");
            let key = pool.expect("there is one").key();
            account.objects.insert(key, json!({"metadata": {"name": "default"}, "spec": {}}));
        }
        if self.old_release {
            let revision = Revision {
                secret: helm::secret_name(1),
                number: 1,
                status: "uninstalled".to_owned(),
                hash: None,
                install_id: None,
            };
            account.releases.insert("kube-system".to_owned(), vec![revision]);
        }
        self.put_foreign(&mut account);
        account
    }

    fn put_foreign(&self, account: &mut Account) {
        let ours = &DESIRED[0];
        let other = "arn:other".to_owned();
        let role = RoleState { arn: other.clone(), ..RoleState::default() };
        let entry =
            AccessEntryState { arn: other.clone(), kind: "STANDARD".into(), tags: Tags::new() };
        let labels = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}});
        match self.foreign {
            Foreign::Nothing => {}
            Foreign::NodeRole => drop(account.roles.insert(ours.node_role.name.clone(), role)),
            Foreign::ControllerRole => {
                account.roles.insert(ours.controller_role.name.clone(), role);
            }
            Foreign::Queue => {
                account.queues.insert(ours.queue_name.clone(), QueueState::default());
            }
            Foreign::Rule => {
                account.rules.insert(ours.rules[0].name.clone(), RuleState::default());
            }
            Foreign::Association => {
                let of = &ours.service_account;
                let key = (of.namespace.clone(), of.name.clone());
                let state =
                    AssociationState { id: "a-0".into(), role_arn: other, ..Default::default() };
                account.associations.insert(key, state);
            }
            Foreign::Entry => drop(account.entries.insert(ours.node_role.arn.clone(), entry)),
            Foreign::Profile => {
                account.profiles.insert(ours.profile_name.clone(), ProfileState::default());
            }
            Foreign::Fargate => {
                account.fargates.insert(ours.fargate_name.clone(), FargateState::default());
            }
            Foreign::Crd => drop(account.objects.insert(ours.crds[0].key(), labels)),
            Foreign::Deployment => {
                let key = ours.deployment().expect("there is one").key();
                account.objects.insert(key, labels);
            }
            Foreign::Subnet => {
                let tags = [(DISCOVERY.to_owned(), "other".to_owned())].into();
                account.network.insert("subnet-a".to_owned(), tags);
            }
            Foreign::BrokenAuth => account.aws_auth = Some(auth("- rolearn: [")),
            Foreign::UselessAuth => {
                let arn = Mapping::of_nodes(&ours.node_role.arn).role_arn;
                let text = format!("- rolearn: {arn}\n  username: x\n  groups: [viewers]\n");
                account.aws_auth = Some(auth(&text));
            }
        }
    }
}

/// One command of an installation's life.
#[derive(Debug, Clone)]
struct Run {
    /// Which settings.
    way: usize,
    /// After how many steps it is killed, if it does not come to its end.
    killed_after: usize,
    /// Which of several steps is the next one.
    order: usize,
    /// What is changed from outside afterwards.
    damage: usize,
}

fn runs() -> impl Strategy<Value = Vec<Run>> {
    let killed = prop_oneof![Just(usize::MAX), 0_usize..40];
    let run = (0..WAYS.len(), killed, 0_usize..7, 0_usize..16);
    let run =
        run.prop_map(|(way, killed_after, order, damage)| Run { way, killed_after, order, damage });
    proptest::collection::vec(run, 1..4)
}

/// Somebody changes what is ours.
fn damage(account: &mut Account, desired: &Desired, kind: usize) {
    let owns = |tags: &Tags| desired.installation.owns(tags);
    let mut roles = account.roles.values_mut().filter(|it| owns(&it.tags));
    let rules = account.rules.values_mut().filter(|it| owns(&it.tags));
    let queues = account.queues.values_mut().filter(|it| owns(&it.tags));
    let associations = account.associations.values_mut().filter(|it| owns(&it.tags));
    let profiles = account.profiles.values_mut().filter(|it| owns(&it.tags));
    let entries = account.entries.values_mut().filter(|it| owns(&it.tags));
    match kind {
        0 => roles.for_each(|it| it.inline.clear()),
        1 => roles.for_each(|it| it.trust = "{}".to_owned()),
        2 => drop(roles.next().map(|it| it.boundary = Some("arn:boundary".to_owned()))),
        3 => rules.for_each(|it| it.enabled = false),
        4 => queues.for_each(|it| it.attributes.clear()),
        5 => associations.for_each(|it| it.role_arn = "other".to_owned()),
        6 => profiles.for_each(|it| it.roles.clear()),
        7 => entries.for_each(|it| it.kind = "STANDARD".to_owned()),
        8 => account.roles.retain(|_, it| !owns(&it.tags)),
        9 => account.queues.retain(|_, it| !owns(&it.tags)),
        10 => account.objects.retain(|key, live| {
            key.kind != "Deployment" || label(live, INSTALL_ID) != Some(&desired.installation.id)
        }),
        _ => {}
    }
}

/// What an uninstall does not take back, and says so: the agent and the service-linked role, which
/// others may use by now, and an audience of somebody else's provider.
fn without_what_stays(mut after: Account, before: &Account) -> Account {
    after.agent.clone_from(&before.agent);
    after.spot_role = before.spot_role;
    for (arn, provider) in &mut after.providers {
        if let Some(before) = before.providers.get(arn) {
            provider.audiences.clone_from(&before.audiences);
        }
    }
    // Node objects of ours have no part in this: their nodes would.
    after.objects.retain(|key, _| before.objects.contains_key(key) || !is_node_object(&key.kind));
    if let Some(live) = after.aws_auth.as_mut().and_then(|it| it["metadata"].as_object_mut()) {
        live.retain(|key, value| key != "annotations" || *value != json!({}));
    }
    after
}

fn is_node_object(kind: &str) -> bool {
    matches!(kind, "NodePool" | "EC2NodeClass")
}

/// The fields in which two accounts differ, so that a failure can be read.
fn differences(left: &Account, right: &Account) -> String {
    let (left, right) = (format!("{left:#?}"), format!("{right:#?}"));
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (left, right) = (lines(&left), lines(&right));
    let only = |sign: char, a: &BTreeSet<String>, b: &BTreeSet<String>| {
        a.difference(b).take(12).map(|line| format!("{sign} {}", line.trim())).collect::<Vec<_>>()
    };
    [only('-', &left, &right), only('+', &right, &left)].concat().join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_installation_s_life_ends_where_it_began(
        actual in before(),
        runs in runs(),
        uninstall_killed_after in 0_usize..30,
    ) {
        let before = actual.account();
        let mut account = before.clone();
        let mut last = &DESIRED[runs[0].way];
        for run in &runs {
            let desired = &DESIRED[run.way];
            let plan = account.plan(desired);
            prop_assert_eq!(plan.is_err(), actual.foreign.blocks(desired), "{:?}", plan.err());
            let Ok(plan) = plan else { continue };
            prop_assert!(is_runnable(&plan));
            last = desired;
            account.carry_out(&plan, (run.killed_after, run.order), desired);
            if run.killed_after >= plan.steps.len() {
                let again = account.plan(desired).expect("nothing is in the way");
                prop_assert_eq!(ids(&again), Vec::<&str>::new());
            }
            damage(&mut account, desired, run.damage);
        }
        // Once as far as it comes, and once to its end.
        account.uninstall(last, uninstall_killed_after);
        account.uninstall(last, usize::MAX);
        let left = account.uninstall(last, usize::MAX);
        prop_assert_eq!(left, 0, "the proof finds something");
        let after = without_what_stays(account, &before);
        prop_assert!(after == before, "{}", differences(&before, &after));
    }
}

//! Node Termination Handler in its two modes, as what is found and as plans.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use tenon_iam_policies::{Features, Partition, Scope};
use tenon_installer_core::apply::handler::NOWHERE;
use tenon_installer_core::apply::is_runnable;
use tenon_installer_core::kubernetes::object::Object;
use tenon_installer_core::observe::auto_scaling::HookState;
use tenon_installer_core::observe::state::{QueueState, RuleState};
use tenon_installer_core::ownership::{ADOPTED_BY, REPLICAS, Tags};
use tenon_installer_core::plan::{Action, Plan, text};
use tenon_installer_core::settings::config::Event;
use tenon_installer_core::testing::ids;

use super::fit::{self, Wanted};
use super::{Feed, Found, Handler, Kind, Ours, is_here, nodes, steps};

const ID: &str = "0123abcd";
const URL: &str = "https://sqs.eu-central-1.amazonaws.com/111122223333/nth";
const HERE: (&str, u64) = (ID, 60);
const PLAIN: Wanted = Wanted { keep_aws: false, allow_unhandled: false };

fn scope() -> Scope {
    Scope {
        partition: Partition::Aws,
        region: "eu-central-1".to_owned(),
        account: "111122223333".to_owned(),
        cluster: "prod".to_owned(),
        queue: None,
        node_roles: Vec::new(),
        features: Features::default(),
    }
}

fn workload(kind: &str, env: &[(&str, &str)]) -> Value {
    let env = env.iter().map(|(name, value)| json!({"name": name, "value": value}));
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "nth", "namespace": "kube-system"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{
            "image": "public.ecr.aws/aws-ec2/aws-node-termination-handler:v1.25.6",
            "env": env.collect::<Value>(),
        }]}}},
    })
}

fn handler(live: Value) -> Handler {
    let plural = match live["kind"].as_str() {
        Some("DaemonSet") => "daemonsets",
        _ => "deployments",
    };
    Handler::of(Object::from_json(live, plural)).expect("it is Node Termination Handler")
}

fn reader(more: &[(&str, &str)]) -> Handler {
    let mut env = vec![("ENABLE_SQS_TERMINATION_DRAINING", "true"), ("QUEUE_URL", URL)];
    env.extend(more);
    handler(workload("Deployment", &env))
}

fn arn(queue: &str) -> String {
    format!("arn:aws:sqs:eu-central-1:111122223333:{queue}")
}

fn rule(detail_type: &str, targets: &[&str]) -> RuleState {
    let targets = targets.iter().enumerate().map(|(at, queue)| (at.to_string(), arn(queue)));
    RuleState {
        arn: "arn:aws:events:eu-central-1:111122223333:rule/x".to_owned(),
        pattern: Some(json!({"detail-type": [detail_type]}).to_string()),
        enabled: true,
        targets: targets.collect(),
        tags: Tags::new(),
    }
}

fn feed(name: &str, rules: &[(&str, RuleState)]) -> Feed {
    let url = format!("https://sqs.eu-central-1.amazonaws.com/111122223333/{name}");
    let attributes = [("QueueArn".to_owned(), arn(name))].into();
    Feed {
        name: name.to_owned(),
        state: QueueState { url, attributes, tags: Tags::new() },
        rules: rules.iter().map(|(name, rule)| ((*name).to_owned(), rule.clone())).collect(),
        hooks: Vec::new(),
    }
}

/// Tenon with a queue that these events reach.
fn ours(types: &[&str]) -> Ours {
    let rules = types.iter().map(|it| (*it, rule(it, &["tenon-prod"]))).collect::<Vec<_>>();
    Ours {
        deployment: "kube-system/karpenter".to_owned(),
        lacks: None,
        queue: Some("tenon-prod".to_owned()),
        feed: Some(feed("tenon-prod", &rules)),
    }
}

const SPOT: &str = "EC2 Spot Instance Interruption Warning";
const REBALANCE: &str = "EC2 Instance Rebalance Recommendation";
const TERMINATES: &str = "EC2 Instance-terminate Lifecycle Action";

/// In queue mode: a rule of its own, one that others listen to, one of a stack, and a hook.
fn in_queue_mode() -> Found {
    let mut of_stack = rule(REBALANCE, &["nth"]);
    of_stack.tags.insert("aws:cloudformation:stack-name".to_owned(), "nodes".to_owned());
    let mut feed = feed(
        "nth",
        &[("spot", rule(SPOT, &["nth"])), ("shared", rule(TERMINATES, &["nth", "other"]))],
    );
    feed.rules.insert("of-stack".to_owned(), of_stack);
    feed.hooks.push(HookState { group: "workers".to_owned(), name: "drain".to_owned() });
    Found {
        handlers: vec![reader(&[("SQS_MSG_VISIBILITY_TIMEOUT_SEC", "60")])],
        feeds: BTreeMap::from([("nth".to_owned(), feed)]),
        unhandled: BTreeSet::new(),
    }
}

fn imds(env: &[(&str, &str)]) -> Found {
    let handlers = vec![handler(workload("DaemonSet", env))];
    Found { handlers, feeds: BTreeMap::new(), unhandled: BTreeSet::new() }
}

#[test]
fn events_are_those_that_its_rules_let_through_or_its_switches_name() {
    let of = |pattern: Value| Kind::of_pattern(&pattern.to_string());
    assert_eq!(of(json!({"detail-type": [SPOT, "Something else"]})), [Kind::Spot]);
    let matcher = |matcher: Value| of(json!({"detail-type": [matcher]}));
    assert_eq!(matcher(json!({"prefix": "EC2 Spot"})), [Kind::Spot]);
    assert_eq!(matcher(json!({"suffix": "Recommendation"})), [Kind::Rebalance]);
    assert_eq!(matcher(json!({"anything-but": [SPOT, REBALANCE]})).len(), 4);
    assert_eq!(matcher(json!({"anything-but": SPOT})).len(), 5);
    assert_eq!(matcher(json!({"equals-ignore-case": SPOT.to_uppercase()})), [Kind::Spot]);
    assert_eq!(matcher(json!({"wildcard": "EC2 *"})).len(), 6, "it may be any of them");
    assert_eq!(of(json!({"source": ["aws.health"]})), [Kind::Health]);
    assert_eq!(of(json!({"source": ["aws.ec2"]})), [Kind::Spot, Kind::State, Kind::Rebalance]);
    assert_eq!(of(json!({})).len(), 5, "everything");
    let kinds = |env: &[(&str, &str)]| imds(env).kinds().into_iter().collect::<Vec<_>>();
    assert_eq!(kinds(&[]), [Kind::Spot, Kind::Health], "its defaults");
    let env = [("ENABLE_SPOT_INTERRUPTION_DRAINING", "F"), ("ENABLE_REBALANCE_DRAINING", "1")];
    assert_eq!(kinds(&env), [Kind::Health, Kind::Rebalance]);
    let all = [Kind::Spot, Kind::Health, Kind::Rebalance, Kind::Lifecycle];
    assert_eq!(in_queue_mode().kinds().into_iter().collect::<Vec<_>>(), [all[0], all[2], all[3]]);
    // A disabled rule sends nothing.
    let mut found = in_queue_mode();
    found
        .feeds
        .get_mut("nth")
        .expect("its queue")
        .rules
        .get_mut("spot")
        .expect("its rule")
        .enabled = false;
    assert!(!found.kinds().contains(&Kind::Spot));
    assert_eq!(Kind::Rebalance.event(), Some(Event::Rebalance));
}

#[test]
fn flags_count_as_variables_do() {
    let mut live = workload("Deployment", &[]);
    live["spec"]["template"]["spec"]["containers"][0]["args"] =
        json!(["--enable-sqs-termination-draining", "--cordon-only=true", "--queue-url", URL]);
    let handler = handler(live);
    assert_eq!(handler.queue(), Some(URL));
    assert!(handler.is_on("CORDON_ONLY", false));
    assert!(!handler.is_on("DRY_RUN", false));
}

#[test]
fn a_queue_ends_empty_and_only_what_was_its_own_goes() {
    let found = in_queue_mode();
    let plan = steps::migrate(&found, &ours(&[SPOT, REBALANCE]), PLAIN, HERE);
    assert!(is_runnable(&plan), "{:?}", ids(&plan));
    insta::assert_snapshot!(text::plan_text(&plan));
    let moves = plan.steps.iter().find_map(|step| match &step.action {
        Action::MoveMessages { fed, .. } => Some(*fed),
        _ => None,
    });
    assert_eq!(moves, Some(Some(65)), "the stack's rule goes on sending");
}

#[test]
fn what_is_done_needs_no_step() {
    let ours = ours(&[SPOT]);
    let mut found = in_queue_mode();
    // Killed after the first step.
    found.handlers[0].live.body["spec"]["replicas"] = 0.into();
    let plan = steps::migrate(&found, &ours, PLAIN, HERE);
    assert!(is_runnable(&plan), "{:?}", ids(&plan));
    let left = ["hook/workers/drain", "rule/shared", "rule/spot", "messages/nth", "queue/nth"];
    assert_eq!(ids(&plan), left);
    // Killed before the queue went.
    let feed = found.feeds.get_mut("nth").expect("its queue");
    feed.rules.clear();
    feed.hooks.clear();
    let plan = steps::migrate(&found, &ours, PLAIN, HERE);
    assert_eq!(ids(&plan), ["messages/nth", "queue/nth"]);
    let Action::MoveMessages { fed, .. } = plan.steps[0].action else { panic!("it moves") };
    assert_eq!(fed, None, "nothing sends any more");
    found.feeds.clear();
    assert_eq!(ids(&steps::migrate(&found, &ours, PLAIN, HERE)), [""; 0]);
}

#[test]
fn with_keep_aws_its_messages_move_and_all_of_it_stays() {
    let wanted = Wanted { keep_aws: true, ..PLAIN };
    let plan = steps::migrate(&in_queue_mode(), &ours(&[SPOT]), wanted, HERE);
    assert_eq!(ids(&plan), ["stop/kube-system/nth", "messages/nth"]);
    assert_eq!(plan.steps[1].depends_on, ["stop/kube-system/nth"]);
}

#[test]
fn a_queue_of_a_stack_and_our_own_queue_stay() {
    let mut found = in_queue_mode();
    let tags = &mut found.feeds.get_mut("nth").expect("its queue").state.tags;
    tags.insert("aws:cloudformation:stack-name".to_owned(), "nodes".to_owned());
    let plan = steps::migrate(&found, &ours(&[SPOT]), PLAIN, HERE);
    assert!(!ids(&plan).contains(&"queue/nth"));
    assert!(plan.warnings.iter().any(|it| it.contains("queue nth belongs to")), "{plan:?}");
    // Both read one queue, and each misses what the other gets.
    let mut ours = ours(&[SPOT]);
    ours.feed = found.feeds.get("nth").cloned();
    let plan = steps::migrate(&found, &ours, PLAIN, HERE);
    assert_eq!(ids(&plan), ["stop/kube-system/nth"]);
    assert!(plan.warnings[0].contains("Tenon's own queue"), "{plan:?}");
}

#[test]
fn daemon_sets_select_no_node_any_more_and_start_again() {
    let found = imds(&[]);
    let plan = steps::migrate(&found, &ours(&[SPOT]), PLAIN, HERE);
    insta::assert_snapshot!(text::plan_text(&plan));
    let mut stopped = found;
    let body = &mut stopped.handlers[0].live.body;
    body["metadata"]["annotations"] = json!({(ADOPTED_BY): ID});
    body["spec"]["template"]["spec"]["nodeSelector"] = json!({(NOWHERE): "true"});
    assert_eq!(ids(&steps::migrate(&stopped, &ours(&[SPOT]), PLAIN, HERE)), [""; 0]);
    assert_eq!(stopped.kinds(), BTreeSet::new(), "it handles nothing");
    assert_eq!(ids(&steps::undo(&stopped, HERE)), ["start/kube-system/nth"]);
}

#[test]
fn the_way_back_needs_the_queue() {
    let mut found = in_queue_mode();
    assert_eq!(ids(&steps::undo(&found, HERE)), [""; 0], "nobody stopped it");
    let body = &mut found.handlers[0].live.body;
    body["metadata"]["annotations"] = json!({(ADOPTED_BY): ID, (REPLICAS): "2"});
    body["spec"]["replicas"] = 0.into();
    let plan = steps::undo(&found, HERE);
    assert!(is_runnable(&plan));
    insta::assert_snapshot!(text::plan_text(&plan));
    assert_eq!(ids(&steps::undo(&found, ("ffff0000", 60))), [""; 0], "another installation did");
    assert_eq!(steps::against_undo(&found, &scope(), ID), [""; 0]);
    found.feeds.clear();
    let reasons = steps::against_undo(&found, &scope(), ID);
    assert!(reasons[0].contains("is gone"), "{reasons:?}");
}

#[test]
fn each_thing_against_it_says_what_to_do() {
    let against = |found: &Found, ours: &Ours, wanted: Wanted| {
        fit::against(found, ours, &scope(), wanted).join("\n")
    };
    let both = ours(&[SPOT, REBALANCE]);
    assert_eq!(against(&in_queue_mode(), &both, PLAIN), "");
    let missing = against(&in_queue_mode(), &ours(&[SPOT]), PLAIN);
    assert!(missing.contains("rebalance recommendations"), "{missing}");
    assert!(missing.contains("add `rebalance` to interruption.events"), "{missing}");
    let mut none = both.clone();
    (none.queue, none.feed) = (None, None);
    assert!(against(&in_queue_mode(), &none, PLAIN).contains("interruption.enabled: true"));
    let mut gone = both.clone();
    gone.feed = None;
    assert!(against(&in_queue_mode(), &gone, PLAIN).contains("tenon-prod does not exist"));
    let mut late = both.clone();
    late.lacks = Some("0 of 2 pods are available, 2 up to date".to_owned());
    assert!(against(&in_queue_mode(), &late, PLAIN).contains("tenon doctor"));
    let mut found = in_queue_mode();
    found.handlers[0].live.body["metadata"]["labels"] =
        json!({"kustomize.toolkit.fluxcd.io/name": "apps"});
    assert!(against(&found, &both, PLAIN).contains("set its replicas to 0 in git"));
    found.handlers[0].live.body["spec"]["replicas"] = 0.into();
    assert_eq!(against(&found, &both, PLAIN), "", "git has stopped it");
    let mut found = imds(&[]);
    found.handlers[0].live.body["metadata"]["annotations"] =
        json!({"argocd.argoproj.io/tracking-id": "apps"});
    assert!(against(&found, &ours(&[SPOT, "AWS Health Event"]), PLAIN).contains("Argo CD"));
    let elsewhere = "https://sqs.eu-west-1.amazonaws.com/111122223333/nth";
    let mut found = in_queue_mode();
    found.handlers[0] = reader(&[("QUEUE_URL", elsewhere)]);
    assert!(against(&found, &both, PLAIN).contains("--keep-aws"));
    assert_eq!(against(&found, &both, Wanted { keep_aws: true, ..PLAIN }), "");
    let mut found = in_queue_mode();
    found.unhandled = (1..=5).map(|n| format!("ip-{n}")).collect();
    let reason = against(&found, &both, PLAIN);
    assert!(reason.contains("5 nodes are neither"), "{reason}");
    assert!(reason.contains("ip-1, ip-2, ip-3 and 2 others"), "{reason}");
    let allowed = Wanted { allow_unhandled: true, ..PLAIN };
    assert_eq!(against(&found, &both, allowed), "");
    let warnings = fit::warnings(&found, allowed).join("\n");
    assert!(warnings.contains("5 nodes are without interruption handling"), "{warnings}");
}

#[test]
fn what_is_different_afterwards_is_said() {
    let mut found = in_queue_mode();
    found.handlers[0] =
        reader(&[("WEBHOOK_URL", "https://chat"), ("CORDON_ONLY", "true"), ("DRY_RUN", "true")]);
    let warnings = fit::warnings(&found, PLAIN);
    assert_eq!(warnings.len(), 5, "{warnings:#?}");
    found.handlers[0].live.body["spec"]["replicas"] = 0.into();
    assert_eq!(fit::warnings(&found, PLAIN), [""; 0], "it does nothing any more");
}

#[test]
fn nodes_of_tenon_of_node_groups_and_of_fargate_lose_nothing() {
    let node = |name: &str, label: &str| -> Node {
        let node = json!({"metadata": {"name": name, "labels": {(label): "x"}}});
        serde_json::from_value(node).expect("a Node")
    };
    let nodes = [
        node("ours", "karpenter.sh/nodepool"),
        node("managed", "eks.amazonaws.com/nodegroup"),
        node("fargate", "eks.amazonaws.com/compute-type"),
        node("own", "alpha.eksctl.io/nodegroup-name"),
    ];
    assert_eq!(nodes::unhandled(&nodes).into_iter().collect::<Vec<_>>(), ["own"]);
}

#[test]
fn a_queue_is_here_by_its_account_and_region() {
    assert!(is_here(URL, &scope()));
    assert!(is_here("http://127.0.0.1:4566/111122223333/nth", &scope()));
    assert!(is_here("https://eu-central-1.queue.amazonaws.com/111122223333/nth", &scope()));
    assert!(!is_here("https://sqs.eu-west-1.amazonaws.com/111122223333/nth", &scope()));
    assert!(!is_here("https://queue.amazonaws.com/111122223333/nth", &scope()));
    let first = Scope { region: "us-east-1".to_owned(), ..scope() };
    assert!(is_here("https://queue.amazonaws.com/111122223333/nth", &first));
    assert!(!is_here("https://sqs.eu-central-1.amazonaws.com/444455556666/nth", &scope()));
    assert!(!is_here("nth", &scope()));
}

#[test]
fn several_workloads_end_before_their_queue_is_emptied() {
    let mut found = in_queue_mode();
    let mut second =
        workload("Deployment", &[("ENABLE_SQS_TERMINATION_DRAINING", "true"), ("QUEUE_URL", URL)]);
    second["metadata"]["name"] = "nth-2".into();
    found.handlers.push(handler(second));
    let plan: Plan = steps::migrate(&found, &ours(&[SPOT]), PLAIN, HERE);
    let moves = plan.steps.iter().find(|step| step.id == "messages/nth").expect("it moves");
    for stop in ["stop/kube-system/nth", "stop/kube-system/nth-2"] {
        assert!(moves.depends_on.iter().any(|id| id == stop), "{:?}", moves.depends_on);
    }
}

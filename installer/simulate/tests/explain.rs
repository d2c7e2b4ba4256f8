//! `tenon explain` by causes: the whole text, and what it advises. Each fixture begins with the
//! command that it is for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tenon_simulate::{
    Answer, CatalogOptions, Events, Freshness, Kind, Options, Simulation, Subject, read,
};
use tenon_state::ec2::offered::VM_MEMORY_OVERHEAD;
use tenon_state::options::FeatureGates;

const NOW: &str = "2026-01-01T12:00:00Z";

/// What each fixture is about: its file, without an extension, and the cause.
const CAUSES: &[(&str, &str)] = &[
    ("scheduling-gates", "schedulingGates"),
    ("node-selector", "nodeSelector"),
    ("architecture", "nodeSelector"),
    ("unknown-zone", "unknownZone"),
    ("node-affinity", "nodeAffinity"),
    ("taint", "taint"),
    ("too-large", "tooLarge"),
    ("larger-than-all", "tooLarge"),
    ("limit", "limit"),
    ("frozen", "frozen"),
    ("nodeclass-not-ready", "nodeClassNotReady"),
    ("no-capacity", "noCapacity"),
    ("no-spot-capacity", "noCapacity"),
    ("launch-failed", "launchFailed"),
    ("not-registered", "notRegistered"),
    ("resource-claims", "resourceClaims"),
    ("topology-spread", "topologySpread"),
    ("anti-affinity", "podAntiAffinity"),
    ("volume-zone", "volumeZone"),
    ("host-ports", "hostPorts"),
    ("no-nodepool", "noNodePool"),
    ("nodepool-not-ready", "nodePoolNotReady"),
    ("min-values", "minValues"),
    ("pod-affinity", "podAffinity"),
    ("missing-volume", "volume"),
    ("deleting", "deleting"),
    ("launching", "launching"),
    ("would-launch", "wouldLaunch"),
    ("fits", "fits"),
    ("running", "running"),
    ("not-tried", "notTried"),
    ("nodepool-contradiction", "nodePoolRequirements"),
    ("nodepool-requirements", "nodePoolRequirements"),
    ("nothing-available", "noCapacity"),
    ("reserved", "reserved"),
    ("devices", "devices"),
    ("missing-resource-claim", "devices"),
    ("restricted-label", "podSpec"),
];

/// Fixtures about an operator that plans for resource claims.
const PLANNING_FOR_CLAIMS: [&str; 2] = ["devices", "missing-resource-claim"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/explain").join(name)
}

/// The command in the first line of a fixture: kind and name.
fn command(name: &str) -> (String, String) {
    let text = std::fs::read_to_string(fixture(&format!("{name}.yaml"))).expect("a fixture");
    let first = text.lines().next().expect("a line");
    let words: Vec<&str> = first.trim_start_matches("# ").split(' ').collect();
    match words[..] {
        ["explain", kind, name] => (kind.to_owned(), name.to_owned()),
        _ => panic!("{first}"),
    }
}

fn answer(name: &str) -> Answer {
    let (kind, object) = command(name);
    explained(name, &kind, &object)
}

fn explained(name: &str, kind: &str, object: &str) -> Answer {
    let (mut simulation, subject) = simulation(name, kind, object);
    simulation.explain(&subject).expect("it is there")
}

fn simulation(name: &str, kind: &str, object: &str) -> (Simulation, Subject) {
    let gates: FeatureGates = "".parse().expect("no gates");
    let mut files = vec![fixture("base.yaml"), fixture(&format!("{name}.yaml"))];
    if name == "no-nodepool" {
        files.remove(0);
    }
    let options = Options {
        files,
        catalog: CatalogOptions {
            files: {
                let own = fixture(&format!("{name}.catalog.json"));
                vec![if own.exists() { own } else { fixture("catalog.json") }]
            },
            vm_memory_overhead_percent: VM_MEMORY_OVERHEAD,
            reserved_enis: 0,
        },
        now: NOW.parse().expect("a time"),
        seed: 0,
        ignore_dra_requests: !PLANNING_FOR_CLAIMS.contains(&name),
        policy: gates.policy(),
        feature_gates: gates,
        scheduler_config: "".parse().expect("no configuration"),
        freshness: Freshness::Latest,
        drain: Vec::new(),
    };
    let simulation =
        futures::executor::block_on(read(options, None, &|_| ())).expect("it can be read");
    let kind = match kind {
        "pod" => Kind::Pod,
        "node" => Kind::Node,
        "nodeclaim" => Kind::NodeClaim,
        _ => Kind::NodePool,
    };
    let (namespace, name) = ("shop".to_owned(), object.to_owned());
    (simulation, Subject { kind, namespace, name })
}

fn data(name: &str) -> Value {
    serde_json::to_value(answer(name)).expect("an answer is data")
}

/// All answers about pods, and those about the other kinds.
fn all() -> Vec<(String, Answer)> {
    let mut all: Vec<(String, Answer)> =
        CAUSES.iter().map(|&(name, _)| (name.to_owned(), answer(name))).collect();
    for (fixture, kind, name) in OTHERS {
        all.push((format!("{kind} of {fixture}"), explained(fixture, kind, name)));
    }
    all
}

/// Nodes, NodeClaims and NodePools: fixture, kind, name.
const OTHERS: &[(&str, &str, &str)] = &[
    ("fits", "node", "node-default-aaaaa"),
    ("fits", "nodepool", "default"),
    ("limit", "nodepool", "default"),
    ("frozen", "nodepool", "default"),
    ("nodeclass-not-ready", "nodepool", "default"),
    ("nodepool-contradiction", "nodepool", "default"),
    ("nothing-available", "nodepool", "default"),
    ("launch-failed", "nodeclaim", "default-kmxgs"),
    ("not-registered", "nodeclaim", "default-kmxgs"),
    ("launching", "nodeclaim", "default-kmxgs"),
];

#[test]
fn each_cause_is_found_and_told_with_what_to_do() {
    for (name, cause) in CAUSES {
        let answer = answer(name);
        let data = serde_json::to_value(&answer).expect("data");
        assert_eq!(data["cause"], *cause, "{name}: {}", answer.text(None));
        insta::assert_snapshot!(*name, answer.text(Some(80)));
    }
}

#[test]
fn nodes_and_node_pools_are_told_with_what_to_do() {
    let texts: Vec<String> = OTHERS
        .iter()
        .map(|(fixture, kind, name)| {
            format!("{fixture}: {}", explained(fixture, kind, name).text(Some(80)))
        })
        .collect();
    insta::assert_snapshot!("nodes-and-nodepools", texts.join("\n\n"));
}

#[test]
fn narrow_and_wide_terminals_get_the_same_words() {
    for width in [60, 80, 120] {
        for (name, answer) in all() {
            let text = answer.text(Some(width));
            let copied: Vec<String> = answer_lines(&answer);
            for line in text.lines() {
                let is_copied = copied.iter().any(|copied| copied == line.trim());
                assert!(
                    is_copied
                        || line.chars().count() <= width
                        || line.trim().split(' ').count() == 1,
                    "{name} at {width}: {line}"
                );
            }
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&text), words(&answer.text(None)), "{name} at {width}");
        }
    }
    insta::assert_snapshot!("at-60-columns", answer("too-large").text(Some(60)));
    insta::assert_snapshot!("at-120-columns", answer("too-large").text(Some(120)));
}

/// The lines of commands and YAML.
fn answer_lines(answer: &Answer) -> Vec<String> {
    let data = serde_json::to_value(answer).expect("data");
    let advice = data["advice"].as_array().expect("a list");
    let copied = advice.iter().flat_map(|it| [it["command"].as_str(), it["yaml"].as_str()]);
    copied.flatten().flat_map(|text| text.lines().map(|line| line.trim().to_owned())).collect()
}

#[test]
fn the_number_of_instance_types_falls_to_0_where_the_cause_is() {
    for (name, step) in [
        ("nodeclass-not-ready", "ready"),
        ("taint", "tolerated"),
        ("node-selector", "matchingPod"),
        ("architecture", "matchingPod"),
        ("unknown-zone", "matchingPod"),
        ("node-affinity", "matchingPod"),
        ("volume-zone", "matchingPod"),
        ("too-large", "largeEnough"),
        ("limit", "withinLimits"),
        ("topology-spread", "schedulable"),
        ("anti-affinity", "schedulable"),
        ("host-ports", "schedulable"),
    ] {
        let data = data(name);
        let funnel = &data["instanceTypes"][0];
        let steps = [
            "inCatalog",
            "ready",
            "allowedByNodePool",
            "tolerated",
            "matchingPod",
            "largeEnough",
            "withinLimits",
            "available",
            "schedulable",
        ];
        let at = steps.iter().position(|it| *it == step).expect("a step");
        for (index, it) in steps.iter().enumerate() {
            let n = funnel[it].as_u64().expect("a number");
            assert_eq!(n == 0, index >= at, "{name}: {it} is {n} in {funnel}");
        }
    }
}

#[test]
fn every_answer_says_what_to_do() {
    for (name, answer) in all() {
        let data = serde_json::to_value(&answer).expect("data");
        let advice = data["advice"].as_array().expect("a list");
        assert!(!advice.is_empty(), "{name}");
        for one in advice {
            assert_eq!(
                usize::from(one["command"].is_string()) + usize::from(one["yaml"].is_string()),
                1,
                "{name}: something to copy: {one}"
            );
            let text = one["text"].as_str().expect("a text");
            assert!(text.ends_with(':'), "{name}: {text}");
            assert!(text.starts_with(char::is_uppercase), "{name}: {text}");
        }
        let text = answer.text(None);
        assert!(text.contains("\n\nWhat to do:\n"), "{name}: {text}");
        let (facts, _) = text.split_once("\n\nWhat to do:").expect("two parts");
        for line in facts.lines() {
            assert!(!line.ends_with([':', ',', ' ']), "{name}: {line:?}");
            assert!(!line.contains("  ") || line.starts_with(' '), "{name}: {line:?}");
        }
    }
}

#[test]
fn every_piece_of_yaml_parses_and_has_the_fields_of_the_api() {
    let fields = [
        "affinity",
        "nodeSelector",
        "resources",
        "settings",
        "spec",
        "tolerations",
        "topologySpreadConstraints",
    ];
    let mut seen = 0;
    for (name, answer) in all() {
        let data = serde_json::to_value(&answer).expect("data");
        for one in data["advice"].as_array().expect("a list") {
            let Some(yaml) = one["yaml"].as_str() else { continue };
            seen += 1;
            let value: Value = serde_saphyr::from_str(yaml)
                .unwrap_or_else(|error| panic!("{name}: {error}\n{yaml}"));
            match &value {
                Value::Array(requirements) => {
                    for it in requirements {
                        let read: tenon_crds::Requirement =
                            serde_json::from_value(it.clone()).expect("a requirement");
                        assert!(!read.key.is_empty() && !read.values.is_empty(), "{yaml}");
                    }
                }
                Value::Object(map) => {
                    for key in map.keys() {
                        assert!(fields.contains(&key.as_str()), "{name}: {key}");
                    }
                    if map.contains_key("spec") || map.contains_key("settings") {
                        continue;
                    }
                    // A container's resources, or a part of a pod's specification.
                    let read = if map.contains_key("resources") {
                        let container =
                            serde_json::json!({"name": "main", "resources": map["resources"]});
                        serde_json::to_value(
                            serde_json::from_value::<k8s_openapi::api::core::v1::Container>(
                                container,
                            )
                            .expect("a container"),
                        )
                    } else {
                        let mut spec = map.clone();
                        spec.insert("containers".to_owned(), Value::Array(Vec::new()));
                        serde_json::to_value(
                            serde_json::from_value::<k8s_openapi::api::core::v1::PodSpec>(
                                Value::Object(spec),
                            )
                            .expect("a pod"),
                        )
                    };
                    let read = read.expect("data");
                    for (key, value) in map {
                        assert_eq!(
                            &read[key], value,
                            "{name}: nothing is unknown to the API\n{yaml}"
                        );
                    }
                }
                other => panic!("{name}: {other}"),
            }
        }
    }
    assert!(seen > 8, "only {seen} pieces");
}

/// The words of a command line, as a shell would split it.
fn split(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in command.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    assert!(!quoted, "{command}");
    words.push(word);
    words
}

#[test]
fn every_command_is_one_that_kubectl_or_tenon_has() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/cli.md");
    let manual = std::fs::read_to_string(manual).expect("the manual");
    let mut seen = BTreeSet::new();
    for (name, answer) in all() {
        let data = serde_json::to_value(&answer).expect("data");
        for one in data["advice"].as_array().expect("a list") {
            let Some(command) = one["command"].as_str() else { continue };
            let words = split(command);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            seen.insert(words[..2].join(" "));
            match words[0] {
                "kubectl" => kubectl(&name, &words[1..]),
                "tenon" => tenon(&name, &words[1..], &manual),
                other => panic!("{name}: {other}"),
            }
        }
    }
    assert!(seen.len() > 7, "{seen:?}");
}

/// Verbs with the flags that are used here and the number of arguments, after the kind.
fn kubectl(name: &str, words: &[&str]) {
    const KINDS: &[&str] = &[
        "ec2nodeclass",
        "ec2nodeclasses",
        "node",
        "nodeclaim",
        "nodepool",
        "nodepools",
        "nodes",
        "pod",
        "poddisruptionbudget",
        "pods",
        "pvc",
        "resourceclaims",
        "resourceslices",
    ];
    let (flags, arguments): (Vec<&str>, Vec<&str>) =
        words[1..].iter().partition(|word| word.starts_with('-'));
    let allowed: &[&str] = match words[0] {
        "get" => &["--namespace", "--label-columns", "--watch", "-o"],
        "describe" | "edit" => &["--namespace"],
        "annotate" => &["--namespace"],
        "patch" => &["--namespace", "--type", "-p"],
        "explain" => &[],
        other => panic!("{name}: kubectl {other}"),
    };
    for flag in &flags {
        let flag = flag.split('=').next().unwrap_or_default();
        assert!(allowed.contains(&flag), "{name}: kubectl {words:?}: {flag}");
    }
    if words[0] == "explain" {
        assert_eq!(arguments, ["nodepool.spec"]);
        return;
    }
    assert!(KINDS.contains(&arguments[0]), "{name}: {words:?}");
    match words[0] {
        "get" => {
            if let Some(at) = words.iter().position(|word| *word == "-o") {
                assert!(["yaml", "wide"].contains(&words[at + 1]), "{name}: {words:?}");
            }
        }
        "patch" => {
            let at = words.iter().position(|word| *word == "-p").expect("a patch");
            let patch: Value = serde_json::from_str(words[at + 1]).expect("JSON");
            assert_eq!(flags.contains(&"--type=json"), patch.is_array(), "{name}");
            assert_eq!(flags.contains(&"--type=merge"), patch.is_object(), "{name}");
        }
        "annotate" => assert_eq!(arguments.len(), 3, "{name}: {words:?}"),
        _ => assert_eq!(arguments.len(), 2, "{name}: {words:?}"),
    }
}

/// The commands and options of the manual, which is written from the program's own definitions.
fn tenon(name: &str, words: &[&str], manual: &str) {
    let depth = if words[0] == "iam" { 2 } else { 1 };
    let heading = format!("\n## `tenon {}`\n", words[..depth].join(" "));
    let (_, section) = manual.split_once(&heading).unwrap_or_else(|| panic!("{name}: {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    for flag in words[depth..].iter().filter(|word| word.starts_with('-')) {
        let flag = flag.split('=').next().unwrap_or_default();
        assert!(section.contains(&format!("{flag} ")), "{name}: tenon {words:?}: {flag}");
    }
    if words[0] == "explain" {
        assert!(["pod", "node", "nodeclaim", "nodepool"].contains(&words[1]), "{name}: {words:?}");
    }
}

#[test]
fn the_screens_in_the_documentation_are_what_is_printed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/design/face.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let printed: Vec<(String, String)> = CAUSES
        .iter()
        .map(|(name, _)| {
            let (kind, object) = command(name);
            let answer = answer(name).text(Some(80));
            ((*name).to_owned(), format!("$ tenon explain {kind} {object} -n shop\n{answer}\n"))
        })
        .collect();
    let (_, section) = page.split_once("\n## Explain\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let screens: Vec<&str> = section
        .split("```text\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    for screen in &screens {
        let first = screen.lines().next().unwrap_or_default();
        assert!(
            printed.iter().any(|(_, text)| text == screen),
            "no fixture prints the screen of `{first}`:\n{screen}"
        );
    }
    assert!(screens.len() >= 13, "one for each cause, not {}", screens.len());
}

/// A cluster that answers lists of events, or refuses them, and the requests for them.
fn cluster(events: Option<Value>) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        requests.lock().expect("not poisoned").push(request.uri().to_string());
        let is_claims = request.uri().to_string().contains("NodeClaim");
        let (status, body) = match &events {
            Some(events) => {
                let items = if is_claims { events.clone() } else { serde_json::json!([]) };
                let list = serde_json::json!({"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": items});
                (200, list)
            }
            None => (
                403,
                serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403}),
            ),
        };
        let body = kube::client::Body::from(body.to_string().into_bytes());
        let response = http::Response::builder().status(status).body(body);
        async move { response }
    });
    (kube::Client::new(service, "default"), asked)
}

#[tokio::test]
async fn events_of_a_running_cluster_count_and_are_not_necessary() {
    let event = serde_json::json!([{
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "NodeClaim", "name": "default-x7k2p"},
        "reason": "InsufficientCapacityError",
        "message": "NodeClaim default-x7k2p event: no capacity",
        "lastTimestamp": "2026-01-01T11:59:00Z",
    }]);
    let (client, asked) = cluster(Some(event));
    let (mut simulation, subject) = simulation("would-launch", "pod", "new");
    let events = Events::about(&client, &subject).await.expect("they are listed");
    simulation.add_events(&events);
    let text = simulation.explain(&subject).expect("it is there").text(None);
    assert!(text.contains("at 11:59:00Z: no capacity"), "{text}");
    let asked = asked.lock().expect("not poisoned").clone();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[0].starts_with("/api/v1/namespaces/default/events?"), "{asked:?}");
    assert!(asked[1].starts_with("/api/v1/namespaces/shop/events?"), "{asked:?}");
    assert!(asked.iter().all(|uri| uri.contains("limit=") && uri.contains("fieldSelector=")));

    let (client, _) = cluster(None);
    Events::about(&client, &subject).await.expect_err("they are refused");
    simulation.explain(&subject).expect("an answer all the same");
}

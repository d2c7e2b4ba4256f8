//! Manifests in, a report as data out. Nothing here needs a cluster or the program; what users see
//! of it is tested where the commands are.

use std::path::{Path, PathBuf};

use tenon_simulate::{CatalogOptions, Freshness, Kind, Loops, Options, Subject, read};
use tenon_state::ec2::offered::VM_MEMORY_OVERHEAD;
use tenon_state::options::FeatureGates;

const NOW: &str = "2026-01-01T12:00:00Z";

/// A folder with copies of the fixtures.
struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["catalog.json", "pool.yaml", "workloads.yaml", "cluster.yaml"] {
            std::fs::copy(fixture(name), directory.path().join(name)).expect("copied");
        }
        Self { directory }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).expect("written");
    }

    /// What the command line of this form answers; files are found in the folder.
    fn json(&self, command: &str) -> serde_json::Value {
        let path = |name: &str| self.directory.path().join(name);
        let gates: FeatureGates = "".parse().expect("no gates");
        let mut options = Options {
            files: Vec::new(),
            catalog: CatalogOptions {
                files: Vec::new(),
                vm_memory_overhead_percent: VM_MEMORY_OVERHEAD,
                reserved_enis: 0,
            },
            now: NOW.parse().expect("a time"),
            seed: 0,
            ignore_dra_requests: true,
            policy: gates.policy(),
            feature_gates: gates,
            scheduler_config: "".parse().expect("no configuration"),
            freshness: Freshness::Latest,
            drain: Vec::new(),
        };
        let (mut loops, mut save, mut namespace) = (Loops::Both, None, "default");
        let mut plain = Vec::new();
        let mut words = command.split_whitespace();
        while let Some(word) = words.next() {
            if !word.starts_with('-') {
                plain.push(word);
                continue;
            }
            let (flag, value) = match word.split_once('=') {
                Some(pair) => pair,
                None => (word, words.next().expect("a value")),
            };
            match flag {
                "-f" => options.files.push(path(value)),
                "-n" => namespace = value,
                "--catalog" => options.catalog.files.push(path(value)),
                "--vm-memory-overhead-percent" => {
                    options.catalog.vm_memory_overhead_percent = value.parse().expect("a share");
                }
                "--drain" => options.drain.push(value.parse().expect("a selector")),
                "--save" => save = Some(path(value)),
                "--what" => {
                    loops = if value == "provision" { Loops::Provision } else { Loops::Disrupt };
                }
                "--ignore-dra-requests" => options.ignore_dra_requests = value == "true",
                "--feature-gates" => {
                    options.feature_gates = value.parse().expect("gates");
                    options.policy = options.feature_gates.policy();
                }
                other => panic!("{other}"),
            }
        }
        let read = read(options, None, &|_| ());
        let mut simulation = futures::executor::block_on(read).expect("it can be read");
        if let Some(path) = save {
            simulation.save(&path).expect("it can be saved");
        }
        let answer = match plain[..] {
            ["simulate"] => serde_json::to_value(simulation.outcome(loops)),
            ["explain", kind, name] => {
                let kind = match kind {
                    "pod" => Kind::Pod,
                    "node" => Kind::Node,
                    _ => Kind::NodePool,
                };
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                let answer = simulation.explain(&Subject { kind, namespace, name });
                serde_json::to_value(answer.expect("it is there"))
            }
            _ => panic!("{plain:?}"),
        };
        answer.expect("an answer is data")
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[test]
fn the_plan_as_data_has_everything() {
    let bench = Bench::new();
    let outcome = bench.json("simulate -f pool.yaml -f workloads.yaml --catalog catalog.json");
    assert_eq!(outcome["schema"], "tenon.sh/simulation/v1alpha1");
    let launch = &outcome["launches"][0];
    assert_eq!(launch["nodePool"], "default");
    assert_eq!(launch["pricePerHour"], 0.1);
    assert_eq!(
        launch["instanceTypes"][0],
        serde_json::json!({"name": "small", "pricePerHour": 0.1})
    );
    assert_eq!(
        launch["instanceTypes"][1],
        serde_json::json!({"name": "large", "pricePerHour": 0.4})
    );
    assert_eq!(launch["pods"][2], serde_json::json!({"namespace": "default", "name": "web-2"}));
    assert_eq!(launch["requests"]["cpu"], "1600m");
    let waiting = &outcome["unschedulable"][0];
    assert_eq!((&waiting["namespace"], &waiting["name"]), (&"default".into(), &"huge".into()));
    let reason = &waiting["reasons"][0];
    assert_eq!(reason["nodePool"], "default");
    assert_eq!(reason["reason"]["resources"]["requested"], 64_000);
    assert_eq!(outcome["skippedKinds"], serde_json::json!({"networking.k8s.io/v1 Ingress": 1}));
    let totals = &outcome["totals"];
    for (field, expected) in [
        ("pods", 4.0),
        ("scheduled", 3.0),
        ("nodesBefore", 0.0),
        ("nodesAfter", 1.0),
        ("pricePerHourBefore", 0.0),
        ("pricePerHourAfter", 0.1),
    ] {
        assert_eq!(totals[field].as_f64(), Some(expected), "{field}");
    }
    assert!(totals["planSeconds"].is_f64());
}

#[test]
fn pending_pods_go_to_nodes_that_are_there_first() {
    let bench = Bench::new();
    let outcome =
        bench.json("simulate -f pool.yaml -f cluster.yaml -f workloads.yaml --catalog catalog.json --what provision");
    assert_eq!(outcome["launches"].as_array().expect("a list").len(), 0);
    assert_eq!(outcome["placements"][0]["node"], "default-aaaaa");
    assert_eq!(outcome["placements"][0]["pods"].as_array().expect("a list").len(), 3);
    assert_eq!(outcome["totals"]["pods"], 4);
    assert_eq!(outcome["totals"]["scheduled"], 3);
}

#[test]
fn lists_json_and_folders_say_the_same_as_documents() {
    let bench = Bench::new();
    let documents = bench.json("simulate -f pool.yaml -f workloads.yaml --catalog catalog.json");
    let folder = bench.directory.path().join("folder");
    std::fs::create_dir(&folder).expect("made");
    for name in ["pool.yaml", "workloads.yaml"] {
        std::fs::copy(fixture(name), folder.join(name)).expect("copied");
    }
    let items: Vec<serde_json::Value> = ["pool.yaml", "workloads.yaml"]
        .iter()
        .flat_map(|name| {
            let text = std::fs::read_to_string(fixture(name)).expect("read");
            serde_saphyr::from_multiple::<serde_json::Value>(&text).expect("YAML")
        })
        .collect();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
    bench.write("list.json", &serde_json::to_string_pretty(&list).expect("JSON"));
    // In flow style, which is not cut by lines.
    bench.write("list.yaml", &format!("--- {list}\n"));
    for input in ["folder", "list.json", "list.yaml"] {
        let outcome = bench.json(&format!("simulate -f {input} --catalog catalog.json"));
        assert_eq!(outcome["launches"], documents["launches"], "{input}");
        assert_eq!(outcome["unschedulable"], documents["unschedulable"], "{input}");
    }
}

/// The fixture's NodePool, of an EC2NodeClass.
fn ec2_pool() -> String {
    let text = std::fs::read_to_string(fixture("pool.yaml")).expect("read");
    let pool = text.split("---").next().expect("the NodePool");
    pool.replace("group: karpenter.kwok.sh", "group: karpenter.k8s.aws")
        .replace("kind: KWOKNodeClass", "kind: EC2NodeClass")
}

const EC2_CLASS: &str = "---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: node
  subnetSelectorTerms: [{id: subnet-a}]
  securityGroupSelectorTerms: [{id: sg-a}]
status:
  subnets: [{id: subnet-a, zone: us-west-2a, zoneID: usw2-az1}]
";

#[test]
fn the_items_of_a_typed_list_need_no_kind() {
    let bench = Bench::new();
    let items = "- metadata: {name: a}\n  spec: {containers: [{resources: {requests: {cpu: 1}}}]}\n- metadata: {name: b}\n";
    let head = "apiVersion: v1\nkind: PodList\n";
    bench.write("block.yaml", &format!("{head}items:\n{items}"));
    let list: serde_json::Value =
        serde_saphyr::from_str(&format!("{head}items:\n{items}")).expect("YAML");
    bench.write("list.json", &list.to_string());
    bench.write("flow.yaml", &format!("--- {list}\n"));
    for input in ["block.yaml", "list.json", "flow.yaml"] {
        let outcome =
            bench.json(&format!("simulate -f pool.yaml -f {input} --catalog catalog.json"));
        assert_eq!(outcome["totals"]["scheduled"], 2, "{input}");
    }
}

#[test]
fn types_of_a_file_have_the_labels_and_the_room_of_ec2s() {
    let bench = Bench::new();
    let offering = |zone: &str, price: f64| {
        serde_json::json!({"Price": price, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]})
    };
    let entry = |name: &str, memory: &str, price: f64| {
        serde_json::json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
            "resources": {"cpu": "2", "memory": memory, "pods": "110", "ephemeral-storage": "20Gi"},
            "offerings": [offering("us-west-2a", price), offering("us-west-2b", price / 2.0)]})
    };
    let types = [entry("m5.large", "8Gi", 0.096), entry("t2.large", "8Gi", 0.05)];
    bench.write("types.json", &serde_json::to_string(&types).expect("JSON"));
    let nitro = "      requirements:\n      - {key: karpenter.k8s.aws/instance-hypervisor, operator: In, values: [nitro]}\n";
    bench.write("ec2.yaml", &(ec2_pool().replacen("      requirements:\n", nitro, 1) + EC2_CLASS));
    // What a node of the type has for pods is less than the file's 8 GiB; the smaller of these two
    // pods fits beside the daemon, the larger nowhere.
    bench.write(
        "pods.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: fits}\nspec: {containers: [{resources: {requests: {cpu: 100m, memory: 6900Mi}}}]}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {name: large}\nspec: {containers: [{resources: {requests: {cpu: 100m, memory: 6910Mi}}}]}\n",
    );
    let outcome = bench.json("simulate -f ec2.yaml -f pods.yaml --catalog types.json");
    let launch = &outcome["launches"][0];
    assert_eq!(
        launch["instanceTypes"],
        serde_json::json!([{"name": "m5.large", "pricePerHour": 0.096}]),
        "t2 runs on Xen, and there is no subnet in the cheaper zone"
    );
    assert_eq!(launch["pods"], serde_json::json!([{"namespace": "default", "name": "fits"}]));
    assert_eq!(outcome["unschedulable"][0]["name"], "large");
    assert_eq!(outcome["warnings"], serde_json::json!([]));
    let smaller = bench.json(
        "simulate -f ec2.yaml -f pods.yaml --catalog types.json --vm-memory-overhead-percent 0.01",
    );
    assert_eq!(smaller["totals"]["scheduled"], 2, "with the operator's own setting");
}

#[test]
fn ec2s_own_description_of_a_type_is_taken_too() {
    let bench = Bench::new();
    let described = serde_json::json!({"InstanceTypes": [{
        "InstanceType": "m99.large", "Hypervisor": "nitro", "SupportedUsageClasses": ["on-demand"],
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "VCpuInfo": {"DefaultVCpus": 2}, "MemoryInfo": {"SizeInMiB": 8192},
        "NetworkInfo": {"MaximumNetworkInterfaces": 3, "Ipv4AddressesPerInterface": 10}}]});
    let listed = serde_json::json!([{"name": "m99.large", "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": {"cpu": "2", "memory": "8Gi"}, "offerings": [{"Price": 0.1, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2a"]}]}]}]);
    bench.write("described.json", &described.to_string());
    bench.write("listed.json", &listed.to_string());
    bench.write("ec2.yaml", &(ec2_pool() + EC2_CLASS));
    let alone = bench.json("simulate -f ec2.yaml --catalog listed.json");
    let warning = alone["warnings"][0].as_str().expect("a warning");
    assert!(warning.contains("m99.large") && warning.contains("describe-instance-types"));
    let both = bench
        .json("simulate -f ec2.yaml --catalog listed.json --catalog described.json --save s.json");
    assert_eq!(both["warnings"], serde_json::json!([]));
    let saved = std::fs::read_to_string(bench.directory.path().join("s.json")).expect("saved");
    let saved: serde_json::Value = serde_json::from_str(&saved).expect("JSON");
    let kind = &saved["catalogs"][0]["instanceTypes"][0];
    assert_eq!(kind["capacity"]["pods"], 29, "3 interfaces with 9 addresses for pods, and 2 more");
}

#[test]
fn pods_for_windows_get_nodes_of_a_windows_class_and_no_others_do() {
    let bench = Bench::new();
    bench.write("ec2.yaml", &(ec2_pool() + &EC2_CLASS.replace("al2023@", "windows2022@")));
    let pod = |name: &str, os: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{nodeSelector: {{kubernetes.io/os: {os}}}, containers: [{{resources: {{requests: {{cpu: 100m, vpc.amazonaws.com/PrivateIPv4Address: 1}}, limits: {{vpc.amazonaws.com/PrivateIPv4Address: 1}}}}}}]}}\n---\n"
        )
    };
    bench.write("pods.yaml", &(pod("iis", "windows") + &pod("nginx", "linux")));
    let outcome = bench.json("simulate -f ec2.yaml -f pods.yaml");
    let launches = outcome["launches"].as_array().expect("a list");
    assert_eq!(launches.len(), 1, "{outcome:#}");
    assert!(launches[0]["pods"].to_string().contains("iis"), "{launches:?}");
    assert!(!launches[0].to_string().contains("m6g."), "Windows runs on amd64: {launches:?}");
    assert!(outcome["unschedulable"].to_string().contains("nginx"), "{outcome:#}");
}

#[test]
fn capacity_reservations_are_used_as_far_as_a_file_says_that_they_have_room() {
    let bench = Bench::new();
    let reserved = "  capacityReservations:\n  - {id: cr-a, availabilityZone: us-west-2a, instanceType: m5.large, instanceMatchCriteria: targeted, ownerID: '111122223333'}\n";
    let pool = ec2_pool().replace("values: [on-demand]", "values: [on-demand, reserved]");
    bench.write("ec2.yaml", &(pool + EC2_CLASS + reserved));
    bench.write(
        "pods.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{resources: {requests: {cpu: 1500m}}}]}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: [{resources: {requests: {cpu: 1500m}}}]}\n",
    );
    let room = serde_json::json!({"CapacityReservations": [{"CapacityReservationId": "cr-a", "AvailableInstanceCount": 1}]});
    bench.write("room.json", &room.to_string());
    let reserved = |outcome: &serde_json::Value| -> usize {
        let launches = outcome["launches"].as_array().expect("launches").iter();
        launches.filter(|launch| launch["capacityTypes"] == serde_json::json!(["reserved"])).count()
    };
    let alone = bench.json("simulate -f ec2.yaml -f pods.yaml");
    assert_eq!(reserved(&alone), 0);
    let warning = alone["warnings"][0].as_str().expect("a warning");
    assert!(warning.contains("cr-a") && warning.contains("describe-capacity-reservations"));
    let told = bench.json("simulate -f ec2.yaml -f pods.yaml --catalog room.json");
    assert_eq!(told["warnings"], serde_json::json!([]));
    assert_eq!(reserved(&told), 1, "room for one of the two");
    assert_eq!(told["totals"]["scheduled"], 2);
}

#[test]
fn the_price_comes_with_its_lower_bound_or_with_why_there_is_none() {
    let bench = Bench::new();
    let totals = |args: &str| bench.json(args)["totals"].clone();
    let input = "simulate -f pool.yaml -f workloads.yaml --catalog catalog.json";
    let given = totals(input);
    let bound = given["lowerBoundPerHour"].as_f64().expect("a bound");
    assert!(bound > 0.0 && bound <= 0.1, "{bound}");
    assert_eq!(given["lowerBoundOmitted"], serde_json::Value::Null);
    for (input, why) in [
        (&*format!("{input} --what disrupt"), "pending pods were not planned for"),
        ("simulate -f pool.yaml --catalog catalog.json", "nothing would be launched"),
    ] {
        let totals = totals(input);
        assert_eq!(totals["lowerBoundPerHour"], serde_json::Value::Null);
        assert_eq!(totals["lowerBoundOmitted"], why);
    }
}

#[test]
fn pods_with_resource_claims_are_planned_for_when_it_is_asked_for() {
    let bench = Bench::new();
    bench.write("devices.yaml", include_str!("fixtures/devices.yaml"));
    let input = "simulate -f pool.yaml -f devices.yaml --catalog catalog.json --what provision";
    let ignored = bench.json(input);
    assert_eq!(ignored["unschedulable"].as_array().map(Vec::len), Some(4), "{ignored}");
    let outcome = bench.json(&format!("{input} --ignore-dra-requests=false"));
    let placed = &outcome["placements"][0];
    assert_eq!(placed["node"], "with");
    assert_eq!(placed["pods"].as_array().map(Vec::len), Some(2), "{outcome}");
    // Machines of that type have had two devices each; of others nothing is known.
    let types = outcome["launches"][0]["instanceTypes"].as_array().expect("types");
    assert_eq!(types.iter().map(|kind| &kind["name"]).collect::<Vec<_>>(), ["small"]);
    let waiting = &outcome["unschedulable"][0];
    assert_eq!(waiting["name"], "picky");
    assert_eq!(waiting["reasons"][0]["reason"]["devices"]["class"], "gpu");
}

/// A CapacityBuffer as people write it.
fn buffer(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {{ name: {name} }}\nspec: {spec}\n---\n"
    )
}

#[test]
fn every_price_is_the_one_that_overlays_give() {
    let bench = Bench::new();
    let args = "simulate -f pool.yaml -f workloads.yaml --catalog catalog.json";
    bench.write(
        "overlay.yaml",
        "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: { name: rebate }\nspec: { requirements: [{ key: kubernetes.io/os, operator: Exists }], priceAdjustment: \"-50%\" }\n",
    );
    let prices = |flags: &str| {
        let outcome = bench.json(&format!("{args} {flags}"));
        let launch = &outcome["launches"][0];
        let cheapest = &launch["instanceTypes"][0]["pricePerHour"];
        let bound = &outcome["totals"]["lowerBoundPerHour"];
        [&launch["pricePerHour"], cheapest, bound].map(|price| price.as_f64().expect("a price"))
    };
    let (list, half) = (prices(""), prices("-f overlay.yaml"));
    for (list, half) in list.into_iter().zip(half) {
        assert!((list / half - 2.0).abs() < 0.001, "{list} and {half}");
    }
}

#[test]
fn deletion_costs_count_unless_they_are_the_operators_to_write() {
    let bench = Bench::new();
    bench.write(
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: { name: a, annotations: { controller.kubernetes.io/pod-deletion-cost: \"7\" } }\nspec: { containers: [{ name: main }] }\n",
    );
    let cost = |flags: &str| {
        bench.json(&format!(
            "simulate -f pool.yaml -f pod.yaml --catalog catalog.json --save s.json {flags}"
        ));
        let saved = std::fs::read_to_string(bench.directory.path().join("s.json")).expect("saved");
        let saved: serde_json::Value = serde_json::from_str(&saved).expect("JSON");
        saved["pods"][0]["deletionCost"].as_i64()
    };
    assert_eq!(cost(""), Some(7));
    assert_eq!(cost("--feature-gates=PodDeletionCostManagement=true"), Some(0));
}

/// Every field name of an answer. Maps whose keys are data count by their own name only.
fn fields(value: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
    const MAPS: [&str; 6] =
        ["requests", "allocatable", "missing", "limits", "excludes", "skippedKinds"];
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                found.insert(key.clone());
                if !MAPS.contains(&key.as_str()) {
                    fields(value, found);
                }
            }
        }
        serde_json::Value::Array(list) => list.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_an_answer_is_in_the_manual() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/simulate.md");
    let manual = std::fs::read_to_string(manual).expect("the manual");
    let words: std::collections::BTreeSet<&str> =
        manual.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let bench = Bench::new();
    let all = "-f pool.yaml -f cluster.yaml -f workloads.yaml --catalog catalog.json";
    let mut found = std::collections::BTreeSet::new();
    bench.write(
        "buffer.yaml",
        &buffer(
            "web",
            "{ scalableRef: { apiGroup: apps, kind: Deployment, name: web }, replicas: 1 }",
        ),
    );
    for command in [
        format!("simulate {all}"),
        "simulate -f pool.yaml -f workloads.yaml -f buffer.yaml --catalog catalog.json".to_owned(),
        format!("explain pod huge {all}"),
        format!("explain pod lonely -n team {all}"),
        format!("explain node node-a {all}"),
        format!("explain nodepool default {all}"),
    ] {
        fields(&bench.json(&command), &mut found);
    }
    let missing: Vec<&String> =
        found.iter().filter(|field| !words.contains(field.as_str())).collect();
    assert_eq!(missing, Vec::<&String>::new());
}

/// Two nodes of a node group with pods of every kind, and one node of a NodePool.
const GROUP: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata:
    name: old-1
    labels: &labels
      eks.amazonaws.com/nodegroup: workers
      eks.amazonaws.com/capacityType: ON_DEMAND
      kubernetes.io/arch: amd64
      kubernetes.io/os: linux
      node.kubernetes.io/instance-type: large
      topology.kubernetes.io/zone: zone-a
  spec: { providerID: "aws:///zone-a/i-1" }
  status: { capacity: { cpu: "8", memory: 32Gi, pods: "64" } }
- apiVersion: v1
  kind: Node
  metadata: { name: old-2, labels: { eks.amazonaws.com/nodegroup: workers } }
  spec: { providerID: "aws:///zone-a/i-2" }
  status: { capacity: { cpu: "8", memory: 32Gi, pods: "64" } }
- apiVersion: v1
  kind: Node
  metadata: { name: stays, labels: { eks.amazonaws.com/nodegroup: system } }
  spec: { providerID: "aws:///zone-a/i-3" }
  status: { capacity: { cpu: "1", memory: 1Gi, pods: "4" } }
"#;

fn pod_of_group(name: &str, node: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: team\n  labels: \
         {{ app: {name} }}\n{more}spec:\n  nodeName: {node}\n  containers:\n  - name: main\n    \
         resources: {{ requests: {{ cpu: \"2\", memory: 4Gi }} }}\nstatus: {{ phase: Running }}\n"
    )
}

fn owned_by(kind: &str) -> String {
    format!(
        "  ownerReferences:\n  - {{ apiVersion: apps/v1, kind: {kind}, name: x, uid: u, \
         controller: true }}\n"
    )
}

#[test]
fn drained_nodes_are_gone_and_their_pods_need_another_place() {
    let bench = Bench::new();
    let set = owned_by("ReplicaSet");
    let kept = format!(
        "{set}  annotations: {{ cluster-autoscaler.kubernetes.io/safe-to-evict: \"false\" }}\n"
    );
    let budget = "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: { name: db, \
                  namespace: team }\nspec: { minAvailable: 1, selector: { matchLabels: { app: db } \
                  } }\n";
    let group = [
        GROUP.to_owned(),
        pod_of_group("web", "old-1", &set),
        pod_of_group("db", "old-2", &set),
        pod_of_group("job", "old-2", &kept),
        pod_of_group("bare", "old-1", ""),
        pod_of_group("agent", "old-1", &owned_by("DaemonSet")),
        pod_of_group("static", "old-1", &owned_by("Node")),
        budget.to_owned(),
    ];
    bench.write("group.yaml", &group.concat());
    let input = "simulate -f pool.yaml -f group.yaml --catalog catalog.json";
    let before = bench.json(input);
    assert_eq!(before.get("drained"), None);
    assert_eq!(before["totals"]["nodesBefore"], 3);
    let selector = "--drain eks.amazonaws.com/nodegroup=workers";
    let outcome = bench.json(&format!("{input} {selector}"));
    let drained = &outcome["drained"];
    assert_eq!(drained["nodes"], serde_json::json!(["old-1", "old-2"]));
    assert_eq!(drained["pods"], 3);
    assert_eq!(drained["lost"], serde_json::json!([{"namespace": "team", "name": "bare"}]));
    let held = drained["held"].as_array().expect("a list").iter();
    let held = held.map(|it| format!("{}: {}", it["name"], it["reason"])).collect::<Vec<_>>();
    assert_eq!(
        held,
        [
            r#""db": "PodDisruptionBudget db allows no disruption""#,
            r#""job": "the annotation cluster-autoscaler.kubernetes.io/safe-to-evict=false""#,
        ]
    );
    // The one whose labels say what it is has a price.
    assert!(drained["pricePerHour"].as_f64() > Some(0.0), "{drained}");
    assert_eq!(drained["withoutPrice"], 1);
    let totals = &outcome["totals"];
    assert_eq!((&totals["pods"], &totals["scheduled"]), (&3.into(), &3.into()), "{outcome:#}");
    assert_eq!(totals["nodesBefore"], 3);
    let launched = outcome["launches"].as_array().expect("a list");
    let pods = launched.iter().map(|it| it["pods"].as_array().expect("a list").len());
    assert_eq!(pods.sum::<usize>(), 3);
    // On the NodePool's nodes, and not on the one that stays: it is too small.
    assert_eq!(outcome["placements"], serde_json::json!([]));
}

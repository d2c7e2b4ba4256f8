//! Workloads that mix everything kube-scheduler looks at, made from a seed.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Map, Value, json};

pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const CAPACITY: &str = "karpenter.sh/capacity-type";
const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];
/// Where pods are; the second one has the label `tenant`.
pub(crate) const NAMESPACES: [&str; 2] = ["default", "oracle"];

/// The NodePools of all workloads, without their NodeClass: one for everybody, one that pods have
/// to tolerate, one that is only for spot.
pub(crate) fn pools() -> Vec<(&'static str, Value, Value)> {
    let one_of =
        |key: &str, values: &[&str]| json!({ "key": key, "operator": "In", "values": values });
    let linux = one_of("kubernetes.io/os", &["linux"]);
    let small =
        json!({ "key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["33"] });
    vec![
        ("everybody", json!([linux, small]), json!({ "weight": 10 })),
        (
            "tolerated",
            json!([linux, small, one_of(CAPACITY, &["on-demand"])]),
            json!({
                "weight": 50,
                "template": { "spec": { "taints": [{ "key": "dedicated", "value": "data", "effect": "NoSchedule" }] } },
            }),
        ),
        (
            "spot",
            json!([
                linux,
                small,
                one_of(CAPACITY, &["spot"]),
                one_of("kubernetes.io/arch", &["arm64"])
            ]),
            json!({ "weight": 5 }),
        ),
    ]
}

/// One application: what its pods are like, and how many of them there are.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) namespace: &'static str,
    pub(crate) replicas: usize,
    /// Labels and spec of a pod.
    pub(crate) template: Value,
    /// The zone of the volume that its pods share.
    pub(crate) volume: Option<&'static str>,
}

impl App {
    /// Whether all its pods have to be on one host.
    pub(crate) fn wants_one_host(&self) -> bool {
        let terms = &self.template["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        terms.as_array().is_some_and(|terms| terms.iter().any(|term| term["topologyKey"] == HOST))
    }
}

/// So many applications. Their names begin with `prefix`.
pub(crate) fn apps(seed: u64, prefix: &str, count: usize) -> Vec<App> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..count).map(|index| app(&mut rng, prefix, index)).collect()
}

fn app(rng: &mut StdRng, prefix: &str, index: usize) -> App {
    let name = format!("{prefix}-{index}");
    let mut app = Draft {
        labels: Map::from_iter([
            ("app".to_owned(), json!(name)),
            ("pod-template-hash".to_owned(), json!(format!("{:x}", rng.random::<u16>()))),
            ("tier".to_owned(), json!(["front", "back", "batch"].choose(rng))),
        ]),
        selector: Map::new(),
        required: Vec::new(),
        affinity: Map::new(),
        spread: Vec::new(),
        tolerations: Vec::new(),
        port: None,
        volume: None,
        replicas: rng.random_range(1..8),
        name,
    };
    // Two or three kinds of rules for each application, so that they meet each other.
    let mut rules: Vec<fn(&mut Draft, &mut StdRng)> = vec![
        Draft::choose_labels,
        Draft::require_labels,
        Draft::prefer,
        Draft::tolerate,
        Draft::spread_zones,
        Draft::spread_hosts,
        Draft::keep_apart,
        Draft::stay_together,
        Draft::avoid_others,
        Draft::take_a_port,
        Draft::mount_a_volume,
    ];
    rules.shuffle(rng);
    for rule in rules.iter().take(rng.random_range(0..4)) {
        rule(&mut app, rng);
    }
    let requests = json!({
        "cpu": format!("{}m", [50, 100, 250, 500, 1000, 1900, 3500].choose(rng).expect("some")),
        "memory": format!("{}Mi", [64, 256, 700, 2048, 6000].choose(rng).expect("some")),
    });
    let namespace = if rng.random_bool(0.2) { NAMESPACES[1] } else { NAMESPACES[0] };
    app.finish(namespace, &requests)
}

/// An application in the making.
struct Draft {
    name: String,
    replicas: usize,
    labels: Map<String, Value>,
    selector: Map<String, Value>,
    required: Vec<Value>,
    affinity: Map<String, Value>,
    spread: Vec<Value>,
    tolerations: Vec<Value>,
    port: Option<u16>,
    volume: Option<&'static str>,
}

impl Draft {
    fn choose_labels(&mut self, rng: &mut StdRng) {
        let (key, values): (&str, &[&str]) = *[
            (ZONE, &ZONES[..]),
            (CAPACITY, &["spot", "on-demand"][..]),
            ("kubernetes.io/arch", &["amd64", "arm64"][..]),
            ("karpenter.kwok.sh/instance-family", &["c", "s", "m"][..]),
        ]
        .choose(rng)
        .expect("some");
        self.selector.insert(key.to_owned(), json!(values.choose(rng)));
    }

    fn require_labels(&mut self, rng: &mut StdRng) {
        let zone = *ZONES.choose(rng).expect("some");
        let first = match rng.random_range(0..3) {
            0 => json!({ "key": ZONE, "operator": "NotIn", "values": [zone] }),
            1 => {
                json!({ "key": "karpenter.kwok.sh/instance-cpu", "operator": "Gt", "values": ["3"] })
            }
            _ => {
                json!({ "key": "karpenter.kwok.sh/instance-memory", "operator": "Lt", "values": ["70000"] })
            }
        };
        let mut terms = vec![json!({ "matchExpressions": [first] })];
        if rng.random_bool(0.4) {
            // A pod may go where either term holds; no machine has the first one's label.
            let never = json!({ "key": "example.com/none", "operator": "Exists" });
            terms.insert(0, json!({ "matchExpressions": [never] }));
        }
        self.required = terms;
    }

    fn prefer(&mut self, rng: &mut StdRng) {
        let term = json!({
            "weight": rng.random_range(1..100),
            "preference": { "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [ZONES.choose(rng)] }] },
        });
        self.affinity.entry("nodeAffinity").or_insert_with(|| json!({}))["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!([term]);
        self.spread.push(json!({
            "maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": { "app": self.name } },
        }));
    }

    fn tolerate(&mut self, rng: &mut StdRng) {
        self.tolerations.push(if rng.random_bool(0.5) {
            json!({ "key": "dedicated", "operator": "Exists" })
        } else {
            json!({ "key": "dedicated", "operator": "Equal", "value": "data", "effect": "NoSchedule" })
        });
    }

    fn spread_zones(&mut self, rng: &mut StdRng) {
        let mut rule = json!({
            "maxSkew": rng.random_range(1..3), "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": { "app": self.name } },
        });
        if rng.random_bool(0.3) {
            rule["minDomains"] = json!(rng.random_range(2..5));
        }
        if rng.random_bool(0.3) {
            rule["matchLabelKeys"] = json!(["pod-template-hash"]);
        }
        if rng.random_bool(0.3) {
            rule["nodeAffinityPolicy"] = json!("Ignore");
        }
        if rng.random_bool(0.3) {
            // Counts pods of other applications, too.
            rule["labelSelector"] = json!({ "matchLabels": { "tier": self.labels["tier"] } });
        }
        self.spread.push(rule);
    }

    fn spread_hosts(&mut self, rng: &mut StdRng) {
        self.spread.push(json!({
            "maxSkew": rng.random_range(1..4), "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": { "app": self.name } },
        }));
    }

    fn keep_apart(&mut self, rng: &mut StdRng) {
        let by_zone = rng.random_bool(0.4);
        self.replicas = self.replicas.min(if by_zone { 3 } else { 6 });
        self.anti(&json!({
            "topologyKey": if by_zone { ZONE } else { HOST },
            "labelSelector": { "matchLabels": { "app": self.name } },
        }));
    }

    fn stay_together(&mut self, rng: &mut StdRng) {
        self.affinity.insert(
            "podAffinity".to_owned(),
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": if rng.random_bool(0.7) { ZONE } else { HOST },
                "labelSelector": { "matchExpressions": [{ "key": "app", "operator": "In", "values": [self.name] }] },
            }] }),
        );
    }

    /// Nothing of the tier `batch` on the same machine, in whatever namespace of a tenant.
    fn avoid_others(&mut self, rng: &mut StdRng) {
        self.labels.insert("tier".to_owned(), json!("front"));
        let mut term =
            json!({ "topologyKey": HOST, "labelSelector": { "matchLabels": { "tier": "batch" } } });
        if rng.random_bool(0.5) {
            term["namespaceSelector"] = json!({ "matchLabels": { "tenant": "yes" } });
        }
        self.anti(&term);
    }

    fn take_a_port(&mut self, rng: &mut StdRng) {
        self.port = [8080, 9090].choose(rng).copied();
        self.replicas = self.replicas.min(4);
    }

    fn mount_a_volume(&mut self, rng: &mut StdRng) {
        self.volume = ZONES.choose(rng).copied();
    }

    fn anti(&mut self, term: &Value) {
        let rule = self
            .affinity
            .entry("podAntiAffinity")
            .or_insert_with(|| json!({ "requiredDuringSchedulingIgnoredDuringExecution": [] }));
        let terms = rule["requiredDuringSchedulingIgnoredDuringExecution"].as_array_mut();
        terms.expect("made above").push(term.clone());
    }

    fn finish(mut self, namespace: &'static str, requests: &Value) -> App {
        if !self.required.is_empty() {
            self.affinity.entry("nodeAffinity").or_insert_with(|| json!({}))["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({ "nodeSelectorTerms": self.required });
        }
        let mut container = json!({ "name": "main", "image": "registry.example/app:1", "resources": { "requests": requests } });
        if let Some(port) = self.port {
            container["ports"] = json!([{ "containerPort": 80, "hostPort": port }]);
        }
        let mut spec = json!({
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": self.selector,
            "affinity": self.affinity,
            "topologySpreadConstraints": self.spread,
            "tolerations": self.tolerations,
            "containers": [container],
        });
        if self.volume.is_some() {
            spec["volumes"] =
                json!([{ "name": "data", "persistentVolumeClaim": { "claimName": self.name } }]);
        }
        App {
            template: json!({ "metadata": { "labels": self.labels }, "spec": spec }),
            name: self.name,
            namespace,
            replicas: self.replicas,
            volume: self.volume,
        }
    }
}

//! The real kube-scheduler as the judge of plans: where the planner says that a pod fits,
//! kube-scheduler has to agree.
//!
//! First plans are taken literally. Machines are made exactly as planned, and each pod is let onto
//! its own machine alone (by a taint, which rules of topology don't look at), so kube-scheduler
//! binds it there or says why not. Then the operator plans for the same kind of workloads, and
//! kube-scheduler deals the pods out as it likes: none may stay pending.

mod diagnosis;
mod objects;
mod workloads;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use objects::{furnish, manifest, node, pool, volumes};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use tenon_aws_double::progress::Progress;
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::kwok_operators::KwokOperators;
use tenon_bed::programs::TenonPrograms;
use tenon_bed::user::LIMIT;
use tenon_bed::wait::{eventually, must};
use tenon_crds::labels::{self, LabelRules};
use tenon_planner::plan::{Launch, Plan};
use tenon_planner::snapshot::{
    Catalog, InstanceType, NodeClassRef, Offering, Operator, Requirement,
};
use tenon_planner::{Policy, Snapshot, check, provision};
use tenon_state::change::{Change, Object};
use tenon_state::cluster::Cluster;
use tenon_state::node_class::KWOK;
use tenon_state::wire;
use workloads::{App, NAMESPACES, ZONE};

/// The taint that lets only those pods onto a machine that were planned for it.
const PIN: &str = "oracle.example.com/machine";
/// Calls to the API server at once.
const AT_ONCE: usize = 16;

/// A cluster without an operator: the test makes the machines.
struct Court {
    client: Client,
    types: Vec<InstanceType>,
    rng: StdRng,
    machines: usize,
}

impl Court {
    fn new(client: Client, seed: u64) -> Self {
        let types = tenon_state::catalog::generate();
        Self { client, types, rng: StdRng::seed_from_u64(seed), machines: 0 }
    }

    fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        must(self.all::<K>().list(&ListParams::default()).await).items
    }

    /// What the planner is told: everything as the API server has it, but for the taints of this
    /// test.
    async fn snapshot(&self, now: Timestamp) -> Snapshot {
        let rules = LabelRules::kwok(tenon_state::catalog::offering_keys(&self.types));
        let mut cluster = Cluster::new(&[KWOK], rules);
        let mut apply = |object| cluster.apply(Change::Applied(object));
        for (name, requirements, spec) in workloads::pools() {
            apply(Object::NodePool(Box::new(pool(name, &requirements, &spec))));
        }
        for namespace in self.list::<wire::Namespace>().await {
            apply(Object::Namespace(Box::new(namespace)));
        }
        for set in self.list::<wire::DaemonSet>().await {
            apply(Object::DaemonSet(Box::new(set)));
        }
        for mut node in self.list::<wire::Node>().await {
            node.spec.taints.retain(|taint| taint.key != PIN);
            apply(Object::Node(Box::new(node)));
        }
        for volume in self.list::<wire::PersistentVolume>().await {
            apply(Object::PersistentVolume(Box::new(volume)));
        }
        for claim in self.list::<wire::PersistentVolumeClaim>().await {
            apply(Object::PersistentVolumeClaim(Box::new(claim)));
        }
        for pod in self.list::<wire::Pod>().await {
            apply(Object::Pod(Box::new(pod)));
        }
        let catalog = |class: &NodeClassRef| {
            let instance_types = self.types.clone();
            Some(Arc::new(Catalog { node_class: class.clone(), instance_types }))
        };
        cluster.snapshot(&catalog, now)
    }

    /// Makes the pods of applications, and waits until kube-scheduler has looked at each and found
    /// no place.
    async fn submit(&self, apps: &[App]) {
        volumes(&self.client, apps).await;
        let pods = apps.iter().flat_map(|app| {
            (0..app.replicas).map(move |index| {
                let mut pod = app.template.clone();
                pod["metadata"]["name"] = json!(format!("{}-{index}", app.name));
                (app.namespace, serde_json::from_value::<Pod>(pod).expect("a pod"))
            })
        });
        let made = stream::iter(pods).map(async |(namespace, pod)| {
            Api::namespaced(self.client.clone(), namespace)
                .create(&PostParams::default(), &pod)
                .await
        });
        must(made.buffer_unordered(AT_ONCE).try_collect::<Vec<Pod>>().await);
        let waiting = eventually("kube-scheduler has looked at all pods", LIMIT, async || {
            let pods = self.pods().await;
            let unseen = pods.values().filter(|pod| bound(pod).is_none() && refusal(pod).is_none());
            match unseen.count() {
                0 => Ok(true),
                n => Err(format!("{n} to go").into()),
            }
        });
        must(waiting.await);
    }

    /// The pods of the applications, by uid.
    async fn pods(&self) -> BTreeMap<String, Pod> {
        let mut found = BTreeMap::new();
        for namespace in NAMESPACES {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
            let pods = must(pods.list(&ListParams::default()).await);
            found.extend(pods.into_iter().map(|pod| (pod.uid().unwrap_or_default(), pod)));
        }
        found
    }

    /// Makes a planned machine, of a type and an offering that the launch allows, chosen by chance.
    async fn launch(&mut self, launch: &Launch) -> String {
        let allowed = |key: &str, value: &str| {
            launch.requirements.iter().filter(|it| it.key == key).all(|it| allows(it, value))
        };
        let choices: Vec<(&InstanceType, &Offering)> = self
            .types
            .iter()
            .filter(|kind| launch.instance_types.contains(&kind.name))
            .flat_map(|kind| kind.offerings.iter().map(move |offering| (kind, offering)))
            .filter(|(_, offering)| {
                allowed(ZONE, &offering.zone)
                    && allowed(labels::CAPACITY_TYPE, offering.capacity_type.as_str())
            })
            .collect();
        let (kind, offering) = *choices.choose(&mut self.rng).expect("a launch has an offering");
        self.machines += 1;
        let name = format!("machine-{}", self.machines);
        let node = node(&name, launch, kind, offering);
        must(self.all::<Node>().create(&PostParams::default(), &node).await);
        name
    }

    /// Carries a plan out: its machines exist afterwards. The answer says for each pod (by uid) on
    /// which Node it was planned.
    async fn carry_out(&mut self, snapshot: &Snapshot, plan: &Plan) -> BTreeMap<String, String> {
        let mut places = BTreeMap::new();
        for launch in &plan.launches {
            let name = self.launch(launch).await;
            places.extend(launch.pods.iter().map(|pod| (pod.uid.to_string(), name.clone())));
        }
        for nomination in &plan.nominations {
            let node = snapshot.nodes.iter().find(|node| node.key == nomination.node);
            let name = node.and_then(|node| node.name.clone()).expect("a Node");
            places.insert(nomination.pod.uid.to_string(), name);
        }
        places
    }

    /// Lets pods onto the machines that were planned for them.
    async fn admit(&self, places: &BTreeMap<String, String>) {
        let pods = self.pods().await;
        let patches = stream::iter(places).map(async |(uid, node)| {
            let pod = &pods[uid];
            let spec = pod.spec.as_ref().expect("a pod has a spec");
            let mut tolerations = json!(spec.tolerations);
            let list = tolerations.as_array_mut().expect("the API server adds some");
            list.push(json!({ "key": PIN, "operator": "Equal", "value": node }));
            let namespace = pod.namespace().unwrap_or_default();
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
            let patch = Patch::Merge(json!({ "spec": { "tolerations": tolerations } }));
            api.patch(&pod.name_any(), &PatchParams::default(), &patch).await
        });
        must(patches.buffer_unordered(AT_ONCE).try_collect::<Vec<Pod>>().await);
    }

    /// Waits until each pod is bound, and holds kube-scheduler's choice against the plan. Keeps the
    /// snapshot if it disagrees: `tenon simulate -f` reads it.
    async fn judge(&self, seed: u64, snapshot: &Snapshot, places: &BTreeMap<String, String>) {
        let verdict =
            eventually("kube-scheduler binds every pod that was planned for", LIMIT, async || {
                let pods = self.pods().await;
                let waits = places.iter().filter(|(uid, _)| bound(&pods[*uid]).is_none());
                let waits: Vec<String> = waits
                    .map(|(uid, node)| {
                        let why = refusal(&pods[uid]).unwrap_or_default();
                        format!("{} was planned for {node}: {why}", pods[uid].name_any())
                    })
                    .collect();
                if waits.is_empty() { Ok(true) } else { Err(waits.join("\n").into()) }
            });
        if let Err(error) = verdict.await {
            let path = diagnosis::keep(snapshot, seed).await;
            panic!("seed {seed}: {error}\nthe planner's snapshot: {}", path.display());
        }
        let pods = self.pods().await;
        for (uid, node) in places {
            assert_eq!(
                bound(&pods[uid]),
                Some(node.as_str()),
                "seed {seed}: {}",
                pods[uid].name_any()
            );
        }
    }

    /// About a third of the pods go, so that the next ones find room on machines that exist.
    async fn make_room(&mut self) {
        let pods = self.pods().await;
        let chosen: Vec<Pod> = pods.into_values().filter(|_| self.rng.random_bool(0.35)).collect();
        self.delete(chosen).await;
    }

    async fn delete(&self, pods: Vec<Pod>) {
        for pod in &pods {
            let namespace = pod.namespace().unwrap_or_default();
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
            must(api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await);
        }
        let gone = eventually("the deleted pods are gone", LIMIT, async || {
            let left = self.pods().await;
            Ok(pods.iter().all(|pod| !left.contains_key(&pod.uid().unwrap_or_default())))
        });
        must(gone.await);
    }

    /// Everything goes but the DaemonSet.
    async fn clear(&self) {
        self.delete(self.pods().await.into_values().collect()).await;
        let all = ListParams::default();
        must(self.all::<Node>().delete_collection(&DeleteParams::default(), &all).await);
        // Nobody else removes the DaemonSet's pods for most of a minute once their machines are
        // gone.
        let daemons: Api<Pod> = Api::namespaced(self.client.clone(), "kube-system");
        let at_once = DeleteParams::default().grace_period(0);
        must(daemons.delete_collection(&at_once, &all).await);
        for namespace in NAMESPACES {
            let claims: Api<PersistentVolumeClaim> =
                Api::namespaced(self.client.clone(), namespace);
            must(claims.delete_collection(&DeleteParams::default(), &all).await);
        }
        must(
            self.all::<PersistentVolume>().delete_collection(&DeleteParams::default(), &all).await,
        );
        let gone = eventually("the machines are gone", LIMIT, async || {
            Ok(self.list::<Node>().await.is_empty()
                && self.list::<PersistentVolume>().await.is_empty()
                && self.list::<Pod>().await.is_empty())
        });
        must(gone.await);
    }
}

fn allows(need: &Requirement, value: &str) -> bool {
    match need.operator {
        Operator::In => need.values.iter().any(|it| it == value),
        Operator::NotIn => !need.values.iter().any(|it| it == value),
        Operator::Exists => true,
        other => panic!("{other:?} says nothing about {}", need.key),
    }
}

/// The Node of a pod.
fn bound(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Why kube-scheduler finds no place for a pod.
fn refusal(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|it| it.type_ == "PodScheduled" && it.status == "False");
    found.map(|it| it.message.clone().unwrap_or_default())
}

/// Plans for applications, carries the plan out literally and lets kube-scheduler judge, twice: the
/// second time with machines that exist.
async fn plans_hold(bed: &Bed, seed: u64) {
    let mut court = Court::new(bed.client(), seed);
    for round in ["first", "second"] {
        let apps = workloads::apps(seed + round.len() as u64, round, 30);
        court.submit(&apps).await;
        let now = bed.clock().now();
        let snapshot = court.snapshot(now).await;
        let plan = provision(&snapshot, &Policy::default(), now, seed, &());
        assert_eq!(check(&snapshot, &plan), vec![], "seed {seed}");
        let places = court.carry_out(&snapshot, &plan).await;
        court.admit(&places).await;
        court.judge(seed, &snapshot, &places).await;
        let waiting = plan.report.pods.len();
        anstream::println!(
            "seed {seed}, {round} round: {} pods bound as planned ({} on machines that existed), {} machines made, {waiting} pods wait",
            places.len(),
            plan.nominations.len(),
            plan.launches.len(),
        );
        assert!(waiting * 4 < places.len(), "seed {seed}: most workloads have a place");
        court.make_room().await;
    }
    court.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_scheduler_binds_what_was_planned() {
    let programs = must(TenonPrograms::provide(&Progress::hidden()).await);
    let config = BedConfig { parts: Parts::control_plane_only(), ..BedConfig::default() };
    let bed = must(Bed::start(config).await);
    furnish(&bed.client()).await;
    for seed in [11, 22] {
        plans_hold(&bed, seed).await;
    }
    the_operator_leaves_no_pod_pending(&bed, programs).await;
    must(bed.stop().await);
}

/// The same kind of workloads, planned for by the operator and dealt out by kube-scheduler as it
/// likes.
async fn the_operator_leaves_no_pod_pending(bed: &Bed, programs: TenonPrograms) {
    let tenon = must(KwokOperators::prepare(bed, programs).await);
    for (name, requirements, spec) in workloads::pools() {
        must(tenon.user().apply(&manifest(name, &requirements, &spec)).await);
    }
    let court = Court::new(bed.client(), 0);
    // Pods that want one host for all of them are left out: kube-scheduler may deal the first one
    // onto a host without room for the others, and then nobody can help. So is what no plan has a
    // place for: it is asked of the planner before the operator runs.
    let mut apps = workloads::apps(44, "third", 40);
    apps.retain(|app| !app.wants_one_host());
    court.submit(&apps).await;
    let now = bed.clock().now();
    let snapshot = court.snapshot(now).await;
    let plan = provision(&snapshot, &Policy::default(), now, 44, &());
    let mut pods = court.pods().await;
    let waiting = plan.report.pods.iter().filter_map(|waiting| pods.remove(&*waiting.pod.uid));
    court.delete(waiting.collect()).await;
    let operator = must(tenon.start("one"));
    must(operator.ready(LIMIT).await);
    let runs = eventually("every pod is bound", LIMIT, async || {
        let pods = court.pods().await;
        let waits: Vec<String> = pods
            .values()
            .filter(|pod| bound(pod).is_none())
            .map(|pod| format!("{}: {}", pod.name_any(), refusal(pod).unwrap_or_default()))
            .collect();
        if waits.is_empty() { Ok(true) } else { Err(waits.join("\n").into()) }
    });
    if let Err(error) = runs.await {
        let why = diagnosis::of_waiting(&court, 44, bed.clock().now()).await;
        panic!("{error}\n{why}{}", diagnosis::of_operator(operator.log(), 44).await);
    }
    let mut claims = 0;
    for (name, ..) in workloads::pools() {
        claims += must(tenon.user().claims(name).await).len();
    }
    anstream::println!(
        "the operator: {} pods bound on {claims} machines, {} planned",
        pods.len(),
        plan.launches.len()
    );
}

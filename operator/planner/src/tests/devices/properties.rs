//! Properties of plans over generated clusters with claims.

use proptest::prelude::*;

use super::*;
use crate::snapshot::DeviceConstraint;
use crate::testing::apply;
use crate::{Snapshot, check, disrupt, provision};

fn any_ask() -> impl Strategy<Value = DeviceAsk> {
    let kinds = prop::sample::subsequence(vec![PLAIN, NUMA_0, NUMA_1, REMOTE], 1..4);
    let count = prop::option::weighted(0.8, 1..4_u32);
    (kinds, count, prop::bool::weighted(0.1))
        .prop_map(|(kinds, count, admin)| DeviceAsk { admin, ..ask(count, &kinds) })
}

fn any_spec() -> impl Strategy<Value = ClaimSpec> {
    let request = prop_oneof![
        3 => any_ask().prop_map(|ask| exactly("x", ask)),
        1 => prop::collection::vec(any_ask(), 1..3).prop_map(|asks| first_of("x", asks)),
    ];
    let attribute = prop::sample::select(vec![NUMA, bindings::PCI]);
    let constraint = prop::option::weighted(0.4, (any::<bool>(), attribute));
    (prop::collection::vec(request, 1..3), constraint).prop_map(|(mut requests, constraint)| {
        for (number, request) in requests.iter_mut().enumerate() {
            request.name = format!("request-{number}");
        }
        let rule = |(distinct, attribute): (bool, &str)| DeviceConstraint {
            requests: Vec::new(),
            // Devices that are bound have different values once they are published; before, nothing
            // says that they differ.
            attribute: if distinct { NUMA } else { attribute }.to_owned(),
            distinct,
        };
        ClaimSpec {
            requests,
            constraints: constraint.map(rule).into_iter().collect(),
            problem: None,
        }
    })
}

/// What a pod uses: claims of its own by specification, and perhaps a shared one; its processors;
/// whether it is virtual.
type Use = (Vec<prop::sample::Index>, Option<bool>, i64, bool);

fn any_cluster() -> impl Strategy<Value = Snapshot> {
    let specs = prop::collection::vec(any_spec(), 1..4);
    let node = prop::collection::vec(prop::sample::select(vec![PLAIN, NUMA_0, NUMA_1]), 0..5);
    let nodes = prop::collection::vec(node, 0..4);
    let own = prop::collection::vec(any::<prop::sample::Index>(), 0..3);
    let shared = prop::option::weighted(0.2, any::<bool>());
    let used = (own, shared, 100..3000_i64, prop::bool::weighted(0.1));
    let pods = prop::collection::vec(used, 1..8);
    let bindings = prop::collection::vec(brute_force::any_binding(), 0..4);
    (specs, nodes, pods, 0..4_usize, bindings).prop_map(|(specs, nodes, pods, n_remote, bound)| {
        let n_specs = specs.len();
        let mut types = with_devices();
        for kind in types.iter_mut().filter(|kind| kind.name.ends_with("8xlarge")) {
            kind.attribute_bindings = bound.clone();
            kind.attribute_bindings.retain(|it| it.attribute == bindings::PCI);
        }
        let mut scene = Scene::of_types(types, specs);
        for (number, kinds) in nodes.iter().enumerate() {
            let key = format!("node-{number}");
            scene = scene.pool(published(&key, kinds)).node(&key, "m.2xlarge", ZONES[number % 3]);
        }
        if n_remote > 0 {
            scene = scene.pool(remote("zone-b", n_remote));
        }
        // Claims are sorted by name: those of the pods come first.
        let mut next = 0;
        let of_pods: Vec<Vec<u32>> = pods
            .iter()
            .enumerate()
            .map(|(pod, (own, ..)): (usize, &Use)| {
                let own = own.iter().enumerate().map(|(number, spec)| {
                    let spec = u32::try_from(spec.index(n_specs)).expect("few");
                    scene.devices.claims.push(claim(&format!("pod-{pod:02}-{number}"), spec));
                    next += 1;
                    next - 1
                });
                own.collect()
            })
            .collect();
        scene = scene.claim(claim("shared-0", 0)).claim(claim("shared-1", 0));
        for (number, ((_, shared, cpu, _), mut claims)) in pods.iter().zip(of_pods).enumerate() {
            claims.extend(shared.map(|second| next + u32::from(second)));
            scene = scene.pod_of(&format!("pod-{number:02}"), shape(*cpu, GI), &claims, None);
        }
        let mut snapshot = scene.build();
        for (pod, (.., is_virtual)) in snapshot.pods.iter_mut().zip(&pods) {
            pod.buffer = is_virtual.then(|| "spare".to_owned());
        }
        snapshot
    })
}

/// Whether a second plan may have more to do than the first one. A launch takes what each of its
/// types would of the network; only one of these will come to be, and the rest is free again.
/// Virtual pods are bound to nothing: where their devices are found is decided anew each time.
fn may_change(snapshot: &Snapshot, plan: &crate::Plan) -> bool {
    if snapshot.pods.iter().any(|pod| pod.buffer.is_some()) {
        return true;
    }
    let placed = plan.launches.iter().flat_map(|launch| &launch.devices);
    let claims = placed.flat_map(|placed| &placed.claims);
    claims.flat_map(|claim| &claim.devices).any(|device| device.pool == "fabric")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_with_claims_is_legal_and_lasts(snapshot in any_cluster()) {
        prop_assert_eq!(snapshot.validate(), Ok(()));
        let policy = crate::Policy::default();
        let plan = provision(&snapshot, &policy, now(), 1, &());
        prop_assert_eq!(check(&snapshot, &plan), []);
        // Once it is carried out, the same pods wait and nothing else is launched.
        let mut after = apply(&snapshot, &plan);
        for _ in 0..=snapshot.pods.len() {
            prop_assert_eq!(after.validate(), Ok(()));
            let again = provision(&after, &policy, now(), 1, &());
            prop_assert_eq!(check(&after, &again), []);
            if again.launches.is_empty() && again.nominations.is_empty() {
                return Ok(());
            }
            prop_assert!(may_change(&snapshot, &plan), "{:?} {:?}", again.launches, again.nominations);
            after = apply(&after, &again);
        }
        prop_assert!(false, "it does not come to rest");
    }

    #[test]
    fn disruption_moves_claims_to_where_they_are_served(snapshot in any_cluster()) {
        let policy = crate::Policy::default();
        let mut state = apply(&snapshot, &provision(&snapshot, &policy, now(), 1, &()));
        for _ in 0..12 {
            let plan = disrupt(&state, &policy, now(), 1, &());
            prop_assert_eq!(check(&state, &plan), []);
            if plan.commands.is_empty() {
                return Ok(());
            }
            state = apply(&state, &plan);
        }
        prop_assert!(false, "it does not come to rest");
    }
}

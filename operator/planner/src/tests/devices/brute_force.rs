//! The search finds devices of a machine to come exactly where trying everything finds some.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::bindings::{PCI, binding, types_with};
use super::*;
use crate::snapshot::{AttributeBinding, DeviceConstraint};

/// Which device each request has, alternative by alternative: request, alternative, number of the
/// device.
type Choice = Vec<(usize, usize, usize)>;

/// What a claim is tried on.
struct Case<'c> {
    kinds: Vec<DeviceKind>,
    devices: &'c [u32],
    bindings: &'c [AttributeBinding],
    spec: &'c ClaimSpec,
}

impl Case<'_> {
    /// Whether some choice of devices serves the requests from one on, next to those that are
    /// chosen.
    fn can_be_served(&self, request: usize, chosen: &Choice) -> bool {
        let Some(asked) = self.spec.requests.get(request) else {
            return chosen.len() <= 32
                && self.spec.constraints.iter().all(|it| self.holds(it, chosen));
        };
        asked.alternatives.iter().enumerate().any(|(alternative, ask)| {
            let matching: Vec<usize> = (0..self.devices.len())
                .filter(|&it| ask.kinds.contains(&self.devices[it]))
                .collect();
            // By the bits of a number, every set of the devices that match.
            (0..1_u32 << matching.len()).any(|set| {
                let members = matching.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
                let members: Vec<usize> = members.map(|(_, &device)| device).collect();
                let wanted = ask.count.map_or(matching.len().max(1), |count| count as usize);
                let free = |it: &usize| chosen.iter().all(|(_, _, taken)| taken != it);
                if members.len() != wanted || !members.iter().all(free) {
                    return false;
                }
                let mut more = chosen.clone();
                more.extend(members.into_iter().map(|device| (request, alternative, device)));
                self.can_be_served(request + 1, &more)
            })
        })
    }

    fn holds(&self, rule: &DeviceConstraint, chosen: &Choice) -> bool {
        let concerned = chosen.iter().filter(|(request, alternative, _)| {
            let request = &self.spec.requests[*request];
            let name = request.alternatives[*alternative].name.as_deref();
            let full = name.map_or(request.name.clone(), |name| format!("{}/{name}", request.name));
            rule.requests.is_empty()
                || rule.requests.contains(&request.name)
                || rule.requests.contains(&full)
        });
        let concerned: Vec<usize> = concerned.map(|(_, _, device)| *device).collect();
        let value = |device: &usize| {
            self.kinds[self.devices[*device] as usize].attributes.get(&rule.attribute)
        };
        let values: BTreeSet<_> = concerned.iter().filter_map(value).collect();
        let n_values = concerned.iter().filter_map(value).count();
        if rule.distinct {
            return values.len() == concerned.len();
        }
        match n_values {
            0 => {
                let pairs = concerned.iter().flat_map(|a| concerned.iter().map(move |b| (*a, *b)));
                let mut pairs = pairs.collect::<Vec<_>>().into_iter();
                pairs.all(|(a, b)| self.tied(&rule.attribute, a, b))
            }
            n => n == concerned.len() && values.len() == 1,
        }
    }

    /// Whether two devices are tied together, by any number of steps; of one, whether it is tied to
    /// any other.
    fn tied(&self, attribute: &str, a: usize, b: usize) -> bool {
        const N: usize = 10;
        let name = |number: usize| format!("gpu-{number:02}");
        let mut ties = [[false; N]; N];
        for rule in self.bindings.iter().filter(|it| it.attribute == attribute) {
            let listed = |number| rule.devices.iter().any(|it| it.device == name(number));
            for (i, row) in ties.iter_mut().enumerate() {
                for (j, tie) in row.iter_mut().enumerate() {
                    *tie |= i != j && listed(i) && listed(j);
                }
            }
        }
        for via in 0..N {
            for from in 0..N {
                for to in 0..N {
                    ties[from][to] |= ties[from][via] && ties[via][to];
                }
            }
        }
        if a == b { ties[a].contains(&true) } else { ties[a][b] }
    }
}

fn any_ask() -> impl Strategy<Value = DeviceAsk> {
    let kinds = prop::sample::subsequence(vec![PLAIN, NUMA_0, NUMA_1], 1..4);
    (kinds, prop::option::weighted(0.9, 1..3_u32)).prop_map(|(kinds, count)| ask(count, &kinds))
}

fn any_rule() -> impl Strategy<Value = DeviceConstraint> {
    let names = vec!["r0", "r1", "r0/option-0", "r1/option-1"];
    let requests = prop_oneof![Just(Vec::new()), prop::sample::subsequence(names, 1..3),];
    let attribute = prop::sample::select(vec![NUMA, PCI]);
    (requests, attribute, prop::bool::weighted(0.1)).prop_map(|(requests, attribute, distinct)| {
        let requests = requests.into_iter().map(str::to_owned).collect();
        DeviceConstraint { requests, attribute: attribute.to_owned(), distinct }
    })
}

fn any_spec() -> impl Strategy<Value = ClaimSpec> {
    let request = prop_oneof![
        3 => any_ask().prop_map(|ask| exactly("", ask)),
        1 => prop::collection::vec(any_ask(), 2..3).prop_map(|asks| first_of("", asks)),
    ];
    let requests = prop::collection::vec(request, 1..4);
    (requests, prop::collection::vec(any_rule(), 1..3)).prop_map(|(mut requests, constraints)| {
        for (number, request) in requests.iter_mut().enumerate() {
            request.name = format!("r{number}");
        }
        ClaimSpec { requests, constraints, problem: None }
    })
}

pub(super) fn any_binding() -> impl Strategy<Value = AttributeBinding> {
    // Some of these numbers are of no device.
    let devices = prop::collection::vec(0..9_usize, 0..4);
    (prop::sample::select(vec![NUMA, PCI]), devices)
        .prop_map(|(attribute, devices)| binding(attribute, &devices))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn devices_are_found_where_there_are_some(
        devices in prop::collection::vec(prop::sample::select(vec![PLAIN, PLAIN, NUMA_0, NUMA_1]), 1..7),
        bindings in prop::collection::vec(any_binding(), 0..5),
        spec in any_spec(),
    ) {
        let case = Case { kinds: kinds_of_devices(), devices: &devices, bindings: &bindings, spec: &spec };
        let expected = case.can_be_served(0, &Vec::new());
        let types = types_with(&["m.2xlarge"], &devices, &bindings);
        let plan = plan(&Scene::of_types(types, vec![spec.clone()]).pods(1).build());
        prop_assert_eq!(plan.launches.len(), usize::from(expected), "{:?}", plan.report.pods);
    }
}

//! Topology rules as users write them, and the shapes that carry them.

use super::*;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

use crate::tests::behaviour::{HOSTNAME, ZONE};

/// A label that only some nodes have.
pub(super) const RACK: &str = "rack";

/// The other namespace besides `default`.
pub(super) const OTHER: &str = "other";

#[derive(Clone, Debug)]
pub(super) enum Rule {
    Pods(PodAffinityTerm),
    Spread(TopologySpread),
}

fn any_selector() -> impl Strategy<Value = Option<LabelSelector>> {
    let app = |app: &str| LabelSelector {
        match_labels: Some([("app".to_owned(), app.to_owned())].into()),
        ..LabelSelector::default()
    };
    let expression = |operator: &str, values: &[&str]| LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "app".to_owned(),
            operator: operator.to_owned(),
            values: Some(values.iter().map(|&value| value.to_owned()).collect()),
        }]),
        ..LabelSelector::default()
    };
    prop::sample::select(vec![
        Some(app("x")),
        Some(app("x")),
        Some(app("y")),
        Some(app("y")),
        Some(expression("In", &["x", "z"])),
        Some(expression("NotIn", &["x"])),
        Some(expression("Exists", &[])),
        Some(LabelSelector::default()),
        None,
    ])
}

fn any_rule() -> impl Strategy<Value = Rule> {
    (
        prop::sample::select(vec![
            ZONE,
            ZONE,
            HOSTNAME,
            HOSTNAME,
            "karpenter.sh/capacity-type",
            "team",
            RACK,
        ]),
        any_selector(),
        0..7_u8,
        prop::option::weighted(0.2, 1..4_i32),
        (0..4_u8, 0..8_u8, any::<bool>(), any::<bool>()),
    )
        .prop_map(|(key, selector, kind, number, (soft, namespaces, affinity, taints))| {
            if kind < 4 {
                let in_other = LabelSelector {
                    match_labels: Some([("kind".to_owned(), OTHER.to_owned())].into()),
                    ..LabelSelector::default()
                };
                return Rule::Pods(PodAffinityTerm {
                    anti: kind < 2,
                    weight: (soft == 0).then(|| number.unwrap_or(1)),
                    topology_key: key.to_owned(),
                    selector,
                    namespaces: if namespaces == 0 { vec![OTHER.to_owned()] } else { vec![] },
                    namespace_selector: match namespaces {
                        1 => Some(LabelSelector::default()),
                        2 => Some(in_other),
                        _ => None,
                    },
                });
            }
            Rule::Spread(TopologySpread {
                topology_key: key.to_owned(),
                max_skew: i32::from(kind) - 3,
                min_domains: number.filter(|_| soft > 0),
                required: soft > 0,
                selector,
                honor_affinity: affinity,
                honor_taints: taints,
            })
        })
}

/// Mostly none or one, at most three.
pub(super) fn any_rules() -> impl Strategy<Value = Vec<Rule>> {
    prop_oneof![
        5 => Just(Vec::new()),
        3 => prop::collection::vec(any_rule(), 1..2),
        2 => prop::collection::vec(any_rule(), 2..4),
    ]
}

pub(super) fn add_rules(shape: &mut PodShape, rules: Vec<Rule>) {
    for rule in rules {
        match rule {
            Rule::Pods(term) => shape.pod_affinity.push(term),
            // The API server refuses two with the same key.
            Rule::Spread(spread) => {
                let same = |known: &TopologySpread| {
                    (&known.topology_key, known.required) == (&spread.topology_key, spread.required)
                };
                if !shape.topology_spread.iter().any(same) {
                    shape.topology_spread.push(spread);
                }
            }
        }
    }
}

/// What the namespaces are labelled with.
pub(super) fn namespaces() -> BTreeMap<String, BTreeMap<String, String>> {
    let label = |kind: &str| BTreeMap::from([("kind".to_owned(), kind.to_owned())]);
    BTreeMap::from([("default".to_owned(), label("usual")), (OTHER.to_owned(), label(OTHER))])
}

//! How many instance types of a NodePool are left for a pod after each of the things that exclude some: where it narrows is what to look at.

use serde::Serialize;
use tenon_crds::labels;
use tenon_planner::snapshot::{InstanceType, NodePool, Operator, PodShape, Requirement, Snapshot};

/// What is left of a NodePool's instance types.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Funnel {
    /// The NodePool.
    pub(super) node_pool: String,
    /// In the catalog of its NodeClass.
    pub(super) in_catalog: usize,
    /// Of these, allowed by the NodePool's requirements.
    pub(super) allowed_by_node_pool: usize,
    /// Of these, with what the pod's node selector, node affinity and volumes ask for.
    pub(super) matching_pod: usize,
    /// Of these, with room for the pod alone, without daemons and other pods.
    pub(super) large_enough: usize,
    /// Of these, with an offering that can be had now.
    pub(super) available: usize,
}

impl Funnel {
    /// For a pod of this shape; `None` when nothing is known about what the pool could launch.
    pub(super) fn new(snapshot: &Snapshot, pool: &NodePool, shape: &PodShape) -> Option<Self> {
        let catalog = &snapshot.catalogs[usize::try_from(pool.catalog?.0).ok()?];
        let own = own_requirements(pool);
        let alternatives = alternatives(shape);
        let of_pool: Vec<&InstanceType> =
            catalog.instance_types.iter().filter(|kind| has(kind, &own)).collect();
        let of_pod: Vec<&InstanceType> = of_pool
            .iter()
            .copied()
            .filter(|kind| alternatives.iter().any(|term| has(kind, term)))
            .collect();
        let large: Vec<&InstanceType> = of_pod
            .iter()
            .copied()
            .filter(|kind| shape.requests.fits(&kind.allocatable()))
            .collect();
        let available = large.iter().filter(|kind| {
            alternatives.iter().any(|term| has(kind, term) && offered(kind, &own, term))
        });
        Some(Self {
            node_pool: pool.name.clone(),
            in_catalog: catalog.instance_types.len(),
            allowed_by_node_pool: of_pool.len(),
            matching_pod: of_pod.len(),
            large_enough: large.len(),
            available: available.count(),
        })
    }

    /// `853 in the catalog, 501 allowed by the NodePool, …`
    pub(super) fn text(&self) -> String {
        format!(
            "instance types: {} in the catalog, {} allowed by the NodePool, {} match the pod, {} \
             are large enough, {} are available",
            self.in_catalog,
            self.allowed_by_node_pool,
            self.matching_pod,
            self.large_enough,
            self.available
        )
    }
}

fn own_requirements(pool: &NodePool) -> Vec<Requirement> {
    let labels = pool.template.labels.iter().map(|(key, value)| is(key, value));
    pool.template.requirements.iter().cloned().chain(labels).collect()
}

/// What the pod asks of its node: one of these has to hold as a whole.
fn alternatives(shape: &PodShape) -> Vec<Vec<Requirement>> {
    let selector: Vec<Requirement> =
        shape.node_selector.iter().map(|(key, value)| is(key, value)).collect();
    let mut all = vec![selector];
    for terms in [&shape.required_affinity, &shape.volume_topology] {
        if !terms.is_empty() {
            all = all
                .iter()
                .flat_map(|one| {
                    terms.iter().map(move |term| one.iter().chain(term).cloned().collect())
                })
                .collect();
        }
    }
    all
}

fn is(key: &str, value: &str) -> Requirement {
    Requirement {
        key: key.to_owned(),
        operator: Operator::In,
        values: vec![value.to_owned()],
        min_values: None,
    }
}

fn has(kind: &InstanceType, wanted: &[Requirement]) -> bool {
    wanted.iter().all(|wanted| {
        // Labels that types don't define are the NodePool's own to give.
        let defined = kind.requirements.iter().find(|defined| defined.key == wanted.key);
        defined.is_none_or(|defined| match defined.operator {
            Operator::In => defined.values.iter().any(|value| holds(wanted, value)),
            _ => matches!(wanted.operator, Operator::NotIn | Operator::DoesNotExist),
        })
    })
}

fn offered(kind: &InstanceType, own: &[Requirement], term: &[Requirement]) -> bool {
    kind.offerings.iter().any(|offering| {
        let values = [
            (labels::ZONE, offering.zone.as_str()),
            (labels::CAPACITY_TYPE, offering.capacity_type.as_str()),
        ];
        offering.available
            && values.iter().all(|(key, value)| {
                own.iter()
                    .chain(term)
                    .filter(|wanted| wanted.key == *key)
                    .all(|wanted| holds(wanted, value))
            })
    })
}

fn holds(wanted: &Requirement, value: &str) -> bool {
    let compared = || {
        let bound = wanted.values.first()?.parse::<i64>().ok()?;
        Some((value.parse::<i64>().ok()?, bound))
    };
    let among = || wanted.values.iter().any(|other| other == value);
    match wanted.operator {
        Operator::In => among(),
        Operator::NotIn => !among(),
        Operator::Exists => true,
        Operator::DoesNotExist => false,
        Operator::Gt => compared().is_some_and(|(value, bound)| value > bound),
        Operator::Lt => compared().is_some_and(|(value, bound)| value < bound),
        Operator::Gte => compared().is_some_and(|(value, bound)| value >= bound),
        Operator::Lte => compared().is_some_and(|(value, bound)| value <= bound),
    }
}

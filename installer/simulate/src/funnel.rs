//! How many instance types of a NodePool are left for a pod after each of the things that exclude
//! some: where the number falls to 0 is what to look at.

use serde::Serialize;
use tenon_crds::labels;
use tenon_planner::plan::Exclusion;
use tenon_planner::snapshot::{InstanceType, NodePool, Operator, PodShape, Requirement, Snapshot};

use super::words::grouped;

/// What is left of a NodePool's instance types.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Funnel {
    /// The NodePool.
    pub(super) node_pool: String,
    /// In the catalog of its NodeClass.
    pub(super) in_catalog: usize,
    /// None while the NodePool or its NodeClass is not ready.
    ready: usize,
    /// Of these, allowed by the NodePool's requirements.
    pub(super) allowed_by_node_pool: usize,
    /// None if the pod does not tolerate the NodePool's taints.
    tolerated: usize,
    /// Of these, with what the pod's node selector, node affinity and volumes ask for.
    pub(super) matching_pod: usize,
    /// Of these, with room for the pod.
    pub(super) large_enough: usize,
    /// None if the NodePool's limits leave no room.
    within_limits: usize,
    /// Of these, with an offering that can be had now.
    pub(super) available: usize,
    /// None if a rule about more than the type excludes the pod: topology, devices, `minValues`,
    /// reservations, its specification.
    schedulable: usize,
    /// What the last step is about.
    #[serde(skip)]
    rule: &'static str,
}

/// The steps, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Ready,
    Tolerated,
    Matching,
    LargeEnough,
    WithinLimits,
    Available,
    Schedulable,
}

impl Stage {
    /// The step at which a reason of the planner excludes all that is left.
    pub(super) fn of(why: &Exclusion) -> Self {
        match why {
            Exclusion::PoolNotReady(_) => Self::Ready,
            Exclusion::Taint { .. } => Self::Tolerated,
            Exclusion::Requirement { .. } | Exclusion::NoInstanceType { .. } => Self::Matching,
            Exclusion::Resources { .. } => Self::LargeEnough,
            Exclusion::Limit { .. } => Self::WithinLimits,
            Exclusion::NoOffering { .. } => Self::Available,
            _ => Self::Schedulable,
        }
    }
}

impl Funnel {
    /// For a pod of this shape, which the planner excludes for a reason; `None` when nothing is
    /// known about what the pool could launch.
    pub(super) fn new(
        snapshot: &Snapshot,
        pool: &NodePool,
        shape: &PodShape,
        why: &Exclusion,
    ) -> Option<Self> {
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
        // The planner knows of daemons, of the NodePool's own labels and of other pods: its reason
        // counts.
        let at = match why {
            // It is ready, and no type meets its requirements and is available.
            Exclusion::PoolNotReady(_) if pool.not_ready.is_none() => Stage::Available,
            why => Stage::of(why),
        };
        let count = |stage: Stage, n: usize| if stage >= at { 0 } else { n };
        let available = available.count();
        Some(Self {
            node_pool: pool.name.clone(),
            in_catalog: catalog.instance_types.len(),
            ready: count(Stage::Ready, catalog.instance_types.len()),
            allowed_by_node_pool: count(Stage::Ready, of_pool.len()),
            tolerated: count(Stage::Tolerated, of_pool.len()),
            matching_pod: count(Stage::Matching, of_pod.len()),
            large_enough: count(Stage::LargeEnough, large.len()),
            within_limits: count(Stage::WithinLimits, large.len()),
            available: count(Stage::Available, available),
            schedulable: count(Stage::Schedulable, available),
            rule: match why {
                Exclusion::Topology { .. } => "in a domain that topology rules allow",
                Exclusion::Devices { .. } | Exclusion::ClaimElsewhere { .. } => {
                    "with the claimed devices"
                }
                Exclusion::MinValues { .. } => "with the values that minValues asks for",
                Exclusion::Reserved { .. } => "with reserved capacity left",
                _ => "for the pod as it is specified",
            },
        })
    }

    /// `853 in the catalog, 501 allowed by the NodePool, …`, up to the first 0.
    pub(super) fn text(&self) -> String {
        let verb =
            |n: usize, one: &'static str, many: &'static str| if n == 1 { one } else { many };
        let steps = [
            (self.in_catalog, "in the catalog", true),
            (self.ready, "while the NodePool is not ready", false),
            (self.allowed_by_node_pool, "allowed by the NodePool", true),
            (self.tolerated, "with taints that the pod tolerates", false),
            (self.matching_pod, verb(self.matching_pod, "matches the pod", "match the pod"), true),
            (
                self.large_enough,
                verb(self.large_enough, "is large enough", "are large enough"),
                true,
            ),
            (self.within_limits, "within the limits", false),
            (self.available, "available", true),
            (self.schedulable, self.rule, false),
        ];
        let mut shown = Vec::new();
        for (n, words, always) in steps {
            if always || n == 0 {
                shown.push(format!("{} {words}", grouped(n)));
            }
            if n == 0 {
                break;
            }
        }
        format!("instance types: {}", shown.join(", "))
    }
}

pub(super) fn own_requirements(pool: &NodePool) -> Vec<Requirement> {
    let labels = pool.template.labels.iter().map(|(key, value)| is(key, value));
    pool.template.requirements.iter().cloned().chain(labels).collect()
}

/// What the pod asks of its node: one of these has to hold as a whole.
pub(super) fn alternatives(shape: &PodShape) -> Vec<Vec<Requirement>> {
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

pub(super) fn has(kind: &InstanceType, wanted: &[Requirement]) -> bool {
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

pub(super) fn holds(wanted: &Requirement, value: &str) -> bool {
    wanted.operator.admits(&wanted.values, Some(value))
}

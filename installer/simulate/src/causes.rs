//! Why a NodePool is nothing for a pod, and what to do about it: from the planner's reason, the
//! objects, and what was observed.

mod labels;
mod limits;
mod readiness;
mod rules;

pub(super) use self::labels::{more_capacity, no_type};
use serde::Serialize;
use tenon_planner::Snapshot;
use tenon_planner::plan::Exclusion;
use tenon_planner::snapshot::{Catalog, NodePool, Pod, PodShape};

use super::advice::{Advice, Cause};
use super::funnel::Stage;
use super::observed::Observed;
use super::reasons;

/// The pod that is asked about, and what is known.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) observed: &'a Observed,
    pub(super) pod: &'a Pod,
    pub(super) shape: &'a PodShape,
}

/// Why NodePools are nothing for the pod: one entry for all to which the same applies.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Verdict {
    /// For programs.
    pub(super) cause: Cause,
    /// The NodePools.
    pub(super) node_pools: Vec<String>,
    /// A sentence.
    pub(super) text: String,
    /// The answer's first line says it so.
    #[serde(skip)]
    pub(super) because: String,
    #[serde(skip)]
    pub(super) advice: Vec<Advice>,
    /// How far the closest NodePool got.
    #[serde(skip)]
    stage: Option<Stage>,
}

/// What one reason comes to.
pub(super) struct Finding {
    pub(super) cause: Cause,
    text: String,
    because: String,
    pub(super) advice: Vec<Advice>,
}

/// For each reason what it comes to; what is closest to a node comes first.
pub(super) fn verdicts(about: &About<'_>, reasons: &[(String, Exclusion)]) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = Vec::new();
    for (name, why) in reasons {
        let pool = about.snapshot.node_pools.iter().find(|pool| pool.name == *name);
        let found = match (pool, why) {
            (Some(pool), why) => found(about, pool, why),
            // What is wrong with the pod itself has no NodePool.
            (None, Exclusion::Pod(reason)) => rules::pod(about, reason),
            (None, _) => continue,
        };
        let Finding { cause, text, because, advice } = found;
        let known = verdicts.iter_mut().find(|known| known.cause == cause && known.text == text);
        match known {
            Some(known) => known.node_pools.push(name.clone()),
            None => verdicts.push(Verdict {
                cause,
                node_pools: pool.map(|pool| pool.name.clone()).into_iter().collect(),
                text,
                because,
                advice,
                stage: Some(Stage::of(why)),
            }),
        }
    }
    verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.stage));
    verdicts
}

fn found(about: &About<'_>, pool: &NodePool, why: &Exclusion) -> Finding {
    match why {
        Exclusion::PoolNotReady(reason) => readiness::not_ready(about, pool, reason),
        Exclusion::Taint { key, value, effect } => {
            rules::taint(&pool.name, (key, value.as_deref(), effect), why)
        }
        Exclusion::Requirement { key, .. } => labels::label(about, pool, key, why),
        Exclusion::NoInstanceType { differs, .. } => {
            // What the pod itself asks for is what its owner can change.
            let own = differs.iter().find(|key| labels::wanted(about.shape, key).is_some());
            match own {
                Some(key) => labels::label(about, pool, key, why),
                None => labels::own_requirements(pool, why),
            }
        }
        Exclusion::Resources { resource, requested, largest, .. } => {
            limits::too_large(about, pool, (resource, *requested, *largest), why)
        }
        Exclusion::Limit { resource, limit, used } => {
            limits::limit(about, pool, (resource, *limit, *used), why)
        }
        Exclusion::NoOffering { .. } => labels::no_offering(about, pool, why),
        Exclusion::Reserved { .. } => limits::reserved(about, why),
        Exclusion::MinValues { key, .. } => limits::min_values(pool, key, why),
        Exclusion::Topology { key, .. } => rules::topology(about, key, why),
        Exclusion::Devices { .. } | Exclusion::ClaimElsewhere { .. } => rules::devices(about, why),
        Exclusion::Pod(reason) => rules::pod(about, reason),
    }
}

impl Finding {
    fn new(cause: Cause, why: &Exclusion, because: impl Into<String>, advice: Vec<Advice>) -> Self {
        Self { cause, text: reasons::exclusion(why), because: because.into(), advice }
    }
}

/// What a NodePool can launch.
fn catalog<'a>(snapshot: &'a Snapshot, pool: &NodePool) -> Option<&'a Catalog> {
    snapshot.catalogs.get(usize::try_from(pool.catalog?.0).ok()?).map(AsRef::as_ref)
}

/// `kubectl edit nodepool default`
fn edit(pool: &str) -> String {
    format!("kubectl edit nodepool {}", super::advice::word(pool))
}

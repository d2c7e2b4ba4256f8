//! Rules that cannot bind, whatever is placed where: nobody is there whom they could keep off.
//!
//! One replica that keeps off its own kind, say, or two with a spread of skew 2. Pods with rules
//! are placed before others, one domain at a time, which makes a plan dearer; where a rule has
//! nothing to say its pods are placed as if they didn't have it.

use rustc_hash::FxHashSet;

use super::Kind;
use crate::id_set::IdSet;
use crate::intern::{Key, Symbols};
use crate::label;
use crate::snapshot::{Operator, Snapshot};

/// A group before its number is known: some rules are left out.
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) key: Key,
    /// Domains are hosts.
    pub(super) host: bool,
    /// The topology keys that a node has to have in order to count.
    pub(super) keys: Vec<Key>,
    /// The shapes that the selector selects.
    pub(super) selects: IdSet,
}

/// Takes out rules that cannot bind, from groups and from what shapes carry: required and preferred
/// rules, and how many of the latter are terms of pod affinity.
pub(super) fn leave_out(
    snapshot: &Snapshot,
    groups: &mut Vec<Draft>,
    [required, preferred]: [&mut Vec<Vec<usize>>; 2],
    terms: &mut [usize],
    symbols: &Symbols,
) {
    let idle = idle(snapshot, groups, required, preferred, symbols);
    if !idle.contains(&true) {
        return;
    }
    for (preferred, terms) in preferred.iter().zip(terms) {
        *terms -= preferred[..*terms].iter().filter(|&&group| idle[group]).count();
    }
    let mut kept = 0;
    let numbers: Vec<usize> = idle
        .iter()
        .map(|&idle| {
            let number = kept;
            kept += usize::from(!idle);
            number
        })
        .collect();
    for carried in required.iter_mut().chain(preferred.iter_mut()) {
        carried.retain(|&group| !idle[group]);
        for group in carried {
            *group = numbers[*group];
        }
    }
    let mut idle = idle.iter();
    groups.retain(|_| idle.next() == Some(&false));
    // What is left asks no more for a key of a rule that was left out: every machine has it.
    let asked: FxHashSet<Key> = groups.iter().map(|group| group.key).collect();
    for group in groups {
        group.keys.retain(|key| asked.contains(key));
    }
}

/// The groups whose rule cannot bind, from the shapes that carry each as a requirement or as a
/// preference.
///
/// - Anti-affinity, when at most one pod is selected and nobody else carries the rule, or when none
///   is.
/// - Spread, when no more pods are selected than the skew: not even all of them together in one
///   domain would be too many.
/// - Affinity over hosts, when the only pod that is selected is the only one that requires it: the
///   first one of its kind may go anywhere.
///
/// Pods that run, wait, and are virtual all count. Spread also asks for nodes that have the
/// topology key, so that all have to have it.
fn idle(
    snapshot: &Snapshot,
    groups: &[Draft],
    required: &[Vec<usize>],
    preferred: &[Vec<usize>],
    symbols: &Symbols,
) -> Vec<bool> {
    let mut pods = vec![0_usize; snapshot.shapes.len()];
    for pod in &snapshot.pods {
        pods[pod.shape.0 as usize] += 1;
    }
    // By group: pods that carry the rule, one shape that does, and whether it is a preference of
    // some.
    let mut carriers: Vec<(usize, Option<usize>, bool)> = vec![(0, None, false); groups.len()];
    for (all, soft) in [(required, false), (preferred, true)] {
        for (shape, carried) in all.iter().enumerate().filter(|&(shape, _)| pods[shape] > 0) {
            for &group in carried {
                let (many, one, is_soft) = &mut carriers[group];
                *many += pods[shape];
                *one = Some(shape);
                *is_soft |= soft;
            }
        }
    }
    let everywhere = everywhere(snapshot, symbols);
    let idle = |(group, &(many, one, is_soft)): (&Draft, &(usize, Option<usize>, bool))| {
        // Nobody asks how many there are beyond what the rule allows.
        let most = match group.kind {
            Kind::Spread { max_skew, .. } => usize::try_from(max_skew).unwrap_or(0),
            Kind::Anti | Kind::Affinity => 1,
        };
        let mut selected = 0;
        for shape in group.selects.iter() {
            selected += pods[shape];
            if selected > most {
                break;
            }
        }
        let is_itself = || many == 1 && one.is_some_and(|shape| group.selects.contains(shape));
        let has_keys = || group.keys.iter().all(|key| everywhere.contains(key));
        match group.kind {
            Kind::Anti => selected == 0 || selected == 1 && is_itself(),
            Kind::Spread { max_skew, .. } => {
                usize::try_from(max_skew).is_ok_and(|skew| selected <= skew) && has_keys()
            }
            Kind::Affinity => {
                selected == 1 && is_itself() && !is_soft && group.host && group.keys.len() == 1
            }
        }
    };
    groups.iter().zip(&carriers).map(idle).collect()
}

/// The topology keys that every machine has, there or to come: of those that offerings define, the
/// ones that no node lacks; and the host name.
fn everywhere(snapshot: &Snapshot, symbols: &Symbols) -> FxHashSet<Key> {
    let mut keys = FxHashSet::default();
    keys.extend(symbols.find_key(label::HOSTNAME));
    for name in [label::ZONE, label::CAPACITY_TYPE] {
        let has = |node: &crate::snapshot::Node| {
            let promised = || {
                let mut needs = node.requirements.iter().filter(|need| need.key == name);
                needs.any(|need| need.operator == Operator::In && need.values.len() == 1)
            };
            node.labels.contains_key(name) || promised()
        };
        if snapshot.nodes.iter().all(has) {
            keys.extend(symbols.find_key(name));
        }
    }
    keys
}

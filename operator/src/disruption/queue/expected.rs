//! Announces which pods a command is going to evict ([`crate::eviction_order`]).

use std::sync::Arc;

use tenon_planner::plan::{Command, PodRef};
use tenon_planner::size_class;

use crate::cloud_provider::CloudProvider;
use crate::operator::Operator;

/// The pods of a command's candidates.
pub(super) fn pods(command: &Command) -> impl Iterator<Item = &PodRef> {
    command.candidates.iter().flat_map(|candidate| &candidate.pods)
}

/// Has the larger ones of a command's pods evicted first, among those of all commands. Daemons and
/// critical pods are drained after all others, whatever their size.
pub(in crate::disruption) fn expect_evictions<P: CloudProvider>(
    operator: &Operator<P>,
    command: &Command,
) {
    let state = operator.state.read();
    let classes = pods(command).filter_map(|pod| {
        let known = state.pod(&pod.into()).filter(|known| known.uid == pod.uid)?;
        let drained_first = !known.critical && !known.is_daemon();
        drained_first.then(|| (Arc::clone(&pod.uid), size_class(&known.shape.requests)))
    });
    operator.eviction_order.expect(classes, operator.now());
}

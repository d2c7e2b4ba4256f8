//! What could be done about each candidate, were it the only one: evaluated side by side on the
//! state that they share.

use rayon::prelude::*;

use super::Pass;
use super::attempt::{Aim, attempt};
use super::candidates::Node;
use crate::Cancel;
use crate::plan::StayReason;

/// How many candidates are handed out before `cancel` is asked for all of them.
const BLOCK: usize = 1024;

/// By candidate: how it could go, or why it has to stay; `None` for those that were not looked at.
type Evaluations = Vec<Option<Result<Aim, StayReason>>>;

/// Evaluates candidates, each as if nothing else happened. The first one is always looked at.
pub(super) fn evaluate(pass: &Pass<'_, '_>, nodes: &[&Node], cancel: &dyn Cancel) -> Evaluations {
    let mut evaluations: Evaluations = vec![None; nodes.len()];
    // A worker keeps its scratch memory from block to block. What it finds out about a node depends
    // on nothing that it found out about others, so the number of workers makes no difference.
    let workers = rayon::current_num_threads().min(nodes.len().div_ceil(64)).max(1);
    let mut workers: Vec<_> = (0..workers).map(|_| pass.fork()).collect();
    for (block, (nodes, evaluations)) in
        nodes.chunks(BLOCK).zip(evaluations.chunks_mut(BLOCK)).enumerate()
    {
        let share = nodes.len().div_ceil(workers.len());
        workers
            .par_iter_mut()
            .zip(nodes.par_chunks(share))
            .zip(evaluations.par_chunks_mut(share))
            .enumerate()
            .for_each(|(number, ((worker, nodes), evaluations))| {
                for (index, (node, evaluation)) in nodes.iter().zip(evaluations).enumerate() {
                    let first = block == 0 && number == 0 && index == 0;
                    if !first && cancel.is_cancelled() {
                        return;
                    }
                    *evaluation = Some(evaluate_one(worker, node));
                }
            });
        if cancel.is_cancelled() {
            break;
        }
    }
    evaluations
}

fn evaluate_one(worker: &mut Pass<'_, '_>, node: &Node) -> Result<Aim, StayReason> {
    let (moves, _) = attempt(worker, &[node], Aim::Replace)?;
    let aim = if moves.new_machines == 0 { Aim::Delete } else { Aim::Replace };
    worker.take_back(&[node], moves);
    Ok(aim)
}

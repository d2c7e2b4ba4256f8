//! Machines that take no pods in a simulation: they will go, say.

use super::Solver;

impl Solver<'_, '_> {
    /// Lets a machine take no more pods.
    pub(crate) fn close(&mut self, machine: usize) {
        self.closed.insert(machine);
        if let Some(position) = self.problem.machines.position(machine) {
            self.closed_at.insert(position);
        }
    }

    /// Lets it take pods again.
    pub(crate) fn reopen(&mut self, machine: usize) {
        self.closed.set(machine, false);
        if let Some(position) = self.problem.machines.position(machine) {
            self.closed_at.set(position, false);
        }
    }

    /// Whether a machine takes no pods.
    pub(crate) fn is_closed(&self, machine: usize) -> bool {
        self.closed[machine]
    }

    /// The machines that take no pods.
    pub(crate) fn closed(&self) -> impl Iterator<Item = usize> {
        self.closed.ones()
    }
}

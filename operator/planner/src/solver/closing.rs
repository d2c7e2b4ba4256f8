//! Machines that accept no pods in a simulation, because they are to be removed, for example.

use super::Solver;

impl Solver<'_, '_> {
    /// Closes a machine for pods.
    pub(crate) fn close(&mut self, machine: usize) {
        self.closed.insert(machine);
        if let Some(position) = self.problem.tables.machines.position(machine) {
            self.closed_at.insert(position);
        }
    }

    /// Opens it again.
    pub(crate) fn reopen(&mut self, machine: usize) {
        self.closed.set(machine, false);
        if let Some(position) = self.problem.tables.machines.position(machine) {
            self.closed_at.set(position, false);
        }
    }

    /// Whether a machine is closed for pods.
    pub(crate) fn is_closed(&self, machine: usize) -> bool {
        self.closed[machine]
    }

    /// The closed machines.
    pub(crate) fn closed(&self) -> impl Iterator<Item = usize> {
        self.closed.ones()
    }
}

//! Which statements of which policies calls needed.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use serde::Serialize;

use crate::gateway::policy::{Policies, StatementRef};

/// A statement of a role's policies and what it was needed for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatementUse {
    /// Name of the role.
    pub role: String,
    /// Name of the policy.
    pub policy: String,
    /// Id of the statement.
    pub sid: String,
    /// How many checks it allowed.
    pub checks: u64,
    /// The calls that they belonged to: `ec2:CreateFleet`.
    pub calls: BTreeSet<String>,
}

/// What a statement was needed for.
#[derive(Debug, Default)]
struct Count {
    checks: u64,
    calls: BTreeSet<String>,
}

/// Counts, by role and statement. Every statement of a role that ever called is there, also those
/// that were never needed.
#[derive(Debug, Default)]
pub struct Usage {
    by_statement: Mutex<BTreeMap<(String, StatementRef), Count>>,
}

impl Usage {
    /// Notes the statements that a role has.
    pub(super) fn know(&self, role: &str, policies: &Policies) {
        let mut by_statement = self.by_statement.lock();
        for named in &policies.identity {
            for (index, statement) in named.document.statements.iter().enumerate() {
                let sid = statement.sid.clone().unwrap_or_else(|| format!("#{index}"));
                by_statement
                    .entry((role.to_owned(), StatementRef { policy: named.name.clone(), sid }))
                    .or_default();
            }
        }
    }

    /// Notes the statements that allowed a call.
    pub(super) fn needed(&self, role: &str, call: &str, statements: Vec<StatementRef>) {
        let mut by_statement = self.by_statement.lock();
        for statement in statements {
            let count = by_statement.entry((role.to_owned(), statement)).or_default();
            count.checks += 1;
            if !count.calls.contains(call) {
                count.calls.insert(call.to_owned());
            }
        }
    }

    /// Every statement of every role that called.
    pub fn statements(&self) -> Vec<StatementUse> {
        self.by_statement
            .lock()
            .iter()
            .map(|((role, statement), count)| StatementUse {
                role: role.clone(),
                policy: statement.policy.clone(),
                sid: statement.sid.clone(),
                checks: count.checks,
                calls: count.calls.clone(),
            })
            .collect()
    }

    /// The statements that some call needed.
    pub fn needed_statements(&self) -> Vec<StatementUse> {
        self.statements().into_iter().filter(|statement| statement.checks > 0).collect()
    }

    /// The statements that no call needed so far.
    pub fn unneeded_statements(&self) -> Vec<StatementUse> {
        self.statements().into_iter().filter(|statement| statement.checks == 0).collect()
    }
}

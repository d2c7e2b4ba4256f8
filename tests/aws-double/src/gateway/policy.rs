//! Whether IAM policies allow a call: pure, from documents and the call's context, for the gate,
//! trust policies and queue policies.
//!
//! The order is IAM's: an explicit `Deny` anywhere wins; otherwise the identity's policies must
//! allow, and so must each boundary that is set. What no statement allows is denied. The verdict
//! names the statement that decided, so that the gate can tell which statements are needed.

use std::collections::BTreeMap;

use tenon_iam_policies::document::{
    Actions, Document, Effect, Principal, Principals, Resources, Statement,
};

mod conditions;
mod pattern;

pub use pattern::glob;

/// The facts of a call that conditions can ask for: keys without regard to case, each with its
/// values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context(BTreeMap<String, Vec<String>>);

/// One thing that a call wants to do with one resource.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The action: `ec2:RunInstances`.
    pub action: &'a str,
    /// The resource's ARN, or `*` for actions without one.
    pub resource: &'a str,
    /// The facts.
    pub context: &'a Context,
}

/// A document under the name it is stored by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDocument {
    /// The policy's name.
    pub name: String,
    /// What it says.
    pub document: Document,
}

/// The policies that apply to who calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// The policies of the user or role; any of them can allow.
    pub identity: Vec<NamedDocument>,
    /// Permissions boundary and session policy; each of them that is there must allow as well.
    pub limits: Vec<NamedDocument>,
}

/// Which statement decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatementRef {
    /// The policy's name.
    pub policy: String,
    /// The statement's id, or `#` and its index when it has none.
    pub sid: String,
}

/// What the policies say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed by this statement.
    Allowed(StatementRef),
    /// No statement of the identity's policies allows it.
    NotAllowed,
    /// The identity's policies allow it, but this limit does not.
    Limited(String),
    /// This statement denies it.
    Denied(StatementRef),
}

/// Who calls, as resource policies and trust policies name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller<'a> {
    /// A user, role or session.
    Aws {
        /// Its ARN; of a session, the session's.
        arn: &'a str,
        /// Of a session, the ARN of its role.
        role: Option<&'a str>,
        /// Account id, 12 digits.
        account: &'a str,
    },
    /// A service such as `pods.eks.amazonaws.com`.
    Service(&'a str),
    /// Somebody whom an identity provider vouches for: the provider's ARN.
    Federated(&'a str),
}

impl Context {
    /// No facts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fact; several values of one key are kept together.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.add(key, value);
        self
    }

    /// Adds a fact; several values of one key are kept together.
    pub fn add(&mut self, key: &str, value: impl Into<String>) {
        self.0.entry(key.to_ascii_lowercase()).or_default().push(value.into());
    }

    /// The values of a key; `None` when the call has no such fact.
    pub fn get(&self, key: &str) -> Option<&[String]> {
        self.0.get(&key.to_ascii_lowercase()).map(Vec::as_slice)
    }
}

impl Verdict {
    /// Whether the call may go on.
    pub(crate) fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

impl Policies {
    /// What these policies say about a call.
    pub(crate) fn evaluate(&self, call: Call<'_>) -> Verdict {
        let denied = self
            .identity
            .iter()
            .chain(&self.limits)
            .find_map(|named| matching(named, call, Effect::Deny, None));
        if let Some(statement) = denied {
            return Verdict::Denied(statement);
        }
        let Some(allowed) =
            self.identity.iter().find_map(|named| matching(named, call, Effect::Allow, None))
        else {
            return Verdict::NotAllowed;
        };
        match self.limits.iter().find(|limit| matching(limit, call, Effect::Allow, None).is_none())
        {
            Some(limit) => Verdict::Limited(limit.name.clone()),
            None => Verdict::Allowed(allowed),
        }
    }
}

/// What a resource's policy (a trust policy, a queue's policy) says about a call by somebody.
///
/// Trust policies have no `Resource`: it is the role itself, so any resource of the call matches.
pub(crate) fn evaluate_resource_policy(
    policy: &NamedDocument,
    caller: Caller<'_>,
    call: Call<'_>,
) -> Verdict {
    if let Some(statement) = matching(policy, call, Effect::Deny, Some(caller)) {
        return Verdict::Denied(statement);
    }
    matching(policy, call, Effect::Allow, Some(caller))
        .map_or(Verdict::NotAllowed, Verdict::Allowed)
}

/// The first statement of this effect that applies. With a caller it must name them; without, the
/// statement must name nobody.
fn matching(
    named: &NamedDocument,
    call: Call<'_>,
    effect: Effect,
    caller: Option<Caller<'_>>,
) -> Option<StatementRef> {
    let document = &named.document;
    let (index, statement) = document.statements.iter().enumerate().find(|(_, statement)| {
        statement.effect == effect && applies(document, statement, call, caller)
    })?;
    let sid = statement.sid.clone().unwrap_or_else(|| format!("#{index}"));
    Some(StatementRef { policy: named.name.clone(), sid })
}

fn applies(
    document: &Document,
    statement: &Statement,
    call: Call<'_>,
    caller: Option<Caller<'_>>,
) -> bool {
    let named = match (&statement.principal, caller) {
        (None, None) => true,
        (Some(Principals::Only(principal)), Some(caller)) => names(principal, caller),
        (Some(Principals::AllBut(principal)), Some(caller)) => !names(principal, caller),
        (None, Some(_)) | (Some(_), None) => false,
    };
    let acts = |patterns: &[String]| {
        let action = call.action.to_ascii_lowercase();
        patterns.iter().any(|pattern| glob(&pattern.to_ascii_lowercase(), &action))
    };
    let touches = |patterns: &[String]| {
        patterns.iter().any(|pattern| {
            let pattern = conditions::substitute(pattern, document.version, call.context);
            pattern.is_some_and(|pattern| pattern::resource_matches(&pattern, call.resource))
        })
    };
    named
        && match &statement.actions {
            Actions::Only(patterns) => acts(patterns),
            Actions::AllBut(patterns) => !acts(patterns),
        }
        && match &statement.resources {
            Some(Resources::Only(patterns)) => touches(patterns),
            Some(Resources::AllBut(patterns)) => !touches(patterns),
            None => caller.is_some(),
        }
        && conditions::hold(&statement.conditions, document.version, call.context)
}

fn names(principal: &Principal, caller: Caller<'_>) -> bool {
    let Principal::Named { aws, service, federated } = principal else {
        return true;
    };
    match caller {
        Caller::Service(name) => service.iter().any(|pattern| pattern == name),
        Caller::Federated(arn) => federated.iter().any(|pattern| pattern == arn),
        Caller::Aws { arn, role, account } => aws.iter().any(|pattern| {
            pattern == "*"
                || pattern == arn
                || role == Some(pattern.as_str())
                || pattern == account
                || pattern
                    .strip_suffix(":root")
                    .is_some_and(|prefix| prefix.ends_with(&format!("::{account}")))
        }),
    }
}

#[cfg(test)]
mod tests;

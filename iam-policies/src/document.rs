//! The policy language: documents, statements, principals and conditions, to and from IAM's JSON.
//!
//! Reading is as strict as IAM's own parser where it matters: an element that IAM does not know,
//! both or none of `Action` and `NotAction`, or a condition value that is not a scalar is an error,
//! so that what parses here also parses there. Writing keeps the order of statements, actions and
//! resources, and writes lists of one as a plain string.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

mod wire;

/// The conditions of a statement: operator → condition key → values. All operators and keys must
/// hold; any one of the values suffices.
pub type Conditions = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// A policy document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "wire::Document", into = "wire::Document")]
pub struct Document {
    /// The version of the policy language.
    pub version: Version,
    /// An identifier that some resource policies carry.
    pub id: Option<String>,
    /// The statements, in the order in which they are written.
    pub statements: Vec<Statement>,
}

/// The version of the policy language. Policy variables such as `${aws:username}` are only
/// understood in the newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Version {
    /// What a document without `Version` has.
    #[serde(rename = "2008-10-17")]
    V2008,
    /// What every document should have.
    #[default]
    #[serde(rename = "2012-10-17")]
    V2012,
}

/// One statement: who may or may not do what, on what, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The statement's identifier, unique in its document.
    pub sid: Option<String>,
    /// Whether it allows or denies.
    pub effect: Effect,
    /// `Principal`. Absent in identity policies, where it is the principal with the policy.
    pub principal: Option<Principals>,
    /// `Action`, or `NotAction`.
    pub actions: Actions,
    /// The resources. Absent in trust policies, where it is the role itself.
    pub resources: Option<Resources>,
    /// When it applies.
    pub conditions: Conditions,
}

/// What a statement does when it applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Effect {
    /// Allows, unless another statement denies.
    Allow,
    /// Denies, whatever other statements allow.
    Deny,
}

/// The `Action` or `NotAction` element: patterns such as `ec2:Describe*`, compared without regard
/// to case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actions {
    /// Applies to these actions.
    Only(Vec<String>),
    /// Applies to all actions but these.
    AllBut(Vec<String>),
}

/// The `Resource` or `NotResource` element: ARN patterns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resources {
    /// Applies to these resources.
    Only(Vec<String>),
    /// Applies to all resources but these.
    AllBut(Vec<String>),
}

/// The `Principal` or `NotPrincipal` element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principals {
    /// Applies to these principals.
    Only(Principal),
    /// Applies to all principals but these.
    AllBut(Principal),
}

/// Whom a resource policy or trust policy names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// Everybody, written `"*"`.
    Anyone,
    /// Named principals by kind.
    Named {
        /// Account ids, and ARNs of accounts, users, roles and sessions; `*` is everybody.
        aws: Vec<String>,
        /// Service names such as `ec2.amazonaws.com`.
        service: Vec<String>,
        /// ARNs of identity providers.
        federated: Vec<String>,
    },
}

/// A text that is not a policy document.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// The text is percent-encoded, but does not decode to UTF-8.
    #[error("the policy document is not UTF-8 once percent-decoded")]
    Encoding(#[source] std::str::Utf8Error),
    /// The text is not JSON, or not a policy document.
    #[error("not a policy document")]
    Json(#[source] serde_json::Error),
}

impl Document {
    /// A document of the current language version with these statements.
    pub fn new(statements: impl IntoIterator<Item = Statement>) -> Self {
        Self { version: Version::V2012, id: None, statements: statements.into_iter().collect() }
    }

    /// Gives the document an `Id`.
    #[must_use]
    pub(crate) fn with_id(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }

    /// Reads a document as AWS hands it out: JSON, or JSON percent-encoded (as IAM does for roles
    /// and policies).
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.trim_start().starts_with('{') {
            return serde_json::from_str(text).map_err(ParseError::Json);
        }
        let decoded = percent_decode_str(text).decode_utf8().map_err(ParseError::Encoding)?;
        serde_json::from_str(&decoded).map_err(ParseError::Json)
    }

    /// The document as one line of JSON: what the installer sends.
    pub fn to_json(&self) -> String {
        self.render(serde_json::to_string)
    }

    /// The document as indented JSON with a final newline: what people read.
    pub fn to_json_pretty(&self) -> String {
        let mut text = self.render(serde_json::to_string_pretty);
        text.push('\n');
        text
    }

    fn render(&self, write: fn(&Self) -> serde_json::Result<String>) -> String {
        write(self).expect("a document is maps, lists and strings, which always serialise")
    }

    /// The characters that count against IAM's limits: all but white space.
    pub fn size(&self) -> usize {
        self.to_json().chars().filter(|c| !c.is_whitespace()).count()
    }

    /// Whether both documents say the same, whatever the order and spelling of their lists.
    /// Statement ids count: they are what people search for.
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }

    fn canonical(&self) -> (Version, Option<&str>, BTreeSet<String>) {
        let statements = self
            .statements
            .iter()
            .map(|statement| Self::new([statement.canonical()]).to_json())
            .collect();
        (self.version, self.id.as_deref(), statements)
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

impl Statement {
    /// A statement that allows these actions on every resource until [`on`](Self::on) narrows it.
    pub fn allow<'a>(sid: &str, actions: impl IntoIterator<Item = &'a str>) -> Self {
        Self::with_effect(Effect::Allow, sid, actions)
    }

    /// A statement that denies these actions.
    pub fn deny<'a>(sid: &str, actions: impl IntoIterator<Item = &'a str>) -> Self {
        Self::with_effect(Effect::Deny, sid, actions)
    }

    fn with_effect<'a>(
        effect: Effect,
        sid: &str,
        actions: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self {
            sid: (!sid.is_empty()).then(|| sid.to_owned()),
            effect,
            principal: None,
            actions: Actions::Only(actions.into_iter().map(str::to_owned).collect()),
            resources: Some(Resources::Only(vec!["*".to_owned()])),
            conditions: Conditions::new(),
        }
    }

    /// Narrows the statement to these resources.
    #[must_use]
    pub fn on(mut self, resources: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.resources = Some(Resources::Only(resources.into_iter().map(Into::into).collect()));
        self
    }

    /// Makes it a statement of a trust policy: without resources.
    #[must_use]
    pub(crate) fn without_resources(mut self) -> Self {
        self.resources = None;
        self
    }

    /// Names whom it is about.
    #[must_use]
    pub fn by(mut self, principal: Principal) -> Self {
        self.principal = Some(Principals::Only(principal));
        self
    }

    /// Adds a condition. Conditions with the same operator and key have their values joined: any of
    /// them suffices.
    #[must_use]
    pub fn when(
        mut self,
        operator: &str,
        key: impl Into<String>,
        values: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let keys = self.conditions.entry(operator.to_owned()).or_default();
        keys.entry(key.into()).or_default().extend(values.into_iter().map(Into::into));
        self
    }

    /// Adds the actions and the resources of a statement with the same conditions.
    pub(crate) fn join(&mut self, other: Self) {
        if let (Actions::Only(own), Actions::Only(actions)) = (&mut self.actions, other.actions) {
            own.extend(actions);
        }
        if let (Some(Resources::Only(own)), Some(Resources::Only(resources))) =
            (&mut self.resources, other.resources)
        {
            let new = resources.into_iter().filter(|one| !own.contains(one)).collect::<Vec<_>>();
            own.extend(new);
        }
    }

    fn canonical(&self) -> Self {
        fn sorted(values: &[String]) -> Vec<String> {
            values.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()
        }
        let lowered = |values: &[String]| {
            sorted(&values.iter().map(|value| value.to_ascii_lowercase()).collect::<Vec<_>>())
        };
        let principal = |principal: &Principal| match principal {
            Principal::Anyone => Principal::Anyone,
            Principal::Named { aws, service, federated } => Principal::Named {
                aws: sorted(aws),
                service: sorted(service),
                federated: sorted(federated),
            },
        };
        Self {
            sid: self.sid.clone(),
            effect: self.effect,
            principal: self.principal.as_ref().map(|principals| match principals {
                Principals::Only(named) => Principals::Only(principal(named)),
                Principals::AllBut(named) => Principals::AllBut(principal(named)),
            }),
            actions: match &self.actions {
                Actions::Only(actions) => Actions::Only(lowered(actions)),
                Actions::AllBut(actions) => Actions::AllBut(lowered(actions)),
            },
            resources: self.resources.as_ref().map(|resources| match resources {
                Resources::Only(arns) => Resources::Only(sorted(arns)),
                Resources::AllBut(arns) => Resources::AllBut(sorted(arns)),
            }),
            conditions: self
                .conditions
                .iter()
                .map(|(operator, keys)| {
                    (
                        operator.clone(),
                        keys.iter().map(|(key, values)| (key.clone(), sorted(values))).collect(),
                    )
                })
                .collect(),
        }
    }
}

impl Principal {
    /// One AWS service, such as `ec2.amazonaws.com`.
    pub fn service(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Named {
            aws: Vec::new(),
            service: names.into_iter().map(Into::into).collect(),
            federated: Vec::new(),
        }
    }

    /// One identity provider by its ARN.
    pub fn federated(arn: impl Into<String>) -> Self {
        Self::Named { aws: Vec::new(), service: Vec::new(), federated: vec![arn.into()] }
    }

    /// One account, user, role or session by its ARN.
    pub fn aws(arn: impl Into<String>) -> Self {
        Self::Named { aws: vec![arn.into()], service: Vec::new(), federated: Vec::new() }
    }
}

#[cfg(test)]
mod tests;

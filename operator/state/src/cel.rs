//! Device selectors: the part of CEL that predicates over one device need, with Kubernetes'
//! functions for strings, quantities and versions.
//!
//! A [`Program`] is parsed once. Neither parsing nor evaluation panics, whatever the text: its
//! length and depth are bounded, and an evaluation has a budget of steps. What the language has
//! beyond this part is refused when it is parsed, so that nobody plans on half an answer. Why this
//! is not a crate: docs/src/design/dra.md.

mod budget;
mod eval;
mod functions;
mod lex;
mod parse;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use thiserror::Error;

pub use value::{DeviceView, Value};

use parse::Expr;

/// How long an expression may be, in bytes: what the API admits (`CELSelectorExpressionMaxLength`).
const LONGEST: usize = 10 * 1024;

/// Why an expression is no selector that can be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CelError {
    /// It is longer than the API admits.
    #[error("the expression is longer than {LONGEST} bytes")]
    TooLong,
    /// It is nested too deeply.
    #[error("the expression is nested more than {} deep", parse::DEEPEST)]
    TooDeep,
    /// It is not CEL.
    #[error("{what} at byte {at}")]
    Syntax {
        /// What is wrong.
        what: String,
        /// Where.
        at: usize,
    },
    /// A function that selectors don't have, or that is not known here.
    #[error("function {0} is not known")]
    Function(String),
    /// A variable other than `device`.
    #[error("variable {0} is not known")]
    Variable(String),
}

/// Why an evaluation gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvalError {
    /// There is no such attribute, an operator does not fit its values, and the like.
    /// kube-scheduler takes it for «does not match», too.
    #[error("{0}")]
    Value(String),
    /// It takes too long.
    #[error("the expression costs too much to evaluate")]
    Budget,
}

/// A selector.
#[derive(Clone, Debug)]
pub struct Program {
    expr: Expr,
    reads: Reads,
}

/// What of a device an expression reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Names, among which those of all attributes and capacities that it reads.
    pub names: BTreeSet<String>,
    /// It may look at others, too.
    pub all: bool,
}

/// A semantic version, if the text is one.
pub fn version(text: &str) -> Option<Value> {
    value::Version::parse(text).map(Value::Version)
}

impl Program {
    /// Parses an expression.
    pub fn parse(text: &str) -> Result<Self, CelError> {
        if text.len() > LONGEST {
            return Err(CelError::TooLong);
        }
        let expr = parse::parse(text)?;
        let mut reads = Reads::default();
        expr.check(&mut vec!["device"], &mut reads)?;
        Ok(Self { expr, reads })
    }

    /// What of a device it reads.
    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    /// Whether a device matches. An error other than [`EvalError::Budget`] is about this device
    /// alone.
    pub fn matches(&self, device: &DeviceView) -> Result<bool, EvalError> {
        match eval::evaluate(&self.expr, device)? {
            Value::Bool(matches) => Ok(matches),
            other => Err(EvalError::Value(format!("{} is no answer", other.kind()))),
        }
    }
}

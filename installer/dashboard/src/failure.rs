//! What a request gets instead of data.

use http::StatusCode;
use tenon_simulate::SimulateError;

/// Why there is no data: for people, with what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Of the answer.
    pub status: StatusCode,
    /// In one sentence.
    pub message: String,
    /// The facts behind it, one per line.
    pub details: Vec<String>,
    /// What to do.
    pub hints: Vec<String>,
}

impl Failure {
    /// Without details and hints.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), details: Vec::new(), hints: Vec::new() }
    }

    /// The same with something to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The status of an answer to a question that could not be simulated.
    pub fn status_of(error: &SimulateError) -> StatusCode {
        match error {
            SimulateError::NotFound { .. } => StatusCode::NOT_FOUND,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

impl From<SimulateError> for Failure {
    fn from(error: SimulateError) -> Self {
        let (details, hints) = (error.details(), error.hints());
        Self { status: Self::status_of(&error), message: error.to_string(), details, hints }
    }
}

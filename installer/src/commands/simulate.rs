//! `tenon simulate` and `tenon explain`: what the operator would do and why, without doing it.

use crate::cli::GlobalArgs;
use crate::errors::ExpectedError;
use crate::printer::Printer;
pub use crate::simulate::args::{ExplainArgs, SimulateArgs};

/// Says what would be launched, placed, removed, and what stays, with the reasons.
pub async fn run(
    global: &GlobalArgs,
    args: &SimulateArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    crate::simulate::simulate(global, args, printer).await
}

/// Says why one object is as it is.
pub async fn explain(
    global: &GlobalArgs,
    args: &ExplainArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    crate::simulate::explain(global, args, printer).await
}

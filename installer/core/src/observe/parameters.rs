//! Parameters of Systems Manager.

use crate::aws::{Aws, AwsError, Calling, IfThere};

/// The value of a parameter; `None` if there is none of this name.
///
/// # Errors
/// If it cannot be read.
pub async fn parameter(aws: &Aws, name: &str) -> Result<Option<String>, AwsError> {
    let call = aws.ssm.get_parameter().name(name).send().await;
    let found = call.calling("ssm:GetParameter", name).if_there()?;
    Ok(found.and_then(|found| found.parameter?.value))
}

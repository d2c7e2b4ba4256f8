//! kubectl as the administrator of a bed.

use crate::bed::Bed;
use crate::failure::Failure;

/// Runs it; it has to succeed.
pub(crate) async fn kubectl(bed: &Bed, args: &[&str]) -> Result<(), Failure> {
    let output = bed.command("kubectl".as_ref()).args(args).output().await?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`kubectl {}` ended with {}: {}", args.join(" "), output.status, said.trim())
        .into())
}

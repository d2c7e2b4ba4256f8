//! An adopted Karpenter installation, which an uninstall leaves as it was before it was adopted.

use super::Remover;
use crate::adopt::{found, steps};
use crate::apply::{Context, perform};
use crate::errors::{ExpectedError, Failure};
use crate::plan::{Action, Step};

/// What takes the marks off; nothing if nothing was adopted. What can't be told any more is said to stay.
pub(super) async fn read(context: &Context) -> Result<(Vec<Step>, Vec<String>), Failure> {
    let operator = match found::operator(&context.cluster).await {
        Ok(Ok(operator)) => operator,
        Ok(Err(_)) => return Ok((Vec::new(), Vec::new())),
        Err(error) if error.denied().is_some() => return Ok((Vec::new(), Vec::new())),
        Err(error) => return Err(error),
    };
    if operator.adopted_by.as_ref() != Some(&context.install_id) {
        return Ok((Vec::new(), Vec::new()));
    }
    let key = operator.live.key();
    let read = found::read(&context.aws, &context.cluster, &context.cluster_name, operator).await?;
    Ok(match read {
        Ok(found) => (steps::leave(&found, &context.install_id), Vec::new()),
        Err(reasons) => {
            let why = reasons.join("; ");
            (Vec::new(), vec![format!("marks of the adoption on {key} and what it uses: {why}")])
        }
    })
}

impl Remover<'_> {
    /// Takes our marks off what was adopted, and gives Karpenter's Deployment its replicas back.
    pub(super) async fn leave_adopted(
        &mut self,
        kept: &mut Vec<String>,
    ) -> Result<(), ExpectedError> {
        let context = self.context.clone();
        let found = read(&context).await;
        let (steps, stays) = found.map_err(|error| self.failed("adopted", error))?;
        kept.extend(stays);
        for step in steps {
            let what = match &step.action {
                Action::ForgetHandOver { replicas: Some(_), .. } => {
                    format!("hand-over of {} {}", step.kind, step.resource)
                }
                _ => format!("mark on {} {}", step.kind, step.resource),
            };
            let done = perform(&context, &step.action, self.printer);
            self.step(&step.id, &what, done).await?;
        }
        Ok(())
    }
}

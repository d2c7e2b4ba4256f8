//! An adopted Karpenter installation, which an uninstall leaves as it was before it was adopted.

use tenon_installer_core::apply::{Context, perform};
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::git_source::GitSource;
use tenon_installer_core::plan::{Action, Step};

use super::Remover;
use crate::adopt::karpenter::Operator;
use crate::adopt::{karpenter, steps};
use crate::errors::ExpectedError;

/// What takes the marks off; nothing if nothing was adopted. What can't be told is said to stay.
pub(super) async fn read(context: &Context) -> Result<(Vec<Step>, Vec<String>), Failure> {
    let stays = |what: String| Ok((Vec::new(), vec![what]));
    let mut adopted = match karpenter::operators(&context.cluster).await {
        Ok(operators) => operators,
        Err(error) if error.is_denied() => {
            return stays(format!("marks of an adoption, if there are any: {error}"));
        }
        Err(error) => return Err(error.into()),
    };
    // Beside the one that was taken over there may be others, which are none of ours.
    adopted.retain(|operator| operator.adopted_by.as_ref() == Some(&context.install_id));
    if adopted.len() > 1 {
        return stays(format!(
            "marks of the adoption on several Deployments: {}; remove the unused ones",
            karpenter::names(&adopted)
        ));
    }
    let Some(operator) = adopted.pop() else { return Ok((Vec::new(), Vec::new())) };
    let key = operator.live.key();
    let operator = operator.with_sources(&context.cluster).await?;
    let read =
        karpenter::read(&context.aws, &context.cluster, &context.cluster_name, operator).await?;
    Ok(match read {
        Ok(found) => {
            let stays = steps::away(&found.operator).then(|| in_git(&found.operator)).flatten();
            (steps::leave(&found, &context.install_id), stays.into_iter().collect())
        }
        Err(reasons) => {
            let why = reasons.join("; ");
            (Vec::new(), vec![format!("marks of the adoption on {key} and what it uses: {why}")])
        }
    })
}

/// What git still says of Karpenter's replicas, and what to do about it.
fn in_git(operator: &Operator) -> Option<String> {
    let (GitSource { tool, object, values, .. }, _) = operator.in_git.as_ref()?;
    Some(format!(
        "the replicas of {} in git, which {tool} applies: set them to {} in {values} of {object}",
        operator.live.key(),
        operator.replicas
    ))
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
            let printer = self.printer;
            let done = perform(&context, &step.action, &printer);
            self.step(&step.id, &what, done).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use tenon_installer_core::aws::Aws;
    use tenon_installer_core::ownership::ADOPTED_BY;
    use tenon_installer_core::testing::Double;

    fn karpenter(namespace: &str, adopted_by: &str) -> (String, Value) {
        let path = format!("/apis/apps/v1/deployments/{namespace}");
        let live = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "karpenter",
                "namespace": namespace,
                "annotations": {(ADOPTED_BY): adopted_by},
            },
            "spec": {"selector": {}, "template": {"spec": {
                "containers": [{"name": "controller", "image": "public.ecr.aws/karpenter/controller:1"}],
            }}},
        });
        (path, live)
    }

    async fn stays(deployments: &[(String, Value)]) -> Vec<String> {
        let deployments = deployments.iter().map(|(path, live)| (path.as_str(), live.clone()));
        let server = Double::start(&deployments.collect::<Vec<_>>()).await;
        let context = Context {
            aws: Aws::nowhere(),
            cluster: server.cluster(),
            cluster_name: "prod".to_owned(),
            install_id: "abcd0123".to_owned(),
        };
        let (steps, stays) = read(&context).await.expect("it is answered");
        assert!(steps.is_empty());
        stays
    }

    #[tokio::test]
    async fn several_that_bear_our_mark_are_named_and_others_are_left_alone() {
        let others = [karpenter("one", "00000000"), karpenter("two", "00000000")];
        assert_eq!(stays(&others).await, Vec::<String>::new());
        let ours = [karpenter("one", "abcd0123"), karpenter("two", "abcd0123")];
        let stays = stays(&ours).await.join("\n");
        assert!(stays.contains("one/karpenter, two/karpenter"), "{stays}");
    }

    #[tokio::test]
    async fn a_caller_that_may_not_look_is_told_that_marks_may_stay() {
        let stays = stays(&[("/apis/apps/v1/deployments".to_owned(), Double::denied())]).await;
        assert!(stays.join("\n").contains("marks of an adoption, if there are any"), "{stays:?}");
    }
}

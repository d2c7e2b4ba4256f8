//! EC2 Auto Scaling where moto differs: lifecycle hooks keep the target that they announce to, and
//! one that does not exist can't be deleted.

use super::aws_state::AwsState;
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};
use super::xml::Element;

/// Corrections of moto's Auto Scaling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AutoScaling;

impl Service for AutoScaling {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "autoscaling"
    }

    async fn call(
        &self,
        request: &AwsRequest,
        _: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        match request.action.as_str() {
            "PutLifecycleHook" => {
                let answer = aws_state.moto().forward(request).await?;
                if answer.is_success() {
                    let target = text(request, "NotificationTargetARN");
                    aws_state.hook_targets.lock().insert(hook(request), target);
                }
                Ok(answer)
            }
            "DescribeLifecycleHooks" => describe(request, aws_state).await,
            "DeleteLifecycleHook" => {
                if aws_state.hook_targets.lock().remove(&hook(request)).is_none() {
                    let message = "No Lifecycle Hook found for the group and name";
                    return Err(AwsError::new("ValidationError", message));
                }
                aws_state.moto().forward(request).await
            }
            _ => aws_state.moto().forward(request).await,
        }
    }
}

fn text(request: &AwsRequest, name: &str) -> String {
    request.params.get(name).unwrap_or_default().to_owned()
}

/// Group and name of the hook that a request is about.
fn hook(request: &AwsRequest) -> (String, String) {
    (text(request, "AutoScalingGroupName"), text(request, "LifecycleHookName"))
}

async fn describe(request: &AwsRequest, aws_state: &AwsState) -> Result<AwsResponse, AwsError> {
    let mut answer = aws_state.moto().forward(request).await?;
    let Ok(mut root) = Element::parse(&String::from_utf8_lossy(&answer.body)) else {
        return Ok(answer);
    };
    let targets = aws_state.hook_targets.lock().clone();
    let result = root.child_mut("DescribeLifecycleHooksResult");
    let hooks = result.and_then(|result| result.child_mut("LifecycleHooks"));
    for hook in hooks.into_iter().flat_map(|hooks| &mut hooks.children) {
        let of = |name: &str| hook.get(name).unwrap_or_default().to_owned();
        let target = targets.get(&(of("AutoScalingGroupName"), of("LifecycleHookName")));
        if let Some(target) = target.filter(|target| !target.is_empty()) {
            hook.set("NotificationTargetARN", target);
        }
    }
    answer.body = root.to_string().into();
    answer.headers.retain(|(name, _)| name != "content-length");
    Ok(answer)
}

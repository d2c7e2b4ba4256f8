//! TerminateInstances, StopInstances, StartInstances and RebootInstances.

use super::super::aws_state::AwsState;
use super::super::instance::State;
use super::super::request::AwsRequest;
use super::super::response::{AwsError, AwsResponse};
use super::super::service::Principal;
use super::super::xml::Element;
use super::list_answer;
use super::listed::named;
use super::render::state_element;

pub(super) fn change(
    request: &AwsRequest,
    principal: &Principal,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    if request.params.list("InstanceId").is_empty() {
        return Err(AwsError::new(
            "MissingParameter",
            "The request must contain the parameter InstanceId",
        ));
    }
    let instances = named(aws_state, &request.params)?;
    let ids: Vec<String> = instances.iter().map(|instance| instance.id.clone()).collect();
    let (state, verb) = match request.action.as_str() {
        "RebootInstances" => {
            return Ok(AwsResponse::ec2(request, "<return>true</return>").with_resources(ids));
        }
        "StartInstances" => (State::Pending, "started"),
        "StopInstances" => (State::Stopping, "stopped"),
        _ => (State::ShuttingDown, "terminated"),
    };
    for instance in &instances {
        let wrong = match state {
            State::Pending => {
                !matches!(instance.state, State::Stopped | State::Pending | State::Running)
            }
            State::Stopping => !instance.state.is_alive(),
            _ => false,
        };
        if wrong {
            let message = format!(
                "The instance '{}' is not in a state from which it can be {verb}.",
                instance.id
            );
            return Err(AwsError::new("IncorrectInstanceState", message));
        }
    }
    tracing::debug!(?ids, by = principal.arn, "instances are {verb}");
    let reason = match state {
        State::Pending => None,
        _ => Some((
            "Client.UserInitiatedShutdown",
            "Client.UserInitiatedShutdown: User initiated shutdown",
        )),
    };
    let items = ids.iter().map(|id| {
        let before = aws_state.instances().begin(id, state, reason).unwrap_or(state);
        let now = aws_state.instances().get(id).map_or(state, |instance| instance.state);
        vec![
            Element::leaf("instanceId", id),
            state_element("currentState", now),
            state_element("previousState", before),
        ]
    });
    let answer = list_answer(request, "instancesSet", items.collect(), None);
    Ok(answer.with_resources(ids))
}

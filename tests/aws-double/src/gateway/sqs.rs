//! SQS where moto differs: the name of a deleted queue rests for a while when eventual consistency
//! is on, and messages of an encrypted queue are only for those who may use its key.

use serde_json::json;

use super::aws_state::AwsState;
use super::consistency::Kind;
use super::kms;
use super::policy::{Caller, Context};
use super::request::{AwsRequest, Protocol};
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service, signed};

/// Corrections of moto's SQS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sqs;

impl Service for Sqs {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "sqs"
    }

    async fn call(
        &self,
        request: &AwsRequest,
        caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        match request.action.as_str() {
            "CreateQueue" => create(request, aws_state).await,
            "DeleteQueue" => delete(request, aws_state).await,
            "SetQueueAttributes" => {
                let answer = aws_state.moto().forward(request).await?;
                if answer.is_success() {
                    learn_key(&queue_name(request), aws_state).await?;
                }
                Ok(answer)
            }
            _ => {
                use_key(request, signed(caller)?, aws_state).await?;
                aws_state.moto().forward(request).await
            }
        }
    }
}

/// What a call on messages of an encrypted queue does with its key; `None` for calls that touch no
/// message.
pub(super) fn key_actions(action: &str) -> Option<&'static [&'static str]> {
    match action {
        "SendMessage" | "SendMessageBatch" => Some(&kms::ENCRYPT),
        "ReceiveMessage" => Some(&kms::DECRYPT),
        _ => None,
    }
}

fn field(request: &AwsRequest, name: &str) -> String {
    match request.protocol {
        Protocol::Json(_) => request.json[name].as_str().unwrap_or_default().to_owned(),
        _ => request.params.get(name).unwrap_or_default().to_owned(),
    }
}

fn queue_name(request: &AwsRequest) -> String {
    let url = field(request, "QueueUrl");
    url.rsplit('/').next().unwrap_or_default().to_owned()
}

async fn create(request: &AwsRequest, aws_state: &AwsState) -> Result<AwsResponse, AwsError> {
    let name = field(request, "QueueName");
    if !aws_state.consistency().is_visible(Kind::DeletedQueue, &name) {
        let message = "You must wait 60 seconds after deleting a queue before you can create another with the same name.";
        return Err(AwsError::new("AWS.SimpleQueueService.QueueDeletedRecently", message));
    }
    let answer = aws_state.moto().forward(request).await?;
    if answer.is_success() {
        learn_key(&name, aws_state).await?;
    }
    Ok(answer)
}

async fn delete(request: &AwsRequest, aws_state: &AwsState) -> Result<AwsResponse, AwsError> {
    let answer = aws_state.moto().forward(request).await?;
    if answer.is_success() {
        let name = queue_name(request);
        aws_state.queue_keys.lock().remove(&name);
        aws_state.consistency().changed(Kind::DeletedQueue, &name);
    }
    Ok(answer)
}

/// Remembers the key of a queue, so that calls on messages need not ask for it.
async fn learn_key(name: &str, aws_state: &AwsState) -> Result<(), AwsError> {
    let moto = aws_state.moto();
    let found = moto.json("sqs", "AmazonSQS.GetQueueUrl", &json!({ "QueueName": name })).await?;
    let asked = json!({ "QueueUrl": found["QueueUrl"], "AttributeNames": ["KmsMasterKeyId"] });
    let answer = moto.json("sqs", "AmazonSQS.GetQueueAttributes", &asked).await?;
    let key = answer["Attributes"]["KmsMasterKeyId"].as_str().filter(|key| !key.is_empty());
    let mut keys = aws_state.queue_keys.lock();
    match key {
        Some(key) => keys.insert(name.to_owned(), key.to_owned()),
        None => keys.remove(name),
    };
    Ok(())
}

async fn use_key(
    request: &AwsRequest,
    principal: &Principal,
    aws_state: &AwsState,
) -> Result<(), AwsError> {
    let (Some(key), Some(actions)) =
        (aws_state.queue_key(&queue_name(request)), key_actions(&request.action))
    else {
        return Ok(());
    };
    let caller = Caller::Aws {
        arn: &principal.arn,
        role: principal.role_arn.as_deref(),
        account: &principal.account,
    };
    let context = Context::new()
        .with("kms:ViaService", kms::via_sqs(aws_state))
        .with("kms:CallerAccount", aws_state.account());
    let allowed = kms::allows(aws_state, &key, caller, actions, &context).await;
    allowed.map_err(|reason| AwsError::new("KMS.AccessDeniedException", reason.to_string()))
}

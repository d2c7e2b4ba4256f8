//! SQS where moto differs: the name of a deleted queue rests for a while when eventual consistency is on.

use futures::future::BoxFuture;

use super::consistency::Kind;
use super::request::{AwsRequest, Protocol};
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};
use super::world::World;

/// Corrections of moto's SQS.
#[derive(Clone, Copy, Debug)]
pub struct Sqs;

impl Service for Sqs {
    fn name(&self) -> &'static str {
        "sqs"
    }

    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "sqs" && matches!(request.action.as_str(), "CreateQueue" | "DeleteQueue")
    }

    fn call<'a>(
        &'a self,
        request: &'a AwsRequest,
        _principal: &'a Principal,
        world: &'a World,
    ) -> BoxFuture<'a, Result<AwsResponse, AwsError>> {
        Box::pin(async move {
            let field = |name: &str| match request.protocol {
                Protocol::Json(_) => request.json[name].as_str().unwrap_or_default().to_owned(),
                _ => request.params.get(name).unwrap_or_default().to_owned(),
            };
            if request.action == "CreateQueue" {
                if !world.consistency().is_visible(Kind::DeletedQueue, &field("QueueName")) {
                    let message = "You must wait 60 seconds after deleting a queue before you can create another with the same name.";
                    return Err(AwsError::new(
                        "AWS.SimpleQueueService.QueueDeletedRecently",
                        message,
                    ));
                }
                return world.moto().forward(request).await;
            }
            let answer = world.moto().forward(request).await?;
            if answer.is_success() {
                let url = field("QueueUrl");
                world
                    .consistency()
                    .changed(Kind::DeletedQueue, url.rsplit('/').next().unwrap_or_default());
            }
            Ok(answer)
        })
    }
}

//! Sees what the SDK's own repetitions hide: a call that succeeds at its third attempt was
//! throttled twice, and took three turns.

use std::sync::Arc;

use aws_sdk_ec2::config::interceptors::{
    BeforeTransmitInterceptorContextRef, FinalizerInterceptorContextRef,
};
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::{HttpResponse, Metadata};
use aws_smithy_runtime_api::client::retries::RequestAttempts;

use crate::aws::error::{Kind, kind_of};
use crate::aws::pace::{Family, Pace};

/// Watches the attempts of all calls of a client.
#[derive(Debug)]
pub(super) struct Watch(pub(super) Arc<Pace>);

impl Intercept for Watch {
    fn name(&self) -> &'static str {
        "Watch"
    }

    fn read_before_attempt(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // The first attempt has waited for its turn.
        let repeated = config.load::<RequestAttempts>().is_some_and(|it| it.attempts() > 1);
        if repeated && let Some(family) = family(config) {
            self.0.take(family);
        }
        Ok(())
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let (Some(response), Some(family)) = (context.response(), family(config))
            && is_throttled(response)
        {
            self.0.throttled(family);
        }
        Ok(())
    }
}

fn family(config: &ConfigBag) -> Option<Family> {
    config.load::<Metadata>().map(|call| Family::of(call.name()))
}

fn is_throttled(response: &HttpResponse) -> bool {
    if response.status().is_success() {
        return false;
    }
    let body = response.body().bytes().and_then(|body| std::str::from_utf8(body).ok());
    let code = body.and_then(|body| body.split_once("<Code>")?.1.split_once("</Code>"));
    code.is_some_and(|(code, _)| kind_of(code) == Kind::Throttled)
}

//! SSM parameters whose image was deprecated since they were read: they are read again.

use std::collections::BTreeSet;
use std::time::Duration;

use super::error::Error;
use super::nodeclass::amis;
use super::refresh::after;
use super::{AwsProvider, Leader};
use crate::context::Context;
use crate::controller::Periodic;

/// Between looks.
const PERIOD: Duration = Duration::from_secs(30 * 60);

/// Looks for them.
pub(super) struct DeprecatedImages(pub(super) Leader);

impl Periodic for DeprecatedImages {
    const NAME: &'static str = "providers.ssm.invalidation";

    async fn begin(&mut self) -> Duration {
        PERIOD
    }

    async fn pass(&mut self) -> Duration {
        let Leader { provider, context, .. } = &self.0;
        let invalidated = invalidate_parameters(provider, context).await;
        after(context, Self::NAME, invalidated, PERIOD, PERIOD)
    }
}

async fn invalidate_parameters(provider: &AwsProvider, context: &Context) -> Result<(), Error> {
    let parameters = provider.parameters.mutable();
    let ids: BTreeSet<String> = parameters.iter().map(|(_, id)| id.clone()).collect();
    let ids: Vec<String> = ids.into_iter().collect();
    let outdated = amis::outdated(&provider.clients.ec2, &ids, context.clock.now()).await?;
    for (name, id) in parameters {
        if outdated.contains(&id) {
            tracing::info!(parameter = name, image = id, "the image is deprecated, reading again");
            provider.parameters.forget(&name);
        }
    }
    Ok(())
}

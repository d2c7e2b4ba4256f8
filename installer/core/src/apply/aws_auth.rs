//! Steps on the ConfigMap `aws-auth`: each writes only to what it has just read, and starts over
//! when somebody was faster.

use std::fmt::Display;

use kube::api::PropagationPolicy;

use super::{Context, wait};
use crate::failure::Failure;
use crate::kubernetes::aws_auth::{self, Mapping, Removal};
use crate::kubernetes::client::KubeError;

/// How often somebody else may be faster.
const TRIES: usize = 20;

fn broken(why: impl Display) -> Failure {
    let what = "ConfigMap kube-system/aws-auth".to_owned();
    Failure::Refused { what, why: why.to_string() }
}

/// Whether to look again, or what to make of an error.
fn again(result: Result<(), KubeError>) -> Result<bool, Failure> {
    match result {
        Ok(()) => Ok(false),
        Err(error) if error.is_conflict() => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Lets nodes in.
pub(super) async fn map(context: &Context, mapping: &Mapping) -> Result<(), Failure> {
    let (resource, key) = aws_auth::place();
    let cluster = &context.cluster;
    for _ in 0..TRIES {
        let live = cluster.get(&resource, &key).await?;
        let change = aws_auth::with(live.as_ref(), mapping, &context.install_id).map_err(broken)?;
        let Some(change) = change else { return Ok(()) };
        let written = match live {
            Some(_) => cluster.merge(&resource, &key, &change).await,
            None => cluster.create(&resource, &key, &change).await,
        };
        if !again(written)? {
            return Ok(());
        }
    }
    Err(broken("it is written to all the time"))
}

/// Takes out what we put in, and leaves the rest as it is.
pub async fn unmap(context: &Context) -> Result<(), Failure> {
    let (resource, key) = aws_auth::place();
    let cluster = &context.cluster;
    for _ in 0..TRIES {
        let live = cluster.get(&resource, &key).await?;
        let written = match aws_auth::without(live.as_ref(), &context.install_id).map_err(broken)? {
            Removal::Nothing => return Ok(()),
            Removal::Patch(patch) => cluster.merge(&resource, &key, &patch).await,
            Removal::Delete => {
                let background = PropagationPolicy::Background;
                wait::transient(wait::Tries::seconds(30), || {
                    cluster.delete(&resource, &key, background.clone())
                })
                .await
            }
        };
        if !again(written)? {
            return Ok(());
        }
    }
    Err(broken("it is written to all the time"))
}

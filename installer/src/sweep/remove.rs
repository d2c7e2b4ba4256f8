//! Removes orphans: instances first, because they hold interfaces and profiles, and roles last,
//! because profiles hold them.

use std::time::Duration;

use futures::stream::{StreamExt, iter};
use tenon_installer_core::apply::{Context, ec2, iam, messaging};
use tenon_installer_core::aws::{Aws, Calling, IfThere};
use tenon_installer_core::failure::Failure;
use tokio::time::Instant;

use super::find::{Handle, Kind, Orphan};
use crate::printer::Printer;
use crate::uninstall::{Abandoned, prove_terminated, remove_instances};

/// How many are removed at once.
const AT_ONCE: usize = 8;

/// How long an instance may take to terminate.
const TERMINATION: Duration = Duration::from_mins(15);

/// What became of orphans.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Those that are gone.
    pub removed: Vec<Orphan>,
    /// Those that are not, with the reason.
    pub failed: Vec<(Orphan, Failure)>,
}

/// Removes orphans.
pub(crate) struct Sweeper<'a> {
    /// AWS.
    pub aws: &'a Aws,
    /// The cluster, if there is one: then pods are moved off an instance before it goes.
    pub context: Option<&'a Context>,
    /// How long pods may take to leave a node.
    pub drain_timeout: Duration,
    /// Tells what was done.
    pub printer: Printer,
}

impl Sweeper<'_> {
    /// Removes all that may be removed. One that fails keeps no other from being tried.
    pub(crate) async fn remove(&self, orphans: &[Orphan]) -> Outcome {
        let mut outcome = Outcome::default();
        for stage in [&[Kind::Instance][..], FREE, &[Kind::Queue, Kind::Role]] {
            let stage = orphans.iter().filter(|orphan| stage.contains(&orphan.kind));
            let removals = stage.filter(|orphan| orphan.removable).map(|orphan| async move {
                let began = Instant::now();
                let result = self.remove_one(orphan).await;
                if result.is_ok() {
                    let what = format!("{} {}", orphan.kind.noun(), orphan.id);
                    self.printer.done(&what, "removed", began.elapsed());
                }
                (orphan.clone(), result)
            });
            let mut removals = iter(removals.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
            while let Some((orphan, result)) = removals.next().await {
                match result {
                    Ok(()) => outcome.removed.push(orphan),
                    Err(error) => outcome.failed.push((orphan, error)),
                }
            }
        }
        outcome
    }

    async fn remove_one(&self, orphan: &Orphan) -> Result<(), Failure> {
        let (aws, id) = (self.aws, orphan.id.as_str());
        match (orphan.kind, &orphan.handle) {
            (Kind::Instance, _) => match self.context {
                Some(context) => {
                    let ids = std::slice::from_ref(&orphan.id);
                    let none = Abandoned::new(false);
                    remove_instances(context, ids, self.drain_timeout, TERMINATION, &none).await
                }
                None => {
                    ec2::terminate(aws, std::slice::from_ref(&orphan.id)).await?;
                    prove_terminated(aws, id, TERMINATION).await
                }
            },
            (Kind::SpotRequest, _) => {
                let call = aws.ec2.cancel_spot_instance_requests().spot_instance_request_ids(id);
                call.send().await.calling("ec2:CancelSpotInstanceRequests", id).if_there()?;
                Ok(())
            }
            (Kind::NetworkInterface, _) => {
                let call = aws.ec2.delete_network_interface().network_interface_id(id);
                call.send().await.calling("ec2:DeleteNetworkInterface", id).if_there()?;
                Ok(())
            }
            (Kind::LaunchTemplate, _) => ec2::delete_launch_template(aws, id).await,
            (Kind::InstanceProfile, _) => iam::delete_instance_profile(aws, id).await,
            (Kind::Rule, Handle::Targets(targets)) => {
                messaging::delete_rule(aws, id, targets).await
            }
            (Kind::Queue, Handle::Url(url)) => messaging::delete_queue(aws, url, id).await,
            (Kind::Role, Handle::Installation(of)) => iam::delete_role(aws, of, id).await,
            // Volumes are never removable, and the others always have their handle.
            _ => Ok(()),
        }
    }
}

/// What hangs on nothing once the instances are gone.
const FREE: &[Kind] = &[
    Kind::SpotRequest,
    Kind::NetworkInterface,
    Kind::LaunchTemplate,
    Kind::InstanceProfile,
    Kind::Rule,
];

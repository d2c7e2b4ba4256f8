//! `tenon sweep`: show what nobody looks after any more, and remove it if that is wanted.

use std::time::Duration;

use serde_json::json;
use tenon_iam_policies::{Features, Partition, Scope};
use tenon_installer_core::apply::Context;
use tenon_installer_core::aws::{Aws, AwsError};
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::observe::facts::{self, Facts};
use tenon_installer_core::ownership::Installation;
use tenon_installer_core::settings::Settings;
use tenon_installer_core::settings::config::Event;
use tenon_installer_core::target::{self, Target};
use tenon_installer_core::words::count;
use tenon_installer_core::{journal, names};

use super::execution::open_audit;
use super::session::{observe_failed, source, take_lock};
use crate::cli::overlay::resolve;
use crate::cli::sweep::SweepArgs;
use crate::cli::{GlobalArgs, SettingArgs};
use crate::errors::ExpectedError;
use crate::exit_codes::EXIT_PARTIAL;
use crate::printer::Printer;
use crate::prompt;
use crate::sweep::find::Kind;
use crate::sweep::{self, ClusterSeen, Orphan, Sweeper};

/// Where is looked.
struct Place {
    settings: Settings,
    aws: Aws,
    scope: Scope,
    /// The cluster and its installation, if it is there.
    cluster: Option<(Facts, Target, Installation)>,
}

impl Place {
    async fn open(global: &GlobalArgs, args: &SettingArgs) -> Result<Self, ExpectedError> {
        let settings = resolve(source(args)?, global, args, &target::infer(&global.kubeconfig()))?;
        let aws = global.connect(&settings).await?;
        let facts = match facts::read(&aws, &settings.cluster, &settings.region, None).await {
            Ok(facts) => Some(facts),
            Err(error) if is_no_cluster(&error) => None,
            Err(error) => return Err(observe_failed(error)),
        };
        let account = match &facts {
            Some(facts) => facts.caller.account.clone(),
            None => facts::read_caller(&aws).await.map_err(observe_failed)?.account,
        };
        if let Some(wanted) = settings.account_id.as_ref().filter(|wanted| **wanted != account) {
            return Err(ExpectedError::Refused {
                reasons: vec![format!(
                    "the credentials belong to account {account}, but the settings require {wanted}"
                )],
                hints: vec!["use the credentials of that account (--profile)".to_owned()],
            });
        }
        let scope = Scope {
            partition: Partition::of_region(&settings.region),
            region: settings.region.clone(),
            account,
            cluster: settings.cluster.clone(),
            queue: settings.queue_name.clone(),
            node_roles: Vec::new(),
            features: Features::default(),
        };
        let cluster = match facts {
            None => None,
            Some(facts) => {
                let target = Target::connect(&global.kubeconfig(), &aws, &facts.cluster).await?;
                let installation = Installation::new(
                    &facts.cluster.arn,
                    facts.cluster.created_at,
                    &settings.cluster,
                    settings.tags.clone(),
                );
                Some((facts, target, installation))
            }
        };
        Ok(Self { settings, aws, scope, cluster })
    }

    async fn orphans(&self) -> Result<Vec<Orphan>, ExpectedError> {
        let settings = &self.settings;
        let parts = [settings.name_prefix.as_str(), settings.cluster.as_str()];
        let queue = settings.queue_name.clone().unwrap_or_else(|| names::queue_name(&parts));
        let rules = Event::ALL
            .into_iter()
            .map(|event| tenon_installer_core::desired::rule_name(settings, event.rule()))
            .collect::<Vec<_>>();
        // AWS first: a claim is made before its instance, so each instance that is seen has its
        // claim by then, if it ever had one.
        let seen =
            sweep::observe(&self.aws, &self.scope, &queue, &rules, &settings.role_path).await;
        let seen = seen.map_err(observe_failed)?;
        let cluster = match &self.cluster {
            None => ClusterSeen::Gone,
            Some((_, target, installation)) => {
                sweep::observe_cluster(&target.cluster, &installation.id)
                    .await
                    .map_err(observe_failed)?
            }
        };
        Ok(sweep::orphans(&seen, &cluster, &settings.cluster, tenon_installer_core::clock::now()))
    }

    fn context(&self) -> Option<Context> {
        let (_, target, installation) = self.cluster.as_ref()?;
        Some(Context {
            aws: self.aws.clone(),
            cluster: target.cluster.clone(),
            cluster_name: self.settings.cluster.clone(),
            install_id: installation.id.clone(),
        })
    }
}

fn is_no_cluster(error: &AwsError) -> bool {
    error.action == "eks:DescribeCluster" && error.is_not_found()
}

/// Sweeps.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &SweepArgs,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let settings = args.installation.settings();
    let place = Box::pin(Place::open(global, &settings)).await?;
    let lock = match &place.cluster {
        Some((_, target, _)) if args.yes => {
            Some(take_lock(target, None, global, "sweep", cleanup).await?)
        }
        _ => None,
    };
    introduce(&place, *printer);
    let orphans = place.orphans().await?;
    show(&orphans, *printer);
    let instances = orphans.iter().filter(|orphan| orphan.kind == Kind::Instance).count();
    let removable = orphans.iter().filter(|orphan| orphan.removable).count();
    if removable == 0 || !wanted(global, args, &place.settings.cluster, removable).await? {
        report(&place, &orphans, &[], &[], *printer);
        if removable > 0 {
            printer.note("Nothing was removed: add --yes to remove all of it.");
        }
        return Ok(0);
    }
    if instances > args.max_terminate {
        return Err(ExpectedError::Refused {
            reasons: vec![format!(
                "{} would be terminated, and the limit is {}",
                count(instances, "instance"),
                args.max_terminate
            )],
            hints: vec![format!(
                "review the list; `--max-terminate {instances}` allows this number"
            )],
        });
    }
    let lock = match (&place.cluster, lock) {
        (Some((_, target, _)), None) => {
            Some(take_lock(target, None, global, "sweep", cleanup).await?)
        }
        (_, lock) => lock,
    };
    let (account, region) = (&place.scope.account, &place.settings.region);
    let record = global
        .records()
        .map(|directory| journal::file(&directory, account, region, &place.settings.cluster));
    open_audit(&place.aws, "sweep", record.as_deref())?;
    let context = place.context();
    let sweeper = Sweeper {
        aws: &place.aws,
        context: context.as_ref(),
        drain_timeout: args.drain_timeout,
        printer: *printer,
    };
    let outcome = sweeper.remove(&orphans).await;
    for (orphan, error) in &outcome.failed {
        printer.warn(&format!("{} {} is left: {error}", orphan.kind.noun(), orphan.id));
    }
    let left = observe_again(&place).await?;
    drop(lock);
    report(&place, &orphans, &outcome.removed, &left, *printer);
    let is_left = left.iter().any(|orphan| orphan.removable);
    printer.text(&format!(
        "{} removed. Checked again: {}.",
        count(outcome.removed.len(), "thing"),
        if is_left {
            format!("{} left", left.len())
        } else {
            "nothing is left to remove".to_owned()
        }
    ));
    Ok(if is_left { EXIT_PARTIAL } else { 0 })
}

/// Lists of EC2 lag behind: asked until nothing is left, or two answers agree.
async fn observe_again(place: &Place) -> Result<Vec<Orphan>, ExpectedError> {
    let mut before = None;
    for _ in 0..10 {
        let left = place.orphans().await?;
        if !left.iter().any(|orphan| orphan.removable) || before.as_ref() == Some(&left) {
            return Ok(left);
        }
        before = Some(left);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Ok(before.unwrap_or_default())
}

fn introduce(place: &Place, printer: Printer) {
    let Scope { cluster, region, account, .. } = &place.scope;
    let there = if place.cluster.is_some() { "" } else { ", which is gone" };
    printer.note(&format!("cluster {cluster} in {region}, account {account}{there}"));
}

fn show(orphans: &[Orphan], printer: Printer) {
    if orphans.is_empty() {
        printer.text("Nothing is left behind.");
    }
    for orphan in orphans {
        let sign = if orphan.removable { "-" } else { "?" };
        printer.text(&format!(" {sign} {} {}  ({})", orphan.kind.noun(), orphan.id, orphan.why));
    }
}

fn report(
    place: &Place,
    orphans: &[Orphan],
    removed: &[Orphan],
    left: &[Orphan],
    printer: Printer,
) {
    let Scope { cluster, region, account, .. } = &place.scope;
    printer.json(&json!({
        "schema": "tenon.sh/sweep/v1alpha1",
        "target": {
            "cluster": cluster,
            "region": region,
            "account": account,
            "clusterExists": place.cluster.is_some(),
        },
        "orphans": orphans,
        "removed": removed,
        "left": left,
    }));
}

/// Whether what was shown is to be removed: `--yes`, or the cluster's name on a terminal.
async fn wanted(
    global: &GlobalArgs,
    args: &SweepArgs,
    cluster: &str,
    removable: usize,
) -> Result<bool, ExpectedError> {
    if args.yes {
        return Ok(true);
    }
    if !global.may_ask() {
        return Ok(false);
    }
    let question = format!(
        "Type the cluster's name ({cluster}) to remove {}, or press Enter to cancel",
        count(removable, "thing")
    );
    let answer = prompt::input(&question, Some("")).await.map_err(ExpectedError::prompt)?;
    Ok(answer == cluster)
}

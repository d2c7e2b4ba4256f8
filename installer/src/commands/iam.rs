//! `tenon iam`: the documents for whoever makes roles, what the caller needs, and whether what is
//! attached suffices.

use tenon_iam_policies::caller::CallerScope;
use tenon_installer_core::aws::Calling;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::observe::facts::{Caller, ClusterFacts, Facts};
use tenon_installer_core::settings::Settings;
use tenon_installer_core::target;

use crate::cli::iam::{IamArgs, IamCommand};
use crate::cli::overlay::resolve;
use crate::cli::{GlobalArgs, SettingArgs};
use crate::errors::ExpectedError;
use crate::printer::Printer;

mod caller;
mod print;
mod simulate;
mod verify;

/// Runs a subcommand.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &IamArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    match &args.command {
        IamCommand::Print(args) => print::run(global, args, printer).await,
        IamCommand::Caller(args) => Box::pin(caller::run(global, args, printer)).await,
        IamCommand::Verify(args) => Box::pin(verify::run(global, args, printer)).await,
    }
}

/// What would be there, without looking at the cluster: the documents depend on its name, region
/// and account only.
///
/// The account is taken from the settings, and asked of STS only without them.
pub(super) async fn desired_without_cluster(
    global: &GlobalArgs,
    args: &SettingArgs,
    issuer: Option<&str>,
) -> Result<(Settings, Desired), ExpectedError> {
    let source = super::session::source(args)?;
    let settings = resolve(source, global, args, &target::infer(&global.kubeconfig()))?;
    let account = match &settings.account_id {
        Some(account) => account.clone(),
        None => account(global, &settings).await?,
    };
    let facts = assumed(&settings, &account, issuer);
    let desired =
        Desired::new(&settings, &facts).map_err(|reasons| ExpectedError::Preflight { reasons })?;
    Ok((settings, desired))
}

async fn account(global: &GlobalArgs, settings: &Settings) -> Result<String, ExpectedError> {
    let aws = global.connect_aws(settings).await?;
    let identity = aws.sts.get_caller_identity().send().await.calling("sts:GetCallerIdentity", "*");
    let identity = identity.map_err(super::session::observe_failed)?;
    Ok(identity.account.unwrap_or_default())
}

/// A cluster as it has to be for the documents to be made. What is assumed shows in none of them.
fn assumed(settings: &Settings, account: &str, issuer: Option<&str>) -> Facts {
    let partition = tenon_iam_policies::Partition::of_region(&settings.region);
    let region = &settings.region;
    let name = &settings.cluster;
    Facts {
        caller: Caller { account: account.to_owned(), arn: String::new() },
        cluster: ClusterFacts {
            name: name.clone(),
            region: region.clone(),
            partition,
            arn: format!("arn:{partition}:eks:{region}:{account}:cluster/{name}"),
            created_at: 0,
            status: "ACTIVE".to_owned(),
            version: String::new(),
            endpoint: None,
            certificate_authority: None,
            oidc_issuer: issuer.map(str::to_owned),
            // Whatever was asked for to let nodes in fits this one.
            authentication_mode: "API_AND_CONFIG_MAP".to_owned(),
            subnet_ids: vec!["subnet-0".to_owned()],
            security_group: Some("sg-0".to_owned()),
            auto_mode: false,
            ipv6: false,
            tags: tenon_installer_core::ownership::Tags::new(),
        },
        node_role_arn: settings
            .node_role_name
            .as_ref()
            .map(|name| format!("arn:{partition}:iam::{account}:role/{name}")),
    }
}

/// What the caller's permissions are limited to.
fn caller_scope(settings: &Settings, desired: &Desired) -> CallerScope {
    let fargate_role = desired.fargate.as_ref().map(|_| &desired.fargate_role);
    let roles = [Some(&desired.node_role), fargate_role].into_iter().flatten();
    let attached = roles.filter_map(|role| role.spec.as_ref()).flat_map(|role| &role.attached);
    CallerScope {
        scope: desired.scope.clone(),
        node_role: desired.node_role.arn.clone(),
        controller_role: desired.controller_role.arn.clone(),
        fargate_role: desired.fargate_role.arn.clone(),
        fargate: desired.fargate.is_some(),
        queue: desired.queue_name.clone(),
        rules: desired.rule_names.clone(),
        attached: attached.cloned().collect(),
        boundary: settings.permissions_boundary.clone(),
    }
}

/// An installation for tests: settings with nothing but a target, and what follows from them.
#[cfg(test)]
pub(crate) fn example() -> (Settings, Desired) {
    let arguments = ["tenon", "version", "--cluster", "prod", "--region", "eu-central-1"];
    let cli = <crate::cli::Cli as clap::Parser>::try_parse_from(arguments).expect("a command");
    let inferred = tenon_installer_core::settings::Inferred::default();
    let source = tenon_installer_core::settings::Source::default();
    let settings = resolve(source, &cli.global, &SettingArgs::default(), &inferred)
        .expect("they are complete");
    let desired =
        Desired::new(&settings, &assumed(&settings, "111122223333", None)).expect("it is fit");
    (settings, desired)
}

#[cfg(test)]
mod tests;

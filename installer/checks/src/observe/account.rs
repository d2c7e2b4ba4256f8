//! Who calls, what a simulation says of the plan, and what EKS says of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_eks::types::{SupportType, VpcConfigResponse};
use serde_json::json;
use tenon_installer_core::aws::Calling;
use tenon_installer_core::clock;
use tenon_installer_core::observe::iam;

use super::super::observed::{CallerView, ClusterView, DeniedView, Seen};
use super::Sources;
use super::raw::Call;
use super::unread::Unread;

pub(super) async fn read(sources: &Sources<'_>) -> CallerView {
    let (clock_skew, denied) = tokio::join!(clock_skew(sources), denied(sources));
    CallerView { clock_skew: clock_skew.into(), denied: denied.into(), ..CallerView::default() }
}

/// Whole seconds that this machine is ahead, by the date of an answer.
async fn clock_skew(sources: &Sources<'_>) -> Result<i64, Unread> {
    let region = &sources.settings.region;
    let call = Call::new(
        region,
        "ssm",
        "AmazonSSM.GetParameter",
        json!({"Name": "/aws/service/global-infrastructure/version"}),
    );
    let answer = call.send(sources.aws).await?;
    let date = answer.date.ok_or("the answer has no date")?;
    Ok(clock::now().as_second() - date)
}

/// The role behind a session's ARN: simulations know roles and users only. The path is not part of
/// the session's ARN, so the role is looked up.
async fn principal(sources: &Sources<'_>, arn: &str) -> Result<Option<String>, Unread> {
    if arn.ends_with(":root") {
        return Ok(None);
    }
    let Some((_, session)) = arn.split_once(":assumed-role/") else {
        return Ok(Some(arn.to_owned()));
    };
    let name = session.split('/').next().unwrap_or_default();
    let role = sources.aws.iam.get_role().role_name(name).send().await;
    let role = role.calling("iam:GetRole", format!("role {name}"))?;
    Ok(role.role.map(|role| role.arn))
}

/// Asks IAM about every call of the plan, grouped by resource.
async fn denied(sources: &Sources<'_>) -> Result<Vec<DeniedView>, Unread> {
    let plan = sources.plan.ok_or("there is no plan")?;
    let facts = sources.facts?;
    let mut by_resource: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for needed in plan.caller_actions().into_iter().filter(|one| one.action.contains(':')) {
        let resource =
            if needed.resource.starts_with("arn:") { needed.resource } else { "*".to_owned() };
        by_resource.entry(resource).or_default().insert(needed.action);
    }
    if by_resource.is_empty() {
        return Ok(Vec::new());
    }
    let Some(principal) = principal(sources, &facts.caller.arn).await? else {
        return Ok(Vec::new());
    };
    let asked = by_resource.into_iter().map(|(resource, actions)| {
        let (actions, principal) = (actions.into_iter().collect(), &principal);
        async move {
            let answer = iam::simulate(sources.aws, principal, actions, &resource, Vec::new());
            Ok::<_, Unread>((resource.clone(), answer.await?))
        }
    });
    let mut denied = Vec::new();
    for (resource, answer) in futures::future::try_join_all(asked).await? {
        for result in answer {
            if result.eval_decision().as_str() == "allowed" {
                continue;
            }
            denied.push(DeniedView {
                action: result.eval_action_name().to_owned(),
                resource: resource.clone(),
                by_organization: result
                    .organizations_decision_detail()
                    .is_some_and(|detail| !detail.allowed_by_organizations()),
            });
        }
    }
    Ok(denied)
}

pub(super) async fn cluster(sources: &Sources<'_>) -> Seen<ClusterView> {
    let name = &sources.settings.cluster;
    let answer = sources.aws.eks.describe_cluster().name(name).send().await;
    let answer = match answer.calling("eks:DescribeCluster", format!("cluster {name}")) {
        Ok(answer) => answer,
        Err(error) => return Seen::Unknown(error.to_string()),
    };
    let Some(cluster) = answer.cluster else {
        return Seen::Unknown("EKS reports nothing".to_owned());
    };
    let vpc = cluster.resources_vpc_config();
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    Seen::Known(ClusterView {
        status: text(cluster.status().map(aws_sdk_eks::types::ClusterStatus::as_str)),
        version: text(cluster.version()),
        endpoint: text(cluster.endpoint()),
        private_endpoint: vpc.is_some_and(VpcConfigResponse::endpoint_private_access),
        auto_mode: sources.facts.is_ok_and(|facts| facts.cluster.auto_mode),
        authentication_mode: sources
            .facts
            .as_ref()
            .map(|facts| facts.cluster.authentication_mode.clone())
            .unwrap_or_default(),
        ipv6: sources.facts.is_ok_and(|facts| facts.cluster.ipv6),
        extended_support: cluster
            .upgrade_policy()
            .and_then(|policy| policy.support_type())
            .is_some_and(|kind| *kind == SupportType::Extended),
        outpost: cluster.outpost_config().is_some(),
        zonal_shift: cluster
            .zonal_shift_config()
            .and_then(aws_sdk_eks::types::ZonalShiftConfigResponse::enabled)
            .unwrap_or(false),
        vpc: text(vpc.and_then(VpcConfigResponse::vpc_id)),
        subnets: vpc.map(|vpc| vpc.subnet_ids().to_vec()).unwrap_or_default(),
        security_group: vpc
            .and_then(VpcConfigResponse::cluster_security_group_id)
            .map(str::to_owned),
        issuer: cluster
            .identity()
            .and_then(|identity| identity.oidc())
            .and_then(|oidc| oidc.issuer())
            .map(str::to_owned),
    })
}

//! Subnets, security groups, endpoints, images, instances: what EC2 says of them, as the checks
//! judge it.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{
    Instance, InstanceStateName, IpPermission, RouteTable, SecurityGroup, VpcAttributeName,
    VpcEndpointType,
};
use serde_json::json;
use tenon_installer_core::aws::Aws;
use tenon_installer_core::observe::ec2::{self, Selection, Which};
use tenon_installer_core::ownership::DISCOVERY;

use super::super::observed::{
    ComputeView, EndpointView, GroupView, ImageView, InstanceView, NetworkView, Seen, SubnetClass,
    SubnetView,
};
use super::Sources;
use super::raw::Call;
use super::unread::Unread;
use super::volumes;

/// Codes of the quotas of vCPUs of the standard families: on-demand and spot.
const VCPUS: [&str; 2] = ["L-1216C47A", "L-34B43A08"];

/// Codes of the quotas that are looked at, with their services.
const QUOTAS: [(&str, &str); 3] = [("ec2", VCPUS[0]), ("ec2", VCPUS[1]), ("ebs", "L-7A658B76")];

/// Instance types of the families c, m and r: those of the default NodePool.
const FAMILIES: [&str; 3] = ["c*", "m*", "r*"];

pub(super) async fn network(sources: &Sources<'_>) -> NetworkView {
    let subnets = subnets(sources).await;
    let Ok(subnets) = subnets else {
        return NetworkView {
            subnets: subnets.into(),
            groups: groups(sources).await.into(),
            ..NetworkView::default()
        };
    };
    let vpc = subnets.first().map(|subnet| subnet.vpc.clone()).unwrap_or_default();
    let aws = sources.aws;
    let (groups, endpoints, dns_support, dns_hostnames, offerings) = tokio::join!(
        groups(sources),
        endpoints(aws, &vpc),
        vpc_attribute(aws, &vpc, VpcAttributeName::EnableDnsSupport),
        vpc_attribute(aws, &vpc, VpcAttributeName::EnableDnsHostnames),
        ec2::offerings(aws, &FAMILIES),
    );
    NetworkView {
        subnets: Seen::Known(subnets),
        groups: groups.into(),
        endpoints: endpoints.into(),
        dns_support: dns_support.into(),
        dns_hostnames: dns_hostnames.into(),
        offerings: offerings.into(),
    }
}

/// Ids that the settings name, or the cluster's own.
fn wanted(sources: &Sources<'_>) -> (Vec<String>, Vec<String>) {
    let settings = sources.settings;
    let cluster = sources.facts.ok().map(|facts| &facts.cluster);
    let subnets = if settings.subnet_ids.is_empty() {
        cluster.map(|cluster| cluster.subnet_ids.clone()).unwrap_or_default()
    } else {
        settings.subnet_ids.clone()
    };
    let groups = if settings.security_group_ids.is_empty() {
        cluster.and_then(|cluster| cluster.security_group.clone()).into_iter().collect()
    } else {
        settings.security_group_ids.clone()
    };
    (subnets, groups)
}

async fn subnets(sources: &Sources<'_>) -> Result<Vec<SubnetView>, Unread> {
    sources.facts?;
    let (ids, _) = wanted(sources);
    subnet_views(sources.aws, ids).await
}

/// Subnets by id, and where their traffic goes.
pub async fn subnet_views(aws: &Aws, ids: Vec<String>) -> Result<Vec<SubnetView>, Unread> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let found = ec2::subnets(aws, Selection::Ids(ids)).await?;
    let vpc = found.first().and_then(|subnet| subnet.vpc_id()).unwrap_or_default().to_owned();
    let (tables, zones) = tokio::join!(ec2::route_tables(aws, &vpc), ec2::zones(aws));
    let zones = zones?;
    let kind_of = |zone: &str| {
        let found = zones.iter().find(|one| one.zone_name() == Some(zone));
        let kind = found.and_then(|found| found.zone_type()).filter(|kind| !kind.is_empty());
        kind.unwrap_or("availability-zone").to_owned()
    };
    Ok(found
        .iter()
        .map(|subnet| {
            let zone = subnet.availability_zone().unwrap_or_default().to_owned();
            SubnetView {
                id: subnet.subnet_id().unwrap_or_default().to_owned(),
                vpc: subnet.vpc_id().unwrap_or_default().to_owned(),
                zone_type: kind_of(&zone),
                zone,
                outpost: subnet.outpost_arn().is_some_and(|arn| !arn.is_empty()),
                free_addresses: subnet.available_ip_address_count().unwrap_or(0),
                public_addresses: subnet.map_public_ip_on_launch().unwrap_or(false),
                class: tables.as_ref().map_or(SubnetClass::Unknown, |tables| {
                    class(tables, subnet.subnet_id().unwrap_or_default())
                }),
                discovery: subnet
                    .tags()
                    .iter()
                    .find(|tag| tag.key() == Some(DISCOVERY))
                    .and_then(|tag| tag.value())
                    .map(str::to_owned),
            }
        })
        .collect())
}

/// Where the default route of a subnet's table leads: its own table, or the main one of the VPC.
fn class(tables: &[RouteTable], subnet: &str) -> SubnetClass {
    let of_subnet = |table: &&RouteTable| {
        table.associations().iter().any(|one| one.subnet_id() == Some(subnet))
    };
    let is_main =
        |table: &&RouteTable| table.associations().iter().any(|one| one.main() == Some(true));
    let Some(table) = tables.iter().find(of_subnet).or_else(|| tables.iter().find(is_main)) else {
        return SubnetClass::Unknown;
    };
    let default = table.routes().iter().filter(|route| {
        route.destination_cidr_block() == Some("0.0.0.0/0")
            || route.destination_ipv6_cidr_block() == Some("::/0")
    });
    let mut class = SubnetClass::Isolated;
    for route in default {
        if route.gateway_id().is_some_and(|id| id.starts_with("igw-")) {
            return SubnetClass::Public;
        }
        class = SubnetClass::Private;
    }
    class
}

async fn groups(sources: &Sources<'_>) -> Result<Vec<GroupView>, Unread> {
    let facts = sources.facts?;
    let (_, ids) = wanted(sources);
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let found = ec2::security_groups(sources.aws, Selection::Ids(ids)).await?;
    let own = facts.cluster.security_group.as_deref().unwrap_or_default();
    let tag = format!("kubernetes.io/cluster/{}", sources.settings.cluster);
    let view = |group: &SecurityGroup| {
        let id = group.group_id().unwrap_or_default();
        GroupView {
            id: id.to_owned(),
            vpc: group.vpc_id().unwrap_or_default().to_owned(),
            cluster_tag: group.tags().iter().any(|one| one.key() == Some(&tag)),
            open_to_itself: lets_in(group.ip_permissions(), id),
            // Members of the cluster's own group are nodes and control plane alike.
            open_to_cluster: lets_in(group.ip_permissions(), own),
        }
    };
    Ok(found.iter().map(view).collect())
}

/// Whether a group's members are let in, at least at the ports of kubelets.
fn lets_in(rules: &[IpPermission], group: &str) -> bool {
    rules.iter().any(|rule| {
        let all = rule.ip_protocol() == Some("-1");
        let covers_kubelet = rule.ip_protocol() == Some("tcp")
            && rule.from_port().is_some_and(|from| from <= 10_250)
            && rule.to_port().is_some_and(|to| to >= 10_250);
        let from = rule.user_id_group_pairs().iter().any(|pair| pair.group_id() == Some(group))
            || !rule.ip_ranges().is_empty();
        (all || covers_kubelet) && from
    })
}

async fn endpoints(aws: &Aws, vpc: &str) -> Result<Vec<EndpointView>, Unread> {
    let found = ec2::endpoints(aws, vpc).await?;
    let last_part = |name: &str| {
        // com.amazonaws.<region>.<service>, in China cn.com.amazonaws.<region>.<service>.
        let after = name.split_once("amazonaws.").map_or(name, |(_, rest)| rest);
        after.split_once('.').map_or(after, |(_, service)| service).to_owned()
    };
    Ok(found
        .iter()
        .map(|endpoint| EndpointView {
            service: last_part(endpoint.service_name().unwrap_or_default()),
            gateway: endpoint.vpc_endpoint_type() == Some(&VpcEndpointType::Gateway),
            private_dns: endpoint.private_dns_enabled().unwrap_or(false),
        })
        .collect())
}

async fn vpc_attribute(aws: &Aws, vpc: &str, attribute: VpcAttributeName) -> Result<bool, Unread> {
    ec2::vpc_attribute(aws, vpc, attribute).await?.ok_or_else(|| "EC2 reports nothing".into())
}

pub(super) async fn compute(sources: &Sources<'_>) -> ComputeView {
    let (quotas, instances, launch_templates, images, volume_keys) = tokio::join!(
        quotas(sources),
        instances(sources),
        ec2::launch_templates_of_account(sources.aws),
        images(sources),
        volumes::keys(sources),
    );
    ComputeView {
        quotas: quotas.into(),
        instances: instances.into(),
        launch_templates: launch_templates.into(),
        images: images.into(),
        volume_keys: volume_keys.into(),
    }
}

async fn quotas(sources: &Sources<'_>) -> Result<BTreeMap<String, f64>, Unread> {
    let region = &sources.settings.region;
    let asked = QUOTAS.map(|(service, code)| async move {
        Ok::<_, Unread>((code.to_owned(), quota(sources.aws, region, service, code).await?))
    });
    Ok(futures::future::try_join_all(asked).await?.into_iter().collect())
}

async fn quota(aws: &Aws, region: &str, service: &str, code: &str) -> Result<f64, Unread> {
    let call = Call::new(
        region,
        "servicequotas",
        "ServiceQuotasV20190624.GetServiceQuota",
        json!({"ServiceCode": service, "QuotaCode": code}),
    );
    let output = call.send(aws).await?.output();
    let output = output.map_err(|error| format!("servicequotas:GetServiceQuota: {error}"))?;
    let value = output.pointer("/Quota/Value").and_then(serde_json::Value::as_f64);
    Ok(value.ok_or("Service Quotas reports no value")?)
}

/// How many vCPUs of the standard families the account may run in the region: on-demand, spot.
pub async fn vcpu_quotas(aws: &Aws, region: &str) -> Result<(f64, f64), Unread> {
    let [on_demand, spot] = VCPUS.map(|code| quota(aws, region, "ec2", code));
    tokio::try_join!(on_demand, spot)
}

async fn instances(sources: &Sources<'_>) -> Result<Vec<InstanceView>, Unread> {
    let tag = format!("kubernetes.io/cluster/{}", sources.settings.cluster);
    let found = ec2::node_instances(sources.aws, &tag, Which::All).await?;
    let view = |instance: &Instance| {
        let state = instance.state().and_then(|state| state.name()).map(InstanceStateName::as_str);
        let is_over = matches!(state, Some("terminated" | "shutting-down"));
        InstanceView {
            id: instance.instance_id().unwrap_or_default().to_owned(),
            node_claim: instance
                .tags()
                .iter()
                .find(|tag| tag.key() == Some("karpenter.sh/nodeclaim"))
                .and_then(|tag| tag.value())
                .map(str::to_owned),
            state_reason: is_over.then(|| {
                let reason = instance.state_reason();
                let code = reason.and_then(|reason| reason.code()).unwrap_or_default();
                let message = reason.and_then(|reason| reason.message()).unwrap_or_default();
                format!("{code} {message}").trim().to_owned()
            }),
        }
    };
    Ok(found.iter().map(view).collect())
}

/// The SSM parameter behind an alias. Of pinned versions the image's name differs, and only the
/// newest has a parameter of a fixed name.
pub(crate) fn parameter(alias: &str, kubernetes: &str, architecture: &str) -> Option<String> {
    let (family, version) = alias.split_once('@')?;
    let machine = if architecture == "arm64" { "arm64" } else { "x86_64" };
    match family {
        "al2023" => {
            let variant = if version == "latest" {
                "recommended".to_owned()
            } else {
                format!("amazon-eks-node-al2023-{machine}-standard-{kubernetes}-{version}")
            };
            Some(format!(
                "/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{machine}/standard/{variant}/image_id"
            ))
        }
        "bottlerocket" => {
            let version = version.trim_start_matches('v');
            Some(format!(
                "/aws/service/bottlerocket/aws-k8s-{kubernetes}/{machine}/{version}/image_id"
            ))
        }
        _ => None,
    }
}

async fn images(sources: &Sources<'_>) -> Result<Vec<ImageView>, Unread> {
    let facts = sources.facts?;
    let tenon_installer_core::settings::Defaults::Pair(pair) = &sources.settings.defaults else {
        return Ok(Vec::new());
    };
    let region = &sources.settings.region;
    let mut views = Vec::new();
    for architecture in &pair.architectures {
        let architecture = format!("{architecture:?}").to_lowercase();
        let Some(parameter) = parameter(&pair.ami_alias, &facts.cluster.version, &architecture)
        else {
            return Err(format!(
                "the alias {} is unknown to this version of tenon",
                pair.ami_alias
            )
            .into());
        };
        let call = Call::new(region, "ssm", "AmazonSSM.GetParameter", json!({"Name": parameter}));
        let id = match call.send(sources.aws).await?.output() {
            Ok(output) => output
                .pointer("/Parameter/Value")
                .and_then(serde_json::Value::as_str)
                .map(str::to_owned),
            Err(Unread::Refused { code, .. }) if code == "ParameterNotFound" => None,
            Err(error) => return Err(format!("ssm:GetParameter on {parameter}: {error}").into()),
        };
        let mut view = ImageView { architecture, parameter, id, ..ImageView::default() };
        if let Some(id) = &view.id {
            let found = ec2::images(sources.aws, vec![id.clone()]).await?;
            view.name = found.into_iter().next().and_then(|image| image.name);
        }
        views.push(view);
    }
    Ok(views)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_ec2::types::{Route, RouteTableAssociation};

    fn table(subnet: Option<&str>, gateway: Option<&str>) -> RouteTable {
        let association = match subnet {
            Some(subnet) => RouteTableAssociation::builder().subnet_id(subnet).build(),
            None => RouteTableAssociation::builder().main(true).build(),
        };
        let mut table = RouteTable::builder().associations(association);
        if let Some(gateway) = gateway {
            let route = Route::builder().destination_cidr_block("0.0.0.0/0");
            let route = if gateway.starts_with("nat-") {
                route.nat_gateway_id(gateway)
            } else {
                route.gateway_id(gateway)
            };
            table = table.routes(route.build());
        }
        table.build()
    }

    #[test]
    fn a_subnet_is_what_its_default_route_makes_it() {
        let tables = [
            table(None, Some("nat-1")),
            table(Some("public"), Some("igw-1")),
            table(Some("isolated"), None),
        ];
        assert_eq!(class(&tables, "public"), SubnetClass::Public);
        assert_eq!(class(&tables, "isolated"), SubnetClass::Isolated);
        assert_eq!(class(&tables, "other"), SubnetClass::Private, "by the main table");
        assert_eq!(class(&[], "other"), SubnetClass::Unknown);
    }

    #[test]
    fn aliases_stand_for_public_parameters() {
        assert_eq!(
            parameter("al2023@latest", "1.34", "arm64").unwrap(),
            "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/arm64/standard/recommended/image_id"
        );
        assert_eq!(
            parameter("bottlerocket@v1.44.0", "1.34", "amd64").unwrap(),
            "/aws/service/bottlerocket/aws-k8s-1.34/x86_64/1.44.0/image_id"
        );
        assert_eq!(parameter("ami-1", "1.34", "amd64"), None);
    }
}

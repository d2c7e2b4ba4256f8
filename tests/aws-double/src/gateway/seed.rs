//! What an account holds before anybody installs anything: a VPC with three private subnets,
//! security groups of an EKS cluster, and the role of EC2 Spot.
//!
//! Discovery tags are for the installer to set.

use std::net::Ipv4Addr;

use serde::Serialize;

use super::aws_state::AwsState;
use super::iam::create_spot_role;
use super::response::AwsError;

/// The seeded network of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Seed {
    /// VPC, 10.0.0.0/16.
    pub vpc_id: String,
    /// One private subnet per zone, /19 each.
    pub subnet_ids: Vec<String>,
    /// The security group that EKS makes for the cluster.
    pub cluster_security_group_id: String,
    /// A security group for nodes.
    pub node_security_group_id: String,
}

/// The letters of the zones that have a subnet.
pub const ZONES: [&str; 3] = ["a", "b", "c"];

/// How many bits of an address name the subnet.
pub const SUBNET_PREFIX: u8 = 19;

/// The first address of the subnet in the zone with this index.
pub fn subnet(zone: usize) -> Ipv4Addr {
    let third = u8::try_from(zone * 32).expect("a VPC of 10.0.0.0/16 has eight of them");
    Ipv4Addr::new(10, 0, third, 0)
}

/// Makes the network of a cluster. The account's service-linked role of EC2 Spot is made if it
/// isn't there.
pub async fn network(aws_state: &AwsState, cluster: &str) -> Result<Seed, AwsError> {
    let moto = aws_state.moto();
    match create_spot_role(aws_state).await {
        Err(error) if error.code != "EntityAlreadyExists" => return Err(error),
        _ => {}
    }
    let name = format!("{cluster}-vpc");
    let vpc = moto
        .query(
            "ec2",
            "CreateVpc",
            [
                ("CidrBlock", "10.0.0.0/16"),
                ("TagSpecification.1.ResourceType", "vpc"),
                ("TagSpecification.1.Tag.1.Key", "Name"),
                ("TagSpecification.1.Tag.1.Value", &name),
            ],
        )
        .await?;
    let vpc_id = id_of(&vpc, &["vpc", "vpcId"])?;
    let mut subnet_ids = Vec::new();
    for (index, letter) in ZONES.iter().enumerate() {
        let zone = format!("{}{letter}", aws_state.region());
        let cidr = format!("{}/{SUBNET_PREFIX}", subnet(index));
        let name = format!("{cluster}-private-{letter}");
        let subnet = moto
            .query(
                "ec2",
                "CreateSubnet",
                [
                    ("VpcId", vpc_id.as_str()),
                    ("CidrBlock", &cidr),
                    ("AvailabilityZone", &zone),
                    ("TagSpecification.1.ResourceType", "subnet"),
                    ("TagSpecification.1.Tag.1.Key", "Name"),
                    ("TagSpecification.1.Tag.1.Value", &name),
                ],
            )
            .await?;
        subnet_ids.push(id_of(&subnet, &["subnet", "subnetId"])?);
    }
    way_out(aws_state, &vpc_id, &subnet_ids[0]).await?;
    let owned = format!("kubernetes.io/cluster/{cluster}");
    let cluster_group = format!("eks-cluster-sg-{cluster}");
    let cluster_tags = [
        ("Name", cluster_group.as_str()),
        (owned.as_str(), "owned"),
        ("aws:eks:cluster-name", cluster),
    ];
    let cluster_security_group_id =
        security_group(aws_state, &vpc_id, &cluster_group, &cluster_tags).await?;
    // As EKS makes it: its members reach one another.
    let own = [
        ("GroupId", cluster_security_group_id.as_str()),
        ("IpPermissions.1.IpProtocol", "-1"),
        ("IpPermissions.1.Groups.1.GroupId", cluster_security_group_id.as_str()),
    ];
    moto.query("ec2", "AuthorizeSecurityGroupIngress", own).await?;
    let node_group = format!("{cluster}-nodes");
    let node_security_group_id =
        security_group(aws_state, &vpc_id, &node_group, &[("Name", node_group.as_str())]).await?;
    Ok(Seed { vpc_id, subnet_ids, cluster_security_group_id, node_security_group_id })
}

/// Names for instances, and a default route to a NAT gateway: the VPC's main route table, which all
/// subnets use, has neither in a new VPC.
async fn way_out(aws_state: &AwsState, vpc_id: &str, subnet_id: &str) -> Result<(), AwsError> {
    let moto = aws_state.moto();
    let names = [("VpcId", vpc_id), ("EnableDnsHostnames.Value", "true")];
    moto.query("ec2", "ModifyVpcAttribute", names).await?;
    let gateway = [("SubnetId", subnet_id), ("ConnectivityType", "private")];
    let gateway = moto.query("ec2", "CreateNatGateway", gateway).await?;
    let gateway = id_of(&gateway, &["natGateway", "natGatewayId"])?;
    let of_vpc = [("Filter.1.Name", "vpc-id"), ("Filter.1.Value.1", vpc_id)];
    let tables = moto.query("ec2", "DescribeRouteTables", of_vpc).await?;
    let table = tables.items("routeTableSet").first().and_then(|table| table.get("routeTableId"));
    let table =
        table.ok_or_else(|| AwsError::new("InternalError", "the VPC has no route table"))?;
    let route = [
        ("RouteTableId", table),
        ("DestinationCidrBlock", "0.0.0.0/0"),
        ("NatGatewayId", gateway.as_str()),
    ];
    moto.query("ec2", "CreateRoute", route).await?;
    Ok(())
}

async fn security_group(
    aws_state: &AwsState,
    vpc_id: &str,
    name: &str,
    tags: &[(&str, &str)],
) -> Result<String, AwsError> {
    let mut params = vec![
        ("VpcId".to_owned(), vpc_id),
        ("GroupName".to_owned(), name),
        ("GroupDescription".to_owned(), name),
        ("TagSpecification.1.ResourceType".to_owned(), "security-group"),
    ];
    for (index, (key, value)) in tags.iter().enumerate() {
        params.push((format!("TagSpecification.1.Tag.{}.Key", index + 1), key));
        params.push((format!("TagSpecification.1.Tag.{}.Value", index + 1), value));
    }
    let params = params.iter().map(|(name, value)| (name.as_str(), *value));
    let answer = aws_state.moto().query("ec2", "CreateSecurityGroup", params).await?;
    id_of(&answer, &["groupId"])
}

fn id_of(answer: &super::xml::Element, path: &[&str]) -> Result<String, AwsError> {
    let found = answer.at(path).map(|element| element.text.clone());
    found.ok_or_else(|| {
        AwsError::new(
            "InternalError",
            format!("moto's answer {} has no {}", answer.name, path.join("/")),
        )
    })
}

//! What the provider takes from the operator's options.

use std::time::Duration;

use tenon_kops::Location;

use crate::options::Options;

/// The options that the AWS provider reads.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the command line")]
pub struct AwsSettings {
    /// `--cluster-name`: part of tags, user data and names in AWS.
    pub cluster_name: String,
    /// `--cluster-endpoint`; discovered through eks:DescribeCluster when empty.
    pub cluster_endpoint: String,
    /// `--cluster-ca-bundle`, base64 of PEM; the operator's own when empty.
    pub cluster_ca_bundle: String,
    /// `--isolated-vpc`: neither the price list nor IAM's lists are asked.
    pub isolated_vpc: bool,
    /// `--static-instance-profiles`: EC2NodeClasses without `role` need no call of IAM.
    pub static_instance_profiles: bool,
    /// `--eks-control-plane`: the version comes from eks:DescribeCluster.
    pub eks_control_plane: bool,
    /// `--vm-memory-overhead-percent`, as a share: 0.075.
    pub vm_memory_overhead_percent: f64,
    /// `--interruption-queue`: a name; empty turns interruption handling off.
    pub interruption_queue: String,
    /// `--reserved-enis`.
    pub reserved_enis: u32,
    /// `--disable-dry-run`.
    pub disable_dry_run: bool,
    /// `--enable-zonal-shift`.
    pub enable_zonal_shift: bool,
    /// The feature gate `ReservedCapacity`.
    pub reserved_capacity: bool,
    /// `--ami-refresh-interval`.
    pub ami_refresh_interval: Duration,
    /// `--subnet-refresh-interval`.
    pub subnet_refresh_interval: Duration,
    /// `--kops-state-store`.
    pub kops_state_store: Option<Location>,
}

impl From<&Options> for AwsSettings {
    fn from(options: &Options) -> Self {
        let aws = &options.aws;
        Self {
            cluster_name: options.core.cluster_name.clone(),
            cluster_endpoint: aws.cluster_endpoint.clone(),
            cluster_ca_bundle: aws.cluster_ca_bundle.clone(),
            isolated_vpc: aws.isolated_vpc,
            static_instance_profiles: aws.static_instance_profiles,
            eks_control_plane: aws.eks_control_plane,
            vm_memory_overhead_percent: aws.vm_memory_overhead_percent,
            interruption_queue: aws.interruption_queue.clone(),
            reserved_enis: aws.reserved_enis,
            disable_dry_run: aws.disable_dry_run,
            enable_zonal_shift: aws.enable_zonal_shift,
            reserved_capacity: options.core.feature_gates.is_on("ReservedCapacity"),
            ami_refresh_interval: aws.ami_refresh_interval.0,
            subnet_refresh_interval: aws.subnet_refresh_interval.0,
            kops_state_store: Location::parse(&aws.kops_state_store).ok(),
        }
    }
}

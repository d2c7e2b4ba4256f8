//! Options of the AWS provider: flags and environment variables under Karpenter's names, for the operator's command line.

use std::time::Duration;

use clap::{ArgAction, Args};

/// Options that only the AWS provider reads. Flattened into the operator's options.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct AwsOptions {
    /// Name of the cluster: part of tags, user data and names in AWS. Required with the AWS provider.
    #[arg(long, env = "CLUSTER_NAME", default_value = "")]
    pub cluster_name: String,

    /// URL of the cluster's API server as the nodes reach it; discovered through eks:DescribeCluster when empty.
    #[arg(long, env = "CLUSTER_ENDPOINT", default_value = "")]
    pub cluster_endpoint: String,

    /// The cluster's CA certificates, base64 of PEM, for the nodes; taken from the operator's own connection when empty.
    #[arg(long, env = "CLUSTER_CA_BUNDLE", default_value = "")]
    pub cluster_ca_bundle: String,

    /// The VPC has no way to global AWS services: neither the price list nor IAM's lists are asked.
    #[arg(long, env = "ISOLATED_VPC", default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub isolated_vpc: bool,

    /// Take the Kubernetes version from eks:DescribeCluster instead of from the API server.
    #[arg(long, env = "EKS_CONTROL_PLANE", default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub eks_control_plane: bool,

    /// Share of an instance's memory that the hypervisor and the kernel keep for themselves, until the real figure is seen on a node.
    #[arg(long, env = "VM_MEMORY_OVERHEAD_PERCENT", default_value_t = 0.075)]
    pub vm_memory_overhead_percent: f64,

    /// Name of the SQS queue with interruption events; empty turns interruption handling off.
    #[arg(long, env = "INTERRUPTION_QUEUE", default_value = "")]
    pub interruption_queue: String,

    /// Network interfaces per node that are not for pods (custom networking).
    #[arg(long, env = "RESERVED_ENIS", default_value_t = 0)]
    pub reserved_enis: u32,

    /// Don't try out the permissions and settings of EC2NodeClasses with dry runs.
    #[arg(long, env = "DISABLE_DRY_RUN", default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub disable_dry_run: bool,

    /// How often the AMIs of an EC2NodeClass are looked up; at least 1m.
    #[arg(long, env = "AMI_REFRESH_INTERVAL", default_value = "1m", value_parser = duration)]
    pub ami_refresh_interval: Duration,

    /// How often the subnets of an EC2NodeClass are looked up; at least 1m.
    #[arg(long, env = "SUBNET_REFRESH_INTERVAL", default_value = "1m", value_parser = duration)]
    pub subnet_refresh_interval: Duration,
}

impl AwsOptions {
    /// All that is wrong with the options, in words; empty when they can be used.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.cluster_name.is_empty() {
            problems.push("missing field, cluster-name".to_owned());
        }
        if !self.cluster_endpoint.is_empty() && !has_host(&self.cluster_endpoint) {
            problems.push(format!(
                "\"{}\" is not a valid cluster-endpoint: use a URL such as https://example.eks.amazonaws.com",
                self.cluster_endpoint
            ));
        }
        if self.vm_memory_overhead_percent < 0.0 || !self.vm_memory_overhead_percent.is_finite() {
            problems.push("vm-memory-overhead-percent cannot be negative".to_owned());
        }
        let minute = Duration::from_secs(60);
        if self.ami_refresh_interval < minute {
            problems.push("ami-refresh-interval cannot be less than 1m".to_owned());
        }
        if self.subnet_refresh_interval < minute {
            problems.push("subnet-refresh-interval cannot be less than 1m".to_owned());
        }
        problems
    }
}

fn has_host(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.split('/').next().unwrap_or_default().is_empty()
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: tenon_crds::Duration = text
        .parse()
        .map_err(|error: tenon_crds::duration::ParseDurationError| error.to_string())?;
    Ok(duration.as_std())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        aws: AwsOptions,
    }

    fn parse(args: &[&str]) -> AwsOptions {
        Program::try_parse_from([&["tenon-operator"], args].concat()).unwrap().aws
    }

    #[test]
    fn defaults_are_karpenters() {
        let options = parse(&["--cluster-name", "demo"]);
        assert!(!options.isolated_vpc && !options.disable_dry_run && !options.eks_control_plane);
        assert!((options.vm_memory_overhead_percent - 0.075).abs() < f64::EPSILON);
        assert_eq!(options.ami_refresh_interval, Duration::from_secs(60));
        assert_eq!(options.problems(), Vec::<String>::new());
    }

    #[test]
    fn booleans_take_true_and_false_and_nothing_else() {
        assert!(parse(&["--isolated-vpc"]).isolated_vpc);
        assert!(parse(&["--isolated-vpc=true"]).isolated_vpc);
        assert!(!parse(&["--isolated-vpc=false"]).isolated_vpc);
        assert!(Program::try_parse_from(["tenon-operator", "--isolated-vpc=1"]).is_err());
    }

    #[test]
    fn names_all_problems_at_once() {
        let options = parse(&[
            "--cluster-endpoint=nowhere",
            "--vm-memory-overhead-percent=-1",
            "--ami-refresh-interval=30s",
            "--subnet-refresh-interval=1s",
        ]);
        assert_eq!(options.problems().len(), 5);
    }
}

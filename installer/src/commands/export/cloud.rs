//! What neither Terraform's AWS provider nor CloudFormation can make.

use tenon_installer_core::desired::Desired;
use tenon_installer_core::ownership::DISCOVERY;

use crate::errors::ExpectedError;

/// Refuses what would look complete and would not let a node in.
pub(super) fn check(desired: &Desired) -> Result<(), ExpectedError> {
    let Some(mapping) = desired.aws_auth() else { return Ok(()) };
    Err(ExpectedError::Refused {
        reasons: vec![format!(
            "nodes are authorized by the ConfigMap kube-system/aws-auth, which is not an AWS \
             resource: without an element for {} no node joins",
            mapping.role_arn
        )],
        hints: vec![
            "use an access entry: --node-authorization access-entry, if the cluster's \
             authentication mode is API or API_AND_CONFIG_MAP"
                .to_owned(),
            format!(
                "or use `tenon install`; to do it manually: eksctl create iamidentitymapping \
                 --cluster {} --region {} --arn {} --username '{}' --group {}",
                desired.scope.cluster,
                desired.scope.region,
                mapping.role_arn,
                mapping.username,
                mapping.groups.join(" --group ")
            ),
        ],
    })
}

/// What a template has no resource for, with the command that does it.
pub(super) fn outside_of_template(desired: &Desired) -> Vec<String> {
    if desired.discovery.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "CloudFormation can't tag subnets and security groups that it did not create. Without the \
         discovery tag no EC2NodeClass finds them: aws ec2 create-tags --region {} --resources {} \
         --tags Key={DISCOVERY},Value={}   # or --discovery ids",
        desired.scope.region,
        desired.discovery.join(" "),
        desired.scope.cluster
    )]
}

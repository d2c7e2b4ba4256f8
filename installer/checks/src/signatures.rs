//! Texts that AWS, Kubernetes and the operator are known to say, and what they mean. Conditions,
//! events and logs are searched for them.

use tenon_iam_policies::controller::controller_policies;
use tenon_iam_policies::cover::overlaps;
use tenon_iam_policies::document::{Actions, Resources};
use tenon_iam_policies::{Features, Partition, Scope};

use super::kops;
use super::observed::Observed;

/// A text with a known cause.
#[derive(Debug)]
pub(crate) struct Signature {
    /// Stable id, such as `ER-03`.
    pub id: &'static str,
    /// Parts of the text; one of them suffices. Without regard to case.
    pub texts: &'static [&'static str],
    /// What it means.
    pub cause: &'static str,
    /// What to type.
    pub fix: &'static str,
}

impl Signature {
    /// What to type, where a command helps.
    pub(crate) fn fix(&self, seen: &Observed) -> Option<&'static str> {
        if seen.asked.kops { kops::fix_of_cause(self.fix) } else { Some(self.fix) }
    }

    /// What it means and what to type, on one line.
    pub(crate) fn in_words(&self, seen: &Observed) -> String {
        let Some(fix) = self.fix(seen) else { return self.cause.to_owned() };
        let fix = seen.fill(fix);
        let fix = match fix.split_once("   # ") {
            Some((command, why)) => format!("{command} ({why})"),
            None => fix,
        };
        format!("{} → {fix}", self.cause)
    }
}

/// The signatures. The first that fits explains a text, so the more particular ones come first.
pub(crate) const SIGNATURES: &[Signature] = &[
    Signature {
        id: "ER-01",
        texts: &["AssumeRoleWithWebIdentity", "InvalidIdentityToken"],
        cause: "the role's trust policy, or the account's identity provider, doesn't accept the operator's service account",
        fix: "tenon iam print --cluster <cluster> --region <region>   # compare controller-role-trust-irsa with the role's trust policy",
    },
    Signature {
        id: "ER-02",
        texts: &["ServiceLinkedRoleCreationNotPermitted"],
        cause: "the account has no service-linked role for EC2 Spot, and the operator has no \
             permission to create it",
        fix: "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    },
    Signature {
        id: "ER-03",
        texts: &["Invalid IAM Instance Profile"],
        cause: "the instance profile does not exist, or is so new that EC2 doesn't know it yet",
        fix: "kubectl get ec2nodeclass -o jsonpath='{.items[*].status.instanceProfile}'   # \
             resolves itself within a minute if it is new",
    },
    Signature {
        id: "ER-04",
        texts: &["NonExistentQueue", "QueueDoesNotExist"],
        cause: "the queue in the operator's settings does not exist",
        fix: "tenon install --cluster <cluster> --region <region>",
    },
    Signature {
        id: "ER-05",
        texts: &["invalid ownership metadata"],
        cause: "objects with the chart's names exist that Helm did not create",
        fix: "helm upgrade --install --take-ownership …   # or leave the objects to `tenon install`",
    },
    Signature {
        id: "ER-06",
        texts: &["no matches for kind"],
        cause: "a CRD is missing",
        fix: "tenon install --cluster <cluster> --region <region>",
    },
    Signature {
        id: "ER-07",
        texts: &[
            "InsufficientInstanceCapacity",
            "UnfulfillableCapacity",
            "ReservationCapacityExceeded",
        ],
        cause: "AWS currently has no capacity for the requested instances in that zone",
        fix: "kubectl get nodepool -o yaml   # allow more instance types, zones and capacity types",
    },
    Signature {
        id: "ER-08",
        texts: &["MaxSpotInstanceCountExceeded"],
        cause: "the account's quota of spot vCPUs is exhausted",
        fix: "aws service-quotas request-service-quota-increase --region <region> --service-code ec2 --quota-code L-34B43A08 --desired-value 1000",
    },
    Signature {
        id: "ER-09",
        texts: &["VcpuLimitExceeded", "InstanceLimitExceeded"],
        cause: "the account's quota of on-demand vCPUs is exhausted",
        fix: "aws service-quotas request-service-quota-increase --region <region> --service-code ec2 --quota-code L-1216C47A --desired-value 1000",
    },
    Signature {
        id: "ER-10",
        texts: &[
            "InsufficientFreeAddressesInSubnet",
            "InsufficientCidrBlocks",
            "failed to assign an IP address",
        ],
        cause: "a subnet has no free addresses left",
        fix: "tenon install --cluster <cluster> --region <region> --subnets <larger-subnets>",
    },
    Signature {
        id: "ER-11",
        texts: &["Multiple tagged security groups"],
        cause: "the load balancer controller found more than one security group with the cluster's tag",
        fix: "aws ec2 delete-tags --region <region> --resources <group> --tags Key=kubernetes.io/cluster/<cluster>",
    },
    Signature {
        id: "ER-12",
        texts: &["Client.InternalError", "InvalidKmsKey", "KMSKeyNotAccessible"],
        cause: "the volume's KMS key can't be used: the operator's role or the key's policy lacks a grant",
        fix: "tenon iam print --cluster <cluster> --region <region> --volume-key <key>",
    },
    Signature {
        id: "ER-13",
        texts: &["failed calling webhook"],
        cause: "an admission webhook does not answer, and its failurePolicy is Fail",
        fix: "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
    },
    Signature {
        id: "ER-14",
        texts: &["leader election lost", "failed to renew lease", "stopped leading"],
        cause: "the API server was too slow for the leader to renew its lease",
        fix: "kubectl get --raw /metrics | grep apiserver_flowcontrol_rejected   # outside \
             kube-system the operator needs flow schemas: see CL-13",
    },
    Signature {
        id: "ER-15",
        texts: &["ParameterNotFound"],
        cause: "the AMI alias does not resolve in this region or for this version of Kubernetes",
        fix: "tenon install --cluster <cluster> --region <region> --ami-alias al2023@latest",
    },
    Signature {
        id: "ER-16",
        texts: &["public.ecr.aws: 403", "403 Forbidden", "pull access denied"],
        cause: "the registry refuses the image, often because of a stale login",
        fix: "docker logout public.ecr.aws   # or --image <mirror>",
    },
    Signature {
        id: "ER-17",
        texts: &["ErrImagePull", "ImagePullBackOff", "manifest unknown"],
        cause: "the image can't be pulled",
        fix: "kubectl -n <namespace> describe pod -l app.kubernetes.io/name=karpenter",
    },
    Signature {
        id: "ER-18",
        texts: &["CreateLaunchTemplateAuthCheckFailed"],
        cause: "the operator's role, its boundary or an organization policy denies \
             ec2:CreateLaunchTemplate",
        fix: "tenon iam verify --cluster <cluster> --region <region>",
    },
    Signature {
        id: "ER-19",
        texts: &["RunInstancesAuthCheckFailed"],
        cause: "the operator's role, its boundary or an organization policy denies ec2:RunInstances",
        fix: "tenon iam verify --cluster <cluster> --region <region>",
    },
    Signature {
        id: "ER-20",
        texts: &["CreateFleetAuthCheckFailed"],
        cause: "the operator's role, its boundary or an organization policy denies ec2:CreateFleet",
        fix: "tenon iam verify --cluster <cluster> --region <region>",
    },
    Signature {
        id: "ER-21",
        texts: &["explicit deny in a service control policy"],
        cause: "a policy of the organization denies the call, regardless of the role's policies",
        fix: "tenon iam verify --cluster <cluster> --region <region>   # show the result to the \
             administrator of the organization",
    },
    Signature {
        id: "ER-22",
        texts: &["UnauthorizedOperation", "AccessDenied", "is not authorized to perform"],
        cause: "a call to AWS is denied",
        fix: "tenon iam verify --cluster <cluster> --region <region>",
    },
    Signature {
        id: "ER-23",
        texts: &["ExpiredToken", "InvalidClientTokenId", "UnrecognizedClientException"],
        cause: "AWS doesn't accept the credentials",
        fix: "kubectl -n <namespace> rollout restart deployment karpenter   # pods get credentials at admission; see IA-02 and IA-03",
    },
    Signature {
        id: "ER-24",
        texts: &["no EC2 IMDS role found", "failed to retrieve credentials", "no credentials"],
        cause: "the operator's pod got no credentials",
        fix: "kubectl -n <namespace> rollout restart deployment karpenter   # pods get credentials at admission; see IA-02 and IA-03",
    },
    Signature {
        id: "ER-25",
        texts: &["kubelet is not authorized", "Unauthorized"],
        cause: "the API server can't authenticate the caller: a node role without an access entry, \
             or an expired token",
        fix: "tenon doctor --cluster <cluster> --region <region>   # see IA-08 and EX-12",
    },
    Signature {
        id: "ER-26",
        texts: &[
            "SubnetsNotFound",
            "SecurityGroupsNotFound",
            "AMINotFound",
            "InstanceProfileNotReady",
        ],
        cause: "the EC2NodeClass selects nothing of this kind: a tag is missing, or the selector is wrong",
        fix: "kubectl get ec2nodeclass -o yaml   # compare the selector terms with the tags of subnets, security groups and images",
    },
    Signature {
        id: "ER-27",
        texts: &["RequestLimitExceeded", "Throttling", "Rate exceeded"],
        cause: "AWS throttles the calls of this account",
        fix: "aws cloudtrail lookup-events --region <region> --max-results 50   # find the other \
             callers",
    },
];

/// What a text means, if that is known.
pub(crate) fn explain(text: &str) -> Option<&'static Signature> {
    let lower = text.to_lowercase();
    SIGNATURES
        .iter()
        .find(|signature| signature.texts.iter().any(|part| lower.contains(&part.to_lowercase())))
}

/// A denied call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    /// IAM action, such as `ec2:CreateFleet`.
    pub action: String,
    /// On what, if the text says so.
    pub resource: Option<String>,
    /// The statements of the operator's policies that allow it, as `policy/statement`. Empty: none
    /// does, the operator doesn't need it.
    pub statements: Vec<String>,
}

impl std::fmt::Display for Denial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is denied", self.action)?;
        if let Some(resource) = &self.resource {
            write!(f, " on {resource}")?;
        }
        match self.statements.as_slice() {
            [] => f.write_str("; no statement of Tenon's policies grants it"),
            all => write!(f, "; it is granted by statement {}", all.join(" or ")),
        }
    }
}

/// Which statement is missing, or does not hold, for the call that a text says was denied.
pub(crate) fn explain_denial(text: &str) -> Option<Denial> {
    const PERFORM: &str = "not authorized to perform: ";
    let word = |text: &str| {
        let end = text.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(text.len());
        text[..end].trim_end_matches(['.', ')', '"']).to_owned()
    };
    let (action, resource) = if let Some(at) = text.find(PERFORM) {
        let rest = &text[at + PERFORM.len()..];
        let resource =
            rest.find("on resource: ").map(|at| word(&rest[at + "on resource: ".len()..]));
        (word(rest), resource)
    } else {
        let checks = [
            ("CreateLaunchTemplateAuthCheckFailed", "ec2:CreateLaunchTemplate"),
            ("RunInstancesAuthCheckFailed", "ec2:RunInstances"),
            ("CreateFleetAuthCheckFailed", "ec2:CreateFleet"),
        ];
        let (_, action) = checks.into_iter().find(|(check, _)| text.contains(check))?;
        (action.to_owned(), None)
    };
    let statements = statements_for(&action, resource.as_deref());
    Some(Denial { action, resource, statements })
}

/// Statements of the operator's policies about an action, by policy and statement id.
fn statements_for(action: &str, resource: Option<&str>) -> Vec<String> {
    // Which statement is about an action doesn't depend on the cluster; only ARNs do, and of these
    // just the kind of resource is compared.
    let scope = Scope {
        partition: Partition::Aws,
        region: "*".to_owned(),
        account: "*".to_owned(),
        cluster: "*".to_owned(),
        queue: Some("*".to_owned()),
        node_roles: vec!["arn:aws:iam::*:role/*".to_owned()],
        features: Features::default(),
    };
    let resource = resource.map(|arn| {
        let mut parts = arn.splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("arn"), Some(_), Some(rest)) => format!("arn:aws:{rest}"),
            _ => "*".to_owned(),
        }
    });
    let mut found = Vec::new();
    for policy in controller_policies(&scope) {
        for statement in &policy.document.statements {
            let (Actions::Only(actions), Some(Resources::Only(arns))) =
                (&statement.actions, &statement.resources)
            else {
                continue;
            };
            let about = actions.iter().any(|one| one.eq_ignore_ascii_case(action));
            let on = resource.as_ref().is_none_or(|arn| arns.iter().any(|one| overlaps(one, arn)));
            if let Some(sid) = statement.sid.as_ref().filter(|_| about && on) {
                found.push(format!("{}/{sid}", policy.part.name()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_explains_its_own_texts() {
        for signature in SIGNATURES {
            for text in signature.texts {
                let said = format!("reconciling: api error {}: try again", text.to_uppercase());
                let found = explain(&said).map(|found| found.id);
                assert_eq!(found, Some(signature.id), "{text}");
            }
        }
    }

    #[test]
    fn ids_are_unique_and_in_order() {
        let ids = SIGNATURES.iter().map(|signature| signature.id).collect::<Vec<_>>();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(ids, sorted);
    }

    #[test]
    fn a_denied_call_names_the_statement_that_is_missing() {
        let text = "UnauthorizedOperation: User: arn:aws:sts::123456789012:assumed-role/x/y is not authorized to perform: ec2:TerminateInstances on resource: arn:aws:ec2:eu-central-1:123456789012:instance/i-1 because no identity-based policy allows the ec2:TerminateInstances action";
        let denial = explain_denial(text).unwrap();
        assert_eq!(
            denial.statements,
            ["KarpenterControllerNodeLifecyclePolicy/AllowScopedDeletion"]
        );
        assert_eq!(
            denial.resource.as_deref(),
            Some("arn:aws:ec2:eu-central-1:123456789012:instance/i-1")
        );
    }

    #[test]
    fn the_kind_of_resource_narrows_the_statements() {
        let on = |resource: &str| {
            let text =
                format!("is not authorized to perform: ec2:CreateFleet on resource: {resource}");
            explain_denial(&text).unwrap().statements
        };
        assert_eq!(
            on("arn:aws-cn:ec2:cn-north-1:123456789012:launch-template/lt-1"),
            [
                "KarpenterControllerNodeLifecyclePolicy/AllowScopedEC2LaunchTemplateAccessActions",
                "KarpenterControllerNodeLifecyclePolicy/AllowScopedEC2InstanceActionsWithTags"
            ]
        );
        assert_eq!(
            on("arn:aws:ec2:eu-west-1:123456789012:subnet/subnet-1"),
            ["KarpenterControllerNodeLifecyclePolicy/AllowScopedEC2InstanceAccessActions"]
        );
    }

    #[test]
    fn a_failed_authorisation_check_names_its_action_and_other_denials_no_statement() {
        let denial = explain_denial("CreateLaunchTemplateAuthCheckFailed").unwrap();
        assert_eq!(denial.action, "ec2:CreateLaunchTemplate");
        assert!(!denial.statements.is_empty());
        let other = explain_denial("not authorized to perform: s3:PutObject.").unwrap();
        assert_eq!(other.statements, [""; 0]);
        assert!(other.to_string().contains("no statement of Tenon's policies grants it"));
        assert_eq!(explain_denial("all is well"), None);
    }
}

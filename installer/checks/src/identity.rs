//! Roles, who may take them, and what keeps them from being made.

use serde_json::Value;

use super::observed::Observed;
use super::{Check, Outcome, Severity, When, known, skip};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "IA-01",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the cluster has an identity provider for IRSA",
        cause: "Without an identity provider, STS doesn't trust the tokens of service accounts: \
             AssumeRoleWithWebIdentity fails with InvalidIdentityToken or AccessDenied.",
        fix: "eksctl utils associate-iam-oidc-provider --region <region> --cluster <cluster> --approve",
        run: provider,
    },
    Check {
        id: "IA-02",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the Pod Identity agent runs",
        cause: "It provides the role's credentials to the operator's pods; without it they get \
             none.",
        fix: "tenon install --cluster <cluster> --region <region> --install-agent",
        run: agent,
    },
    Check {
        id: "IA-03",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the service account has one source of credentials",
        cause: "With both an IRSA annotation and a Pod Identity association, most SDKs use the \
             annotation's role, not the one that Tenon configures.",
        fix: "kubectl -n <namespace> annotate serviceaccount karpenter eks.amazonaws.com/role-arn-",
        run: one_source,
    },
    Check {
        id: "IA-04",
        severity: Severity::Fatal,
        when: When::Always,
        title: "all names are within the length limits",
        cause: "IAM allows 64 characters for a role, EventBridge 64 for a rule, SQS 80 for a queue.",
        fix: "tenon install --cluster <cluster> --region <region> --name-prefix <shorter>",
        run: names,
    },
    Check {
        id: "IA-05",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the policies are within IAM's size limits",
        cause: "IAM allows 10,240 characters for all inline policies of a role and 2,048 for a \
             trust policy.",
        fix: "tenon iam print --cluster <cluster> --region <region> --split managed   # attach the \
             pieces to your own role, and set it in identity.controllerRoleArn",
        run: sizes,
    },
    Check {
        id: "IA-06",
        severity: Severity::Warning,
        when: When::Always,
        title: "the account has room for roles and instance profiles",
        cause: "IAM counts them per account, and Tenon needs two roles and one instance profile per EC2NodeClass.",
        fix: "aws service-quotas request-service-quota-increase --service-code iam --quota-code L-FE177D64 --desired-value 2000",
        run: quotas,
    },
    Check {
        id: "IA-07",
        severity: Severity::Warning,
        when: When::Always,
        title: "the account has the service-linked role of EC2 Spot",
        cause: "The first spot launch of an account creates it, for which the operator has no \
             permission: AuthFailure.ServiceLinkedRoleCreationNotPermitted.",
        fix: "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
        run: spot_role,
    },
    Check {
        id: "IA-08",
        severity: Severity::Fatal,
        when: When::Installed,
        title: "the cluster authorizes the node role",
        cause: "Otherwise the API server answers the kubelet of a new node with Unauthorized, and \
             the node never registers.",
        fix: "tenon install --cluster <cluster> --region <region>",
        run: node_access,
    },
    Check {
        id: "IA-09",
        severity: Severity::Warning,
        when: When::Always,
        title: "the permissions boundary allows the operator's permissions",
        cause: "A boundary limits the grants of the policies. A call that it doesn't allow is \
             denied later, when the first node is launched.",
        fix: "tenon iam verify --cluster <cluster> --region <region>",
        run: boundary,
    },
    Check {
        id: "IA-10",
        severity: Severity::Fatal,
        when: When::Always,
        title: "supplied roles can be assumed",
        cause: "Their trust policy must allow the operator's service account, or instances, to \
             assume them.",
        fix: "tenon iam print --cluster <cluster> --region <region>   # see controller-role-trust and node-role-trust",
        run: trust,
    },
    Check {
        id: "IA-11",
        severity: Severity::Fatal,
        when: When::Installed,
        title: "the operator's role has the required permissions",
        cause: "Denied calls result in failed launches, instances that are not terminated, or \
             missed interruptions.",
        fix: "tenon iam verify --cluster <cluster> --region <region>   # then tenon install, or \
             attach the missing statements",
        run: controller_role,
    },
    Check {
        id: "IA-12",
        severity: Severity::Warning,
        when: When::Installed,
        title: "the cluster authorizes kube-proxy on Windows nodes",
        cause: "kube-proxy on Windows has the identity of its node and needs the group \
             eks:kube-proxy-windows. Without it, pods on Windows nodes reach no Services.",
        fix: "tenon install --cluster <cluster> --region <region> --windows-nodes",
        run: windows_access,
    },
];

const AUDIENCE: &str = tenon_iam_policies::identity::IRSA_AUDIENCE;

fn provider(seen: &Observed) -> Outcome {
    if seen.asked.pod_identity {
        return skip("the operator gets its role through Pod Identity");
    }
    known(&seen.iam.provider_audiences, |audiences| match audiences {
        None => Outcome::Fail("IAM has none for the cluster's issuer".to_owned()),
        Some(audiences) => Outcome::when(
            audiences.iter().any(|one| one == AUDIENCE),
            "it accepts the right audience",
            format!("it doesn't accept the audience {AUDIENCE}"),
        ),
    })
}

fn agent(seen: &Observed) -> Outcome {
    if !seen.asked.pod_identity {
        return skip("the operator gets its role through IRSA");
    }
    if seen.asked.fargate {
        return Outcome::Fail("Pod Identity is not available on Fargate: use IRSA".to_owned());
    }
    known(&seen.iam.agent, |agent| match agent.as_deref() {
        Some(status @ ("ACTIVE" | "DaemonSet" | "CREATING" | "UPDATING" | "to be installed")) => {
            Outcome::Pass(status.to_owned())
        }
        Some(status) => Outcome::Fail(format!("the add-on is {status}")),
        None => Outcome::Fail("it is missing".to_owned()),
    })
}

fn one_source(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.service_account_role, |role| {
        known(&seen.iam.association, |association| match role {
            Some(role) if *association || seen.asked.pod_identity => Outcome::Fail(format!(
                "it has an annotation with {role} in addition to Pod Identity"
            )),
            _ => Outcome::Pass("it has".to_owned()),
        })
    })
}

fn names(seen: &Observed) -> Outcome {
    let too_long = seen.asked.names.iter().filter(|one| one.name.chars().count() > one.limit);
    let problems = too_long
        .map(|one| format!("{} {} has more than {} characters", one.kind, one.name, one.limit))
        .collect::<Vec<_>>();
    Outcome::of(&problems, "they do")
}

fn sizes(seen: &Observed) -> Outcome {
    Outcome::of(&seen.asked.document_problems, "they do")
}

fn quotas(seen: &Observed) -> Outcome {
    known(&seen.iam.account_summary, |summary| {
        let mut problems = Vec::new();
        for (kind, needed) in [("Roles", 2), ("InstanceProfiles", 2)] {
            let (Some(used), Some(quota)) =
                (summary.get(kind), summary.get(&format!("{kind}Quota")))
            else {
                continue;
            };
            if used + needed > *quota {
                problems.push(format!("{used} of {quota} {kind} are in use"));
            }
        }
        Outcome::of(&problems, "it has")
    })
}

fn spot_role(seen: &Observed) -> Outcome {
    if !seen.asked.spot {
        return skip("the settings exclude spot instances");
    }
    known(&seen.iam.spot_role, |there| Outcome::when(*there, "it has", "it is missing"))
}

fn node_access(seen: &Observed) -> Outcome {
    known(&seen.iam.access_entry, |entry| match entry {
        Some(entry) => Outcome::when(
            matches!(entry.kind.as_str(), "EC2_LINUX" | "EC2_WINDOWS" | "EC2"),
            format!("by an access entry of type {}", entry.kind),
            format!("its access entry is of type {}, which does not authorize nodes", entry.kind),
        ),
        None => known(&seen.kubernetes.aws_auth, |map| {
            // aws-auth knows roles without their path.
            let name = seen.iam.node_role_arn.rsplit('/').next().unwrap_or_default();
            let mapped = map.as_deref().is_some_and(|text| {
                !name.is_empty()
                    && text.contains(&format!("/{name}"))
                    && text.contains("system:nodes")
            });
            Outcome::when(
                mapped,
                "by aws-auth",
                format!("{} has no access entry and is not in aws-auth", seen.iam.node_role_arn),
            )
        }),
    })
}

fn windows_access(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.node_classes, |classes| {
        // Nodes of another role have another access entry.
        let role = seen.iam.node_role_arn.rsplit('/').next().unwrap_or_default();
        let is_ours = |class: &&Value| class["spec"]["role"].as_str().is_none_or(|it| it == role);
        let Some(class) = classes.iter().filter(is_ours).find(|class| launches_windows(class))
        else {
            return Outcome::Pass("no EC2NodeClass launches Windows nodes".to_owned());
        };
        let name = class["metadata"]["name"].as_str().unwrap_or_default();
        let problem = |why: &str| format!("EC2NodeClass {name} launches Windows nodes, but {why}");
        known(&seen.iam.access_entry, |entry| match entry {
            Some(entry) => Outcome::when(
                entry.kind != "EC2_LINUX",
                format!("by an access entry of type {}", entry.kind),
                problem("the node role's access entry is of type EC2_LINUX, not EC2_WINDOWS"),
            ),
            None => known(&seen.kubernetes.aws_auth, |map| {
                let text = map.as_deref().unwrap_or_default();
                let why = "the node role has neither an access entry of type EC2_WINDOWS nor the \
                           group eks:kube-proxy-windows in aws-auth";
                let is_mapped = text.contains("eks:kube-proxy-windows");
                Outcome::when(is_mapped, "by aws-auth", problem(why))
            }),
        })
    })
}

/// Whether the images of an EC2NodeClass are of Windows, by its AMI family or an alias.
fn launches_windows(class: &Value) -> bool {
    let spec = &class["spec"];
    let mut terms = spec["amiSelectorTerms"].as_array().into_iter().flatten();
    let family = spec["amiFamily"].as_str().unwrap_or_default();
    family.starts_with("Windows")
        || terms.any(|term| term["alias"].as_str().is_some_and(|it| it.starts_with("windows")))
}

fn boundary(seen: &Observed) -> Outcome {
    known(&seen.iam.boundary_blocks, |blocked| {
        let problems = blocked.iter().map(|one| format!("it blocks {one}")).collect::<Vec<_>>();
        Outcome::of(&problems, "nothing is blocked")
    })
}

fn trust(seen: &Observed) -> Outcome {
    known(&seen.iam.trust_problems, |problems| Outcome::of(problems, "they can"))
}

pub(super) fn controller_role(seen: &Observed) -> Outcome {
    known(&seen.iam.controller_gaps, |gaps| match gaps {
        None => Outcome::Fail("the role does not exist".to_owned()),
        Some(gaps) => {
            let problems = gaps.iter().map(|gap| format!("it lacks {gap}")).collect::<Vec<_>>();
            Outcome::of(&problems, "it does")
        }
    })
}

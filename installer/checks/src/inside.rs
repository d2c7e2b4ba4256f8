//! What pods of the operator's reach, asked from inside one. Only where `--in-cluster` asks for it:
//! a Job is made for it, and removed.

use tenon_installer_core::words::count_are;
use tenon_state::probe::{Reach, ServiceReach};

use super::observed::{InsideView, Observed};
use super::{Check, Outcome, Severity, When, known, skip};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "IC-01",
        severity: Severity::Fatal,
        when: When::Inside,
        title: "pods can resolve the names of AWS's endpoints",
        cause: "Without addresses the operator can't call AWS. In an isolated VPC the names come \
             from VPC endpoints with private DNS, and the cluster's DNS has to forward to the \
             VPC's. The price list may be unreachable: the operator then uses its built-in prices.",
        fix: "kubectl --namespace kube-system logs --selector k8s-app=kube-dns --tail 50",
        run: names,
    },
    Check {
        id: "IC-02",
        severity: Severity::Fatal,
        when: When::Inside,
        title: "pods can reach AWS's endpoints",
        cause: "If an address does not answer, the cause is a route, a security group of a VPC \
             endpoint that does not allow the pods on port 443, a network policy, or a proxy that \
             intercepts TLS. IAM has no VPC endpoint: an isolated VPC needs static instance \
             profiles.",
        fix: "aws ec2 describe-vpc-endpoints --region <region> --filters Name=vpc-id,Values=<vpc> --query 'VpcEndpoints[].[ServiceName,State,Groups[].GroupId]'",
        run: endpoints,
    },
    Check {
        id: "IC-03",
        severity: Severity::Fatal,
        when: When::Inside,
        title: "the operator's service account gets its role",
        cause: "Agent or webhook, association or annotation, the role's trust policy and the route \
             to STS or the agent all have to be correct. This can only be checked from a pod.",
        fix: "tenon doctor --cluster <cluster> --region <region>",
        run: credentials,
    },
    Check {
        id: "IC-04",
        severity: Severity::Fatal,
        when: When::Inside,
        title: "the operator has permission for its calls",
        cause: "A permissions boundary, a policy of the organization, or the policy of a VPC \
             endpoint, which applies only to calls from the pods, may deny what IAM grants.",
        fix: "tenon iam verify --cluster <cluster> --region <region>",
        run: permissions,
    },
];

/// The operator does without it.
const PRICES: &str = "pricing";

fn inside(seen: &Observed, judge: impl FnOnce(&InsideView) -> Outcome) -> Outcome {
    match &seen.inside {
        Some(inside) => known(inside, judge),
        None => Outcome::Unknown("not checked: use --in-cluster".to_owned()),
    }
}

/// Passes unless calls came no farther than so.
fn came_far(inside: &InsideView, short: &[Reach], passed: &str) -> Outcome {
    let services = &inside.report.services;
    let says = |it: &ServiceReach| match it.outcome {
        Reach::Unresolved => format!("{}: no address for {}", it.service, it.host),
        _ if it.message.is_empty() => format!("{}: {}", it.service, it.host),
        _ => format!("{}: {} ({})", it.service, it.host, it.message),
    };
    let (prices, needed): (Vec<_>, Vec<_>) = services
        .iter()
        .filter(|it| short.contains(&it.outcome))
        .partition(|it| it.service == PRICES);
    let problems: Vec<String> = needed.into_iter().map(says).collect();
    let without = if prices.is_empty() { "" } else { "; the price list is not, which is allowed" };
    Outcome::of(
        &problems,
        format!("{} {passed}{without}", count_are(services.len() - prices.len(), "service")),
    )
}

fn names(seen: &Observed) -> Outcome {
    inside(seen, |inside| came_far(inside, &[Reach::Unresolved], "resolved"))
}

fn endpoints(seen: &Observed) -> Outcome {
    inside(seen, |inside| came_far(inside, &[Reach::Unreachable, Reach::Failed], "reached"))
}

fn credentials(seen: &Observed) -> Outcome {
    inside(seen, |inside| match &inside.report.no_credentials {
        _ if !inside.as_operator => skip("the operator's service account does not exist yet"),
        Some(why) => Outcome::Fail(why.clone()),
        None => came_far(inside, &[Reach::Unauthenticated], "called with the role"),
    })
}

fn permissions(seen: &Observed) -> Outcome {
    inside(seen, |inside| match &inside.report.no_credentials {
        None if inside.as_operator => came_far(inside, &[Reach::Denied], "granted"),
        _ => skip("the pod does not have the operator's credentials"),
    })
}

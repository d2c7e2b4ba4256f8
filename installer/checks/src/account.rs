//! Credentials, target and what the caller may do.

use super::observed::{Observed, Seen};
use super::{Check, Outcome, Severity, When, known};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "AC-01",
        severity: Severity::Fatal,
        when: When::Always,
        title: "AWS accepts the credentials",
        cause: "Every other call is signed with them. They are missing, expired, or belong to an \
             account other than `cluster.accountId`.",
        fix: "aws sts get-caller-identity --region <region>   # log in again, or choose others with --profile",
        run: credentials,
    },
    Check {
        id: "AC-02",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the region is known",
        cause: "Without a region, no AWS service can be called. If no flag, variable, settings \
             file or kubeconfig sets it, every command exits immediately and names \
             `cluster.region`.",
        fix: "tenon preflight --cluster <cluster> --region eu-central-1   # or set AWS_REGION",
        run: region,
    },
    Check {
        id: "AC-03",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the kubeconfig leads to the same cluster as AWS",
        cause: "Tenon would create roles for one cluster and deploy into another.",
        fix: "aws eks update-kubeconfig --region <region> --name <cluster>   # or leave out --kubeconfig and --context",
        run: same_cluster,
    },
    Check {
        id: "AC-04",
        severity: Severity::Info,
        when: When::Always,
        title: "Tenon has IAM documents for the partition",
        cause: "ARNs and service names differ between aws, aws-cn and aws-us-gov.",
        fix: "tenon iam print --cluster <cluster> --region <region>   # adapt the documents \
             manually and set the roles in the settings",
        run: partition,
    },
    Check {
        id: "AC-05",
        severity: Severity::Warning,
        when: When::Always,
        title: "the caller may make every call of the plan",
        cause: "Otherwise a step in the middle would be denied; completed steps stay, and the same \
             command resumes later. A simulation does not cover everything, so this is a warning.",
        fix: "tenon iam caller --cluster <cluster> --region <region>   # attach what it prints to the caller",
        run: permissions,
    },
    Check {
        id: "AC-06",
        severity: Severity::Warning,
        when: When::Always,
        title: "no organization policy denies a call of the plan",
        cause: "A service control policy denies it, regardless of the caller's own policies. Often \
             it requires a permissions boundary or a role path.",
        fix: "tenon install --cluster <cluster> --region <region> --permissions-boundary arn:aws:iam::<account>:policy/<boundary>",
        run: organization,
    },
    Check {
        id: "AC-07",
        severity: Severity::Fatal,
        when: When::Always,
        title: "Kubernetes allows the caller to write the objects to install",
        cause: "The caller has no access entry with cluster administrator permissions, or its RBAC \
             is narrower than the permissions that it has to grant.",
        fix: "aws eks associate-access-policy --region <region> --cluster-name <cluster> --principal-arn <caller> --access-scope type=cluster --policy-arn arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
        run: rbac,
    },
    Check {
        id: "AC-08",
        severity: Severity::Warning,
        when: When::Always,
        title: "this machine's clock is right",
        cause: "AWS refuses signatures that are five minutes off, and tokens for the cluster expire too early.",
        fix: "sudo chronyc makestep   # or another command that sets the clock",
        run: clock,
    },
    Check {
        id: "AC-09",
        severity: Severity::Info,
        when: When::Always,
        title: "addresses that only nodes can reach bypass the proxy",
        cause: "Behind a proxy, credentials (169.254.170.23, 169.254.169.254) and VPC endpoints must be reached directly, or the operator gets no credentials.",
        fix: "kubectl -n <namespace> set env deployment/karpenter NO_PROXY=169.254.170.23,169.254.169.254,.svc,.cluster.local,.amazonaws.com",
        run: proxy,
    },
];

fn credentials(seen: &Observed) -> Outcome {
    match &seen.caller.identity {
        // Not knowing who calls is the failure itself.
        Seen::Unknown(why) => Outcome::Fail(why.clone()),
        Seen::Known(identity) => match &seen.asked.account {
            Some(account) if *account != identity.account => Outcome::Fail(format!(
                "the credentials belong to account {}, and cluster.accountId is {account}",
                identity.account
            )),
            _ => Outcome::Pass(identity.arn.clone()),
        },
    }
}

fn region(seen: &Observed) -> Outcome {
    let region = &seen.asked.region;
    let looks_right = region.split('-').count() >= 3
        && region.ends_with(|c: char| c.is_ascii_digit())
        && region.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    Outcome::when(looks_right, region, format!("{region:?} is not a region"))
}

fn same_cluster(seen: &Observed) -> Outcome {
    let endpoint = match &seen.caller.endpoint {
        Seen::Known(endpoint) => endpoint,
        Seen::Unknown(why) => return Outcome::Fail(why.clone()),
    };
    let host =
        |url: &str| url.trim_start_matches("https://").trim_end_matches('/').to_ascii_lowercase();
    known(&seen.cluster, |cluster| {
        Outcome::when(
            host(endpoint) == host(&cluster.endpoint),
            endpoint,
            format!(
                "it points to {endpoint}, but EKS reports the cluster's endpoint as {}",
                cluster.endpoint
            ),
        )
    })
}

fn partition(seen: &Observed) -> Outcome {
    known(&seen.caller.identity, |identity| {
        let partition = identity.arn.split(':').nth(1).unwrap_or_default();
        Outcome::when(
            ["aws", "aws-cn", "aws-us-gov"].contains(&partition),
            partition,
            format!("Tenon has no documents for partition {partition:?}"),
        )
    })
}

fn permissions(seen: &Observed) -> Outcome {
    known(&seen.caller.denied, |denied| {
        let missing = denied
            .iter()
            .filter(|one| !one.by_organization)
            .map(|one| format!("{} on {}", one.action, one.resource))
            .collect::<Vec<_>>();
        Outcome::of(&missing, "a simulation allows all of them")
    })
}

fn organization(seen: &Observed) -> Outcome {
    known(&seen.caller.denied, |denied| {
        let denied = denied
            .iter()
            .filter(|one| one.by_organization)
            .map(|one| format!("{} on {}", one.action, one.resource))
            .collect::<Vec<_>>();
        Outcome::of(&denied, "none found by a simulation")
    })
}

fn rbac(seen: &Observed) -> Outcome {
    known(&seen.caller.rbac, |missing| {
        let problems = missing.iter().map(|one| format!("may not {one}")).collect::<Vec<_>>();
        Outcome::of(&problems, "all of it")
    })
}

/// A little less than half of what AWS tolerates.
const MAX_SKEW_SECONDS: i64 = 120;

fn clock(seen: &Observed) -> Outcome {
    known(&seen.caller.clock_skew, |skew| {
        Outcome::when(
            skew.abs() <= MAX_SKEW_SECONDS,
            format!("{skew} s off"),
            format!("it is {} s {}", skew.abs(), if *skew > 0 { "ahead" } else { "behind" }),
        )
    })
}

fn proxy(seen: &Observed) -> Outcome {
    if seen.caller.https_proxy.is_none() {
        return Outcome::Pass("there is no proxy".to_owned());
    }
    let past = format!(
        "{},{}",
        seen.caller.no_proxy.as_deref().unwrap_or_default(),
        seen.asked.operator_no_proxy.as_deref().unwrap_or_default()
    );
    let missing = ["169.254.170.23", "169.254.169.254"]
        .into_iter()
        .filter(|address| !past.contains(address))
        .map(|address| format!("NO_PROXY does not contain {address}"))
        .collect::<Vec<_>>();
    Outcome::of(&missing, "NO_PROXY contains the addresses of the credential endpoints")
}

//! What to do about a failure: one line each, with what can be typed.

use tenon_installer_core::apply::StepError;
use tenon_installer_core::aws::profiles::UnknownProfile;
use tenon_installer_core::aws::{AwsError, NoAnswer};
use tenon_installer_core::failure::Failure;
use tenon_installer_core::files::{FileError, FileOperation};
use tenon_installer_core::kubernetes::client::KubeError;
use tenon_installer_core::lock;
use tenon_installer_core::plugin::ClientError;
use tenon_installer_core::words::nearest;

use super::ExpectedError;

impl ExpectedError {
    /// What to do next.
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::Settings(_) => {
                vec!["`tenon config schema` prints the allowed fields and values".to_owned()]
            }
            Self::Foreign { .. } => {
                vec![
                    "choose other names (--name-prefix), or remove the conflicting objects; \
                     nothing was changed"
                        .to_owned(),
                ]
            }
            Self::Rejected { .. } => {
                vec![
                    "correct the settings or manifests that these fields come from, or the \
                     admission policy that refuses them; `tenon plan` asks the cluster again"
                        .to_owned(),
                ]
            }
            Self::Credential(error) => error.advice(),
            Self::NotConfirmed { hint } => vec![(*hint).to_owned()],
            Self::Refused { hints, .. } => hints.clone(),
            Self::Simulate(error) => error.hints(),
            Self::Ledger(error) => error.hints(),
            Self::Listen { .. } => {
                vec![
                    "choose another --port, or leave it out: then it is one that is free"
                        .to_owned(),
                ]
            }
            Self::Moved(_) => vec!["create and review the plan again".to_owned()],
            Self::Locked { ends: None, .. } => {
                vec!["it runs on this machine: wait until it ends".to_owned()]
            }
            Self::Locked { ends: Some(ends), .. } => vec![
                format!("wait until it ends; if it was killed, its lock expires at {ends}"),
                format!(
                    "to break the lock of a run that no longer exists: kubectl -n {} delete lease \
                     {}",
                    lock::NAMESPACE,
                    lock::LEASE
                ),
            ],
            Self::Interrupted => vec![
                "run the same command again to resume; `tenon status` shows what is missing, \
                 `tenon uninstall` reverts the completed steps"
                    .to_owned(),
            ],
            Self::Protected => vec![
                "set protect.preventUninstall to false, run `tenon install`, then uninstall"
                    .to_owned(),
            ],
            Self::Observe(Failure::Kubernetes(error))
            | Self::Step(StepError { source: Failure::Kubernetes(error), .. })
                if let Some(plugin) = error.plugin() =>
            {
                plugin.advice()
            }
            Self::Observe(failure) => vec![advice(failure).unwrap_or_else(|| {
                "run the same command with -vv to see every request and answer".to_owned()
            })],
            Self::Step(StepError { source: Failure::Canary { .. }, .. }) => vec![
                "run the same command again when that is fixed; after `tenon upgrade`, `tenon \
                 rollback` reverts the preparations"
                    .to_owned(),
            ],
            Self::Step(StepError { source, .. }) => {
                vec![
                    advice(source).unwrap_or_else(|| {
                        "run the same command again to resume from here".to_owned()
                    }),
                ]
            }
            Self::Timeout { .. } => vec![
                "`tenon status` shows what is missing; use a longer --timeout to wait longer"
                    .to_owned(),
            ],
            Self::File(FileError { operation, .. }) => vec![match operation {
                FileOperation::Read => "check the path and the permissions of the file".to_owned(),
                FileOperation::Write => {
                    "choose a path that you may write, on a volume with space".to_owned()
                }
            }],
            Self::Kubeconfig(error) => vec![kubeconfig(error)],
            Self::Profile(error) => vec![profile(error)],
            Self::Prompt(_) => vec![
                "pass the values as flags or in a settings file (-f), with --yes and \
                 --non-interactive"
                    .to_owned(),
            ],
            Self::NoTerminal { .. } | Self::Draw(_) => vec![
                "`tenon status --watch` prints nodes, pods and disruptions as text, with -o json \
                 for programs; `tenon decisions --follow` prints decisions"
                    .to_owned(),
            ],
            // Each reason says what to do about it.
            Self::Preflight { .. } | Self::Unfit { .. } => Vec::new(),
        }
    }
}

/// What helps against a failed call, where more is known than that it failed.
fn advice(failure: &Failure) -> Option<String> {
    match failure {
        Failure::Aws(error) => aws(error),
        Failure::Kubernetes(error) => kubernetes(error),
        Failure::Restored { .. } => Some(
            "change its replicas where they come from, or pause the tool that restores them; then \
             run the same command again"
                .to_owned(),
        ),
        _ => None,
    }
}

fn aws(error: &AwsError) -> Option<String> {
    let AwsError { action, resource, .. } = error;
    let advice = match error.no_answer {
        Some(NoAnswer::NoCredentials) => {
            "select a profile with --profile or AWS_PROFILE, or set AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY; `aws sts get-caller-identity` shows whether AWS accepts them"
                .to_owned()
        }
        Some(NoAnswer::BadCredentials) => {
            "fix the profile, or select another one with --profile; `aws sts get-caller-identity` \
             shows whether AWS accepts it"
                .to_owned()
        }
        Some(NoAnswer::NoSession) => {
            "log in with `aws sso login` (and the same --profile), then run the same command again"
                .to_owned()
        }
        Some(NoAnswer::UnsupportedCredentials) => {
            "let the AWS CLI put them into the environment: eval \"$(aws configure \
             export-credentials --format env)\", without --profile and AWS_PROFILE"
                .to_owned()
        }
        Some(NoAnswer::Unreached) => {
            "check the network, the proxy (HTTPS_PROXY) and, if it is set, AWS_ENDPOINT_URL; \
             `aws sts get-caller-identity` shows whether the problem persists"
                .to_owned()
        }
        None if error.is_unknown_caller() => {
            "AWS does not accept these credentials: renew them, or select others with --profile"
                .to_owned()
        }
        None if error.is_denied_by_organization() => format!(
            "a policy of the organization denies {action} on {resource}, regardless of the \
             caller's permissions: often it requires --permissions-boundary or --role-path; ask \
             the organization's administrator, then run the same command again"
        ),
        None if error.is_denied() => {
            format!("the caller needs {action} on {resource}; then run the same command again")
        }
        None if error.is_not_found() && *action == "eks:DescribeCluster" => {
            "check --cluster, --region and --profile; `aws eks list-clusters` lists the clusters \
             of a region"
                .to_owned()
        }
        None => return None,
    };
    Some(advice)
}

fn kubernetes(error: &KubeError) -> Option<String> {
    if error.is_silence() {
        return Some(
            "the network drops packets to the API server, or the API server is overloaded: check \
             VPN, proxy, firewalls and the access to the cluster's endpoint, try `kubectl get \
             --raw /readyz`, then run the same command again"
                .to_owned(),
        );
    }
    if error.is_unreached() {
        return Some(
            "check the server's address in the kubeconfig (`kubectl cluster-info`), VPN, proxy \
             and firewalls; a private endpoint is reached only from the VPC or a network that is \
             connected to it"
                .to_owned(),
        );
    }
    if error.is_denied() {
        let KubeError { verb, resource, .. } = error;
        return Some(format!(
            "the caller needs {verb} on {resource}; then run the same command again"
        ));
    }
    error.is_invalid().then(|| {
        "change the setting behind the field that the message names (`tenon config explain` lists \
         all), then run the same command again to resume from here"
            .to_owned()
    })
}

fn kubeconfig(error: &ClientError) -> String {
    let ClientError::UnknownContext { name, known } = error else {
        return "check --kubeconfig and KUBECONFIG; without them and --context, tenon creates the \
                token from the AWS credentials itself"
            .to_owned();
    };
    let known = known.iter().map(String::as_str);
    match name.as_deref().and_then(|name| nearest(name, known)) {
        Some(meant) => format!("did you mean --context {meant}?"),
        None => "select one of the kubeconfig's contexts with --context (`kubectl config \
                 get-contexts` lists them)"
            .to_owned(),
    }
}

fn profile(error: &UnknownProfile) -> String {
    match error.meant() {
        Some(meant) => format!("did you mean --profile {meant}?"),
        None => format!(
            "select another one with --profile or AWS_PROFILE (`aws configure list-profiles` lists \
             them), or create it: `aws configure --profile {}`",
            error.name
        ),
    }
}

//! Why the decision ledger can't be read, and what to do about it.

use tenon_installer_core::kubernetes::client::KubeError;
use tenon_installer_core::plugin::ClientError;
use tenon_state::decision::PATH;

/// The decision ledger can't be read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// There is no operator.
    #[error("the cluster has no Tenon operator")]
    NoOperator,
    /// No replica leads.
    #[error("no replica of the operator leads at the moment")]
    NoLeader,
    /// It serves no decisions.
    #[error("the operator serves no decisions: DECISIONS_PORT is 0")]
    Disabled,
    /// Nothing answers on the port.
    #[error(
        "the operator's pod {pod} does not answer on port {port}{}",
        why.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
    )]
    Closed {
        /// Name of the operator's pod.
        pod: String,
        /// The port on which it should serve the ledger.
        port: u16,
        /// The operator's version, if it is known.
        version: Option<String>,
        /// What the kubelet says.
        why: Option<String>,
    },
    /// Nothing answers at the given address.
    #[error("nothing answers at {address}: {why}")]
    Unreached {
        /// Host and port.
        address: String,
        /// Why.
        why: String,
    },
    /// The connection broke, or there was no answer in time.
    #[error("the connection to the operator broke: {why}")]
    Broken {
        /// Why.
        why: String,
    },
    /// The API server refused, or could not be asked.
    #[error(transparent)]
    Kubernetes(#[from] KubeError),
    /// There is no token.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The user has a client certificate, and no token could be requested.
    #[error(
        "the kubeconfig's user has a client certificate and no token, and none could be requested"
    )]
    NoToken {
        /// Why.
        source: KubeError,
    },
    /// The operator does not accept the token.
    #[error("the operator does not accept the token: the API server does not know it")]
    Unauthorized,
    /// The user may not read decisions.
    #[error("user {user:?} may not read the operator's decisions (get {PATH})")]
    Forbidden {
        /// The user, as the API server knows it.
        user: String,
        /// The operator's name.
        name: Option<String>,
        /// Namespace of the operator.
        namespace: Option<String>,
    },
    /// The operator answers something else.
    #[error("the operator refuses with status {status}: {message}")]
    Refused {
        /// The status code.
        status: u16,
        /// What it says.
        message: String,
    },
    /// The operator's answer is no list of decisions.
    #[error("the response is not a list of decisions")]
    Unreadable,
    /// The URL is not one on loopback.
    #[error("{url:?} is not a URL on the loopback address, such as http://127.0.0.1:8085")]
    Url {
        /// As it was given.
        url: String,
    },
}

impl LedgerError {
    /// Whether it may be over in a moment.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::NoLeader | Self::Broken { .. })
            || matches!(self, Self::Closed { why: None, .. })
    }

    /// What to do.
    pub(crate) fn hints(&self) -> Vec<String> {
        let one = |hint: &str| vec![hint.to_owned()];
        match self {
            Self::NoOperator => one("`tenon install` installs it"),
            Self::NoLeader => one("`tenon status` shows whether it runs"),
            Self::Disabled => one("set controller.decisions.port in the values of the chart"),
            Self::Closed { pod: _, port, version, why: _ } => {
                let runs = version.as_ref().map(|version| format!(" (it is {version})"));
                let runs = runs.unwrap_or_default();
                vec![format!(
                    "an older operator has no decision ledger: `tenon upgrade` installs the version of \
                     this program{runs}; otherwise check the operator's log for another server that \
                     uses port {port}"
                )]
            }
            Self::Unreached { .. } => {
                one("forward the port first: kubectl -n kube-system port-forward POD 8085")
            }
            Self::Broken { .. } => one("run the same command again"),
            Self::Kubernetes(error) if error.is_denied() => {
                vec![reader(None, None), "or have an administrator run it".to_owned()]
            }
            Self::Kubernetes(_) | Self::Client(_) => {
                one("run the same command with -vv to see every request and answer")
            }
            Self::NoToken { .. } => {
                one("use a kubeconfig whose user has a token or a credential plugin, or have an \
                 administrator allow you to create serviceaccounts/token of the operator's account")
            }
            Self::Unauthorized => {
                one("`kubectl auth whoami` shows whether the kubeconfig's token is still valid")
            }
            Self::Forbidden { user, name, namespace } => {
                let mut hint = reader(name.as_deref(), namespace.as_deref());
                if !user.is_empty() {
                    hint = hint
                        .replace("--user=NAME", &format!("--user='{}'", user.replace('\'', "")));
                }
                vec![hint]
            }
            Self::Refused { .. } | Self::Unreadable => {
                one("`tenon status` shows the operator's version and whether it works")
            }
            Self::Url { .. } => one(
                "a token must not cross a network in the clear; forward the port with `kubectl \
                 port-forward`, or omit --url",
            ),
        }
    }
}

/// Which roles a reader needs.
fn reader(name: Option<&str>, namespace: Option<&str>) -> String {
    let role = format!("{}-decisions-reader", name.unwrap_or("karpenter"));
    let namespace = namespace.unwrap_or("kube-system");
    format!(
        "bind the reader's roles: kubectl create clusterrolebinding {role} --clusterrole={role} \
         --user=NAME && kubectl -n {namespace} create rolebinding {role} --role={role} --user=NAME"
    )
}

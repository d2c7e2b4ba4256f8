//! Runs a kubeconfig's credential plugin (`users[].user.exec`, such as `aws eks get-token`), with a
//! limit on how long it may take.
//!
//! The Kubernetes client would run it itself, on the thread that asks and without a limit: a plugin
//! that waits for a login that never comes would keep every command waiting for ever, deaf to
//! Ctrl-C. So the client never sees the plugin. Here it is run as a child that ends with whoever
//! waits for it; its token goes into each request, and is asked for anew before it expires. A
//! client certificate is used for as long as the command runs.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use kube::client::{Body, ClientBuilder};
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use kube::{Client, Config};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::clock;
use crate::words::chain;

/// How long a plugin may take when nobody can answer its questions.
const UNATTENDED: Duration = Duration::from_secs(30);

/// How long it may take when somebody sits in front of it, who may have to log in or to type a code
/// first.
const ATTENDED: Duration = Duration::from_mins(5);

/// When somebody who sits in front of it is told what is being waited for.
const NOTICE: Duration = Duration::from_secs(5);

/// How long before its end a token is asked for anew.
const EARLY: SignedDuration = SignedDuration::from_secs(60);

/// What is read of a plugin's answer, in bytes. A token has a few thousand.
const ANSWER: u64 = 1 << 20;

/// What is kept of what a plugin says on stderr, in bytes.
const SAID: usize = 4 << 10;

/// The kubeconfig's credential plugin gave no credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the kubeconfig's credential plugin {trouble}: `{command}`")]
pub struct PluginError {
    /// The command, with its arguments.
    pub command: String,
    /// What went wrong.
    trouble: Trouble,
    /// What the plugin said on stderr, its end if that was long.
    pub said: String,
    /// What the kubeconfig says about installing the plugin.
    hint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Trouble {
    #[error("can't be started ({0})")]
    Start(String),
    #[error("did not answer within {0} s and was stopped")]
    Silent(u64),
    #[error("failed ({0})")]
    Failed(String),
    #[error("returned something other than an ExecCredential ({0})")]
    Unreadable(String),
}

impl PluginError {
    /// For tests: a plugin that ended with an error after it said this.
    #[cfg(any(test, feature = "testing"))]
    pub fn failed(command: &str, said: &str) -> Self {
        Self {
            command: command.to_owned(),
            trouble: Trouble::Failed("exit status: 1".to_owned()),
            said: said.to_owned(),
            hint: None,
        }
    }

    /// What can be done about it, one line each.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        match &self.trouble {
            Trouble::Start(_) => advice.push(self.hint.clone().unwrap_or_else(|| {
                "install that program, or fix users[].user.exec in the kubeconfig".to_owned()
            })),
            Trouble::Silent(_) => advice.push(format!(
                "run `{}` manually to see what it is waiting for: often it is a login (`aws sso \
                 login`), a code, or a proxy",
                self.command
            )),
            Trouble::Failed(_) | Trouble::Unreadable(_) => advice.push(format!(
                "run `{}` manually to see its output; log in again if the session has expired \
                 (`aws sso login`)",
                self.command
            )),
        }
        advice.push(
            "without --kubeconfig, KUBECONFIG and --context, tenon creates the token from the AWS \
             credentials itself"
                .to_owned(),
        );
        advice
    }

    /// Everything that is known, in one line.
    pub fn in_one_line(&self) -> String {
        let said = self.said.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut line = self.to_string();
        for said in said {
            line.push_str("; ");
            line.push_str(said);
        }
        // A string takes everything.
        let _ = write!(line, "; {}", self.advice().join("; "));
        line
    }

    /// The plugin's failure behind another error, if there is one.
    pub fn behind<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }
}

/// There is no client for a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig is not usable.
    #[error("the kubeconfig can't be used: {0}")]
    Kubeconfig(String),
    /// It has no context of the name that was given, or none was given.
    #[error("{}", match name {
        Some(name) => format!("the kubeconfig has no context {name:?}"),
        None => "the kubeconfig has no current context, and none was named".to_owned(),
    })]
    UnknownContext {
        /// `None` if the kubeconfig has no current context.
        name: Option<String>,
        /// The contexts that it has.
        known: Vec<String>,
    },
    /// Its credential plugin gave no credential.
    #[error(transparent)]
    Plugin(PluginError),
}

/// What a plugin prints.
#[derive(Deserialize)]
struct ExecCredential {
    status: Option<Credential>,
}

/// A credential for the API server.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Credential {
    token: Option<String>,
    expiration_timestamp: Option<Timestamp>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Credential {
    fn is_fresh(&self, now: Timestamp, early: SignedDuration) -> bool {
        self.expiration_timestamp.is_none_or(|end| now + early < end)
    }
}

/// Asks the plugin, for as long as it may take.
async fn ask(exec: &ExecConfig, attended: bool) -> Result<Credential, PluginError> {
    let name = exec.command.clone().unwrap_or_default();
    let args = exec.args.clone().unwrap_or_default();
    let command = std::iter::once(name.as_str())
        .chain(args.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join(" ");
    let failed = |trouble, said: &[u8]| PluginError {
        command: command.clone(),
        trouble,
        said: String::from_utf8_lossy(said).trim().to_owned(),
        hint: exec.install_hint.clone(),
    };
    let attended = attended && exec.interactive_mode != Some(ExecInteractiveMode::Never);
    let mut child = Command::new(&name)
        .args(&args)
        .envs(
            exec.env.iter().flatten().filter_map(|env| Some((env.get("name")?, env.get("value")?))),
        )
        .env("KUBERNETES_EXEC_INFO", info(exec, attended).to_string())
        .stdin(if attended { Stdio::inherit() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(Trouble::Start(error.to_string()), b""))?;
    let stdout = child.stdout.take().expect("stdout is piped");
    let stderr = child.stderr.take().expect("stderr is piped");
    let (mut answer, mut said) = (Vec::new(), Vec::new());
    let limit = if attended { ATTENDED } else { UNATTENDED };
    let run = async {
        let read = async { stdout.take(ANSWER).read_to_end(&mut answer).await };
        tokio::try_join!(read, listen(stderr, &mut said, attended), child.wait())
    };
    let notice = async {
        tokio::time::sleep(NOTICE).await;
        if attended {
            tracing::warn!("waiting for the kubeconfig's credential plugin: {command}");
        }
        std::future::pending().await
    };
    let run = async {
        tokio::select! {
            ended = run => ended,
            never = notice => never,
        }
    };
    let status: ExitStatus = match timeout(limit, run).await {
        // The child is killed when it is dropped. Nobody waits for what it may have started itself.
        Err(_) => return Err(failed(Trouble::Silent(limit.as_secs()), &said)),
        Ok(Err(error)) => return Err(failed(Trouble::Failed(error.to_string()), &said)),
        Ok(Ok((_, (), status))) => status,
    };
    if !status.success() {
        return Err(failed(Trouble::Failed(status.to_string()), &said));
    }
    let unreadable = |why: String| failed(Trouble::Unreadable(why), &said);
    // As kubectl does: some plugins print YAML.
    let read: ExecCredential = serde_saphyr::from_slice(&answer).map_err(|error| {
        unreadable(error.to_string().lines().next().unwrap_or_default().to_owned())
    })?;
    let credential = read.status.ok_or_else(|| unreadable("it has no status".to_owned()))?;
    match (&credential.token, &credential.client_certificate_data, &credential.client_key_data) {
        (Some(_), None, None) | (_, Some(_), Some(_)) => Ok(credential),
        _ => Err(unreadable("it has neither a token nor a certificate with its key".to_owned())),
    }
}

/// What a plugin is told: which form of answer is expected, and of which cluster.
fn info(exec: &ExecConfig, attended: bool) -> serde_json::Value {
    let mut spec = json!({"interactive": attended});
    if exec.provide_cluster_info {
        spec["cluster"] = json!(exec.cluster);
    }
    json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec})
}

/// Keeps the end of what is said, and passes it on to whoever sits in front of it.
async fn listen(
    mut from: impl AsyncRead + Unpin,
    said: &mut Vec<u8>,
    attended: bool,
) -> io::Result<()> {
    let mut part = [0; 1024];
    loop {
        let n = from.read(&mut part).await?;
        if n == 0 {
            return Ok(());
        }
        if attended {
            // A terminal that went away reads nothing.
            let _ = io::stderr().write_all(&part[..n]);
        }
        said.extend_from_slice(&part[..n]);
        let surplus = said.len().saturating_sub(SAID);
        said.drain(..surplus);
    }
}

/// A plugin and what it said last.
struct Plugin {
    exec: ExecConfig,
    /// Somebody can answer its questions.
    attended: bool,
    /// Held while the plugin runs: whoever needs a token meanwhile waits for that answer, and the
    /// plugin never runs twice at once.
    state: Mutex<State>,
}

struct State {
    credential: Credential,
    /// How long before its end the token is no longer good enough.
    early: SignedDuration,
    failed: Option<(Instant, PluginError)>,
}

impl Plugin {
    async fn start(exec: ExecConfig, attended: bool) -> Result<Self, PluginError> {
        let credential = ask(&exec, attended).await?;
        let state = Mutex::new(State { credential, early: EARLY, failed: None });
        Ok(Self { exec, attended, state })
    }

    /// A token that is valid now; `None` if the plugin gave a certificate alone.
    async fn token(&self) -> Result<Option<String>, PluginError> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if state.credential.token.is_none() || state.credential.is_fresh(clock::now(), state.early)
        {
            return Ok(state.credential.token.clone());
        }
        // Whoever waited while it failed gets that failure: a plugin that hangs is waited for once,
        // not once per call.
        if let Some((when, error)) = &state.failed
            && *when > asked
        {
            return Err(error.clone());
        }
        match ask(&self.exec, self.attended).await {
            Ok(credential) => {
                *state = State { credential, early: EARLY, failed: None };
            }
            Err(error) if state.credential.is_fresh(clock::now(), SignedDuration::ZERO) => {
                tracing::warn!(
                    "{}; the previous token is used until it expires",
                    error.in_one_line()
                );
                state.early = SignedDuration::ZERO;
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                return Err(error);
            }
        }
        Ok(state.credential.token.clone())
    }
}

/// Where the bearer token comes from that a client sends with its calls.
#[derive(Clone)]
pub struct Bearer(Source);

#[derive(Clone)]
enum Source {
    /// There is none: the user has a client certificate or a password.
    None,
    /// It stands in the kubeconfig.
    Token(SecretString),
    /// It stands in a file, which may be written again.
    File(PathBuf),
    /// The credential plugin prints it.
    Plugin(Arc<Plugin>),
}

impl Bearer {
    /// A token that is valid now; `None` if the user has a client certificate or a password
    /// instead.
    ///
    /// # Errors
    /// When the file can't be read, or the plugin gives no credential.
    pub async fn token(&self) -> Result<Option<String>, ClientError> {
        match &self.0 {
            Source::None => Ok(None),
            Source::Token(token) => Ok(Some(token.expose_secret().trim().to_owned())),
            Source::File(path) => match std::fs::read_to_string(path) {
                Ok(token) => Ok(Some(token.trim().to_owned())),
                Err(error) => Err(ClientError::Kubeconfig(format!(
                    "the token file {} can't be read: {error}",
                    path.display()
                ))),
            },
            Source::Plugin(plugin) => plugin.token().await.map_err(ClientError::Plugin),
        }
    }
}

/// The client of a configuration, whose credential plugin has been run if there is one.
pub(crate) async fn client(config: Config, attended: bool) -> Result<Client, ClientError> {
    Ok(client_and_bearer(config, attended).await?.0)
}

/// The same, and where its token comes from.
pub(crate) async fn client_and_bearer(
    mut config: Config,
    attended: bool,
) -> Result<(Client, Bearer), ClientError> {
    let failed = |error: kube::Error| ClientError::Kubeconfig(chain(&error));
    let auth = &mut config.auth_info;
    if let Some(provider) = &auth.auth_provider
        && provider.config.contains_key("cmd-path")
    {
        return Err(ClientError::Kubeconfig(format!(
            "its user has the auth-provider {:?}, which kubectl removed in Kubernetes 1.26; use a \
             credential plugin (users[].user.exec) instead",
            provider.name
        )));
    }
    // What stands in the kubeconfig itself goes first.
    let exec = if has_other_credential(auth) { None } else { auth.exec.take() };
    let Some(exec) = exec else {
        let auth = &config.auth_info;
        let source = match (&auth.token, &auth.token_file) {
            (Some(token), _) => Source::Token(token.clone()),
            (None, Some(file)) => Source::File(file.into()),
            (None, None) => Source::None,
        };
        return Ok((Client::try_from(config).map_err(failed)?, Bearer(source)));
    };
    let plugin = Arc::new(Plugin::start(exec, attended).await.map_err(ClientError::Plugin)?);
    let credential = plugin.state.lock().await.credential.clone();
    if let (Some(certificate), Some(key)) =
        (credential.client_certificate_data, credential.client_key_data)
    {
        let base64 = base64::engine::general_purpose::STANDARD;
        config.auth_info.client_certificate_data = Some(base64.encode(certificate));
        config.auth_info.client_key_data = Some(base64.encode(key).into());
    }
    let builder = ClientBuilder::try_from(config).map_err(failed)?;
    let bearer = Bearer(Source::Plugin(Arc::clone(&plugin)));
    Ok((builder.with_layer(&Authentication(plugin)).build(), bearer))
}

fn has_other_credential(auth: &AuthInfo) -> bool {
    auth.auth_provider.is_some()
        || (auth.username.is_some() && auth.password.is_some())
        || auth.token.is_some()
        || auth.token_file.is_some()
}

/// Puts the plugin's token into every request.
struct Authentication(Arc<Plugin>);

impl<S> Layer<S> for Authentication {
    type Service = Authenticated<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Authenticated { plugin: Arc::clone(&self.0), inner: Arc::new(Mutex::new(inner)) }
    }
}

struct Authenticated<S> {
    plugin: Arc<Plugin>,
    /// Held until the request is on its way, not until it is answered.
    inner: Arc<Mutex<S>>,
}

impl<S, B> Service<Request<Body>> for Authenticated<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Send + 'static,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Whether the connection is ready is asked when there is a token.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (plugin, inner) = (Arc::clone(&self.plugin), Arc::clone(&self.inner));
        Box::pin(async move {
            if let Some(token) = plugin.token().await? {
                let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))?;
                value.set_sensitive(true);
                request.headers_mut().insert(AUTHORIZATION, value);
            }
            let answer = inner.lock().await.ready().await?.call(request);
            answer.await
        })
    }
}

#[cfg(test)]
mod tests;

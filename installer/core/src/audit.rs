//! What was deleted, when, and by which call: one line of JSON for each, in a file that stays.
//!
//! It is written where calls leave the program, so that no call is missed whatever made it. Calls
//! that only read or make something are not in it.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeTransmitInterceptorContextRef, FinalizerInterceptorContextRef,
};
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::{ConfigBag, Layer, Storable, StoreReplace};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use crate::clock;

/// What names of operations that take something away begin with.
const DESTRUCTIVE: [&str; 6] = ["Cancel", "Delete", "Detach", "Remove", "Terminate", "Untag"];

/// One call that took something away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// When its answer came.
    pub at: jiff::Timestamp,
    /// The command that made it, such as `uninstall`.
    pub command: String,
    /// The call, such as `IAM DeleteRole` or `delete`.
    pub call: String,
    /// On what: the request's parameters, or the object.
    pub on: String,
    /// `ok`, or why not.
    pub result: String,
    /// AWS's id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// What was written into a file, oldest first; nothing if there is none. Lines that are no entries,
/// as of a full disk, are left out.
pub fn read(path: &Path) -> std::io::Result<Vec<Entry>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[derive(Debug)]
struct Open {
    command: String,
    file: Mutex<File>,
}

/// The file, once a command that deletes has opened it. Clones share it; until then nothing is
/// written.
#[derive(Debug, Clone, Default)]
pub struct Audit(Arc<OnceLock<Open>>);

impl Audit {
    /// Writes to the end of this file from now on.
    pub fn open(&self, command: &str, path: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        // Opened twice by one command, it is the same file.
        let _ = self.0.set(Open { command: command.to_owned(), file: Mutex::new(file) });
        Ok(())
    }

    /// Writes one call down.
    pub fn note(&self, call: &str, on: &str, result: &str, request_id: Option<String>) {
        let Some(open) = self.0.get() else { return };
        let entry = Entry {
            at: clock::now(),
            command: open.command.clone(),
            call: call.to_owned(),
            on: on.to_owned(),
            result: result.to_owned(),
            request_id,
        };
        let mut line = serde_json::to_string(&entry).expect("an entry holds strings");
        line.push('\n');
        // In one write, so that lines of calls at the same time don't mix.
        let written =
            open.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
        if let Err(error) = written {
            tracing::warn!("{call} of {on} is missing in the audit file: {error}");
        }
    }

    fn is_open(&self) -> bool {
        self.0.get().is_some()
    }
}

/// What a request is about, kept from when it is sent until its answer is there.
#[derive(Debug)]
struct About(String);

impl Storable for About {
    type Storer = StoreReplace<Self>;
}

impl Intercept for Audit {
    fn name(&self) -> &'static str {
        "Audit"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if self.is_open() {
            let request = context.request();
            let body = request.body().bytes().unwrap_or_default();
            let about = About(about(request.uri(), &String::from_utf8_lossy(body)));
            let layer: &mut Layer = cfg.interceptor_state();
            layer.store_put(about);
        }
        Ok(())
    }

    fn read_after_execution(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Some(operation) = cfg.load::<Metadata>().filter(|it| is_destructive(it.name())) else {
            return Ok(());
        };
        let call = format!("{} {}", operation.service(), operation.name());
        let on = cfg.load::<About>().map_or("", |about| about.0.as_str());
        let header = |name| context.response()?.headers().get(name).map(str::to_owned);
        let request_id = header("x-amzn-requestid").or_else(|| header("x-amz-request-id"));
        let result = match context.output_or_error() {
            Some(Ok(_)) => "ok".to_owned(),
            _ => context.response().map_or_else(
                || "no answer".to_owned(),
                |response| format!("HTTP {}", response.status().as_u16()),
            ),
        };
        self.note(&call, on, &result, request_id);
        Ok(())
    }
}

fn is_destructive(operation: &str) -> bool {
    DESTRUCTIVE.iter().any(|word| operation.starts_with(word))
}

/// What a request names: the parameters of a form, a JSON body, or else its path.
fn about(uri: &str, body: &str) -> String {
    if body.starts_with("Action=") {
        let pairs = body
            .split('&')
            .filter(|pair| !pair.starts_with("Action=") && !pair.starts_with("Version="));
        return pairs.map(decoded).collect::<Vec<_>>().join(" ");
    }
    if !body.is_empty() && body != "{}" {
        return body.to_owned();
    }
    let path = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    decoded(path.split_once('/').map_or(path, |(_, path)| path)).into_owned()
}

/// Without percent signs.
fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;
    use aws_sdk_iam::config::{BehaviorVersion, Region};
    use aws_sdk_iam::operation::delete_role::DeleteRoleOutput;
    use aws_sdk_iam::operation::tag_role::TagRoleOutput;
    use aws_smithy_mocks::{MockResponseInterceptor, RuleMode, create_mock_http_client, mock};

    use super::*;

    #[test]
    fn a_request_is_named_by_its_parameters() {
        let form = "Action=DeleteRole&Version=2010-05-08&RoleName=a%2Fb";
        assert_eq!(about("https://iam.amazonaws.com/", form), "RoleName=a/b");
        assert_eq!(about("https://sqs", r#"{"QueueUrl":"u"}"#), r#"{"QueueUrl":"u"}"#);
        let entry = "https://eks.example.com/clusters/prod/access-entries/arn%3Aaws";
        assert_eq!(about(entry, ""), "clusters/prod/access-entries/arn:aws");
    }

    #[tokio::test]
    async fn calls_that_delete_are_written_down_and_others_are_not() {
        let deletes = mock!(aws_sdk_iam::Client::delete_role)
            .then_output(|| DeleteRoleOutput::builder().build());
        let tags =
            mock!(aws_sdk_iam::Client::tag_role).then_output(|| TagRoleOutput::builder().build());
        let mock = MockResponseInterceptor::new().rule_mode(RuleMode::MatchAny);
        let audit = Audit::default();
        let config = aws_sdk_iam::config::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .http_client(create_mock_http_client())
            .interceptor(mock.with_rule(&deletes).with_rule(&tags))
            .interceptor(audit.clone());
        let client = aws_sdk_iam::Client::from_conf(config.build());
        let delete = || client.delete_role().role_name("gone").send();
        delete().await.expect("it answers");
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("state/a.audit.jsonl");
        audit.open("uninstall", &file).expect("it can be written");
        client
            .tag_role()
            .role_name("kept")
            .set_tags(Some(vec![]))
            .send()
            .await
            .expect("it answers");
        delete().await.expect("it answers");
        audit.note("delete", "Deployment kube-system/karpenter", "ok", None);
        let calls = read(&file).expect("it can be read").into_iter().map(|entry| entry.call);
        assert_eq!(calls.collect::<Vec<_>>(), ["IAM DeleteRole", "delete"]);
        assert_eq!(read(&directory.path().join("none")).expect("no file is no entry"), []);
        let text = std::fs::read_to_string(&file).expect("it is there");
        let lines = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            ["command", "call", "on", "result"]
                .map(|key| line[key].as_str().unwrap_or("").to_owned())
        });
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                ["uninstall", "IAM DeleteRole", "RoleName=gone", "ok"],
                ["uninstall", "delete", "Deployment kube-system/karpenter", "ok"],
            ]
        );
    }
}

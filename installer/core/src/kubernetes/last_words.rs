//! What a container said before it ended: what people look for first when a pod does not get ready.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde_json::Value;

use super::client::Cluster;

/// How much of a log's end is read. A stack trace may follow the line that matters.
const LINES: i64 = 40;
/// How many lines are told where none stands out.
const TOLD: usize = 3;
/// The longest text that is told, in characters.
const LONGEST: usize = 600;

/// The last words of the container that ran before in this pod; or why they can't be had.
pub async fn of(cluster: &Cluster, namespace: &str, pod: &str, container: &str) -> String {
    let api: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let parameters = LogParams {
        container: Some(container.to_owned()),
        previous: true,
        tail_lines: Some(LINES),
        ..LogParams::default()
    };
    match api.logs(pod, &parameters).await {
        Ok(log) => in_words(&log).unwrap_or_else(|| "its log is empty".to_owned()),
        Err(error) => format!("its log can't be read: {error}"),
    }
}

/// What a log says of why a program ended: its last error, or its last lines where none stands out.
fn in_words(log: &str) -> Option<String> {
    let lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.map(Line::of).collect::<Vec<_>>();
    let grave = lines.iter().rposition(|line| line.is_grave);
    let told = match grave {
        Some(last) => &lines[last..=last],
        None => &lines[lines.len().saturating_sub(TOLD)..],
    };
    let text = told.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join(" | ");
    let short = text.chars().take(LONGEST).collect::<String>();
    (!text.is_empty()).then(|| if short == text { text } else { format!("{short}…") })
}

/// A line of a log.
struct Line {
    text: String,
    /// It tells of an error or a panic.
    is_grave: bool,
}

impl Line {
    /// From JSON, as operators write it, or from anything else.
    fn of(line: &str) -> Self {
        let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
            let starts = ["panic:", "error", "Error", "ERROR", "fatal", "FATAL", "thread '"];
            let is_grave = starts.iter().any(|start| line.starts_with(start));
            return Self { text: line.to_owned(), is_grave };
        };
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
        let said = [text("message"), text("msg"), text("error")];
        let said = said.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
        let level = text("level").to_ascii_uppercase();
        Self {
            text: if said.is_empty() { line.to_owned() } else { said },
            is_grave: ["ERROR", "PANIC", "DPANIC", "FATAL"].contains(&level.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_told_and_not_the_trace_behind_it() {
        let log = "starting\n{\"level\":\"ERROR\",\"message\":\"first\"}\npanic: no cluster name\n\ngoroutine 1 [running]:\nmain.main()\n";
        assert_eq!(in_words(log).as_deref(), Some("panic: no cluster name"));
        let json = "{\"level\":\"INFO\",\"message\":\"starting\"}\n{\"level\":\"ERROR\",\"message\":\"can't lead\",\"error\":\"forbidden\"}\n";
        assert_eq!(in_words(json).as_deref(), Some("can't lead: forbidden"));
    }

    #[test]
    fn without_an_error_its_last_lines_are_told() {
        assert_eq!(in_words("a\nb\n\nc\nd\n").as_deref(), Some("b | c | d"));
        assert_eq!(in_words("\n \n"), None);
        let long = in_words(&"x".repeat(2000)).expect("a text");
        assert_eq!(long.chars().count(), LONGEST + 1);
    }
}

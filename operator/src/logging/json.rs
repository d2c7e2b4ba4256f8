//! Log lines as JSON, with the keys that Karpenter's have: `level`, `time`, `logger`, `message`,
//! `commit` and `controller`, then what the line is about.
//!
//! Objects stand under their kind (`"NodeClaim": {"name": "default-x"}`, a pod also with its
//! namespace), other keys have dashes (`instance-type`), so that queries and tools that were
//! written for Karpenter's log find them.

use std::fmt::{self, Debug, Write as _};

use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes such lines.
#[derive(Clone, Copy, Debug)]
pub struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (level, target) = (event.metadata().level().as_str(), event.metadata().target());
        // Of the libraries' lines one wants to know whose they are.
        let library = target.split("::").next().unwrap_or(target);
        let logger = if library.starts_with("tenon") { "controller" } else { library };
        let task = crate::tasks::current();
        let controller =
            fields.controller.take().or_else(|| (!task.is_empty()).then(|| task.to_owned()));

        let mut line = Object::default();
        line.add("level", &json!(level));
        line.add("time", &json!(now()));
        line.add("logger", &json!(logger));
        line.add("message", &json!(fields.message));
        line.add("commit", &json!(option_env!("TENON_COMMIT").unwrap_or("unknown")));
        if let Some(controller) = controller {
            line.add("controller", &json!(controller));
        }
        for (name, value) in fields.others {
            let (name, value) = as_upstream(name, value);
            line.add(&name, &value);
        }
        writeln!(writer, "{}}}", line.0)
    }
}

/// In milliseconds, as `2026-11-20T12:00:00.123Z`.
fn now() -> String {
    let mut text = String::new();
    // Log lines are for people beside the cluster: they go by the machine's clock, whatever the
    // operator's does.
    SystemTime.format_time(&mut Writer::new(&mut text)).ok();
    match text.split_once('.') {
        Some((seconds, fraction)) => {
            format!("{seconds}.{}Z", fraction.get(..3).unwrap_or("000"))
        }
        None => text,
    }
}

/// A JSON object without its end, whose keys keep their order.
#[derive(Default)]
struct Object(String);

impl Object {
    fn add(&mut self, key: &str, value: &Value) {
        let begin = if self.0.is_empty() { '{' } else { ',' };
        write!(self.0, "{begin}{}:{value}", Value::from(key)).expect("a string takes everything");
    }
}

/// A field under the name that it has in Karpenter's log.
fn as_upstream(name: &str, value: Value) -> (String, Value) {
    let kind = match name {
        "nodeclaim" => "NodeClaim",
        "nodepool" => "NodePool",
        "nodeclass" => "NodeClass",
        "node" => "Node",
        "pod" => "Pod",
        _ => return (name.replace('_', "-"), value),
    };
    let Value::String(text) = &value else { return (kind.to_owned(), value) };
    let reference = match text.split_once('/') {
        Some((namespace, name)) => json!({ "name": name, "namespace": namespace }),
        None => json!({ "name": text }),
    };
    (kind.to_owned(), reference)
}

/// What an event says.
#[derive(Default)]
struct Fields {
    message: String,
    controller: Option<String>,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("controller", Value::String(text)) => self.controller = Some(text),
            (name, value) => self.others.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::tasks::Tasks;
    use crate::testing::Logs;

    #[tokio::test]
    async fn a_line_has_the_keys_of_karpenters() {
        let (logs, _collecting) = Logs::collect_json();
        let mut tasks = Tasks::new(CancellationToken::new());
        tasks.spawn("nodeclaim.lifecycle", async {
            let zone: Option<&str> = None;
            tracing::info!(
                nodeclaim = "default-x",
                pod = %"team-a/web",
                instance_type = "m5.large",
                zone,
                grace = 30_u32,
                "launched \"it\""
            );
        });
        tasks.join().await.unwrap_err();
        let lines = logs.with("launched");
        let line: Value = serde_json::from_str(&lines[0]).unwrap();
        let time = line["time"].as_str().unwrap();
        assert_eq!((time.len(), &time[10..11], &time[23..]), (24, "T", "Z"), "{time}");
        let rest = lines[0].replace(time, "…");
        let commit = option_env!("TENON_COMMIT").unwrap_or("unknown");
        let expected = format!(
            r#"{{"level":"INFO","time":"…","logger":"controller","message":"launched \"it\"","commit":"{commit}","controller":"nodeclaim.lifecycle","NodeClaim":{{"name":"default-x"}},"Pod":{{"name":"web","namespace":"team-a"}},"instance-type":"m5.large","grace":30}}"#
        );
        assert_eq!(rest, expected);
    }
}

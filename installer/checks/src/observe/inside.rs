//! Asks from inside the cluster: a Job with the operator's image, options, identity and place makes
//! one call of each service, and is removed.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use tenon_installer_core::apply::wait;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::KubeError;
use tenon_installer_core::ownership::INSTALL_ID;
use tenon_state::probe::{ProbeReport, SCHEMA};

use super::super::observed::{InsideView, Seen};
use super::Sources;
use super::kubernetes::why;
use super::unread::Unread;

/// Where the report is left, so that it becomes the message of the pod's end: no log has to be read
/// for it.
const REPORT: &str = "/run/tenon-probe";

/// How long the pod may take to start, with its image to be pulled, and to answer.
const PATIENCE: Duration = Duration::from_secs(150);

/// What Kubernetes removes it after when nobody is left who would.
const LINGERS: u32 = 60;

/// `None` unless it is asked for.
pub(super) async fn read(sources: &Sources<'_>) -> Option<Seen<InsideView>> {
    if !sources.inside {
        return None;
    }
    Some(probe(sources).await.into())
}

async fn probe(sources: &Sources<'_>) -> Result<InsideView, Unread> {
    let target = sources.target?;
    let desired = sources.desired.as_ref().map_err(|why| why.join("; "))?;
    let template = desired.deployment().and_then(|object| object.body.pointer("/spec/template"));
    let template = template.ok_or("the operator's Deployment is not part of the installation")?;
    let client = target.cluster.client();
    let own = (sources.settings.namespace.as_str(), &desired.service_account.name);
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), own.0);
    let account = accounts.get_opt(own.1).await;
    let as_operator = account.map_err(|source| why("get", "serviceaccounts", source))?.is_some();
    let namespace = if as_operator { own.0 } else { "default" };
    let labels = desired.fargate.as_ref().map(|_| template["metadata"]["labels"].clone());
    let nobody = (!as_operator).then_some(sources.settings.region.as_str());
    let job = job(&template["spec"], labels, &desired.installation.id, nobody);
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let job = serde_json::from_value(job).map_err(Unread::of)?;
    let made = jobs.create(&PostParams::default(), &job).await;
    let name = made.map_err(|source| why("create", "jobs", source))?.name_any();
    let report = report(&client, namespace, &name).await;
    // If this fails it is gone in a minute all the same.
    let _ = jobs.delete(&name, &DeleteParams::background()).await;
    Ok(InsideView { as_operator, report: report? })
}

/// A Job whose pod is like the operator's, as far as what it reaches depends on it. Before an
/// installation it is `nobody`, in this region.
fn job(pod: &Value, labels: Option<Value>, install_id: &str, nobody: Option<&str>) -> Value {
    let mut spec = pod.clone();
    let fields = spec.as_object_mut().expect("a pod's spec is an object");
    for field in ["topologySpreadConstraints", "priorityClassName", "initContainers"] {
        fields.remove(field);
    }
    // It may be where the operator is.
    if let Some(affinity) = fields.get_mut("affinity").and_then(Value::as_object_mut) {
        affinity.retain(|kind, _| kind == "nodeAffinity");
    }
    // The operator's comes first; what stands beside it would not end with the probe.
    let mut container = pod["containers"][0].clone();
    let part = container.as_object_mut().expect("a container is an object");
    for field in ["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
        part.remove(field);
    }
    let mut args = vec![json!("probe")];
    args.extend(part.get("args").and_then(Value::as_array).cloned().unwrap_or_default());
    part.insert("args".to_owned(), args.into());
    let small =
        json!({ "requests": { "cpu": "50m", "memory": "64Mi" }, "limits": { "memory": "256Mi" } });
    part.insert("resources".to_owned(), small);
    part.insert("terminationMessagePath".to_owned(), REPORT.into());
    part.insert("terminationMessagePolicy".to_owned(), "FallbackToLogsOnError".into());
    let mut env = part.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
    env.push(json!({ "name": "TENON_PROBE_REPORT", "value": REPORT }));
    if let Some(region) = nobody {
        // It comes with the role else.
        env.push(json!({ "name": "AWS_REGION", "value": region }));
        part.remove("volumeMounts");
        part.remove("envFrom");
        for field in ["serviceAccountName", "serviceAccount", "imagePullSecrets", "volumes"] {
            fields.remove(field);
        }
        fields.insert("automountServiceAccountToken".to_owned(), false.into());
    }
    part.insert("env".to_owned(), env.into());
    fields.insert("containers".to_owned(), json!([container]));
    fields.insert("restartPolicy".to_owned(), "Never".into());
    fields.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    let mut metadata = Map::new();
    let labels = labels.unwrap_or_else(|| json!({ "app.kubernetes.io/name": "tenon-probe" }));
    metadata.insert("labels".to_owned(), labels);
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "generateName": "tenon-probe-", "labels": { INSTALL_ID: install_id } },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": PATIENCE.as_secs(),
            "ttlSecondsAfterFinished": LINGERS,
            "template": { "metadata": metadata, "spec": spec },
        },
    })
}

/// Waits for the pod's end, and takes its message.
async fn report(client: &Client, namespace: &str, job: &str) -> Result<ProbeReport, Unread> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let pod = || async {
        let found = pods.list(&of_job).await.map_err(|source| KubeError {
            verb: "list",
            resource: "pods".to_owned(),
            cause: Box::new(source),
        })?;
        let pod = found.items.first();
        Ok::<_, Failure>(pod.map(|pod| serde_json::to_value(pod).unwrap_or_default()))
    };
    let has_ended = || async {
        Ok(match pod().await? {
            Some(pod) if ended(&pod).is_some() => Ok(()),
            Some(pod) => Err(waits_for(&pod)),
            None => Err("the Job has no pod yet".to_owned()),
        })
    };
    let every = Duration::from_millis(500);
    wait::until("the probe to end", PATIENCE, every, has_ended).await?;
    let message = pod().await?.as_ref().and_then(ended);
    parse(&message.ok_or("the probe's pod was deleted")?)
}

/// The message of the pod's end, once it has ended.
fn ended(pod: &Value) -> Option<String> {
    let terminated = pod.pointer("/status/containerStatuses/0/state/terminated")?;
    let text = |field: &str| terminated[field].as_str().unwrap_or_default().to_owned();
    let (message, reason) = (text("message"), text("reason"));
    Some(if message.is_empty() {
        format!("exit code {} {reason}", terminated["exitCode"])
    } else {
        message
    })
}

fn parse(message: &str) -> Result<ProbeReport, Unread> {
    let report: ProbeReport = serde_json::from_str(message).map_err(|_| {
        format!("the probe left no report: {message}; does the operator's image have this version?")
    })?;
    if report.schema == SCHEMA {
        Ok(report)
    } else {
        Err(format!("the probe reports as {}, and {SCHEMA} is expected", report.schema).into())
    }
}

/// What keeps a pod from running.
fn waits_for(pod: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let waiting = pod.pointer("/status/containerStatuses/0/state/waiting");
    let container = waiting.and_then(|waiting| {
        let reason = text(waiting.get("reason"))?;
        Some(format!("{reason} {}", text(waiting.get("message")).unwrap_or_default()))
    });
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let unscheduled = conditions.into_iter().flatten().find_map(|condition| {
        let is_it = condition["type"] == "PodScheduled" && condition["status"] == "False";
        is_it.then(|| text(condition.get("message")))?
    });
    unscheduled.or(container).or_else(|| text(pod.pointer("/status/phase"))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator() -> Value {
        json!({
            "serviceAccountName": "karpenter", "priorityClassName": "system-cluster-critical",
            "affinity": { "nodeAffinity": {}, "podAntiAffinity": {} },
            "tolerations": [{ "key": "CriticalAddonsOnly" }], "dnsPolicy": "Default",
            "volumes": [{ "name": "ca" }], "imagePullSecrets": [{ "name": "mirror" }],
            "containers": [{
                "name": "controller", "image": "x", "args": ["--log-level=debug"],
                "env": [{ "name": "CLUSTER_NAME", "value": "prod" }], "envFrom": [{}],
                "volumeMounts": [{ "name": "ca" }], "livenessProbe": {}, "ports": [{}],
            }],
        })
    }

    #[test]
    fn the_probe_is_where_and_who_the_operator_is() {
        let job = job(&operator(), None, "1a2b", None);
        let spec = &job["spec"]["template"]["spec"];
        for field in ["serviceAccountName", "tolerations", "dnsPolicy", "volumes"] {
            assert_eq!(spec[field], operator()[field], "{field}");
        }
        assert_eq!(spec["affinity"], json!({ "nodeAffinity": {} }));
        assert_eq!(spec["priorityClassName"], Value::Null);
        let container = &spec["containers"][0];
        assert_eq!(container["args"], json!(["probe", "--log-level=debug"]));
        assert_eq!(container["env"][0]["name"], "CLUSTER_NAME");
        assert_eq!(
            (&container["ports"], &container["livenessProbe"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(job["metadata"]["labels"]["tenon.sh/install-id"], "1a2b");
        let labels = &job["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels, &json!({ "app.kubernetes.io/name": "tenon-probe" }), "no Service's pod");
    }

    #[test]
    fn before_an_installation_it_is_nobody() {
        let job = job(&operator(), None, "1a2b", Some("eu-central-1"));
        let spec = &job["spec"]["template"]["spec"];
        for field in ["serviceAccountName", "volumes", "imagePullSecrets"] {
            assert_eq!(spec[field], Value::Null, "{field}");
        }
        assert_eq!(spec["automountServiceAccountToken"], false);
        assert_eq!(spec["containers"][0]["volumeMounts"], Value::Null);
        let env = &spec["containers"][0]["env"];
        assert_eq!((&env[0]["value"], &env[2]["value"]), (&json!("prod"), &json!("eu-central-1")));
    }

    #[test]
    fn what_an_operator_reports_is_read() {
        let text = r#"{"schema":"tenon.sh/probe/v1alpha1","services":[{"service":"ec2",
            "host":"ec2.eu-central-1.amazonaws.com","addresses":["10.0.0.7"],"outcome":"ok","millis":12}]}"#;
        let report = parse(text).expect("a report");
        assert_eq!((report.services.len(), report.no_credentials), (1, None));
        for other in ["exec: no such file", r#"{"schema":"tenon.sh/probe/v2"}"#] {
            parse(other).expect_err(other);
        }
    }

    #[test]
    fn a_pod_that_does_not_run_says_why() {
        let unscheduled = json!({ "status": { "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "message": "0/3 nodes are available" },
        ] } });
        assert_eq!(
            (ended(&unscheduled), waits_for(&unscheduled)),
            (None, "0/3 nodes are available".to_owned())
        );
        let state =
            |state: Value| json!({ "status": { "containerStatuses": [{ "state": state }] } });
        let no_image =
            state(json!({ "waiting": { "reason": "ErrImagePull", "message": "denied" } }));
        assert_eq!(waits_for(&no_image), "ErrImagePull denied");
        let silent = state(json!({ "terminated": { "exitCode": 2, "reason": "Error" } }));
        assert_eq!(ended(&silent).as_deref(), Some("exit code 2 Error"));
    }
}

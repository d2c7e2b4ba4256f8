//! Manifests as large clusters have them: pods with environment, probes, mounts and a status, about
//! 3 kB each, of 50 shapes.

use std::fmt::Write as _;

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// `kubectl get pods -o yaml`
    YamlList,
    /// One document per pod.
    YamlDocuments,
    /// `kubectl get pods -o json`
    JsonList,
}

/// A file with so many pending pods.
pub(crate) fn pods(n: usize, form: Form) -> String {
    let mut text = String::with_capacity(n * 3200);
    if let Form::JsonList = form {
        return json(n);
    }
    if let Form::YamlList = form {
        text.push_str("apiVersion: v1\nitems:\n");
    }
    for index in 0..n {
        match form {
            Form::YamlDocuments => {
                text.push_str("---\n");
                pod(&mut text, index, ["", ""]);
            }
            _ => pod(&mut text, index, ["- ", "  "]),
        }
    }
    if let Form::YamlList = form {
        text.push_str("kind: List\nmetadata:\n  resourceVersion: \"\"\n");
    }
    text
}

/// The NodePool that they are for.
pub(crate) fn node_pool() -> &'static str {
    "apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: default
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: kubernetes.io/os, operator: In, values: [linux]}
"
}

fn requests(index: usize) -> (usize, usize) {
    let shape = index % 50;
    (100 + 50 * (shape % 10), 128 + 96 * (shape / 5))
}

fn pod(text: &mut String, index: usize, [first, rest]: [&str; 2]) {
    let (cpu, memory) = requests(index);
    let app = index % 50;
    let mut line = |indent: &str, content: &str| {
        text.push_str(indent);
        text.push_str(content);
        text.push('\n');
    };
    line(first, "apiVersion: v1");
    for content in
        ["kind: Pod", "metadata:", "  annotations:", "    prometheus.io/scrape: \"true\""]
    {
        line(rest, content);
    }
    line(rest, "  creationTimestamp: \"2026-01-01T00:00:00Z\"");
    line(rest, "  labels:");
    line(rest, &format!("    app.kubernetes.io/name: service-{app}"));
    line(rest, "    app.kubernetes.io/part-of: shop");
    line(rest, &format!("  name: service-{app}-6d4cf56db6-{index:05}"));
    line(rest, "  namespace: shop");
    line(rest, &format!("  uid: 6e1ec1b8-5c5c-4b8e-9d6d-{index:012}"));
    line(rest, "  managedFields:");
    for field in 0..12 {
        line(
            rest,
            &format!("  - fieldsV1:\n{rest}      f:spec:\n{rest}        f:field{field}: {{}}"),
        );
    }
    line(rest, "spec:");
    line(rest, "  containers:");
    line(rest, "  - env:");
    for variable in 0..18 {
        line(
            rest,
            &format!(
                "    - name: SETTING_{variable}\n{rest}      value: \"the value of a setting, number {variable}\""
            ),
        );
    }
    for content in [
        "    image: registry.example/shop/service:1.2.3",
        "    livenessProbe:",
        "      httpGet:",
        "        path: /healthz",
        "        port: 8080",
        "    name: main",
        "    resources:",
        "      limits:",
        "        memory: 4Gi",
        "      requests:",
    ] {
        line(rest, content);
    }
    line(rest, &format!("        cpu: {cpu}m"));
    line(rest, &format!("        memory: {memory}Mi"));
    for content in [
        "    volumeMounts:",
        "    - mountPath: /var/run/secrets/kubernetes.io/serviceaccount",
        "      name: kube-api-access",
        "      readOnly: true",
        "  priority: 0",
        "  schedulerName: default-scheduler",
        "  tolerations:",
        "  - effect: NoExecute",
        "    key: node.kubernetes.io/not-ready",
        "    operator: Exists",
        "    tolerationSeconds: 300",
        "  - effect: NoExecute",
        "    key: node.kubernetes.io/unreachable",
        "    operator: Exists",
        "    tolerationSeconds: 300",
        "  volumes:",
        "  - name: kube-api-access",
        "    projected:",
        "      defaultMode: 420",
        "      sources:",
        "      - serviceAccountToken:",
        "          expirationSeconds: 3607",
        "          path: token",
        "status:",
        "  conditions:",
        "  - lastTransitionTime: \"2026-01-01T00:00:00Z\"",
        "    message: '0/3 nodes are available: 3 Insufficient cpu.'",
        "    reason: Unschedulable",
        "    status: \"False\"",
        "    type: PodScheduled",
        "  phase: Pending",
        "  qosClass: Burstable",
    ] {
        line(rest, content);
    }
}

fn json(n: usize) -> String {
    let mut text = String::with_capacity(n * 3200);
    text.push_str("{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[");
    for index in 0..n {
        let (cpu, memory) = requests(index);
        let app = index % 50;
        let env: Vec<String> = (0..30)
            .map(|it| format!("{{\"name\":\"SETTING_{it}\",\"value\":\"the value of a setting, number {it}\"}}"))
            .collect();
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(
            text,
            "{comma}\n{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"service-{app}-{index:05}\",\"namespace\":\"shop\",\
             \"labels\":{{\"app.kubernetes.io/name\":\"service-{app}\"}}}},\"spec\":{{\"containers\":[{{\"name\":\"main\",\"image\":\"registry.example/shop/service:1.2.3\",\
             \"env\":[{env}],\"resources\":{{\"requests\":{{\"cpu\":\"{cpu}m\",\"memory\":\"{memory}Mi\"}}}}}}]}},\"status\":{{\"phase\":\"Pending\",\"conditions\":\
             [{{\"type\":\"PodScheduled\",\"status\":\"False\",\"reason\":\"Unschedulable\"}}]}}}}",
            env = env.join(",")
        );
    }
    text.push_str("]}\n");
    text
}

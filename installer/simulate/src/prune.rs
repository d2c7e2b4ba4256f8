//! Leaves out of YAML what the planner never looks at.
//!
//! Environment variables, probes, mounts and the status of containers are most of a pod's text and
//! nothing of its shape. Parsing YAML is slow (tens of megabytes per second), and skipping lines is
//! fast, so these subtrees are cut out before the parser sees them. Only whole values in block
//! style of keys that no type here reads are cut; a text that does not parse afterwards is parsed
//! again as it was.

use super::documents::indent;

/// Keys whose values are never read, wherever they stand. None of them can be a label with a value
/// in block style: labels are scalars.
const UNREAD: &[&str] = &[
    "addresses",
    "args",
    "command",
    "configMap",
    "containerStatuses",
    "daemonEndpoints",
    "dnsConfig",
    "downwardAPI",
    "env",
    "envFrom",
    "ephemeralContainerStatuses",
    "hostAliases",
    "hostIPs",
    "imagePullSecrets",
    "images",
    "initContainerStatuses",
    "lifecycle",
    "livenessProbe",
    "managedFields",
    "nodeInfo",
    "podIPs",
    "projected",
    "readinessProbe",
    "secret",
    "securityContext",
    "startupProbe",
    "volumeDevices",
    "volumeMounts",
];

/// The text without the values of unread keys; they become `null`.
pub(super) fn prune(text: &str) -> String {
    let mut kept = String::with_capacity(text.len() / 2);
    // While a value is left out: the indentation of its key.
    let mut leaving_out: Option<usize> = None;
    for line in text.split_inclusive('\n') {
        let own = indent(line);
        let content = line[own..].trim_end();
        if let Some(key) = leaving_out {
            let is_item = content == "-" || content.starts_with("- ");
            if content.is_empty() || own > key || (own == key && is_item) {
                continue;
            }
            leaving_out = None;
        }
        // A key may be the first of a list's item: `- env:`.
        let dashes = content.len() - content.trim_start_matches("- ").len();
        let entry = &content[dashes..];
        match unread(entry) {
            Some(key) => {
                leaving_out = Some(own + dashes);
                kept.push_str(&line[..own + dashes]);
                kept.push_str(key);
                kept.push_str(": null\n");
            }
            None => kept.push_str(line),
        }
    }
    kept
}

/// The key, if it is an unread one and its value stands on the lines below.
fn unread(entry: &str) -> Option<&str> {
    let (key, value) = entry.split_once(':')?;
    let below =
        value.is_empty() || matches!(value.trim_start().as_bytes().first(), Some(b'|' | b'>'));
    (below && UNREAD.binary_search(&key).is_ok()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_sorted_for_the_search() {
        assert!(UNREAD.is_sorted());
    }

    #[test]
    fn values_go_in_either_style_of_lists_and_the_rest_stays() {
        let text = "\
spec:
  containers:
  - env:
    - name: A
      value: |
        env:
    - name: B

    image: x
    resources:
      requests: {cpu: 1}
  - name: b
    args: [\"env:\"]
    command: |
      run
    volumeMounts:
      - name: y
    ports:
    - hostPort: 80
";
        assert_eq!(
            prune(text),
            "\
spec:
  containers:
  - env: null
    image: x
    resources:
      requests: {cpu: 1}
  - name: b
    args: [\"env:\"]
    command: null
    volumeMounts: null
    ports:
    - hostPort: 80
"
        );
    }

    #[test]
    fn scalars_stay() {
        let text = "labels:\n  env: prod\n  secret: \"yes\"\n  command:x: y\n";
        assert_eq!(prune(text), text);
    }
}

//! Amazon Linux 2: cloud-init runs the shell parts; one of them calls `/etc/eks/bootstrap.sh`.

use super::{Bootstrap, BootstrapError, mime, read_labels, read_pairs, read_taints};

const PROGRAM: &str = "/etc/eks/bootstrap.sh";

pub(super) fn read(text: &str) -> Result<Bootstrap, BootstrapError> {
    let scripts: Vec<String> = match mime::parts(text)? {
        Some(parts) => parts
            .into_iter()
            .filter(|part| part.content_type == "text/x-shellscript")
            .map(|part| part.body)
            .collect(),
        None if text.starts_with("#!") => vec![text.to_owned()],
        None => Vec::new(),
    };
    let call = scripts
        .iter()
        .flat_map(|script| logical_lines(script))
        .find(|line| line.trim_start().starts_with(PROGRAM))
        .ok_or(BootstrapError::Missing("/etc/eks/bootstrap.sh: no shell part calls it"))?;
    let words = words(&call)?;
    let mut bootstrap = Bootstrap::default();
    let mut words = words.into_iter().skip(1);
    while let Some(word) = words.next() {
        let mut value =
            |flag: &str| words.next().ok_or_else(|| syntax(format!("{flag} has no value")));
        match word.as_str() {
            "--apiserver-endpoint" => bootstrap.endpoint = value(&word)?,
            "--b64-cluster-ca" => bootstrap.certificate_authority = value(&word)?,
            "--dns-cluster-ip" => bootstrap.cluster_dns = vec![value(&word)?],
            "--kubelet-extra-args" => kubelet_arguments(&mut bootstrap, &value(&word)?)?,
            "--use-max-pods" | "--ip-family" | "--local-disks" | "--container-runtime" => {
                value(&word)?;
            }
            flag if flag.starts_with("--") => {
                return Err(syntax(format!("unknown argument {flag}")));
            }
            _ => bootstrap.cluster_name = word,
        }
    }
    Ok(bootstrap)
}

/// Reads what the kubelet is given on its command line.
pub(super) fn kubelet_arguments(
    bootstrap: &mut Bootstrap,
    arguments: &str,
) -> Result<(), BootstrapError> {
    for argument in words(arguments)? {
        let Some((flag, value)) = argument.split_once('=') else {
            return Err(syntax(format!("kubelet argument {argument:?} has no value")));
        };
        match flag {
            "--node-labels" => bootstrap.labels = read_labels(value),
            "--register-with-taints" => bootstrap.taints = read_taints(value)?,
            "--max-pods" => {
                bootstrap.max_pods = Some(
                    value
                        .parse()
                        .map_err(|_| syntax(format!("--max-pods={value} is not a count")))?,
                );
            }
            "--kube-reserved" => bootstrap.kube_reserved = read_pairs(value, '='),
            "--system-reserved" => bootstrap.system_reserved = read_pairs(value, '='),
            "--eviction-hard" => bootstrap.eviction_hard = read_pairs(value, '<'),
            _ => {}
        }
    }
    Ok(())
}

/// Lines with their continuations joined.
fn logical_lines(script: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for physical in script.lines() {
        if let Some(start) = physical.strip_suffix('\\') {
            line.push_str(start);
        } else {
            line.push_str(physical);
            lines.push(std::mem::take(&mut line));
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Words as the shell splits them: quotes group, single quotes take everything literally, a
/// backslash outside single quotes takes the next character.
fn words(line: &str) -> Result<Vec<String>, BootstrapError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some('\'') => break,
                        Some(inner) => word.push(inner),
                        None => return Err(syntax("a single quote is not closed".into())),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some('"') => break,
                        Some('\\') => word.extend(characters.next()),
                        Some(inner) => word.push(inner),
                        None => return Err(syntax("a double quote is not closed".into())),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

fn syntax(problem: String) -> BootstrapError {
    BootstrapError::Syntax { program: "bootstrap.sh", problem }
}

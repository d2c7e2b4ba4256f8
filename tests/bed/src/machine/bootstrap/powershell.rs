//! Windows: EC2Launch runs what is between the tags; the script in there calls
//! `Start-EKSBootstrap.ps1`, whose path is in a variable.

use super::script::kubelet_arguments;
use super::{Bootstrap, BootstrapError};

const TAGS: (&str, &str) = ("<powershell>", "</powershell>");
const SCRIPT: &str = r"\Amazon\EKS\Start-EKSBootstrap.ps1";

pub(super) fn read(text: &str) -> Result<Bootstrap, BootstrapError> {
    let (_, rest) = text
        .split_once(TAGS.0)
        .ok_or(BootstrapError::Missing("a script: EC2Launch finds no <powershell> tag"))?;
    let (script, _) =
        rest.split_once(TAGS.1).ok_or_else(|| syntax("<powershell> is not closed".into()))?;
    if script.contains(TAGS.0) {
        return Err(syntax("a <powershell> tag is within another".into()));
    }
    let variable = script
        .lines()
        .filter_map(|line| line.split_once('='))
        .find(|(_, value)| value.trim().trim_matches('"').ends_with(SCRIPT))
        .map(|(name, _)| name.trim().trim_start_matches("[string]").trim())
        .ok_or(BootstrapError::Missing("Start-EKSBootstrap.ps1: no variable has its path"))?;
    let call = script
        .lines()
        .find_map(|line| line.trim().strip_prefix("& ")?.strip_prefix(variable))
        .ok_or(BootstrapError::Missing("Start-EKSBootstrap.ps1: nothing calls it"))?;
    let mut bootstrap = Bootstrap::default();
    let mut words = words(call)?.into_iter();
    while let Some(parameter) = words.next() {
        let value =
            words.next().ok_or_else(|| syntax(format!("parameter {parameter} has no value")))?;
        match parameter.to_ascii_lowercase().as_str() {
            "-eksclustername" => bootstrap.cluster_name = value,
            "-apiserverendpoint" => bootstrap.endpoint = value,
            "-base64clusterca" => bootstrap.certificate_authority = value,
            "-dnsclusterip" => bootstrap.cluster_dns = vec![value],
            "-kubeletextraargs" => kubelet_arguments(&mut bootstrap, &value)?,
            "-servicecidr" | "-excludedsnatcidrs" | "-containerruntime" => {}
            _ => return Err(syntax(format!("unknown parameter {parameter}"))),
        }
    }
    Ok(bootstrap)
}

/// Words as PowerShell splits them: single quotes take everything literally, two of them are one.
fn words(line: &str) -> Result<Vec<String>, BootstrapError> {
    let mut words = Vec::new();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\r' => {}
            '\'' => {
                let mut word = String::new();
                loop {
                    match characters.next() {
                        Some('\'') if characters.next_if_eq(&'\'').is_some() => word.push('\''),
                        Some('\'') => break,
                        Some(inner) => word.push(inner),
                        None => return Err(syntax("a single quote is not closed".into())),
                    }
                }
                words.push(word);
            }
            other => {
                let mut word = String::from(other);
                while let Some(inner) = characters.next_if(|inner| !inner.is_whitespace()) {
                    word.push(inner);
                }
                words.push(word);
            }
        }
    }
    Ok(words)
}

fn syntax(problem: String) -> BootstrapError {
    BootstrapError::Syntax { program: "EC2Launch", problem }
}

//! `tenon export`: what `install` would make, in the form of the tool that is to make it instead.
//! Nothing is changed.

use std::path::Path;

use serde_json::{Value, json};
use tenon_installer_core::aws::Aws;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::files::FileError;
use tenon_installer_core::observe::{self, actual, facts};
use tenon_installer_core::settings::Settings;
use tenon_installer_core::target;

use self::gitops::File;
use super::session::{observe_failed, source};
use crate::cli::export::{ExportArgs, ExportForm};
use crate::cli::overlay::resolve;
use crate::cli::{GlobalArgs, SettingArgs};
use crate::errors::ExpectedError;
use crate::printer::Printer;

mod cloud;
mod cloudformation;
mod gitops;
mod terraform;

/// Prints the export.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &ExportArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let settings = match &args.form {
        ExportForm::Manifests(args) | ExportForm::Values(args) => args.settings.clone(),
        ExportForm::Terraform(args) | ExportForm::Cfn(args) => args.settings.settings(),
        ExportForm::Flux(args) => args.settings.clone(),
        ExportForm::Argocd(args) => args.settings.clone(),
    };
    let (settings, desired, aws) = desired(global, &settings).await?;
    let text = match &args.form {
        ExportForm::Manifests(_) => documents(desired.objects().map(|object| &object.body)),
        ExportForm::Values(_) => yaml(&values(&desired)),
        ExportForm::Terraform(_) => {
            cloud::check(&desired)?;
            let cloud = actual::cloud(&aws, &desired.lookup()).await.map_err(observe_failed)?;
            pretty(&terraform::module(&desired, &cloud))
        }
        ExportForm::Cfn(_) => {
            cloud::check(&desired)?;
            for line in cloud::outside_of_template(&desired) {
                printer.warn(&line);
            }
            pretty(&cloudformation::template(&desired, has_provider(&aws, &desired).await?))
        }
        ExportForm::Flux(args) => {
            let files = gitops::flux(args, &settings, &desired);
            return write(args.charts.out.as_deref(), &files, *printer);
        }
        ExportForm::Argocd(args) => {
            let files = gitops::argocd(args, &settings, &desired);
            return write(args.charts.out.as_deref(), &files, *printer);
        }
    };
    printer.raw(&text);
    Ok(0)
}

/// Writes files below a directory, or prints them, each after a comment with its path.
fn write(out: Option<&Path>, files: &[File], printer: Printer) -> Result<u8, ExpectedError> {
    for (path, bodies) in files {
        let text = documents(bodies);
        let Some(out) = out else {
            printer.raw(&format!("# {path}\n{text}"));
            continue;
        };
        let file = out.join(path);
        let written = file.parent().map_or(Ok(()), std::fs::create_dir_all);
        written.and_then(|()| std::fs::write(&file, text)).map_err(FileError::writing(&file))?;
        printer.raw(&format!("{}\n", file.display()));
    }
    Ok(0)
}

/// What should be there, by what EKS says of the cluster. The cluster itself is not asked.
async fn desired(
    global: &GlobalArgs,
    args: &SettingArgs,
) -> Result<(Settings, Desired, Aws), ExpectedError> {
    let settings = resolve(source(args)?, global, args, &target::infer(&global.kubeconfig()))?;
    let aws = global.connect_aws(&settings).await?;
    let node_role = settings.node_role_name.as_deref();
    let facts = facts::read(&aws, &settings.cluster, &settings.region, node_role).await;
    let facts = facts.map_err(observe_failed)?;
    let desired =
        Desired::new(&settings, &facts).map_err(|reasons| ExpectedError::Preflight { reasons })?;
    Ok((settings, desired, aws))
}

/// Whether IAM knows the cluster's issuer already.
async fn has_provider(aws: &Aws, desired: &Desired) -> Result<bool, ExpectedError> {
    let Some(provider) = desired.provider() else { return Ok(false) };
    let found = observe::iam::provider(aws, &provider.arn).await.map_err(observe_failed)?;
    Ok(found.is_some())
}

/// The chart's values that differ from its defaults.
fn values(desired: &Desired) -> Value {
    let all = json!(desired.values);
    let defaults = json!(tenon_installer_core::settings::values::Values::default());
    difference(&all, &defaults).unwrap_or_else(|| json!({}))
}

/// What of `value` is not as in `default`; nothing if all of it is.
fn difference(value: &Value, default: &Value) -> Option<Value> {
    match (value, default) {
        (Value::Object(value), Value::Object(default)) => {
            let differing = value
                .iter()
                .filter_map(|(key, value)| {
                    let default = default.get(key).unwrap_or(&Value::Null);
                    Some((key.clone(), difference(value, default)?))
                })
                .collect::<serde_json::Map<_, _>>();
            (!differing.is_empty()).then_some(Value::Object(differing))
        }
        (value, default) => (value != default).then(|| value.clone()),
    }
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).expect("maps, lists and scalars always serialise")
}

fn documents<'a>(objects: impl IntoIterator<Item = &'a Value>) -> String {
    let each = objects.into_iter().map(yaml);
    each.fold(String::new(), |all, document| all + "---\n" + &document)
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// A name that tools take for a resource: letters and digits.
fn word(text: &str) -> String {
    let mut word = String::new();
    let mut upper = true;
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            word.push(if upper { c.to_ascii_uppercase() } else { c });
        }
        upper = !c.is_ascii_alphanumeric();
    }
    word
}

#[cfg(test)]
mod tests;

//! `tenon export`: what `install` would make, in the form of the tool that is to make it instead. Nothing is changed.

use serde_json::{Value, json};
use tenon_installer_core::desired::Desired;
use tenon_installer_core::observe::{self, facts};
use tenon_installer_core::settings::Settings;
use tenon_installer_core::target;

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
        ExportForm::Manifests(args)
        | ExportForm::Values(args)
        | ExportForm::Terraform(args)
        | ExportForm::Cfn(args) => &args.settings,
        ExportForm::Flux(args) | ExportForm::Argocd(args) => &args.settings,
    };
    let (settings, desired, has_provider) = desired(global, settings).await?;
    let text = match &args.form {
        ExportForm::Manifests(_) => documents(desired.objects().map(|object| &object.body)),
        ExportForm::Values(_) => yaml(&values(&desired)),
        ExportForm::Terraform(_) => {
            cloud::check(&desired)?;
            pretty(&terraform::module(&desired, has_provider))
        }
        ExportForm::Cfn(_) => {
            cloud::check(&desired)?;
            for line in cloud::outside_of_template(&desired) {
                printer.warn(&line);
            }
            pretty(&cloudformation::template(&desired, has_provider))
        }
        ExportForm::Flux(args) => documents(&gitops::flux(args, &settings, &desired)),
        ExportForm::Argocd(args) => documents(&gitops::argocd(args, &settings, &desired)),
    };
    printer.raw(&text);
    Ok(0)
}

/// What should be there, by what EKS says of the cluster, and whether IAM knows the cluster's issuer already. The cluster itself is not asked.
async fn desired(
    global: &GlobalArgs,
    args: &SettingArgs,
) -> Result<(Settings, Desired, bool), ExpectedError> {
    let settings = resolve(source(args)?, global, args, &target::infer(&global.kubeconfig()))?;
    let aws = global.connect_aws(&settings).await?;
    let node_role = settings.node_role_name.as_deref();
    let facts = facts::read(&aws, &settings.cluster, &settings.region, node_role).await;
    let facts = facts.map_err(observe_failed)?;
    let desired =
        Desired::new(&settings, &facts).map_err(|reasons| ExpectedError::Preflight { reasons })?;
    let has_provider = match &desired.provider {
        Some(provider) => {
            observe::iam::provider(&aws, &provider.arn).await.map_err(observe_failed)?.is_some()
        }
        None => false,
    };
    Ok((settings, desired, has_provider))
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

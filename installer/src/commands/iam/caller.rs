//! `tenon iam caller`: the policy for whoever runs the installer, limited to what this installation
//! is called.

use serde_json::json;
use tenon_iam_policies::caller::{Purpose, caller_document, caller_document_for};
use tenon_iam_policies::document::Document;
use tenon_iam_policies::size::MANAGED_LIMIT;
use tenon_iam_policies::split::split;

use super::{caller_scope, desired_without_cluster};
use crate::cli::GlobalArgs;
use crate::cli::iam::{CallerArgs, For};
use crate::commands::session::{Fallback, Session, source};
use crate::errors::ExpectedError;
use crate::printer::Printer;

/// Name of the policy, and of its pieces where it is too large for one.
const NAME: &str = "TenonCaller";
/// Stands for the cluster's issuer, which the policy does not name: it is about all identity
/// providers of EKS in the region.
const ANY_ISSUER: &str = "https://oidc.eks.example/id/any";

pub(super) async fn run(
    global: &GlobalArgs,
    args: &CallerArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let (document, kubernetes) = match args.purpose {
        For::Plan => of_plan(global, args, printer).await?,
        For::Read => (of(global, args, Purpose::Read).await?, Vec::new()),
        For::Install => (of(global, args, Purpose::Install).await?, Vec::new()),
        For::Uninstall => (of(global, args, Purpose::Uninstall).await?, Vec::new()),
        For::MigrateCas => (of(global, args, Purpose::MigrateCas).await?, Vec::new()),
        For::MigrateNth => (of(global, args, Purpose::MigrateNth).await?, Vec::new()),
    };
    let pieces = split(NAME, &document, MANAGED_LIMIT)
        .map_err(|error| ExpectedError::Preflight { reasons: vec![error.to_string()] })?;
    printer.json(&json!({
        "schema": "tenon.sh/iam-caller/v1alpha1",
        "policies": pieces
            .iter()
            .map(|piece| json!({"name": piece.name, "document": piece.document}))
            .collect::<Vec<_>>(),
        "kubernetes": kubernetes,
    }));
    for piece in &pieces {
        if pieces.len() > 1 {
            printer.note(&format!("# {}", piece.name));
        }
        printer.text(piece.document.to_json_pretty().trim_end());
    }
    if !kubernetes.is_empty() {
        printer.note(&format!("In Kubernetes: {}", kubernetes.join(", ")));
    }
    Ok(0)
}

async fn of(
    global: &GlobalArgs,
    args: &CallerArgs,
    purpose: Purpose,
) -> Result<Document, ExpectedError> {
    let issuer = Some(ANY_ISSUER);
    let (settings, desired) = desired_without_cluster(global, &args.settings, issuer).await?;
    Ok(caller_document(purpose, &caller_scope(&settings, &desired)))
}

/// What is left to do right now, and nothing else.
async fn of_plan(
    global: &GlobalArgs,
    args: &CallerArgs,
    printer: &Printer,
) -> Result<(Document, Vec<String>), ExpectedError> {
    let source = source(&args.settings)?;
    let session = Session::open(global, &args.settings, source, Fallback::Defaults).await?;
    session.introduce(*printer);
    let plan = session.plan()?;
    let needed = plan.caller_actions();
    let (aws, kubernetes): (Vec<_>, Vec<_>) =
        needed.into_iter().partition(|one| one.action.contains(':'));
    let scope = caller_scope(&session.settings, &session.desired);
    let (document, unknown) =
        caller_document_for(&scope, aws.iter().map(|one| one.action.as_str()));
    for action in unknown {
        printer.warn(&format!("{action} is also needed, on resources of your choice"));
    }
    let kubernetes =
        kubernetes.into_iter().map(|one| format!("{} {}", one.action, one.resource)).collect();
    Ok((document, kubernetes))
}

//! `tenon iam print`: everything that Tenon needs in IAM, SQS and EventBridge, for people who make
//! such things by hand.

use serde_json::{Value, json};
use tenon_iam_policies::controller::{NamedPolicy, controller_policies};
use tenon_iam_policies::document::Document;
use tenon_iam_policies::identity::{self, ServiceAccount};
use tenon_iam_policies::interruption::InterruptionRule;
use tenon_iam_policies::size::{INLINE_LIMIT, MANAGED_LIMIT, SizeError};
use tenon_iam_policies::split::{Piece, split};
use tenon_iam_policies::{Features, InstanceProfiles, Scope, interruption};
use tenon_installer_core::desired::Desired;
use tenon_installer_core::files::FileError;
use tenon_installer_core::settings::Settings;

use super::desired_without_cluster;
use crate::cli::GlobalArgs;
use crate::cli::iam::{Form, Layout, PrintArgs, Profiles};
use crate::errors::ExpectedError;
use crate::printer::Printer;

/// One document with the name of its file.
#[derive(Debug, Clone, PartialEq)]
struct Sheet {
    name: String,
    about: String,
    content: Value,
}

pub(super) async fn run(
    global: &GlobalArgs,
    args: &PrintArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let (settings, desired) =
        desired_without_cluster(global, &args.settings.settings(), args.oidc_issuer.as_deref())
            .await?;
    let sheets = sheets(args, &settings, &desired)
        .map_err(|error| ExpectedError::Preflight { reasons: vec![error.to_string()] })?;
    if let Some(directory) = &args.directory {
        std::fs::create_dir_all(directory).map_err(FileError::writing(directory))?;
        for sheet in &sheets {
            let file = directory.join(format!("{}.json", sheet.name));
            let text = format!("{:#}\n", sheet.content);
            std::fs::write(&file, text).map_err(FileError::writing(&file))?;
            printer.text(&file.display().to_string());
        }
        return Ok(0);
    }
    printer.json(&json!({
        "schema": "tenon.sh/iam/v1alpha1",
        "cluster": settings.cluster,
        "region": settings.region,
        "account": desired.scope.account,
        "documents": sheets
            .iter()
            .map(|sheet| json!({"name": sheet.name, "about": sheet.about, "content": sheet.content}))
            .collect::<Vec<_>>(),
    }));
    for sheet in &sheets {
        printer.text(&format!("# {}: {}\n{:#}\n", sheet.name, sheet.about, sheet.content));
    }
    Ok(0)
}

/// Names and contents of the documents.
#[cfg(test)]
pub(super) fn contents(
    args: &PrintArgs,
    settings: &Settings,
    desired: &Desired,
) -> Result<Vec<(String, Value)>, SizeError> {
    let sheets = sheets(args, settings, desired)?;
    Ok(sheets.into_iter().map(|sheet| (sheet.name, sheet.content)).collect())
}

fn features(args: &PrintArgs, desired: &Desired) -> Features {
    let mut features = match args.layout {
        Layout::Tenon => desired.scope.features.clone(),
        Layout::Upstream => Features::upstream(),
    };
    if let Some(profiles) = args.instance_profiles {
        features.instance_profiles = match profiles {
            Profiles::OfCluster => InstanceProfiles::OfCluster,
            Profiles::Tagged => InstanceProfiles::Tagged,
            Profiles::Static => InstanceProfiles::Static,
        };
    }
    features.zonal_shift = features.zonal_shift && !args.no_zonal_shift;
    features.volume_keys.extend(args.volume_keys.iter().cloned());
    features.queue_key = args.queue_key.clone().or(features.queue_key);
    features
}

fn sheets(
    args: &PrintArgs,
    settings: &Settings,
    desired: &Desired,
) -> Result<Vec<Sheet>, SizeError> {
    let scope = Scope { features: features(args, desired), ..desired.scope.clone() };
    let service_account = ServiceAccount {
        namespace: settings.namespace.clone(),
        name: settings.values.service_account_name().into_owned(),
    };
    let mut sheets = Vec::new();
    let mut add = |name: &str, about: String, document: &Document| {
        sheets.push(Sheet { name: name.to_owned(), about, content: json!(document) });
    };
    for piece in pieces(args.split, &controller_policies(&scope))? {
        let size = piece.document.size();
        add(
            &piece.name,
            format!("for role {} ({size} characters)", desired.controller_role.name),
            &piece.document,
        );
    }
    let role = |role: &tenon_installer_core::desired::RoleUse| {
        format!("trust policy of role {}", role.name)
    };
    let trust = match args.layout {
        Layout::Tenon => identity::pod_identity_trust(&scope, &service_account),
        Layout::Upstream => identity::pod_identity_trust_upstream(),
    };
    add("controller-role-trust-pod-identity", role(&desired.controller_role), &trust);
    if let Some(issuer) = &args.oidc_issuer {
        let trust = identity::irsa_trust(&scope, issuer, &service_account);
        add("controller-role-trust-irsa", role(&desired.controller_role), &trust);
    }
    add("node-role-trust", role(&desired.node_role), &identity::node_trust(scope.partition));
    let ipv6 = "for the node role on IPv6 clusters, in place of AmazonEKS_CNI_Policy".to_owned();
    add("node-role-ipv6-cni", ipv6, &identity::node_ipv6_cni(scope.partition));
    let names = desired.rules.iter().map(|rule| rule.name.clone()).collect::<Vec<_>>();
    let queue = match args.layout {
        Layout::Tenon => interruption::queue_policy(&scope, &names),
        Layout::Upstream => interruption::queue_policy_upstream(&scope),
    };
    if let Some(policy) = queue {
        add("queue-policy", format!("for queue {}", desired.queue_name), &policy);
        let pattern = |rule: InterruptionRule| match args.layout {
            Layout::Tenon => rule.pattern(),
            Layout::Upstream => rule.upstream_pattern(),
        };
        let patterns = settings
            .events
            .iter()
            .map(|event| event.rule())
            .map(|rule| (rule.suffix().to_owned(), json!(pattern(rule))));
        sheets.push(Sheet {
            name: "event-patterns".to_owned(),
            about: "one rule each, with the queue as target".to_owned(),
            content: Value::Object(patterns.collect()),
        });
    }
    sheets.push(Sheet {
        name: "node-role-managed-policies".to_owned(),
        about: format!("to attach to role {}", desired.node_role.name),
        content: json!(identity::node_managed_policies(scope.partition)),
    });
    Ok(sheets)
}

/// The operator's policies as they can be stored.
fn pieces(form: Option<Form>, policies: &[NamedPolicy]) -> Result<Vec<Piece>, SizeError> {
    let limit = match form {
        None => usize::MAX,
        Some(Form::Managed) => MANAGED_LIMIT,
        Some(Form::Inline) => {
            tenon_iam_policies::size::check_inline(policies.iter().map(|policy| &policy.document))?;
            INLINE_LIMIT
        }
    };
    let mut pieces = Vec::new();
    for policy in policies {
        pieces.extend(split(policy.part.name(), &policy.document, limit)?);
    }
    Ok(pieces)
}

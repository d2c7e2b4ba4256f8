//! `tenon rollback`: the version before, as its Helm revision has it.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::kubernetes::client::failed;
use tenon_installer_core::kubernetes::crds::compatibility;
use tenon_installer_core::kubernetes::helm::{self, Record, Revision};
use tenon_installer_core::kubernetes::object::Object;
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::kubernetes::revision::Content;
use tenon_installer_core::settings::Source;
use tenon_installer_core::{names, target};

use super::owner;
use super::session::{Connection, Fallback, Session, observe_failed, source};
use super::upgrade::running;
use super::version_change::{self, Journey};
use crate::cli::overlay::resolve;
use crate::cli::rollback::RollbackArgs;
use crate::cli::{GlobalArgs, SettingArgs};
use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::upgrade::version;

/// Rolls back.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &RollbackArgs,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let settings = args.installation.settings();
    let given = source(&settings)?;
    let connection = Box::pin(Connection::open(global, &settings, given, Fallback::Record)).await?;
    let at_once = args.how.execution.is_unattended();
    let lock =
        if at_once { Some(connection.lock(global, "rollback", cleanup).await?) } else { None };
    let now = Box::pin(connection.observe()).await?;
    now.introduce(*printer);
    owner::refuse(&now, "rollback")?;
    let from = running(&now)?;
    let to = choose(args, &now).map_err(unfit)?;
    let release = release(&now, &to).await?;
    let content = Content::of(&release);
    let inferred = target::infer(&global.kubeconfig());
    let mut session = match &content {
        Some(content) => {
            let recorded = Source::recorded(content.config.clone());
            let settings = resolve(recorded, global, &SettingArgs::default(), &inferred)?;
            Box::pin(now.with(settings)).await?
        }
        // Helm made it from the plain chart: only what Helm knows can be brought back.
        None => now,
    };
    become_revision(&mut session, &to, &release, content.as_ref()).map_err(unfit)?;
    let lost = match &content {
        Some(content) => compatibility::unreadable(&content.crds, &node_objects(&session).await?),
        None => Vec::new(),
    };
    if !lost.is_empty() {
        let mut reasons = vec![format!(
            "revision {} does not know these fields and would ignore them: remove them from the \
             objects first",
            to.number
        )];
        reasons.extend(lost);
        return Err(unfit(reasons));
    }
    let deployment = session.desired.deployment().map(|deployment| deployment.body.clone());
    let journey = Journey {
        operation: "rollback",
        from: from.map(|version| version.to_string()),
        to: deployment
            .as_ref()
            .and_then(version::running)
            .map_or_else(|| "an unknown version".to_owned(), |version| version.to_string()),
        revision: Some(to.number),
    };
    Box::pin(version_change::run(global, &args.how, &journey, session, lock, printer, cleanup))
        .await
}

fn unfit(reasons: Vec<String>) -> ExpectedError {
    ExpectedError::Unfit { what: "rollback".to_owned(), reasons }
}

/// Which revision to go back to.
fn choose(args: &RollbackArgs, session: &Session) -> Result<Revision, Vec<String>> {
    let releases = &session.actual.releases;
    let find = |number: u32| releases.iter().find(|one| one.number == number).cloned();
    let unfinished = session.unfinished().and_then(|record| record.back_to);
    if let Some(number) = args.to_revision.or(unfinished) {
        let known = releases.iter().map(|one| one.number.to_string()).collect::<Vec<_>>();
        return find(number).ok_or_else(|| {
            vec![format!("there is no revision {number}; there are: {}", known.join(", "))]
        });
    }
    let deployed = releases.iter().filter(|one| one.status == "deployed").map(|one| one.number);
    let deployed = deployed.max().unwrap_or(0);
    let earlier = releases.iter().filter(|one| one.number < deployed && one.status == "superseded");
    earlier.max_by_key(|one| one.number).cloned().ok_or_else(|| {
        vec![
            "there is no revision before the deployed one: to install an older version, use the \
             `tenon` of that version"
                .to_owned(),
        ]
    })
}

/// What a revision holds.
async fn release(session: &Session, revision: &Revision) -> Result<Value, ExpectedError> {
    let namespace = &session.settings.namespace;
    let secrets: Api<Secret> = Api::namespaced(session.target.cluster.client(), namespace);
    let found = secrets.get(&revision.secret).await;
    let what = format!("Secret {namespace}/{}", revision.secret);
    let secret = found.map_err(|source| observe_failed(failed("get", what.clone(), source)))?;
    helm::decode(&secret).ok_or_else(|| unfit(vec![format!("{what} is not a Helm release")]))
}

/// Makes the operator's objects and the controller's policies what the revision says. The CRDs
/// stay: fields are only ever added to them.
fn become_revision(
    session: &mut Session,
    revision: &Revision,
    release: &Value,
    content: Option<&Content>,
) -> Result<(), Vec<String>> {
    let unreadable = |why: &str| vec![format!("revision {} can't be read: {why}", revision.number)];
    let desired = &mut session.desired;
    let namespace = session.settings.namespace.clone();
    let id = desired.installation.id.clone();
    let manifest = release["manifest"].as_str().unwrap_or_default();
    let hash = revision.hash.clone().unwrap_or_else(|| names::hash(manifest, 12));
    let record = Record::again(release, &hash, &namespace, &id)
        .ok_or_else(|| unreadable("it has no manifest"))?;
    let bodies = serde_saphyr::from_multiple::<Value>(manifest)
        .map_err(|error| unreadable(&error.to_string()))?;
    let mut objects = bodies
        .into_iter()
        .filter(|body| !body.is_null())
        .map(|body| object(body, &namespace))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|kind| unreadable(&format!("it has objects of kind {kind}")))?;
    // The order in which they are applied: the Deployment last.
    objects.sort_by_key(|object| object.resource.kind == "Deployment");
    if !objects.iter().any(|object| object.resource.kind == "Deployment") {
        return Err(unreadable("it has no Deployment"));
    }
    for object in &mut objects {
        object.annotate(helm::ownership(&namespace));
        object.stamp(&id);
    }
    if let (Some(role), Some(content)) = (&mut desired.controller_role.spec, content)
        && !content.policies.is_empty()
    {
        role.inline.clone_from(&content.policies);
    }
    desired.operator = objects;
    desired.helm = Some(record);
    desired.crds.clear();
    Ok(())
}

/// An object of the chart; the kind, if the chart has no such kind.
fn object(mut body: Value, namespace: &str) -> Result<Object, String> {
    let kind = body["kind"].as_str().unwrap_or_default().to_owned();
    let (plural, namespaced) = match kind.as_str() {
        "ServiceAccount" => ("serviceaccounts", true),
        "Service" => ("services", true),
        "PodDisruptionBudget" => ("poddisruptionbudgets", true),
        "ServiceMonitor" => ("servicemonitors", true),
        "PrometheusRule" => ("prometheusrules", true),
        "ConfigMap" => ("configmaps", true),
        "Role" => ("roles", true),
        "RoleBinding" => ("rolebindings", true),
        "ClusterRole" => ("clusterroles", false),
        "ClusterRoleBinding" => ("clusterrolebindings", false),
        "Deployment" => ("deployments", true),
        _ => return Err(kind),
    };
    if namespaced && body["metadata"]["namespace"].is_null() {
        body["metadata"]["namespace"] = json!(namespace);
    }
    Ok(Object::from_json(body, plural))
}

/// NodePools, NodeClaims and EC2NodeClasses as they are.
async fn node_objects(session: &Session) -> Result<Vec<Value>, ExpectedError> {
    let cluster = &session.target.cluster;
    let (pools, claims, classes) =
        (resources::node_pools(), resources::node_claims(), resources::node_classes());
    let (pools, claims, classes) =
        tokio::try_join!(cluster.list(&pools), cluster.list(&claims), cluster.list(&classes))
            .map_err(observe_failed)?;
    let value = |object: DynamicObject| json!(object);
    Ok(pools.into_iter().chain(claims).chain(classes).map(value).collect())
}

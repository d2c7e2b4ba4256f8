//! Roles, the identity provider, the agent, and what the operator's role lacks.

use std::collections::BTreeMap;

use aws_sdk_iam::types::SummaryKeyType;
use tenon_iam_policies::controller::controller_policies;
use tenon_iam_policies::cover::{self, Gap};
use tenon_iam_policies::document::{Actions, Document, Effect, Principal, Principals};
use tenon_iam_policies::identity;
use tenon_installer_core::aws::{Aws, Calling, IfThere};
use tenon_installer_core::desired::Desired;
use tenon_installer_core::observe::{eks, granted, iam as live};
use tenon_installer_core::words::some;

use super::super::observed::{AccessEntryView, IamView, Seen};
use super::Sources;
use super::unread::Unread;

pub(super) async fn read(sources: &Sources<'_>) -> IamView {
    let (provider, summary, spot_role, access_entry, created, boundary, trust, gaps) = tokio::join!(
        provider(sources),
        account_summary(sources.aws),
        spot_role(sources.aws),
        access_entry(sources),
        node_role_created(sources),
        boundary_blocks(sources),
        trust_problems(sources),
        controller_gaps(sources),
    );
    IamView {
        provider_audiences: provider.into(),
        agent: super::agent(sources.actual, &sources.desired),
        association: match sources.actual {
            Some(actual) => Seen::Known(actual.association.is_some()),
            None => Seen::default(),
        },
        account_summary: summary.into(),
        spot_role: spot_role.into(),
        access_entry: access_entry.into(),
        node_role_created: created.into(),
        node_role_arn: sources
            .desired
            .as_ref()
            .map(|desired| desired.node_role.arn.clone())
            .unwrap_or_default(),
        boundary_blocks: boundary.into(),
        trust_problems: trust.into(),
        controller_gaps: gaps.into(),
    }
}

fn desired<'a>(sources: &'a Sources<'_>) -> Result<&'a Desired, Unread> {
    Ok(sources.desired.as_ref().copied().map_err(|problems| problems.join("; "))?)
}

async fn provider(sources: &Sources<'_>) -> Result<Option<Vec<String>>, Unread> {
    let facts = sources.facts?;
    let Some(issuer) = &facts.cluster.oidc_issuer else { return Ok(None) };
    let desired = desired(sources)?;
    let arn = desired.scope.oidc_provider_arn(issuer);
    let call = sources.aws.iam.get_open_id_connect_provider().open_id_connect_provider_arn(&arn);
    let found = call.send().await.calling("iam:GetOpenIDConnectProvider", &arn).if_there();
    let found = found?;
    let mut audiences = found.map(|found| found.client_id_list().to_vec());
    // Before an installation, what it makes is as good as there.
    if let Some(wanted) = desired.provider().filter(|_| !sources.installed) {
        audiences.get_or_insert_default().push(wanted.audience.clone());
    }
    Ok(audiences)
}

async fn account_summary(aws: &Aws) -> Result<BTreeMap<String, i32>, Unread> {
    let call = aws.iam.get_account_summary().send().await;
    let found = call.calling("iam:GetAccountSummary", "*")?;
    let text = |key: &SummaryKeyType| key.as_str().to_owned();
    Ok(found.summary_map().into_iter().flatten().map(|(key, value)| (text(key), *value)).collect())
}

async fn spot_role(aws: &Aws) -> Result<bool, Unread> {
    const NAME: &str = "AWSServiceRoleForEC2Spot";
    let call = aws.iam.get_role().role_name(NAME).send().await;
    let found = call.calling("iam:GetRole", NAME).if_there()?;
    Ok(found.is_some())
}

async fn access_entry(sources: &Sources<'_>) -> Result<Option<AccessEntryView>, Unread> {
    let desired = desired(sources)?;
    let arn = &desired.node_role.arn;
    let found = eks::described_entry(sources.aws, &sources.settings.cluster, arn).await;
    let found = found?;
    Ok(found.map(|entry| AccessEntryView {
        kind: entry.r#type.unwrap_or_default(),
        created: entry.created_at.map_or(0, |at| at.secs()),
    }))
}

async fn node_role_created(sources: &Sources<'_>) -> Result<Option<i64>, Unread> {
    let name = &desired(sources)?.node_role.name;
    let call = sources.aws.iam.get_role().role_name(name).send().await;
    let found = call.calling("iam:GetRole", name).if_there()?;
    Ok(found.and_then(|found| found.role).map(|role| role.create_date.secs()))
}

async fn boundary_blocks(sources: &Sources<'_>) -> Result<Vec<String>, Unread> {
    let Some(arn) = &sources.settings.permissions_boundary else { return Ok(Vec::new()) };
    let desired = desired(sources)?;
    let document = granted::managed_policy(sources.aws, arn).await?;
    let needed = controller_policies(&desired.scope);
    let mut blocked = needed
        .iter()
        .flat_map(|policy| cover::gaps([&document], &policy.document))
        .map(|gap| gap.action)
        .collect::<Vec<_>>();
    blocked.sort();
    blocked.dedup();
    Ok(blocked)
}

/// Whether a resource's policy allows a service or identity provider an action. Conditions are not
/// looked at: they limit it to some of its callers.
pub(super) fn lets_act(document: &Document, who: &str, action: &str) -> bool {
    document.statements.iter().filter(|one| one.effect == Effect::Allow).any(|statement| {
        let Actions::Only(actions) = &statement.actions else { return false };
        let may = actions
            .iter()
            .any(|pattern| cover::contains(&pattern.to_lowercase(), &action.to_lowercase()));
        let named = match &statement.principal {
            Some(Principals::Only(Principal::Anyone)) => true,
            Some(Principals::Only(Principal::Named { service, federated, .. })) => {
                service.iter().chain(federated).any(|one| one == who)
            }
            _ => false,
        };
        may && named
    })
}

async fn trust_problems(sources: &Sources<'_>) -> Result<Vec<String>, Unread> {
    let desired = desired(sources)?;
    let mut asked = Vec::new();
    if desired.controller_role.spec.is_none() {
        let (who, action) = match desired.provider() {
            Some(provider) => (provider.arn.as_str(), "sts:AssumeRoleWithWebIdentity"),
            None => (identity::POD_IDENTITY_SERVICE, "sts:AssumeRole"),
        };
        asked.push((&desired.controller_role, vec![who], action));
    }
    if desired.node_role.spec.is_none() {
        let ec2 = identity::ec2_services(desired.scope.partition);
        asked.push((&desired.node_role, ec2, "sts:AssumeRole"));
    }
    let mut problems = Vec::new();
    for (role, who, action) in asked {
        let call = sources.aws.iam.get_role().role_name(&role.name).send().await;
        let found = call.calling("iam:GetRole", &role.name).if_there();
        let found = found?.and_then(|found| found.role);
        let Some(found) = found else {
            problems.push(format!("role {} does not exist", role.name));
            continue;
        };
        let trust = found.assume_role_policy_document.unwrap_or_default();
        let lets_in =
            |who: &str| Document::parse(&trust).is_ok_and(|trust| lets_act(&trust, who, action));
        if !who.iter().any(|who| lets_in(who)) {
            let who = who.join(" or ");
            problems
                .push(format!("role {} doesn't allow {who} to assume it ({action})", role.name));
        }
    }
    Ok(problems)
}

/// A gap in words: action, resource, statement, and why.
pub fn gap_in_words(gap: &Gap) -> String {
    let statement = gap.sid.as_deref().unwrap_or("-");
    let why = cause_in_words(&gap.cause);
    format!("{} on {} (statement {statement}{why})", gap.action, gap.resource)
}

/// Why what is granted is not enough, after a comma.
fn cause_in_words(cause: &cover::Cause) -> String {
    match cause {
        cover::Cause::NotAllowed => String::new(),
        cover::Cause::Condition { operator, key } => {
            format!(", allowed only with {operator} on {key}")
        }
        cover::Cause::Denied { sid } => {
            format!(", denied by statement {}", sid.as_deref().unwrap_or("without id"))
        }
    }
}

async fn controller_gaps(sources: &Sources<'_>) -> Result<Option<Vec<String>>, Unread> {
    let desired = desired(sources)?;
    let names = [desired.controller_role.name.clone()];
    let roles = live::roles(sources.aws, &names).await?;
    let Some(role) = roles.get(&names[0]) else { return Ok(None) };
    let documents = granted::documents(sources.aws, role).await?;
    let needed = controller_policies(&desired.scope);
    let gaps = needed
        .iter()
        .flat_map(|policy| cover::gaps(documents.values(), &policy.document))
        .collect::<Vec<_>>();
    Ok(Some(by_statement(&gaps)))
}

/// How many actions and resources of a statement are named.
const NAMED: usize = 4;

/// What one statement would close.
struct Lack<'a> {
    sid: Option<&'a str>,
    why: String,
    actions: Vec<String>,
    resources: Vec<String>,
}

/// Gaps by the statement that would close them: attaching it closes all of them at once.
fn by_statement(gaps: &[Gap]) -> Vec<String> {
    let mut lacks: Vec<Lack<'_>> = Vec::new();
    for gap in gaps {
        let (sid, why) = (gap.sid.as_deref(), cause_in_words(&gap.cause));
        let at = lacks.iter().position(|lack| lack.sid == sid && lack.why == why);
        let at = at.unwrap_or_else(|| {
            lacks.push(Lack { sid, why, actions: Vec::new(), resources: Vec::new() });
            lacks.len() - 1
        });
        let Lack { actions, resources, .. } = &mut lacks[at];
        for (list, text) in [(actions, &gap.action), (resources, &gap.resource)] {
            if !list.contains(text) {
                list.push(text.clone());
            }
        }
    }
    let text = |lack: &Lack<'_>| {
        let statement = lack.sid.map_or_else(String::new, |sid| format!("statement {sid}: "));
        let (actions, resources) = (some(&lack.actions, NAMED), some(&lack.resources, NAMED));
        format!("{statement}{actions} on {resources}{}", lack.why)
    };
    lacks.iter().map(text).collect()
}

/// Who may send into a queue, by its policy.
pub(super) fn senders(policy: &str) -> Vec<String> {
    let Ok(document) = Document::parse(policy) else { return Vec::new() };
    let may_send = |actions: &Actions| match actions {
        Actions::Only(actions) => {
            actions.iter().any(|one| cover::contains(&one.to_lowercase(), "sqs:sendmessage"))
        }
        Actions::AllBut(_) => false,
    };
    let mut senders = Vec::new();
    for statement in document.statements {
        if statement.effect == Effect::Allow && may_send(&statement.actions) {
            match statement.principal {
                Some(Principals::Only(Principal::Named { aws, service, .. })) => {
                    senders.extend(service.into_iter().chain(aws));
                }
                Some(Principals::Only(Principal::Anyone)) => senders.push("*".to_owned()),
                _ => {}
            }
        }
    }
    senders
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_iam_policies::{Features, Partition, Scope};

    #[test]
    fn what_one_statement_would_close_is_listed_once() {
        let gap = |sid: &str, action: &str, resource: &str, cause| Gap {
            sid: Some(sid.to_owned()),
            action: action.to_owned(),
            resource: resource.to_owned(),
            cause,
        };
        let denied = || cover::Cause::Denied { sid: None };
        let gaps = [
            gap("Launch", "ec2:CreateFleet", "*", cover::Cause::NotAllowed),
            gap("Launch", "ec2:RunInstances", "*", cover::Cause::NotAllowed),
            gap("Queue", "sqs:DeleteMessage", "arn:q", cover::Cause::NotAllowed),
            gap("Launch", "ec2:CreateTags", "arn:i", denied()),
        ];
        assert_eq!(
            by_statement(&gaps),
            [
                "statement Launch: ec2:CreateFleet, ec2:RunInstances on *",
                "statement Queue: sqs:DeleteMessage on arn:q",
                "statement Launch: ec2:CreateTags on arn:i, denied by statement without id",
            ]
        );
    }

    fn scope() -> Scope {
        Scope {
            partition: Partition::Aws,
            region: "eu-central-1".into(),
            account: "111122223333".into(),
            cluster: "prod".into(),
            queue: Some("tenon-prod".into()),
            node_roles: vec![],
            features: Features::default(),
        }
    }

    #[test]
    fn a_trust_policy_lets_in_whom_it_names() {
        let pods = identity::pod_identity_trust_upstream();
        assert!(lets_act(&pods, identity::POD_IDENTITY_SERVICE, "sts:AssumeRole"));
        assert!(!lets_act(&pods, "ec2.amazonaws.com", "sts:AssumeRole"));
        assert!(lets_act(
            &identity::node_trust(Partition::AwsCn),
            "ec2.amazonaws.com",
            "sts:AssumeRole"
        ));
    }

    #[test]
    fn only_who_is_named_may_send() {
        let policy =
            tenon_iam_policies::interruption::queue_policy(&scope(), &["rule".to_owned()]).unwrap();
        assert_eq!(senders(&policy.to_json()), ["events.amazonaws.com"]);
        assert_eq!(senders("{}"), [""; 0]);
    }
}

//! What the operator must be allowed in a kOps cluster, and the fields of the Cluster from which
//! kOps gives it that.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenon_iam_policies::Document;
use tenon_iam_policies::controller::{ControllerPolicy, controller_policies, shortened};
use tenon_iam_policies::size::{INLINE_LIMIT, SizeError, check_inline};
use tenon_kops::{AdditionalPolicy, additional_policy_name, control_plane_profile_name};

use super::operator::{ACCOUNT, Identity, NAMESPACE, Place, account_role};

/// The key of a Cluster that adds nothing to the role of the control plane yet.
const CONTROL_PLANE_KEY: &str = "control-plane";

/// The ids of the operator's statements in a Cluster that may hold others: this with a number. kOps
/// leaves ids out of what it gives to IAM.
const STATEMENT_ID: &str = "Tenon";

/// Why a Cluster cannot give the operator its permissions.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpecError {
    /// They are more than a role may have.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The role of the control plane has no room for them.
    #[error(
        "the other inline policies of the IAM role {role} have {others} characters, those of the \
         operator {own}, and a role may have {INLINE_LIMIT} together: let kOps create an OIDC \
         provider instead (`spec.serviceAccountIssuerDiscovery` with a `discoveryStore` and \
         `enableAWSOIDCProvider: true`)"
    )]
    Room {
        /// Its name.
        role: String,
        /// Characters of its other policies, and of other statements of the Cluster.
        others: usize,
        /// Characters of the operator's statements.
        own: usize,
    },
    /// What the Cluster adds to a role is no list of statements.
    #[error("spec.additionalPolicies.{key} is not a list of policy statements: {source}")]
    Policy {
        /// Whose.
        key: String,
        source: serde_json::Error,
    },
}

/// ARNs of the roles whose permissions the operator has.
pub(crate) fn roles(place: &Place) -> Vec<String> {
    match &place.identity {
        Identity::ServiceAccount => vec![place.scope().role_arn("/", &account_role(place))],
        Identity::ControlPlane { roles, .. } => roles.clone(),
    }
}

/// kOps writes the policies of this role of the operator.
pub(crate) fn is_of_kops(place: &Place, role: &str) -> bool {
    let own = match place.identity {
        Identity::ServiceAccount => account_role(place),
        Identity::ControlPlane { .. } => control_plane_profile_name(&place.cluster),
    };
    role == own
}

/// What the operator's role must allow.
///
/// # Errors
/// If that is more than a role may have.
pub(crate) fn permissions(place: &Place) -> Result<Vec<Document>, SizeError> {
    let scope = place.scope();
    let mut policies = controller_policies(&scope);
    policies.retain(|policy| policy.part != ControllerPolicy::EksIntegration);
    let mut documents = match place.identity {
        Identity::ServiceAccount => policies.into_iter().map(|policy| policy.document).collect(),
        Identity::ControlPlane { .. } => vec![shortened(policies, &scope)],
    };
    let reads_store = Some(place.reads_store()).filter(|statements| !statements.is_empty());
    documents.extend(reads_store.map(Document::new));
    check_inline(&documents)?;
    Ok(documents)
}

/// What `kops edit cluster` is to set: kOps gives the operator its permissions from it.
///
/// # Errors
/// If the statements are more than a role may have, or the Cluster's own can't be read.
pub(crate) fn cluster_spec(place: &Place) -> Result<Value, SpecError> {
    let own = statements(&permissions(place)?);
    Ok(match &place.identity {
        Identity::ServiceAccount => json!({
            "spec": {
                "iam": {
                    "useServiceAccountExternalPermissions": true,
                    "serviceAccountExternalPermissions": [{
                        "name": ACCOUNT,
                        "namespace": NAMESPACE,
                        "aws": {"inlinePolicy": list(own)},
                    }],
                },
            },
        }),
        Identity::ControlPlane { policy, .. } => {
            let key = policy.as_ref().map_or(CONTROL_PLANE_KEY, |policy| &policy.key);
            let mut all = others(policy.as_ref())?;
            all.extend(own.into_iter().enumerate().map(|(n, mut statement)| {
                statement["Sid"] = format!("{STATEMENT_ID}{}", n + 1).into();
                statement
            }));
            json!({"spec": {"additionalPolicies": {key: list(all)}}})
        }
    })
}

/// Whether a role of the control plane, which has these inline policies, has room for the
/// operator's permissions.
///
/// # Errors
/// If it has not, or the Cluster's own statements can't be read.
pub(crate) fn check_room(
    place: &Place,
    role: &str,
    inline: &BTreeMap<String, Document>,
) -> Result<(), SpecError> {
    let Identity::ControlPlane { policy, .. } = &place.identity else { return Ok(()) };
    let own = permissions(place)?.iter().map(Document::size).sum::<usize>();
    let replaced = additional_policy_name(role);
    let of_role = inline.iter().filter(|(name, _)| **name != replaced);
    let of_role = of_role.map(|(_, document)| document.size()).sum::<usize>();
    let added = others(policy.as_ref())?.into_iter().map(|mut statement| {
        if let Some(statement) = statement.as_object_mut() {
            statement.remove("Sid");
        }
        statement.to_string().chars().filter(|char| !char.is_whitespace()).count() + 1
    });
    let others = of_role + added.sum::<usize>();
    if others + own > INLINE_LIMIT {
        return Err(SpecError::Room { role: role.to_owned(), others, own });
    }
    Ok(())
}

/// The statements of documents.
fn statements(documents: &[Document]) -> Vec<Value> {
    let statements = documents.iter().flat_map(|document| {
        let document: Value = serde_json::from_str(&document.to_json()).unwrap_or_default();
        document["Statement"].as_array().cloned().unwrap_or_default()
    });
    statements.collect()
}

/// The statements of a Cluster that are not the operator's.
fn others(policy: Option<&AdditionalPolicy>) -> Result<Vec<Value>, SpecError> {
    let Some(AdditionalPolicy { key, statements }) = policy else { return Ok(Vec::new()) };
    let mut others: Vec<Value> = serde_json::from_str(statements)
        .map_err(|source| SpecError::Policy { key: key.clone(), source })?;
    let is_own = |statement: &Value| {
        let number = statement["Sid"].as_str().and_then(|sid| sid.strip_prefix(STATEMENT_ID));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    others.retain(|statement| !is_own(statement));
    Ok(others)
}

/// kOps takes the list of statements, and writes the document around it.
fn list(statements: Vec<Value>) -> String {
    serde_json::to_string_pretty(&Value::Array(statements)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::operator::tests::place;
    use super::*;

    /// Where AWS does not trust the cluster's tokens; the Cluster adds these statements.
    fn beside_kops(statements: Option<&str>) -> Place {
        let policy = statements.map(|statements| AdditionalPolicy {
            key: "master".to_owned(),
            statements: statements.to_owned(),
        });
        let roles = vec!["arn:aws:iam::123456789012:role/masters.shop.example.com".to_owned()];
        Place { identity: Identity::ControlPlane { roles, policy }, ..place(3) }
    }

    fn added(spec: &Value, key: &str) -> Vec<Value> {
        let text = spec["spec"]["additionalPolicies"][key].as_str().expect("statements");
        serde_json::from_str(text).expect("a list")
    }

    #[test]
    fn the_cluster_gets_every_statement_but_those_for_eks() {
        let spec = cluster_spec(&place(1)).expect("it is small enough");
        let account = &spec["spec"]["iam"]["serviceAccountExternalPermissions"][0];
        let statements = account["aws"]["inlinePolicy"].as_str().expect("statements");
        let statements: Vec<Value> = serde_json::from_str(statements).expect("a list");
        for statement in &statements {
            let actions = statement["Action"].to_string();
            let is_of_eks = actions.contains("eks:") || actions.contains("arc-zonal-shift:");
            assert!(!is_of_eks, "{actions}");
        }
        let of = |sid: &str| statements.iter().find(|statement| statement["Sid"] == sid);
        let pass = of("AllowPassingInstanceRole").expect("nodes have a role");
        assert!(pass["Resource"].to_string().contains("role/nodes.shop.example.com"), "{pass}");
        let read = of("AllowReadingInstanceGroups").expect("it follows the state store");
        assert_eq!(
            read["Resource"],
            json!([
                "arn:aws:s3:::states/shop.example.com/config",
                "arn:aws:s3:::states/shop.example.com/instancegroup/*",
                "arn:aws:s3:::configs/shop/igconfig/node/*/nodeupscript.sh",
                "arn:aws:s3:::configs/shop/igconfig/node/*/nodeupconfig.yaml",
            ])
        );
        let list = of("AllowFindingStateStoreObjects").expect("it follows the state store");
        assert_eq!(list["Resource"], json!(["arn:aws:s3:::configs", "arn:aws:s3:::states"]));
        let queue = of("AllowInterruptionQueueActions").expect("there is a queue");
        assert!(queue["Resource"].to_string().contains(":shop-example-com-tenon"), "{queue}");
    }

    #[test]
    fn more_roles_than_fit_into_a_policy_are_an_error() {
        let role = |n: usize| format!("arn:aws:iam::123456789012:role/{n:0>60}");
        let place = Place { node_roles: (0..200).map(role).collect(), ..place(1) };
        assert!(cluster_spec(&place).is_err());
    }

    #[test]
    fn without_an_oidc_provider_the_control_planes_role_gets_them_beside_those_of_others() {
        let mine =
            r#"[{"Effect": "Allow", "Action": "s3:*", "Resource": "*", "Sid": "TenonBackups"}]"#;
        let first = cluster_spec(&beside_kops(Some(mine))).expect("it is small enough");
        let statements = added(&first, "master");
        assert_eq!(statements[0]["Sid"], "TenonBackups", "it is not one of ours");
        let own = statements[1..].iter().map(|one| one["Sid"].as_str().expect("an id"));
        assert!(own.clone().all(|sid| sid.starts_with("Tenon")), "{statements:?}");
        assert_eq!(own.count(), 13);
        // Once more, over what the first time has left.
        let again = beside_kops(first["spec"]["additionalPolicies"]["master"].as_str());
        assert_eq!(cluster_spec(&again).expect("it is small enough"), first);
        let bare = cluster_spec(&beside_kops(None)).expect("it is small enough");
        assert_eq!(added(&bare, "control-plane"), statements[1..]);
    }

    #[test]
    fn what_the_control_planes_role_has_no_room_for_is_an_error() {
        let name = "masters.shop.example.com";
        // As large as kOps' own policies of such roles, and larger.
        let of_kops = |characters: usize| {
            let action = "a".repeat(characters - 84);
            let text = format!(
                r#"{{"Version":"2012-10-17","Statement":{{"Effect":"Allow","Action":"s3:{action}","Resource":"*"}}}}"#
            );
            BTreeMap::from([
                (name.to_owned(), Document::parse(&text).expect("a policy")),
                (format!("additional.{name}"), Document::parse(&text).expect("a policy")),
            ])
        };
        let place = beside_kops(None);
        check_room(&place, name, &of_kops(6_214)).expect("it fits");
        let error = check_room(&place, name, &of_kops(8_561)).expect_err("it does not fit");
        assert!(error.to_string().contains("of the IAM role masters.shop"), "{error}");
        let others = format!(r#"[{{"Action": "{}"}}]"#, "a".repeat(1_000));
        check_room(&beside_kops(Some(&others)), name, &of_kops(6_214)).expect_err("no room");
        let error = cluster_spec(&beside_kops(Some("{}"))).expect_err("no list");
        assert!(error.to_string().starts_with("spec.additionalPolicies.master is"), "{error}");
    }

    #[test]
    fn a_profile_of_ones_own_is_not_kops() {
        let place = beside_kops(None);
        assert!(is_of_kops(&place, "masters.shop.example.com"));
        assert!(!is_of_kops(&place, "ours"));
        let with_role = Place { identity: Identity::ServiceAccount, ..place };
        assert!(is_of_kops(&with_role, "karpenter.kube-system.sa.shop.example.com"));
    }
}

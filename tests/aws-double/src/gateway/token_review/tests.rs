use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::clock::Clock;
use crate::gateway::identity::Grants;
use crate::gateway::moto_client::MotoClient;
use crate::gateway::policy_store::PolicyStore;

struct Fixture {
    authenticator: Authenticator,
    eks: Arc<Eks>,
    aws_state: AwsState,
}

fn fixture() -> Fixture {
    let clock = Clock::system();
    let identities = Arc::new(Identities::new("123456789012", clock, 1));
    identities.add_user("ann", Grants::Everything);
    let eks = Arc::new(Eks::new(clock, Arc::new(PolicyStore::default())));
    let aws_state = AwsState::new(
        "123456789012",
        "eu-central-1",
        clock,
        MotoClient::new("http://127.0.0.1:1", "eu-central-1"),
    );
    Fixture { authenticator: Authenticator::new(identities, Arc::clone(&eks)), eks, aws_state }
}

fn principal(role: &str, session: &str) -> Principal {
    Principal {
        arn: format!(
            "arn:aws:sts::123456789012:assumed-role/{}/{session}",
            role.rsplit('/').next().unwrap()
        ),
        account: "123456789012".into(),
        user_id: format!("AROAX:{session}"),
        role_arn: Some(format!("arn:aws:iam::123456789012:role/{role}")),
        session_tags: vec![],
    }
}

fn aws_auth(map_roles: &str) -> ConfigMap {
    ConfigMap {
        data: Some(BTreeMap::from([("mapRoles".to_owned(), map_roles.to_owned())])),
        ..ConfigMap::default()
    }
}

const NODES: &str = "- rolearn: arn:aws:iam::123456789012:role/node
  username: system:node:{{SessionName}}
  groups: [system:bootstrappers, system:nodes]
";

#[tokio::test]
async fn the_administrator_of_the_cluster_is_a_master() {
    let Fixture { authenticator, eks, aws_state } = fixture();
    let administrator = Principal::administrator(&aws_state);
    assert!(matches!(
        authenticator.user(&administrator, "AKIA", &aws_state),
        Err(Refusal::NoAccess(_))
    ));
    eks.grant_cluster_admin(&administrator.arn, &aws_state);
    let user = authenticator.user(&administrator, "AKIA", &aws_state).unwrap();
    assert_eq!(user.username.as_deref(), Some("arn:aws:iam::123456789012:user/administrator"));
    assert_eq!(user.groups, Some(vec![MASTERS.to_owned()]));
}

#[tokio::test]
async fn aws_auth_maps_roles_without_their_paths() {
    let Fixture { authenticator, aws_state, .. } = fixture();
    authenticator.aws_auth().set(&aws_auth(NODES));
    let user =
        authenticator.user(&principal("tenon/bed/node", "i-0123"), "ASIA", &aws_state).unwrap();
    assert_eq!(user.username.as_deref(), Some("system:node:i-0123"));
    assert_eq!(user.groups.unwrap(), ["system:bootstrappers", "system:nodes"]);
    authenticator.aws_auth().set(&aws_auth(&NODES.replace("role/node", "role/tenon/bed/node")));
    assert!(
        authenticator.user(&principal("tenon/bed/node", "i-0123"), "ASIA", &aws_state).is_err()
    );
}

#[tokio::test]
async fn the_authentication_mode_says_where_to_look() {
    let Fixture { authenticator, eks, aws_state } = fixture();
    authenticator.aws_auth().set(&aws_auth(NODES));
    let administrator = Principal::administrator(&aws_state);
    eks.grant_cluster_admin(&administrator.arn, &aws_state);
    let node = principal("node", "i-0123");
    for (mode, by_entry, by_map) in [
        (AuthenticationMode::ConfigMap, false, true),
        (AuthenticationMode::ApiAndConfigMap, true, true),
        (AuthenticationMode::Api, true, false),
    ] {
        eks.set_authentication_mode(mode);
        assert_eq!(
            authenticator.user(&administrator, "AKIA", &aws_state).is_ok(),
            by_entry,
            "{mode:?}"
        );
        assert_eq!(authenticator.user(&node, "ASIA", &aws_state).is_ok(), by_map, "{mode:?}");
        assert_eq!(
            authenticator.admits_nodes_of("arn:aws:iam::123456789012:role/node").is_ok(),
            by_map,
            "{mode:?}"
        );
    }
}

#[tokio::test]
async fn a_map_that_does_not_parse_maps_nobody() {
    let Fixture { authenticator, aws_state, .. } = fixture();
    authenticator.aws_auth().set(&aws_auth(NODES));
    authenticator.aws_auth().set(&aws_auth("- rolearn: [unclosed"));
    assert!(authenticator.user(&principal("node", "i-0123"), "ASIA", &aws_state).is_err());
}

#[tokio::test]
async fn a_mapping_that_is_not_for_nodes_admits_none() {
    let Fixture { authenticator, .. } = fixture();
    authenticator.aws_auth().set(&aws_auth(
        "- rolearn: arn:aws:iam::123456789012:role/node\n  username: x\n  groups: [devs]\n",
    ));
    let role = "arn:aws:iam::123456789012:role/node";
    let refused = Err(NotAdmitted::Groups(role.to_owned()));
    assert_eq!(authenticator.admits_nodes_of(role), refused);
}

#[tokio::test]
async fn session_names_lose_their_at_signs() {
    let Fixture { authenticator, aws_state, .. } = fixture();
    authenticator.aws_auth().set(&aws_auth("- rolearn: arn:aws:iam::123456789012:role/dev\n  username: '{{SessionName}}/{{SessionNameRaw}}/{{AccountID}}/{{AccessKeyID}}'\n"));
    let user =
        authenticator.user(&principal("dev", "ann@example.com"), "ASIA", &aws_state).unwrap();
    assert_eq!(user.username.as_deref(), Some("ann-example.com/ann@example.com/123456789012/ASIA"));
}

#[tokio::test]
async fn tokens_of_other_kinds_are_left_to_others() {
    let Fixture { authenticator, aws_state, .. } = fixture();
    assert_eq!(authenticator.authenticate("eyJhbGciOi", &aws_state), Err(Refusal::OtherKind));
    assert!(matches!(
        authenticator.authenticate("k8s-aws-v1.", &aws_state),
        Err(Refusal::Malformed(_))
    ));
}

use std::time::Duration;

use super::*;

fn identities() -> Identities {
    Identities::new("123456789012", Clock::system(), 7)
}

fn credential(credentials: &Credentials) -> Credential {
    Credential {
        access_key: credentials.access_key.clone(),
        session_token: credentials.session_token.clone(),
    }
}

fn session<'a>() -> SessionOf<'a> {
    SessionOf {
        role_arn: "arn:aws:iam::123456789012:role/tenon/c/controller",
        role_id: "AROAX",
        session_name: "s",
        tags: vec![("kubernetes-namespace".into(), "kube-system".into())],
        policy: None,
        lasts: SignedDuration::from_mins(15),
    }
}

#[tokio::test]
async fn knows_users_by_their_keys() {
    let identities = identities();
    let ann = identities.add_user("ann", Grants::Everything);
    let bob = identities.add_user("bob", Grants::Documents(vec![]));
    assert_ne!(ann.access_key, bob.access_key);
    let who = identities.identify(Some(&credential(&bob))).unwrap();
    assert_eq!(who.principal.arn, "arn:aws:iam::123456789012:user/bob");
    assert_eq!(who.grants, Grants::Documents(vec![]));
    assert_eq!(who.secret_key, bob.secret_key);
}

#[tokio::test]
async fn refuses_unknown_keys_and_unsigned_calls() {
    let nobody = Credential { access_key: "AKIANOBODY".into(), session_token: None };
    assert_eq!(identities().identify(Some(&nobody)), Err(Refusal::Unknown));
    assert_eq!(identities().identify(None), Err(Refusal::Unsigned));
}

#[tokio::test]
async fn a_session_carries_role_name_and_tags_and_needs_its_token() {
    let identities = identities();
    let (principal, credentials) = identities.open_session(session());
    assert_eq!(principal.arn, "arn:aws:sts::123456789012:assumed-role/controller/s");
    assert_eq!(
        principal.role_arn.as_deref(),
        Some("arn:aws:iam::123456789012:role/tenon/c/controller")
    );
    assert_eq!(principal.user_id, "AROAX:s");
    assert_eq!(identities.identify(Some(&credential(&credentials))).unwrap().principal, principal);
    let without = Credential { session_token: None, ..credential(&credentials) };
    assert_eq!(identities.identify(Some(&without)), Err(Refusal::Unknown));
}

#[tokio::test(start_paused = true)]
async fn a_session_ends() {
    let identities = identities();
    let (_, credentials) = identities.open_session(session());
    tokio::time::advance(Duration::from_secs(15 * 60 - 1)).await;
    assert!(identities.identify(Some(&credential(&credentials))).is_ok());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(identities.identify(Some(&credential(&credentials))), Err(Refusal::Expired));
}

#[tokio::test]
async fn grants_can_change_while_the_bed_runs() {
    let identities = identities();
    let ann = identities.add_user("ann", Grants::Documents(vec![]));
    assert!(identities.set_grants(&ann.access_key, Grants::Everything));
    assert_eq!(identities.identify(Some(&credential(&ann))).unwrap().grants, Grants::Everything);
    assert!(!identities.set_grants("AKIANOBODY", Grants::Everything));
}

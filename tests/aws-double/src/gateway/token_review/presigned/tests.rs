//! The tokens were made by botocore, as `aws eks get-token` makes them.

use super::*;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const OF_A_USER: &str = "https://sts.eu-central-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20261120%2Feu-central-1%2Fsts%2Faws4_request&X-Amz-Date=20261120T111300Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host%3Bx-k8s-aws-id&X-Amz-Signature=a69cf35efa79865a2deb26197decc080fc18a1ac0d2303c86ce387106dba4fd8";
const OF_A_SESSION: &str = "https://sts.eu-central-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=ASIAIOSFODNN7EXAMPLE%2F20261120%2Feu-central-1%2Fsts%2Faws4_request&X-Amz-Date=20261120T111300Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host%3Bx-k8s-aws-id&X-Amz-Security-Token=tok%2Ben%2Fwith%3D%3Dodd%20chars&X-Amz-Signature=ae10c4e23c9b61c9595993687f1b54339f6ae83a2526336e836ff2cfafd08c44";

fn decoded(url: &str) -> Result<Request, Refusal> {
    Request::decode(&URL_SAFE_NO_PAD.encode(url))
}

#[test]
fn accepts_signatures_of_other_implementations() {
    decoded(OF_A_USER).unwrap().check_signature(SECRET, "bed").unwrap();
    decoded(OF_A_SESSION).unwrap().check_signature(SECRET, "my-cluster_1").unwrap();
}

#[test]
fn a_token_is_good_for_one_cluster_and_by_one_secret_only() {
    let request = decoded(OF_A_USER).unwrap();
    assert_eq!(request.check_signature(SECRET, "other"), Err(Refusal::Signature));
    assert_eq!(request.check_signature("another secret", "bed"), Err(Refusal::Signature));
    let changed = OF_A_USER.replace("X-Amz-Expires=60", "X-Amz-Expires=900");
    assert_eq!(decoded(&changed).unwrap().check_signature(SECRET, "bed"), Err(Refusal::Signature));
    let without = OF_A_USER.split("&X-Amz-Signature").next().unwrap();
    assert_eq!(decoded(without).unwrap().check_signature(SECRET, "bed"), Err(Refusal::Signature));
}

#[test]
fn tells_who_signed() {
    let session = decoded(OF_A_SESSION).unwrap().credential();
    assert_eq!(session.access_key, "ASIAIOSFODNN7EXAMPLE");
    assert_eq!(session.session_token.as_deref(), Some("tok+en/with==odd chars"));
    assert_eq!(decoded(OF_A_USER).unwrap().credential().session_token, None);
}

#[test]
fn a_token_lasts_fifteen_minutes_whatever_the_url_says() {
    let request = decoded(OF_A_USER).unwrap();
    let at = |text: &str| request.check_time(text.parse().unwrap());
    assert_eq!(at("2026-11-20T11:13:00Z"), Ok(()));
    assert_eq!(at("2026-11-20T11:28:00Z"), Ok(()));
    assert_eq!(at("2026-11-20T11:28:01Z"), Err(Refusal::Expired));
    assert_eq!(at("2026-11-20T10:57:00Z"), Err(Refusal::Expired));
    let long = decoded(&OF_A_USER.replace("X-Amz-Expires=60", "X-Amz-Expires=3600")).unwrap();
    assert!(matches!(
        long.check_time("2026-11-20T11:13:00Z".parse().unwrap()),
        Err(Refusal::Malformed(_))
    ));
}

#[test]
fn refuses_what_is_no_presigned_call_for_a_cluster() {
    for (url, why) in [
        ("nonsense", "not a URL"),
        ("https://sts.amazonaws.com/", "no parameters"),
        (&OF_A_USER.replace("GetCallerIdentity", "AssumeRole"), "does not call GetCallerIdentity"),
        (&OF_A_USER.replace("host%3Bx-k8s-aws-id", "host"), "x-k8s-aws-id is not signed"),
        (&OF_A_USER.replace("X-Amz-Credential", "X-Amz-Other"), "not signed"),
        (&OF_A_USER.replace("20261120T111300Z", "yesterday"), "no valid date"),
    ] {
        let refusal = decoded(url).unwrap_err().to_string();
        assert!(refusal.contains(why), "{url}: {refusal}");
    }
    assert!(Request::decode("*").unwrap_err().to_string().contains("base64"));
}

#[test]
fn signs_as_other_implementations_do() {
    let credentials = Credentials {
        access_key: "AKIAIOSFODNN7EXAMPLE".into(),
        secret_key: SECRET.into(),
        session_token: None,
        expires: None,
    };
    let at = |text: &str| text.parse().unwrap();
    let token = Request::sign(&credentials, "eu-central-1", "bed", at("2026-11-20T11:13:00.987Z"));
    assert_eq!(String::from_utf8(URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap(), OF_A_USER);
    let session = Credentials { session_token: Some("a+b/c==".into()), ..credentials };
    let token = Request::sign(&session, "eu-central-1", "bed", at("2026-11-20T11:13:00Z"));
    let request = Request::decode(&token).unwrap();
    request.check_signature(SECRET, "bed").unwrap();
    assert_eq!(request.credential().session_token.as_deref(), Some("a+b/c=="));
}

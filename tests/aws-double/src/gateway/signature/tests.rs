use axum::http::HeaderMap;

use super::*;

#[test]
fn paths_are_normalised_and_encoded_once_more() {
    let table = [
        ("", "/"),
        ("/", "/"),
        ("/clusters/c1", "/clusters/c1"),
        ("/clusters/c1/", "/clusters/c1/"),
        ("//clusters/./c1/../c2", "/clusters/c2"),
        ("/tags/arn%3Aaws%3Aeks", "/tags/arn%253Aaws%253Aeks"),
    ];
    for (path, canonical) in table {
        assert_eq!(canonical_path(path), canonical, "{path}");
    }
}

#[test]
fn regional_services_are_served_in_one_region_and_global_ones_in_all_of_a_partition() {
    let own = "eu-central-1";
    let table = [
        ("ec2", "eu-central-1", true),
        ("ec2", "us-east-1", false),
        ("eks", "eu-west-1", false),
        ("iam", "us-east-1", true),
        ("sts", "eu-west-1", true),
        ("sts", "cn-north-1", false),
        ("pricing", "us-east-1", true),
        ("pricing", "eu-west-1", false),
    ];
    for (service, region, served) in table {
        assert_eq!(is_served(service, region, own), served, "{service} in {region}");
    }
}

fn read(authorization: &str) -> Result<Option<Signature>, Refusal> {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", authorization.parse().unwrap());
    headers.insert("x-amz-date", "20261120T103000Z".parse().unwrap());
    let uri = Uri::from_static("/");
    let request = AwsRequest::read(http::Method::POST, &uri, headers, Bytes::new(), "eu-central-1");
    Signature::read(&request)
}

#[test]
fn what_is_missing_in_a_header_is_named() {
    let scope = "AKIA/20261120/eu-central-1/sqs/aws4_request";
    let table = [
        ("Bearer x".to_owned(), "AWS4-HMAC-SHA256"),
        (format!("{ALGORITHM} SignedHeaders=host, Signature=0"), "'Credential'"),
        (format!("{ALGORITHM} Credential={scope}, Signature=0"), "'SignedHeaders'"),
        (format!("{ALGORITHM} Credential={scope}, SignedHeaders=host"), "'Signature'"),
        (format!("{ALGORITHM} Credential=AKIA/x, SignedHeaders=host, Signature=0"), "<region>"),
        (format!("{ALGORITHM} Credential={scope}, SignedHeaders=date, Signature=0"), "'host'"),
    ];
    for (header, missing) in table {
        let refusal = read(&header).unwrap_err().to_string();
        assert!(refusal.contains(missing), "{header}: {refusal}");
    }
    let whole = format!("{ALGORITHM} Credential={scope},SignedHeaders=host;x-amz-date,Signature=0");
    let signature = read(&whole).unwrap().expect("it is signed");
    assert_eq!(signature.scope.to_string(), "20261120/eu-central-1/sqs/aws4_request");
    assert_eq!(signature.signed_headers, ["host", "x-amz-date"]);
}

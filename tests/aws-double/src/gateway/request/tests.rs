use super::*;

fn read(method: &str, uri: &str, headers: &[(&'static str, &str)], body: &str) -> AwsRequest {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, value.parse().unwrap());
    }
    AwsRequest::read(
        method.parse().unwrap(),
        &uri.parse().unwrap(),
        map,
        Bytes::from(body.to_owned()),
        "eu-central-1",
    )
}

const AUTH: &str = "AWS4-HMAC-SHA256 Credential=AKIA1/20260101/eu-west-3/ec2/aws4_request, SignedHeaders=host, Signature=0";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

#[test]
fn reads_an_ec2_call_from_a_form() {
    let body = "Action=DescribeInstances&Version=2016-11-15&InstanceId.2=i-b&InstanceId.10=i-c&InstanceId.1=i-a&Filter.1.Name=tag%3Aa+b&Filter.1.Value.1=x&Filter.1.Value.2=y";
    let request =
        read("POST", "/", &[("authorization", AUTH), FORM, ("x-amz-security-token", "T")], body);
    assert_eq!(
        (request.service.as_str(), request.region.as_str(), request.iam_action().as_str()),
        ("ec2", "eu-west-3", "ec2:DescribeInstances")
    );
    assert_eq!(request.protocol, Protocol::Ec2);
    assert_eq!(
        request.credential,
        Some(Credential { access_key: "AKIA1".to_owned(), session_token: Some("T".to_owned()) })
    );
    assert_eq!(request.params.list("InstanceId"), ["i-a", "i-b", "i-c"]);
    assert_eq!(
        request.params.filters(),
        [("tag:a b".to_owned(), vec!["x".to_owned(), "y".to_owned()])]
    );
}

#[test]
fn reads_a_json_call_from_its_target() {
    let auth = AUTH.replace("/ec2/", "/sqs/");
    let headers = [
        ("authorization", auth.as_str()),
        ("x-amz-target", "AmazonSQS.GetQueueUrl"),
        ("content-type", "application/x-amz-json-1.0"),
    ];
    let request = read("POST", "/", &headers, r#"{"QueueName":"q"}"#);
    assert_eq!(
        (request.iam_action().as_str(), request.protocol),
        ("sqs:GetQueueUrl", Protocol::Json(0))
    );
    assert_eq!(request.json["QueueName"], "q");
}

#[test]
fn names_rest_actions_and_splits_the_path_before_decoding_it() {
    let auth = AUTH.replace("/ec2/", "/eks/");
    let path = "/clusters/c1/access-entries/arn%3Aaws%3Aiam%3A%3A1%3Arole%2FNode";
    let request = read("DELETE", path, &[("authorization", &auth)], "");
    assert_eq!(
        (request.action.as_str(), request.protocol),
        ("DeleteAccessEntry", Protocol::RestJson)
    );
    assert_eq!(request.segments()[3], "arn:aws:iam::1:role/Node");
    assert_eq!(read("GET", "/nonsense", &[("authorization", &auth)], "").action, "GET /nonsense");
}

#[test]
fn reads_presigned_and_unsigned_calls() {
    let presigned = "/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Credential=AKIA2%2F20260101%2Feu-west-1%2Fsts%2Faws4_request&X-Amz-Security-Token=T";
    let request = read("GET", presigned, &[], "");
    assert_eq!(
        (request.iam_action().as_str(), request.credential.unwrap().access_key.as_str()),
        ("sts:GetCallerIdentity", "AKIA2")
    );
    let request = read("POST", "/", &[FORM], "Action=AssumeRoleWithWebIdentity&RoleArn=a");
    assert_eq!(
        (request.iam_action().as_str(), request.credential),
        ("sts:AssumeRoleWithWebIdentity", None)
    );
}

#[test]
fn collects_request_tags_of_every_protocol() {
    let body = "Action=CreateFleet&TagSpecification.1.ResourceType=fleet&TagSpecification.1.Tag.1.Key=a&TagSpecification.1.Tag.1.Value=1";
    let request = read("POST", "/", &[("authorization", AUTH), FORM], body);
    assert_eq!(request.request_tags(), [("fleet".to_owned(), "a".to_owned(), "1".to_owned())]);
    let request = read(
        "POST",
        "/",
        &[("content-type", "application/json")],
        r#"{"tags":{"k":"v"},"Tags":[{"Key":"x","Value":"y"}]}"#,
    );
    let none = String::new();
    assert_eq!(
        request.request_tags(),
        [(none.clone(), "k".to_owned(), "v".to_owned()), (none, "x".to_owned(), "y".to_owned())]
    );
}

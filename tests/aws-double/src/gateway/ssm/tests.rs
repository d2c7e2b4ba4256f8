use axum::body::Bytes;
use axum::http::{HeaderMap, Method, Uri};

use super::*;
use crate::clock::Clock;
use crate::gateway::moto_client::MotoClient;

fn request(action: &str, body: &Value) -> AwsRequest {
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-target", format!("AmazonSSM.{action}").parse().unwrap());
    headers.insert("content-type", "application/x-amz-json-1.1".parse().unwrap());
    headers.insert(
        "authorization",
        "AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu-central-1/ssm/aws4_request, SignedHeaders=host, Signature=0".parse().unwrap(),
    );
    AwsRequest::read(
        Method::POST,
        &Uri::from_static("/"),
        headers,
        Bytes::from(body.to_string()),
        "eu-central-1",
    )
}

async fn ask(action: &str, body: Value) -> Result<Value, AwsError> {
    let aws_state = AwsState::new(
        "123456789012",
        "eu-central-1",
        Clock::system(),
        MotoClient::new("http://127.0.0.1:1", "eu-central-1"),
    );
    let (ssm, request) = (Ssm::new(), request(action, &body));
    assert!(ssm.handles(&request));
    let response = ssm.call(&request, None, &aws_state).await?;
    Ok(serde_json::from_slice(&response.body).unwrap())
}

const AL2023: &str =
    "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id";

#[tokio::test]
async fn tells_the_image_of_an_alias() {
    let answer = ask("GetParameter", json!({ "Name": AL2023 })).await.unwrap();
    assert!(answer["Parameter"]["Value"].as_str().unwrap().starts_with("ami-"));
    assert_eq!(answer["Parameter"]["Name"], AL2023);
}

#[tokio::test]
async fn takes_arns_for_names() {
    let arn = format!("arn:aws:ssm:eu-central-1::parameter{AL2023}");
    let answer = ask("GetParameter", json!({ "Name": arn })).await.unwrap();
    assert_eq!(answer["Parameter"]["ARN"], arn);
}

#[tokio::test]
async fn unknown_variants_are_not_found() {
    let name = AL2023.replace("x86_64/standard", "arm64/neuron");
    assert_eq!(
        ask("GetParameter", json!({ "Name": name })).await.unwrap_err().code,
        "ParameterNotFound"
    );
}

#[tokio::test]
async fn tells_found_and_unknown_parameters_apart() {
    let answer =
        ask("GetParameters", json!({ "Names": [AL2023, "/aws/service/bottlerocket/none"] }))
            .await
            .unwrap();
    assert_eq!(answer["Parameters"].as_array().unwrap().len(), 1);
    assert_eq!(answer["InvalidParameters"], json!(["/aws/service/bottlerocket/none"]));
}

#[tokio::test]
async fn lists_a_path_page_by_page() {
    let path = "/aws/service/eks/optimized-ami/1.36";
    let (mut names, mut token) = (Vec::new(), Value::Null);
    loop {
        let mut body = json!({ "Path": path, "Recursive": true, "MaxResults": 4 });
        if !token.is_null() {
            body["NextToken"] = token;
        }
        let answer = ask("GetParametersByPath", body).await.unwrap();
        let page = answer["Parameters"].as_array().unwrap();
        assert!(!page.is_empty() && page.len() <= 4);
        names.extend(page.iter().map(|parameter| parameter["Name"].as_str().unwrap().to_owned()));
        token = answer["NextToken"].clone();
        if token.is_null() {
            break;
        }
    }
    // Five variants, two releases each, and `recommended` for the newer one.
    assert_eq!(names.len(), 15);
    names.dedup();
    assert_eq!(names.len(), 15);
}

#[tokio::test]
async fn not_recursive_means_direct_children_only() {
    let path = AL2023.trim_end_matches("/image_id");
    let answer = ask("GetParametersByPath", json!({ "Path": path })).await.unwrap();
    assert_eq!(answer["Parameters"].as_array().unwrap().len(), 1);
    let answer =
        ask("GetParametersByPath", json!({ "Path": path.trim_end_matches("/recommended") }))
            .await
            .unwrap();
    assert_eq!(answer["Parameters"].as_array().unwrap().len(), 0);
}

#[test]
fn leaves_other_parameters_to_moto() {
    let ssm = Ssm::new();
    for name in ["/my/ami", "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"]
    {
        assert!(!ssm.handles(&request("GetParameter", &json!({ "Name": name }))), "{name}");
    }
    assert!(!ssm.handles(&request("PutParameter", &json!({ "Name": AL2023 }))));
}

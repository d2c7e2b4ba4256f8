//! What is in the account, as kind and id: to prove what an installation made and what it left.

use http::{HeaderMap, HeaderValue, Method, Uri};
use serde_json::{Value, json};
use tenon_aws_double::aws_state::AwsState;
use tenon_aws_double::request::AwsRequest;
use tenon_aws_double::response::AwsError;
use tenon_aws_double::service::Service;
use tenon_aws_double::xml::Element;

use super::aws::Aws;

type Items = Vec<(String, String)>;

/// Lists roles with their policies, instance profiles, policies, identity providers with their
/// audiences, queues, rules, launch templates, instances, tags, access entries and Pod Identity
/// associations.
pub(super) async fn list(aws: &Aws) -> Result<Items, AwsError> {
    let aws_state = aws.gateway().state();
    let mut items = iam(aws_state).await?;
    items.extend(messaging(aws_state).await?);
    items.extend(ec2(aws_state).await?);
    for (path, key, kind) in [
        ("access-entries", "accessEntries", "access entry"),
        ("pod-identity-associations", "associations", "Pod Identity association"),
        ("addons", "addons", "add-on"),
        ("node-groups", "nodegroups", "node group"),
        ("fargate-profiles", "fargateProfileNames", "Fargate profile"),
    ] {
        items.extend(eks(aws, path, key, kind).await?);
    }
    Ok(items)
}

async fn iam(aws_state: &AwsState) -> Result<Items, AwsError> {
    let moto = aws_state.moto();
    let mut items = Items::new();
    let roles = moto.query("iam", "ListRoles", [("MaxItems", "1000")]).await?;
    for role in names(&roles, "ListRolesResult", "Roles", "RoleName") {
        for (action, list, kind) in [
            ("ListRolePolicies", "PolicyNames", "inline policy"),
            ("ListAttachedRolePolicies", "AttachedPolicies", "attached policy"),
        ] {
            let answer = moto.query("iam", action, [("RoleName", role.as_str())]).await?;
            let result = format!("{action}Result");
            let found =
                answer.at(&[result.as_str()]).map(|result| result.items(list)).unwrap_or_default();
            for policy in found {
                let name = policy.get("PolicyName").unwrap_or(&policy.text);
                items.push((kind.to_owned(), format!("{role}/{name}")));
            }
        }
        items.push(("role".to_owned(), role));
    }
    let profiles = moto.query("iam", "ListInstanceProfiles", [("MaxItems", "1000")]).await?;
    let profiles =
        names(&profiles, "ListInstanceProfilesResult", "InstanceProfiles", "InstanceProfileName");
    items.extend(profiles.into_iter().map(|name| ("instance profile".to_owned(), name)));
    let providers = moto.query("iam", "ListOpenIDConnectProviders", []).await?;
    for arn in
        names(&providers, "ListOpenIDConnectProvidersResult", "OpenIDConnectProviderList", "Arn")
    {
        let named = [("OpenIDConnectProviderArn", arn.as_str())];
        let found = moto.query("iam", "GetOpenIDConnectProvider", named).await?;
        let found = found.at(&["GetOpenIDConnectProviderResult"]);
        let audiences = found.map(|found| found.items("ClientIDList")).unwrap_or_default();
        let audiences: Vec<_> = audiences.iter().map(|audience| audience.text.as_str()).collect();
        items.push(("identity provider".to_owned(), format!("{arn} for {}", audiences.join(", "))));
    }
    let policies =
        moto.query("iam", "ListPolicies", [("Scope", "Local"), ("MaxItems", "1000")]).await?;
    let policies = names(&policies, "ListPoliciesResult", "Policies", "PolicyName");
    items.extend(policies.into_iter().map(|name| ("policy".to_owned(), name)));
    Ok(items)
}

fn names(answer: &Element, result: &str, list: &str, name: &str) -> Vec<String> {
    let members = answer.at(&[result]).map(|result| result.items(list)).unwrap_or_default();
    members.iter().filter_map(|member| member.get(name).map(str::to_owned)).collect()
}

async fn messaging(aws_state: &AwsState) -> Result<Items, AwsError> {
    let moto = aws_state.moto();
    let mut items = Items::new();
    let queues = moto.query("sqs", "ListQueues", []).await?;
    let queues = queues
        .at(&["ListQueuesResult"])
        .map(|result| result.children.as_slice())
        .unwrap_or_default();
    items.extend(queues.iter().filter(|it| it.name == "QueueUrl").map(|it| {
        let name = it.text.rsplit('/').next().unwrap_or(&it.text);
        ("queue".to_owned(), name.to_owned())
    }));
    let rules = moto.json("events", "AWSEvents.ListRules", &json!({})).await?;
    items.extend(
        texts(&rules["Rules"], |rule| rule["Name"].as_str()).map(|name| ("rule".to_owned(), name)),
    );
    Ok(items)
}

fn texts(list: &Value, text: impl Fn(&Value) -> Option<&str>) -> impl Iterator<Item = String> {
    let all: Vec<String> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| text(it).map(str::to_owned))
        .collect();
    all.into_iter()
}

async fn ec2(aws_state: &AwsState) -> Result<Items, AwsError> {
    let mut items = Items::new();
    for (id, instance) in
        aws_state.instances().all().iter().filter(|(_, instance)| instance.state.is_alive())
    {
        items.push(("instance".to_owned(), format!("{id} ({})", instance.instance_type)));
    }
    for template in aws_state.templates().all() {
        items.push(("launch template".to_owned(), template.name));
    }
    // Tags of what moto holds: VPCs, subnets, security groups.
    let tags = aws_state.moto().query("ec2", "DescribeTags", []).await?;
    for tag in tags.items("tagSet") {
        let of = |name: &str| tag.get(name).unwrap_or_default().to_owned();
        items.push((
            "tag".to_owned(),
            format!("{} {}={}", of("resourceId"), of("key"), of("value")),
        ));
    }
    Ok(items)
}

/// Asks the EKS double itself, past the gateway's gate: the call is not logged.
async fn eks(aws: &Aws, path: &str, key: &str, kind: &str) -> Result<Items, AwsError> {
    let aws_state = aws.gateway().state();
    let cluster = aws_state.cluster().map(|cluster| cluster.name).unwrap_or_default();
    let uri: Uri = format!("/clusters/{cluster}/{path}").parse().expect("a path of plain letters");
    let mut headers = HeaderMap::new();
    let scope = format!(
        "AWS4-HMAC-SHA256 Credential=BED/20260101/{}/eks/aws4_request, SignedHeaders=host, Signature=0",
        aws_state.region()
    );
    headers.insert("authorization", HeaderValue::from_str(&scope).expect("plain letters"));
    let request =
        AwsRequest::read(Method::GET, &uri, headers, axum::body::Bytes::new(), aws_state.region());
    let answer: Value = match aws.guard().eks.call(&request, None, aws_state).await {
        Ok(answer) => serde_json::from_slice(&answer.body).unwrap_or(Value::Null),
        // Access entries, in a cluster that has none by its authentication mode.
        Err(error) if error.code == "InvalidRequestException" => Value::Null,
        Err(error) => return Err(error),
    };
    let found = texts(&answer[key], |it| it.as_str().or_else(|| it["associationArn"].as_str()));
    Ok(found.map(|id| (kind.to_owned(), id)).collect())
}

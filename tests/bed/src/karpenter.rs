//! Karpenter as its documentation installs it: what it uses in AWS, and the manifests of its chart.
//! It is played by the operator under Karpenter's image.

use http::Method;
use serde_json::{Value, json};
use tenon_iam_policies::controller::controller_policies;
use tenon_iam_policies::{Features, Partition, Scope};

use crate::bed::{ACCOUNT, Bed};
use crate::failure::Failure;

/// The role of its nodes.
pub const NODE_ROLE: &str = "KarpenterNodeRole-bed";
/// Its own role.
pub const ROLE: &str = "bed-karpenter";
/// Its queue.
pub const QUEUE: &str = "bed";
/// The rule that feeds the queue.
pub const RULE: &str = "Karpenter-bed-SpotInterruptionRule";
const IMAGE: &str = "public.ecr.aws/karpenter/controller:1.14.1";

/// The ARN of a role.
pub fn arn(role: &str) -> String {
    format!("arn:aws:iam::{ACCOUNT}:role/{role}")
}

fn trust(service: &str) -> String {
    json!({
        "Version": "2012-10-17",
        "Statement": [{
            "Effect": "Allow",
            "Principal": { "Service": service },
            "Action": ["sts:AssumeRole", "sts:TagSession"],
        }],
    })
    .to_string()
}

/// Makes what the stack of the documentation makes, but for one statement that older versions of
/// it lack.
///
/// # Errors
/// When the AWS double refuses something.
pub async fn in_aws(bed: &Bed) -> Result<(), Failure> {
    let aws = bed.aws()?;
    let caller = aws.caller();
    for (name, service) in [(NODE_ROLE, "ec2.amazonaws.com"), (ROLE, "pods.eks.amazonaws.com")] {
        let trust = trust(service);
        let role = [("RoleName", name), ("AssumeRolePolicyDocument", trust.as_str())];
        caller.query("iam", "CreateRole", &role).await?;
    }
    let scope = Scope {
        partition: Partition::Aws,
        region: bed.region().to_owned(),
        account: ACCOUNT.to_owned(),
        cluster: bed.cluster().to_owned(),
        queue: Some(QUEUE.to_owned()),
        node_roles: vec![arn(NODE_ROLE)],
        features: Features::upstream(),
    };
    for mut policy in controller_policies(&scope) {
        let old =
            |sid: &Option<String>| sid.as_deref() == Some("AllowUnscopedInstanceProfileListAction");
        policy.document.statements.retain(|statement| !old(&statement.sid));
        let (name, document) =
            (format!("{}-{}", policy.part.name(), bed.cluster()), policy.document.to_json());
        let made = [("PolicyName", name.as_str()), ("PolicyDocument", document.as_str())];
        caller.query("iam", "CreatePolicy", &made).await?;
        let policy = format!("arn:aws:iam::{ACCOUNT}:policy/{name}");
        let attached = [("RoleName", ROLE), ("PolicyArn", policy.as_str())];
        caller.query("iam", "AttachRolePolicy", &attached).await?;
    }
    let cluster = format!("/clusters/{}", bed.cluster());
    let association = json!({
        "namespace": "kube-system", "serviceAccount": "karpenter", "roleArn": arn(ROLE),
        "clientRequestToken": "adopt",
    });
    let path = format!("{cluster}/pod-identity-associations");
    caller.rest("eks", Method::POST, &path, &association).await?;
    let entry = json!({ "principalArn": arn(NODE_ROLE), "type": "EC2_LINUX" });
    caller.rest("eks", Method::POST, &format!("{cluster}/access-entries"), &entry).await?;
    let moto = aws.gateway().state().moto();
    moto.json("sqs", "AmazonSQS.CreateQueue", &json!({ "QueueName": QUEUE })).await?;
    let pattern =
        json!({ "source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"] });
    let rule = json!({ "Name": RULE, "EventPattern": pattern.to_string() });
    moto.json("events", "AWSEvents.PutRule", &rule).await?;
    let queue = format!("arn:aws:sqs:{}:{ACCOUNT}:{QUEUE}", bed.region());
    let targets = json!({ "Rule": RULE, "Targets": [{ "Id": "KarpenterInterruptionQueueTarget", "Arn": queue }] });
    moto.json("events", "AWSEvents.PutTargets", &targets).await?;
    Ok(())
}

/// What its chart creates, by the installer's own export: the objects are the same ones. Without
/// any mark, under its image, and with these variables more.
///
/// # Errors
/// When `tenon` can't be run.
pub async fn manifests(bed: &Bed, variables: &[Value]) -> Result<Vec<Value>, Failure> {
    let settings = json!({
        "apiVersion": "tenon.sh/v1alpha1",
        "kind": "Installation",
        "cluster": { "name": bed.cluster(), "region": bed.region() },
        "identity": { "controllerRoleArn": arn(ROLE) },
        "nodes": { "roleName": NODE_ROLE },
        "interruption": { "queueName": QUEUE },
        "network": { "discovery": "ids" },
        "deploy": { "helmRecord": false },
    });
    let file = bed.dir().join("karpenter.yaml");
    std::fs::write(&file, format!("{settings:#}\n"))?;
    let file = file.display().to_string();
    let exported = bed.run_tenon(&["export", "manifests", "-f", &file]).await?;
    if exported.code != 0 {
        return Err(exported.stderr.into());
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(&exported.stdout)?;
    let is_of_chart = |body: &Value| body["kind"] != "Namespace";
    Ok(documents
        .into_iter()
        .filter(is_of_chart)
        .map(|body| of_karpenter(&body, variables))
        .collect())
}

fn of_karpenter(body: &Value, variables: &[Value]) -> Value {
    // Its release has a name of its own.
    let instance = |name: &str| format!(r#""app.kubernetes.io/instance":"{name}""#);
    let text = body.to_string().replace(&instance("tenon"), &instance("karpenter"));
    let mut body: Value = serde_json::from_str(&text).expect("JSON");
    let metadata = body["metadata"].as_object_mut().expect("metadata");
    for section in ["labels", "annotations"] {
        let Some(Value::Object(map)) = metadata.get_mut(section) else { continue };
        map.retain(|key, _| !key.starts_with("tenon.sh/"));
        // The API server drops an empty map, and Argo CD would take that for a difference.
        if map.is_empty() {
            metadata.remove(section);
        }
    }
    match body["kind"].as_str() {
        Some("Deployment") => {
            let container = &mut body["spec"]["template"]["spec"]["containers"][0];
            container["image"] = IMAGE.into();
            let env = container["env"].as_array_mut().expect("variables");
            env.retain(|entry| entry["name"] != "BATCH_MAX_DURATION");
            env.extend(variables.iter().cloned());
        }
        Some("CustomResourceDefinition") => {
            body.as_object_mut().expect("an object").remove("status");
        }
        _ => {}
    }
    body
}

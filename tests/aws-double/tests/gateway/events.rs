use tenon_aws_double::events::Event;

use super::*;

/// Makes a queue and a rule for these detail types that targets it, and returns the queue's URL and
/// ARN and the rule's ARN.
async fn rule(bed: &Bed, name: &str, source: &str, detail_type: &str) -> (String, String, String) {
    let aws = &bed.aws;
    let queue = aws
        .json("sqs", "AmazonSQS.CreateQueue", &json!({ "QueueName": name }))
        .await
        .expect("moto does it");
    let url = queue["QueueUrl"].as_str().expect("text").to_owned();
    let arn = format!("arn:aws:sqs:{REGION}:123456789012:{name}");
    let pattern = json!({ "source": [source], "detail-type": [detail_type] }).to_string();
    let rule = aws
        .json("events", "AWSEvents.PutRule", &json!({ "Name": name, "EventPattern": pattern }))
        .await
        .expect("moto does it");
    let targets = json!({ "Rule": name, "Targets": [{ "Id": "queue", "Arn": arn }] });
    aws.json("events", "AWSEvents.PutTargets", &targets).await.expect("moto does it");
    (url, arn, rule["RuleArn"].as_str().expect("text").to_owned())
}

async fn allow(bed: &Bed, (url, arn, rule): &(String, String, String)) {
    let policy = json!({ "Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Principal": { "Service": "events.amazonaws.com" }, "Action": "sqs:SendMessage", "Resource": arn,
        "Condition": { "ArnEquals": { "aws:SourceArn": rule } },
    }] });
    let body = json!({ "QueueUrl": url, "Attributes": { "Policy": policy.to_string() } });
    bed.aws.json("sqs", "AmazonSQS.SetQueueAttributes", &body).await.expect("moto does it");
}

#[test]
fn an_encrypted_queue_takes_events_only_if_its_key_lets_eventbridge_use_it() {
    on_the_gateway(async |bed| {
        let key = bed.aws.json("kms", "TrentService.CreateKey", &json!({})).await;
        let key = key.expect("moto does it")["KeyMetadata"]["Arn"].clone();
        let queue =
            rule(&bed, "encrypted", "aws.ec2", "EC2 Instance Rebalance Recommendation").await;
        let encrypt = json!({ "QueueUrl": queue.0, "Attributes": { "KmsMasterKeyId": key } });
        bed.aws.json("sqs", "AmazonSQS.SetQueueAttributes", &encrypt).await.expect("moto does it");
        allow(&bed, &queue).await;
        let deliver = async || {
            let event = Event::rebalance(bed.gateway.state(), "i-00000000000000abc");
            let mut deliveries =
                bed.gateway.control().send(&[event]).await.expect("the rules can be read");
            deliveries.remove(0).failure
        };
        let failure = deliver().await.expect("the account's own policy does not name EventBridge");
        assert!(failure.contains("events.amazonaws.com kms:GenerateDataKey"), "{failure}");
        let policy = json!({ "Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Principal": { "Service": "events.amazonaws.com" },
            "Action": ["kms:GenerateDataKey", "kms:Decrypt"], "Resource": "*",
        }] });
        let put = json!({ "KeyId": key, "PolicyName": "default", "Policy": policy.to_string() });
        bed.aws.json("kms", "TrentService.PutKeyPolicy", &put).await.expect("moto does it");
        assert_eq!(deliver().await, None);
        // The key lets nobody else use it now, whatever their own policies say.
        let receive = json!({ "QueueUrl": queue.0 });
        let refused = bed.aws.json("sqs", "AmazonSQS.ReceiveMessage", &receive).await;
        assert_eq!(refused.expect_err("refused").code, "KMS.AccessDeniedException");
        drop_rule(&bed, "encrypted").await;
    });
}

async fn drop_rule(bed: &Bed, name: &str) {
    let aws = &bed.aws;
    aws.json("events", "AWSEvents.RemoveTargets", &json!({ "Rule": name, "Ids": ["queue"] }))
        .await
        .expect("moto does it");
    aws.json("events", "AWSEvents.DeleteRule", &json!({ "Name": name }))
        .await
        .expect("moto does it");
}

/// The next message, waited for as the operator does.
async fn message(bed: &Bed, url: &str) -> Value {
    let body = json!({ "QueueUrl": url, "WaitTimeSeconds": 10, "MaxNumberOfMessages": 1 });
    let answer =
        bed.aws.json("sqs", "AmazonSQS.ReceiveMessage", &body).await.expect("moto does it");
    let message = &answer["Messages"][0];
    let delete = json!({ "QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"] });
    bed.aws.json("sqs", "AmazonSQS.DeleteMessage", &delete).await.expect("moto does it");
    serde_json::from_str(message["Body"].as_str().expect("a message")).expect("an event")
}

#[test]
fn an_interruption_warns_through_the_rules_and_then_ends_the_instance() {
    on_the_gateway(async |bed| {
        let queue =
            rule(&bed, "interruptions", "aws.ec2", "EC2 Spot Instance Interruption Warning").await;
        allow(&bed, &queue).await;
        let template = bed.template("interrupted").await;
        let id = bed.launch(&template, "spot", &["m5.large"], 1).await.remove(0);
        bed.reaches(&id, State::Running).await;
        let (status, outcome) =
            bed.control("POST", "interrupt", json!({ "share": 1.0, "notice": 0.0 })).await;
        assert_eq!((status, &outcome["instances"]), (200, &json!([id])));
        assert_eq!(
            outcome["deliveries"],
            json!([{ "rule": "interruptions", "target": queue.1, "failure": null }])
        );
        let event = message(&bed, &queue.0).await;
        assert_eq!(
            (event["source"].as_str(), event["account"].as_str()),
            (Some("aws.ec2"), Some("123456789012"))
        );
        assert_eq!(event["detail"], json!({ "instance-id": id, "instance-action": "terminate" }));
        bed.reaches(&id, State::Terminated).await;
        assert_eq!(bed.instance(&id).state_reason.unwrap().0, "Server.SpotInstanceTermination");
        drop_rule(&bed, "interruptions").await;
    });
}

#[test]
fn a_queue_whose_policy_does_not_let_eventbridge_in_gets_nothing() {
    on_the_gateway(async |bed| {
        let queue = rule(&bed, "closed", "aws.ec2", "EC2 Instance Rebalance Recommendation").await;
        let template = bed.template("closed").await;
        let id = bed.launch(&template, "spot", &["m5.large"], 1).await.remove(0);
        let rebalance = async || {
            let (_, outcome) = bed.control("POST", "rebalance", json!({ "instances": [id] })).await;
            outcome["deliveries"][0]["failure"].as_str().map(str::to_owned)
        };
        assert!(rebalance().await.expect("not delivered").contains("the policy of the queue"));
        let mut other = queue.clone();
        other.2 = format!("arn:aws:events:{REGION}:123456789012:rule/another");
        allow(&bed, &other).await;
        assert!(rebalance().await.expect("not delivered").contains("does not allow"));
        let body = json!({ "QueueUrl": queue.0, "MaxNumberOfMessages": 1 });
        let answer = bed.aws.json("sqs", "AmazonSQS.ReceiveMessage", &body).await.unwrap();
        assert!(answer["Messages"].as_array().is_none_or(Vec::is_empty), "{answer}");
        allow(&bed, &queue).await;
        assert_eq!(rebalance().await, None);
        drop_rule(&bed, "closed").await;
    });
}

#[test]
fn changes_of_state_are_announced_in_order() {
    on_the_gateway(async |bed| {
        let queue =
            rule(&bed, "changes", "aws.ec2", "EC2 Instance State-change Notification").await;
        allow(&bed, &queue).await;
        let template = bed.template("announced").await;
        let id = bed.launch(&template, "on-demand", &["m5.large"], 1).await.remove(0);
        bed.reaches(&id, State::Running).await;
        bed.gateway.control().terminate(std::slice::from_ref(&id)).unwrap();
        let mut states = Vec::new();
        while states.last().map(String::as_str) != Some("terminated") {
            let event = message(&bed, &queue.0).await;
            if event["detail"]["instance-id"] == json!(id) {
                states.push(event["detail"]["state"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(states, ["pending", "running", "shutting-down", "terminated"]);
        drop_rule(&bed, "changes").await;
    });
}

#[test]
fn maintenance_is_announced_by_aws_health() {
    on_the_gateway(async |bed| {
        let queue = rule(&bed, "health", "aws.health", "AWS Health Event").await;
        allow(&bed, &queue).await;
        let template = bed.template("health").await;
        let id = bed.launch(&template, "on-demand", &["m5.large"], 1).await.remove(0);
        bed.control("POST", "schedule", json!({ "instances": [id] })).await;
        let event = message(&bed, &queue.0).await;
        assert_eq!(
            (event["detail"]["service"].as_str(), event["detail"]["eventTypeCategory"].as_str()),
            (Some("EC2"), Some("scheduledChange"))
        );
        assert_eq!(event["detail"]["affectedEntities"], json!([{ "entityValue": id }]));
        drop_rule(&bed, "health").await;
    });
}

#[test]
fn nobody_can_send_events_in_awss_name() {
    on_the_gateway(async |bed| {
        let entries =
            json!({ "Entries": [{ "Source": "aws.ec2", "DetailType": "x", "Detail": "{}" }] });
        let answer = bed.aws.json("events", "AWSEvents.PutEvents", &entries).await.unwrap();
        assert_eq!(answer["Entries"][0]["ErrorCode"], "NotAuthorizedForSourceException");
    });
}

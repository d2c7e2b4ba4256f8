use tenon_aws_double::faults::{Effect, Fault};

use super::*;

fn fault(action: &str, times: u32, effect: Effect) -> Fault {
    Fault { times: Some(times), ..Fault::new(action, effect) }
}

#[test]
fn throttling_has_the_code_of_each_protocol() {
    on_the_gateway(async |bed| {
        let control = bed.gateway.control();
        control.throttle("*", 0.0, 1.0);
        bed.ec2("DescribeVpcs", &[]).await.expect("the first of the burst");
        let ec2 = bed.ec2("DescribeVpcs", &[]).await.unwrap_err();
        assert_eq!((ec2.code.as_str(), ec2.status), ("RequestLimitExceeded", 503));
        assert_eq!(code(bed.iam("ListRoles", &[]).await), "Throttling");
        let sqs = bed.aws.json("sqs", "AmazonSQS.ListQueues", &json!({})).await.unwrap_err();
        assert_eq!((sqs.code.as_str(), sqs.status), ("ThrottlingException", 400));
        control.heal_all();
        bed.ec2("DescribeVpcs", &[]).await.expect("healed");
    });
}

#[test]
fn errors_hit_the_calls_they_are_for_and_end() {
    on_the_gateway(async |bed| {
        let body = json!({ "action": "iam:List*", "times": 1, "effect": { "error": { "status": 503, "code": "ServiceFailure" } } });
        let (status, added) = bed.control("POST", "faults", body).await;
        assert_eq!(status, 200);
        assert!(bed.ec2("DescribeVpcs", &[]).await.is_ok());
        let error = bed.iam("ListRoles", &[]).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.status), ("ServiceFailure", 503));
        assert!(bed.iam("ListRoles", &[]).await.is_ok());
        let id = added["id"].as_str().unwrap();
        assert_eq!(
            bed.control("DELETE", &format!("faults/{id}"), json!(null)).await.0,
            404,
            "it has ended"
        );
        let (status, answer) =
            bed.control("POST", "faults", json!({ "action": "x", "effekt": 1 })).await;
        assert!(status == 400 && answer["error"].as_str().unwrap().contains("effekt"), "{answer}");
    });
}

#[test]
fn a_dropped_connection_has_no_answer_and_no_effect() {
    on_the_gateway(async |bed| {
        let template = bed.template("dropped").await;
        let fleet = bed.fleet(&template, "on-demand", &["m5.large"], 1);
        // A pooled connection would be tried again by the client.
        bed.gateway.control().fault(fault("ec2:CreateFleet", 3, Effect::Drop));
        let error = bed.send(&fleet).await.unwrap_err();
        assert!(error.message.contains("did not answer"), "{error}");
        assert!(bed.gateway.control().alive().is_empty());
        assert_eq!(bed.gateway.control().calls().of("ec2:CreateFleet").last().unwrap().status, 0);
    });
}

#[test]
fn an_answer_can_get_lost_after_the_launch() {
    on_the_gateway(async |bed| {
        let template = bed.template("lost").await;
        let mut fleet = bed.fleet(&template, "on-demand", &["m5.large"], 1);
        fleet.set("ClientToken", "lost-1");
        bed.gateway.control().fault(fault("ec2:CreateFleet", 3, Effect::DropAnswer));
        assert!(bed.send(&fleet).await.is_err());
        let alive: Vec<String> = bed.gateway.control().alive().into_keys().collect();
        assert_eq!(alive.len(), 1);
        bed.gateway.control().heal_all();
        assert_eq!(
            ids(&bed.send(&fleet).await.unwrap()),
            alive,
            "the repetition finds what was launched"
        );
    });
}

#[test]
fn an_answer_can_be_late() {
    on_the_gateway(async |bed| {
        bed.gateway.control().delay("ec2:DescribeVpcs", Duration::from_millis(300));
        let started = tokio::time::Instant::now();
        bed.ec2("DescribeVpcs", &[]).await.unwrap();
        assert!(started.elapsed() >= Duration::from_millis(300));
    });
}

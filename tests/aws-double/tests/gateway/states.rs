use super::*;

#[test]
fn an_instance_can_be_seen_in_every_state() {
    on_the_gateway(async |bed| {
        let template = bed.template("states").await;
        // Long enough that nothing moves by itself while we look.
        bed.gateway.control().state_times(StateTimes {
            pending: 3600.0,
            stopping: 3600.0,
            shutting_down: 3600.0,
            listed: 3600.0,
        });
        let id = bed.launch(&template, "on-demand", &["m5.large"], 1).await.remove(0);
        let named = [("InstanceId.1", id.as_str())];
        let state = async || {
            let answer = bed.ec2("DescribeInstances", &named).await.unwrap();
            answer
                .at(&["reservationSet", "item", "instancesSet", "item", "instanceState", "name"])
                .unwrap()
                .text
                .clone()
        };
        assert_eq!(state().await, "pending");
        let answer = bed.ec2("TerminateInstances", &named).await.unwrap();
        let change = &answer.items("instancesSet")[0];
        assert_eq!(change.at(&["previousState", "name"]).unwrap().text, "pending");
        assert_eq!(change.at(&["currentState", "name"]).unwrap().text, "shutting-down");
        assert_eq!(state().await, "shutting-down");
        bed.ec2("TerminateInstances", &named).await.expect("again is fine");
        bed.gateway.control().state_times(StateTimes {
            pending: 0.0,
            stopping: 0.0,
            shutting_down: 0.0,
            listed: 3600.0,
        });
        let quick = bed.launch(&template, "on-demand", &["m5.large"], 1).await.remove(0);
        bed.reaches(&quick, State::Running).await;
        bed.ec2("StopInstances", &[("InstanceId.1", &quick)]).await.unwrap();
        bed.reaches(&quick, State::Stopped).await;
        bed.ec2("StartInstances", &[("InstanceId.1", &quick)]).await.unwrap();
        bed.reaches(&quick, State::Running).await;
        bed.ec2("TerminateInstances", &[("InstanceId.1", &quick)]).await.unwrap();
        bed.reaches(&quick, State::Terminated).await;
        assert_eq!(
            code(bed.ec2("StartInstances", &[("InstanceId.1", &quick)]).await),
            "IncorrectInstanceState"
        );
        assert_eq!(
            code(
                bed.ec2(
                    "TerminateInstances",
                    &[("InstanceId.1", &quick), ("InstanceId.2", "i-0123")]
                )
                .await
            ),
            "InvalidInstanceID.NotFound"
        );
    });
}

#[test]
fn status_checks_and_maintenance_are_told_by_filter() {
    on_the_gateway(async |bed| {
        let template = bed.template("status").await;
        let launched = bed.launch(&template, "on-demand", &["m5.large"], 3).await;
        for id in &launched {
            bed.reaches(id, State::Running).await;
        }
        let sick = async |name: &str, value: &str| -> Vec<String> {
            let answer = bed
                .ec2(
                    "DescribeInstanceStatus",
                    &[("Filter.1.Name", name), ("Filter.1.Value.1", value)],
                )
                .await
                .unwrap();
            answer
                .items("instanceStatusSet")
                .iter()
                .filter_map(|item| item.get("instanceId").map(str::to_owned))
                .collect()
        };
        assert!(sick("instance-status.status", "impaired").await.is_empty());
        let body = json!({ "instance": launched[0], "check": "system" });
        assert_eq!(bed.control("POST", "impair", body).await.0, 200);
        let (status, outcome) =
            bed.control("POST", "schedule", json!({ "instances": [launched[1]] })).await;
        assert_eq!((status, &outcome["instances"][0]), (200, &json!(launched[1])));
        assert_eq!(sick("system-status.status", "impaired").await, [launched[0].clone()]);
        assert_eq!(sick("event.code", "instance-retirement").await, [launched[1].clone()]);
    });
}

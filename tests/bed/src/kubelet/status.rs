//! A pod's status from the states of its containers.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::container::{End, Phase, State};

/// What the status is made from.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) init: &'a [State],
    pub(super) main: &'a [State],
    pub(super) address: Option<String>,
    pub(super) host_address: &'a str,
    pub(super) started: Time,
    pub(super) message: Option<String>,
}

/// The status, for a strategic merge patch (conditions of others, such as PodScheduled, stay).
pub(super) fn status(seen: &Seen<'_>, now: &Time, previous: Option<&Value>) -> Value {
    let initialized =
        seen.init.iter().all(|state| matches!(&state.phase, Phase::Ended(end) if end.code == 0));
    let ready = initialized && !seen.main.is_empty() && seen.main.iter().all(|state| state.ready);
    let condition = |type_: &str, holds: bool| {
        let status = if holds { "True" } else { "False" };
        let before = previous
            .and_then(|status| status["conditions"].as_array())
            .and_then(|all| all.iter().find(|it| it["type"] == type_ && it["status"] == status));
        let since = before.map_or_else(|| json!(now), |it| it["lastTransitionTime"].clone());
        json!({ "type": type_, "status": status, "lastTransitionTime": since })
    };
    let containers = |specs: &[Container], states: &[State]| -> Vec<Value> {
        specs.iter().zip(states).map(|(spec, state)| container(spec, state)).collect()
    };
    json!({
        "phase": phase(seen),
        "message": seen.message,
        "hostIP": seen.host_address,
        "hostIPs": [{ "ip": seen.host_address }],
        "podIP": seen.address,
        "podIPs": seen.address.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>(),
        "startTime": seen.started,
        "conditions": [
            condition("PodReadyToStartContainers", seen.address.is_some()),
            condition("Initialized", initialized),
            condition("ContainersReady", ready),
            condition("Ready", ready),
        ],
        "initContainerStatuses": containers(seen.spec.init_containers.as_deref().unwrap_or_default(), seen.init),
        "containerStatuses": containers(&seen.spec.containers, seen.main),
    })
}

fn phase(seen: &Seen<'_>) -> &'static str {
    let ended = |state: &State| match &state.phase {
        Phase::Ended(end) => Some(end.code),
        Phase::Running { .. } | Phase::Waiting { .. } => None,
    };
    if seen.init.iter().any(|state| ended(state).is_some_and(|code| code != 0)) {
        return "Failed";
    }
    let codes: Option<Vec<i32>> = seen.main.iter().map(ended).collect();
    match codes {
        Some(codes) if !codes.is_empty() && codes.iter().all(|code| *code == 0) => "Succeeded",
        Some(codes) if !codes.is_empty() => "Failed",
        _ if seen
            .main
            .iter()
            .any(|state| state.last.is_some() || !matches!(state.phase, Phase::Waiting { .. })) =>
        {
            "Running"
        }
        _ => "Pending",
    }
}

fn container(spec: &Container, state: &State) -> Value {
    let current = match &state.phase {
        Phase::Waiting { reason, message } => {
            json!({ "waiting": { "reason": reason, "message": message } })
        }
        Phase::Running { since } => json!({ "running": { "startedAt": seconds(*since) } }),
        Phase::Ended(end) => ended(end),
    };
    json!({
        "name": spec.name,
        "image": spec.image,
        "imageID": "",
        "ready": state.ready,
        "started": state.started,
        "restartCount": state.restarts,
        "state": current,
        "lastState": state.last.as_ref().map_or_else(|| json!({}), ended),
    })
}

fn ended(end: &End) -> Value {
    json!({ "terminated": {
        "exitCode": end.code, "reason": end.reason, "message": end.message, "startedAt": seconds(end.started), "finishedAt": seconds(end.finished),
    } })
}

fn seconds(at: jiff::Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(at.as_second()).unwrap_or(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(phase: Phase, ready: bool) -> State {
        State { phase, ready, ..State::default() }
    }

    fn end(code: i32) -> Phase {
        let at = jiff::Timestamp::UNIX_EPOCH;
        Phase::Ended(End { code, reason: "", message: String::new(), started: at, finished: at })
    }

    fn running() -> Phase {
        Phase::Running { since: jiff::Timestamp::UNIX_EPOCH }
    }

    fn of(init: &[State], main: &[State]) -> Value {
        let container = |name: &str| Container { name: name.to_owned(), ..Default::default() };
        let spec = PodSpec {
            init_containers: Some(init.iter().map(|_| container("init")).collect()),
            containers: main.iter().map(|_| container("main")).collect(),
            ..Default::default()
        };
        let started = Time(jiff::Timestamp::UNIX_EPOCH);
        let seen = Seen {
            spec: &spec,
            init,
            main,
            address: None,
            host_address: "h",
            started: started.clone(),
            message: None,
        };
        status(&seen, &started, None)
    }

    #[test]
    fn a_pod_is_ready_when_all_containers_are() {
        let ready = |status: &Value| status["conditions"][3]["status"].clone();
        assert_eq!(ready(&of(&[], &[state(running(), true), state(running(), true)])), "True");
        assert_eq!(ready(&of(&[], &[state(running(), true), state(running(), false)])), "False");
        assert_eq!(ready(&of(&[State::default()], &[state(running(), true)])), "False");
    }

    #[test]
    fn the_phase_follows_the_containers() {
        assert_eq!(of(&[], &[State::default()])["phase"], "Pending");
        assert_eq!(of(&[], &[state(running(), false), State::default()])["phase"], "Running");
        assert_eq!(of(&[], &[state(end(0), false)])["phase"], "Succeeded");
        assert_eq!(of(&[], &[state(end(0), false), state(end(1), false)])["phase"], "Failed");
        assert_eq!(of(&[state(end(2), false)], &[State::default()])["phase"], "Failed");
    }
}

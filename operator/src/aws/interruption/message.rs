//! Messages of the interruption queue: EventBridge events about instances. Pure.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A spot instance will be taken back in two minutes.
    SpotInterrupted,
    /// A spot instance is likely to be taken back.
    RebalanceRecommendation,
    /// AWS will do something to the machine.
    ScheduledChange,
    /// State change to `stopping` or `stopped`.
    InstanceStopped,
    /// State change to `shutting-down` or `terminated`.
    InstanceTerminated,
    /// The instance's reservation is taken back.
    CapacityReservationInterrupted,
    /// The instance fails its own status checks.
    InstanceStatus,
    /// The instance's host fails its status checks.
    SystemStatus,
    /// AWS has scheduled something for the instance.
    EventStatus,
    /// Nothing to do with us.
    NoOp,
}

impl Kind {
    /// Those that messages are of; the others come from EC2's status checks.
    pub(super) const OF_MESSAGES: [Self; 7] = [
        Self::SpotInterrupted,
        Self::RebalanceRecommendation,
        Self::ScheduledChange,
        Self::InstanceStopped,
        Self::InstanceTerminated,
        Self::CapacityReservationInterrupted,
        Self::NoOp,
    ];

    /// Label of metrics, reason of disruptions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SpotInterrupted => "spot_interrupted",
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::ScheduledChange => "scheduled_change",
            Self::InstanceStopped => "instance_stopped",
            Self::InstanceTerminated => "instance_terminated",
            Self::CapacityReservationInterrupted => "capacity_reservation_interrupted",
            Self::InstanceStatus => "instance_status",
            Self::SystemStatus => "system_status",
            Self::EventStatus => "event_status",
            Self::NoOp => "no_op",
        }
    }

    /// How long after the event AWS takes the machine, if it says so.
    pub(super) fn notice(self) -> Option<SignedDuration> {
        matches!(self, Self::SpotInterrupted).then_some(SignedDuration::from_mins(2))
    }

    /// Whether its machines are beyond draining: nothing on them is waited for.
    pub(crate) fn is_forceful(self) -> bool {
        matches!(self, Self::InstanceStatus | Self::SystemStatus)
    }

    /// Whether its machines have to be drained.
    pub fn drains(self) -> bool {
        !matches!(self, Self::RebalanceRecommendation | Self::NoOp)
    }
}

/// A message that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is about.
    pub kind: Kind,
    /// Ids of the affected instances.
    pub instances: Vec<String>,
    /// When the event happened.
    pub time: Option<Timestamp>,
}

/// A message that is no event.
#[derive(Debug, thiserror::Error)]
#[error("the message is not an EventBridge event: {0}")]
pub struct NotAnEvent(#[from] serde_json::Error);

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Envelope {
    #[serde(default)]
    version: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    detail_type: String,
    time: Option<Timestamp>,
    #[serde(default)]
    detail: Value,
}

/// Understands the `detail` of one kind of event; `None` when it is not for us.
type Parser = fn(Value) -> Result<Option<(Kind, Vec<String>)>, serde_json::Error>;

/// Which parser is for which version, source and detail type.
const PARSERS: &[(&str, &str, &str, Parser)] = &[
    ("0", "aws.ec2", "EC2 Spot Instance Interruption Warning", |detail| {
        of_instance(detail, Kind::SpotInterrupted)
    }),
    ("0", "aws.ec2", "EC2 Instance Rebalance Recommendation", |detail| {
        of_instance(detail, Kind::RebalanceRecommendation)
    }),
    ("0", "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", |detail| {
        of_instance(detail, Kind::CapacityReservationInterrupted)
    }),
    ("0", "aws.ec2", "EC2 Instance State-change Notification", state_change),
    ("0", "aws.health", "AWS Health Event", health),
];

/// Reads a message's body.
pub fn parse(body: &str) -> Result<Message, NotAnEvent> {
    let nothing = |time| Message { kind: Kind::NoOp, instances: Vec::new(), time };
    if body.is_empty() {
        return Ok(nothing(None));
    }
    let Envelope { version, source, detail_type, time, detail } = serde_json::from_str(body)?;
    let parser = PARSERS.iter().find(|(known_version, known_source, known_type, _)| {
        *known_version == version && *known_source == source && *known_type == detail_type
    });
    let Some((_, _, _, parser)) = parser else { return Ok(nothing(time)) };
    Ok(match parser(detail)? {
        Some((kind, instances)) => Message { kind, instances, time },
        None => nothing(time),
    })
}

fn of_instance(
    detail: Value,
    kind: Kind,
) -> Result<Option<(Kind, Vec<String>)>, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Detail {
        instance_id: String,
    }
    let detail: Detail = serde_json::from_value(detail)?;
    Ok(Some((kind, vec![detail.instance_id])))
}

fn state_change(detail: Value) -> Result<Option<(Kind, Vec<String>)>, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Detail {
        instance_id: String,
        state: String,
    }
    let Detail { instance_id, state } = serde_json::from_value(detail)?;
    if !["stopping", "stopped", "shutting-down", "terminated"]
        .contains(&state.to_lowercase().as_str())
    {
        return Ok(None);
    }
    // As upstream: the acceptance ignores case, the kind does not.
    let kind = match state.as_str() {
        "stopping" | "stopped" => Kind::InstanceStopped,
        _ => Kind::InstanceTerminated,
    };
    Ok(Some((kind, vec![instance_id])))
}

fn health(detail: Value) -> Result<Option<(Kind, Vec<String>)>, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Detail {
        #[serde(default)]
        service: String,
        #[serde(default)]
        event_type_category: String,
        #[serde(default)]
        affected_entities: Vec<Entity>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entity {
        #[serde(default)]
        entity_value: String,
    }
    let detail: Detail = serde_json::from_value(detail)?;
    if detail.service != "EC2" || detail.event_type_category != "scheduledChange" {
        return Ok(None);
    }
    let instances = detail.affected_entities.into_iter().map(|entity| entity.entity_value);
    Ok(Some((Kind::ScheduledChange, instances.collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(source: &str, detail_type: &str, detail: &str) -> String {
        format!(
            r#"{{"version":"0","id":"x","detail-type":"{detail_type}","source":"{source}","account":"1",
            "time":"2026-01-01T00:00:00Z","region":"us-west-2","resources":[],"detail":{detail}}}"#
        )
    }

    fn parsed(source: &str, detail_type: &str, detail: &str) -> (Kind, Vec<String>) {
        let message = parse(&event(source, detail_type, detail)).unwrap();
        assert_eq!(message.time, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert!(Kind::OF_MESSAGES.contains(&message.kind), "{:?}", message.kind);
        (message.kind, message.instances)
    }

    #[test]
    fn understands_every_kind_of_event() {
        let one = vec!["i-1".to_owned()];
        let action = r#"{"instance-id":"i-1","instance-action":"terminate"}"#;
        let ec2 = |detail_type: &str, detail: &str| parsed("aws.ec2", detail_type, detail);
        assert_eq!(
            ec2("EC2 Spot Instance Interruption Warning", action),
            (Kind::SpotInterrupted, one.clone())
        );
        assert_eq!(
            ec2("EC2 Instance Rebalance Recommendation", r#"{"instance-id":"i-1"}"#),
            (Kind::RebalanceRecommendation, one.clone())
        );
        assert_eq!(
            ec2("EC2 Capacity Reservation Instance Interruption Warning", action),
            (Kind::CapacityReservationInterrupted, one.clone())
        );
        let state = |state: &str| {
            let detail = format!(r#"{{"instance-id":"i-1","state":"{state}"}}"#);
            ec2("EC2 Instance State-change Notification", &detail)
        };
        assert_eq!(state("stopping"), (Kind::InstanceStopped, one.clone()));
        assert_eq!(state("stopped"), (Kind::InstanceStopped, one.clone()));
        assert_eq!(state("shutting-down"), (Kind::InstanceTerminated, one.clone()));
        assert_eq!(state("terminated"), (Kind::InstanceTerminated, one.clone()));
        assert_eq!(state("Stopped"), (Kind::InstanceTerminated, one));
        assert_eq!(state("running"), (Kind::NoOp, vec![]));
        let health = |service: &str, category: &str| {
            let detail = format!(
                r#"{{"eventArn":"a","service":"{service}","eventTypeCode":"c","eventTypeCategory":"{category}",
                "startTime":"s","endTime":"e","eventDescription":[{{"language":"en_US","latestDescription":"d"}}],
                "affectedEntities":[{{"entityValue":"i-1"}},{{"entityValue":"i-2"}}]}}"#
            );
            parsed("aws.health", "AWS Health Event", &detail)
        };
        assert_eq!(
            health("EC2", "scheduledChange"),
            (Kind::ScheduledChange, vec!["i-1".to_owned(), "i-2".to_owned()])
        );
        assert_eq!(health("EC2", "issue").0, Kind::NoOp);
        assert_eq!(health("RDS", "scheduledChange").0, Kind::NoOp);
    }

    #[test]
    fn what_is_not_known_is_no_op() {
        assert_eq!(parse("").unwrap().kind, Kind::NoOp);
        assert_eq!(parse("{}").unwrap().kind, Kind::NoOp);
        assert_eq!(parsed("aws.ec2", "Something New", "{}").0, Kind::NoOp);
        let newer = event("aws.ec2", "EC2 Instance Rebalance Recommendation", "{}")
            .replace(r#""version":"0""#, r#""version":"1""#);
        assert_eq!(parse(&newer).unwrap().kind, Kind::NoOp);
    }

    #[test]
    fn what_is_no_event_is_an_error() {
        assert!(parse("not json").is_err());
        assert!(parse("[]").is_err());
        let no_instance = event("aws.ec2", "EC2 Spot Instance Interruption Warning", "{}");
        assert!(parse(&no_instance).is_err());
    }
}

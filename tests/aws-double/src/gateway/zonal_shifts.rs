//! AWS Application Recovery Controller (ARC): which zones the traffic of the bed's cluster is moved
//! away from. moto does not have it.
//!
//! The cluster is a managed resource of ARC while EKS says so (`zonalShiftConfig`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::aws_state::AwsState;
use super::eks::Eks;
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};
use super::shifts::{By, ZonalShift};

/// The longest that a shift may be asked for.
const LONGEST: SignedDuration = SignedDuration::from_hours(72);

/// The names and IDs of the region's zones.
pub async fn zones(aws_state: &AwsState) -> Result<BTreeMap<String, String>, AwsError> {
    let answer = aws_state.moto().query("ec2", "DescribeAvailabilityZones", []).await?;
    let zones = answer.items("availabilityZoneInfo").iter();
    let names = zones.filter_map(|zone| {
        Some((zone.get("zoneName")?.to_owned(), zone.get("zoneId")?.to_owned()))
    });
    Ok(names.collect())
}

/// The service.
#[derive(Debug)]
pub(crate) struct RecoveryController {
    eks: Arc<Eks>,
}

impl RecoveryController {
    /// For the cluster that EKS registers with it, or not.
    pub(crate) const fn new(eks: Arc<Eks>) -> Self {
        Self { eks }
    }

    /// The cluster's ARN and name, if this names it and ARC manages it.
    fn managed(
        &self,
        identifier: &str,
        aws_state: &AwsState,
    ) -> Result<(String, String), AwsError> {
        let cluster = aws_state.cluster().map(|cluster| cluster.name).unwrap_or_default();
        let arn = aws_state.arn("eks", &format!("cluster/{cluster}"));
        if identifier == arn && self.eks.has_zonal_shift() {
            Ok((arn, cluster))
        } else {
            let message = format!("The resource {identifier} is not a managed resource.");
            Err(AwsError::new("ResourceNotFoundException", message))
        }
    }

    async fn get(&self, identifier: &str, aws_state: &AwsState) -> Result<Value, AwsError> {
        let (arn, name) = self.managed(identifier, aws_state)?;
        let active = aws_state.zonal_shifts().active(aws_state.clock().now());
        let of_person = active.iter().find(|shift| shift.by == By::Person);
        let applied = of_person.or_else(|| active.first());
        let weights: BTreeMap<String, f32> = zones(aws_state)
            .await?
            .into_values()
            .map(|id| {
                let is_left = applied.is_some_and(|shift| shift.away_from == id);
                (id, if is_left { 0.0 } else { 1.0 })
            })
            .collect();
        let status = |shift: &ZonalShift| match applied {
            Some(applied) if applied.id == shift.id => "APPLIED",
            _ => "NOT_APPLIED",
        };
        let of = |by: By| active.iter().filter(move |shift| shift.by == by);
        let shifts: Vec<Value> = of(By::Person)
            .map(|shift| {
                json!({
                    "appliedStatus": status(shift),
                    "zonalShiftId": shift.id,
                    "resourceIdentifier": arn,
                    "awayFrom": shift.away_from,
                    "startTime": shift.started.as_second(),
                    "expiryTime": shift.expires.map(Timestamp::as_second),
                    "comment": shift.comment,
                    "shiftType": "ZONAL_SHIFT",
                })
            })
            .collect();
        let autoshifts: Vec<Value> = of(By::Autoshift)
            .map(|shift| {
                json!({
                    "appliedStatus": status(shift),
                    "awayFrom": shift.away_from,
                    "startTime": shift.started.as_second(),
                })
            })
            .collect();
        Ok(json!({
            "arn": arn,
            "name": name,
            "appliedWeights": weights,
            "zonalShifts": shifts,
            "autoshifts": autoshifts,
            "zonalAutoshiftStatus": "ENABLED",
        }))
    }

    async fn start(&self, body: &Value, aws_state: &AwsState) -> Result<Value, AwsError> {
        let text = |field: &str| body[field].as_str().unwrap_or_default();
        let (arn, _) = self.managed(text("resourceIdentifier"), aws_state)?;
        let away_from = text("awayFrom");
        if !zones(aws_state).await?.values().any(|id| id == away_from) {
            return Err(invalid("INVALID_AWAY_FROM", "awayFrom is not the ID of a zone."));
        }
        let lasts = duration(text("expiresIn")).ok_or_else(|| {
            invalid("INVALID_EXPIRES_IN", "expiresIn is not 1m to 72h, in minutes or hours.")
        })?;
        let now = aws_state.clock().now();
        let mut active = aws_state.zonal_shifts().active(now).into_iter();
        if let Some(other) = active.find(|shift| shift.by == By::Person) {
            let message = "There is already an active zonal shift for the resource.";
            return Err(AwsError::new("ConflictException", message)
                .with_status(409)
                .with_field("reason", "ZonalShiftAlreadyExists")
                .with_field("zonalShiftId", other.id));
        }
        let id = aws_state.zonal_shifts().start(away_from, Some(lasts), text("comment"), now);
        let made = aws_state.zonal_shifts().all().into_iter().find(|shift| shift.id == id);
        Ok(made.map_or(Value::Null, |shift| shift.described(&arn, now)))
    }

    fn cancel(id: &str, aws_state: &AwsState) -> Result<Value, AwsError> {
        let now = aws_state.clock().now();
        let cluster = aws_state.cluster().map(|cluster| cluster.name).unwrap_or_default();
        let arn = aws_state.arn("eks", &format!("cluster/{cluster}"));
        let mut active = aws_state.zonal_shifts().active(now).into_iter();
        // Only AWS ends its autoshifts.
        if !active.any(|shift| shift.id == id && shift.by == By::Person) {
            let message = format!("There is no active zonal shift {id}.");
            return Err(AwsError::new("ResourceNotFoundException", message));
        }
        let shift = aws_state.zonal_shifts().cancel(id, now);
        Ok(shift.map_or(Value::Null, |shift| shift.described(&arn, now)))
    }

    fn list(aws_state: &AwsState) -> Value {
        let now = aws_state.clock().now();
        let cluster = aws_state.cluster().map(|cluster| cluster.name).unwrap_or_default();
        let arn = aws_state.arn("eks", &format!("cluster/{cluster}"));
        let all = aws_state.zonal_shifts().all();
        let of_people = all.iter().filter(|shift| shift.by == By::Person);
        let items: Vec<Value> = of_people.map(|shift| shift.described(&arn, now)).collect();
        json!({ "items": items })
    }
}

/// `90m` or `2h`.
fn duration(text: &str) -> Option<SignedDuration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: i64 = number.parse().ok()?;
    let lasts = match unit {
        "m" => SignedDuration::from_mins(number),
        "h" if number <= 72 => SignedDuration::from_hours(number),
        _ => return None,
    };
    (SignedDuration::from_mins(1)..=LONGEST).contains(&lasts).then_some(lasts)
}

fn invalid(reason: &str, message: &str) -> AwsError {
    AwsError::new("ValidationException", message).with_field("reason", reason)
}

impl Service for RecoveryController {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "arc-zonal-shift"
    }

    async fn call(
        &self,
        request: &AwsRequest,
        _caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let named = request.segments().get(1).cloned().unwrap_or_default();
        let answer = match request.action.as_str() {
            "GetManagedResource" => self.get(&named, aws_state).await?,
            "StartZonalShift" => {
                let body = self.start(&request.json, aws_state).await?;
                return Ok(AwsResponse { status: 201, ..AwsResponse::json(request, &body) });
            }
            "CancelZonalShift" => Self::cancel(&named, aws_state)?,
            "ListZonalShifts" => Self::list(aws_state),
            _ => return Err(AwsError::not_implemented(request)),
        };
        Ok(AwsResponse::json(request, &answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_minutes_or_hours_up_to_three_days() {
        let minutes = |text| duration(text).map(|lasts| lasts.as_mins());
        assert_eq!(minutes("1m"), Some(1));
        assert_eq!(minutes("2h"), Some(120));
        assert_eq!(minutes("72h"), Some(72 * 60));
        for bad in ["", "m", "0m", "73h", "4321m", "5", "5d", "-5m", "5ä"] {
            assert_eq!(minutes(bad), None, "{bad:?}");
        }
    }
}

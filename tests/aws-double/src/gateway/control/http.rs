//! The control as JSON over HTTP, under `/_bed/`.
//!
//! `GET`: `instances`, `calls` (`?action=ec2:CreateFleet`, `?failed=true`), `counts`, `faults`,
//! `zonal-shifts`, `consistency`, `times`. `POST`: `faults` ([`Fault`]), `ice` ([`Shortage`]),
//! `price`, `zonal-shifts`, `interrupt`, `rebalance`, `reclaim`, `schedule`, `terminate`, `stop`,
//! `impair`, `events` ([`Event`]), `consistency` ([`Delays`]), `times` ([`StateTimes`]). `DELETE`:
//! `faults`, `faults/ID`, `zonal-shifts/ID`, `calls`.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::consistency::Delays;
use super::super::events::Event;
use super::super::faults::{Fault, Shortage};
use super::super::instances::StateTimes;
use super::super::prices::{CapacityType, MicroUsd};
use super::super::request::Params;
use super::super::reservations::Reservation;
use super::{Check, Control, ControlError, Selection};

/// The beginning of the control's paths.
pub(in super::super) const PREFIX: &str = "/_bed/";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Price {
    instance_type: String,
    #[serde(default)]
    zone: Option<String>,
    capacity_type: CapacityType,
    /// USD per hour.
    dollars: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Shifted {
    /// The zone's name or ID.
    away_from: String,
    /// How long it lasts; an autoshift lasts until it is cancelled.
    #[serde(default)]
    seconds: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Chosen {
    #[serde(default)]
    instances: Option<Vec<String>>,
    #[serde(default)]
    share: Option<f64>,
    /// Seconds of notice.
    #[serde(default)]
    notice: Option<f64>,
    /// AWS Health's event type code.
    #[serde(default)]
    code: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Impaired {
    instance: String,
    check: Check,
    #[serde(default)]
    healthy: bool,
}

enum Failure {
    /// The body isn't what the route takes.
    Body(serde_json::Error),
    Control(ControlError),
    NoRoute,
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

pub(in super::super) async fn answer(
    control: &Control,
    method: &Method,
    path: &str,
    params: &Params,
    body: &[u8],
) -> Response<Bytes> {
    let (status, value) =
        match route(control, method, path.strip_prefix(PREFIX).unwrap_or(path), params, body).await
        {
            Ok(value) => (200, value),
            Err(Failure::Body(error)) => {
                (400, json!({ "error": format!("the body is not valid: {error}") }))
            }
            Err(Failure::Control(error)) => {
                let status = if matches!(error, ControlError::Events(_) | ControlError::Zones(_)) {
                    502
                } else {
                    404
                };
                let cause = std::error::Error::source(&error)
                    .map(|cause| format!(": {cause}"))
                    .unwrap_or_default();
                (status, json!({ "error": format!("{error}{cause}") }))
            }
            Err(Failure::NoRoute) => {
                (404, json!({ "error": format!("the control has no {method} {path}") }))
            }
        };
    let mut response = Response::new(Bytes::from(value.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}

async fn route(
    control: &Control,
    method: &Method,
    path: &str,
    params: &Params,
    body: &[u8],
) -> Result<Value, Failure> {
    let aws_state = control.state();
    Ok(match (method.as_str(), path) {
        ("GET", "instances") => {
            let all = aws_state.instances().all();
            to_json(&all.values().map(AsRef::as_ref).collect::<Vec<_>>())
        }
        ("GET", "calls") => {
            let mut calls = control.calls().all();
            if let Some(action) = params.get("action") {
                calls.retain(|call| super::super::policy::glob(action, &call.action));
            }
            if params.get("failed") == Some("true") {
                calls.retain(|call| call.error.is_some() || call.status == 0);
            }
            to_json(&calls)
        }
        ("DELETE", "calls") => {
            control.calls().clear();
            done()
        }
        ("GET", "counts") => to_json(&control.calls().counts()),
        ("GET", "faults") => {
            json!({ "faults": aws_state.faults().rules(), "shortages": aws_state.faults().shortages() })
        }
        ("POST", "faults") => json!({ "id": control.fault(read::<Fault>(body)?) }),
        ("POST", "ice") => json!({ "id": control.ice(read::<Shortage>(body)?) }),
        ("DELETE", "faults") => {
            control.heal_all();
            done()
        }
        ("DELETE", other) if other.starts_with("faults/") => {
            control.heal(other.trim_start_matches("faults/"))?;
            done()
        }
        ("POST", "reservations") => {
            json!({ "id": control.reserve(read::<Reservation>(body)?) })
        }
        ("DELETE", other) if other.starts_with("reservations/") => {
            control.cancel_reservation(other.trim_start_matches("reservations/"))?;
            done()
        }
        ("GET", "zonal-shifts") => {
            to_json(&aws_state.zonal_shifts().active(aws_state.clock().now()))
        }
        ("POST", "zonal-shifts") => {
            let shifted: Shifted = read(body)?;
            let lasts = shifted
                .seconds
                .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
            json!({ "id": control.shift_away(&shifted.away_from, lasts).await? })
        }
        ("DELETE", other) if other.starts_with("zonal-shifts/") => {
            control.cancel_shift(other.trim_start_matches("zonal-shifts/"))?;
            done()
        }
        ("POST", "price") => {
            let price: Price = read(body)?;
            control.price(
                &price.instance_type,
                price.zone.as_deref().unwrap_or("*"),
                price.capacity_type,
                MicroUsd::dollars(price.dollars),
            );
            done()
        }
        ("POST", "interrupt") => {
            let chosen: Chosen = read(body)?;
            let notice = chosen
                .notice
                .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
            to_json(&control.interrupt(selection(chosen), notice).await?)
        }
        ("POST", "rebalance") => to_json(&control.rebalance(selection(read(body)?)).await?),
        ("POST", "reclaim") => to_json(&control.reclaim(selection(read(body)?)).await?),
        ("POST", "schedule") => {
            let chosen: Chosen = read(body)?;
            let code = chosen
                .code
                .clone()
                .unwrap_or_else(|| "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED".to_owned());
            to_json(&control.schedule(selection(chosen), &code).await?)
        }
        ("POST", "terminate") => {
            control.terminate(&read::<Chosen>(body)?.instances.unwrap_or_default())?;
            done()
        }
        ("POST", "stop") => {
            control.stop(&read::<Chosen>(body)?.instances.unwrap_or_default())?;
            done()
        }
        ("POST", "impair") => {
            let impaired: Impaired = read(body)?;
            control.impair(&impaired.instance, impaired.check, impaired.healthy)?;
            done()
        }
        ("POST", "events") => to_json(&control.send(&[read::<Event>(body)?]).await?),
        ("GET", "consistency") => to_json(&aws_state.consistency().delays()),
        ("POST", "consistency") => {
            control.consistency(read::<Delays>(body)?);
            done()
        }
        ("GET", "times") => to_json(&aws_state.instances().times()),
        ("POST", "times") => {
            control.state_times(read::<StateTimes>(body)?);
            done()
        }
        _ => return Err(Failure::NoRoute),
    })
}

fn selection(chosen: Chosen) -> Selection {
    match (chosen.instances, chosen.share) {
        (Some(instances), _) => Selection::Instances(instances),
        (None, share) => Selection::Share(share.unwrap_or(0.0)),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(Failure::Body)
}

fn to_json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

fn done() -> Value {
    json!({})
}

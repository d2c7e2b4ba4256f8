//! The control of the double: faults, prices, interruptions, time and logs, typed for tests and as
//! JSON under `/_bed/` for the `sandbox` verbs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::aws_state::AwsState;
use super::calls::CallLog;
use super::consistency::Delays;
use super::events::{Delivery, Event, emit};
use super::faults::{Effect, Fault, Shortage};
use super::instance::{Instance, ScheduledEvent, State};
use super::instances::StateTimes;
use super::prices::{CapacityType, MicroUsd};
use super::reservations::Reservation;
use super::response::AwsError;
use super::rewrite::Rewrite;
use super::zonal_shifts::zones;

pub(super) mod http;

/// Seconds between a spot interruption's warning and the end of the instance, in AWS.
const NOTICE: f64 = 120.0;

/// Which instances something happens to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Selection {
    /// These.
    Instances(Vec<String>),
    /// This share (0 to 1) of the spot instances that run, at least one, chosen by the seeded
    /// source.
    Share(f64),
}

/// What an interruption did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The instances that it was about.
    pub instances: Vec<String>,
    /// What became of the events at each rule that matched; empty when no rule did.
    pub deliveries: Vec<Delivery>,
}

/// A status check of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Check {
    /// The instance's own.
    Instance,
    /// The machine's under it.
    System,
}

/// The control is asked for something that isn't there or didn't work.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// An unknown instance.
    #[error("there is no instance {0}")]
    NoInstance(String),
    /// A share of no instances.
    #[error("no spot instance is running")]
    NoSpotInstance,
    /// An unknown capacity reservation.
    #[error("there is no capacity reservation {0}")]
    NoReservation(String),
    /// An unknown zone.
    #[error("the region has no zone {zone}; it has {}", .known.join(", "))]
    NoZone {
        /// What was asked for.
        zone: String,
        /// Names of those that there are.
        known: Vec<String>,
    },
    /// An unknown zonal shift, or one that has ended.
    #[error("there is no active zonal shift {0}")]
    NoZonalShift(String),
    /// moto does not tell its zones.
    #[error("the zones of the region are not known")]
    Zones(#[source] AwsError),
    /// An unknown fault.
    #[error("there is no fault {0}")]
    NoFault(String),
    /// Events could not be sent.
    #[error("events could not be sent")]
    Events(#[source] AwsError),
}

/// The handle of the control. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    aws_state: Arc<AwsState>,
    calls: Arc<CallLog>,
    /// Interruptions that will end their instances.
    tasks: Arc<Mutex<JoinSet<()>>>,
    rng: Arc<Mutex<StdRng>>,
}

impl Control {
    pub(super) fn new(aws_state: Arc<AwsState>, calls: Arc<CallLog>, seed: u64) -> Self {
        Self {
            aws_state,
            calls,
            tasks: Arc::default(),
            rng: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))),
        }
    }

    /// The state of the double.
    pub fn state(&self) -> &Arc<AwsState> {
        &self.aws_state
    }

    /// The call log.
    pub fn calls(&self) -> &CallLog {
        &self.calls
    }

    /// Instances that are neither terminated nor on the way to it.
    pub fn alive(&self) -> BTreeMap<String, Arc<Instance>> {
        let all = self.aws_state.instances().all();
        all.iter()
            .filter(|(_, instance)| instance.state.is_alive())
            .map(|(id, instance)| (id.clone(), Arc::clone(instance)))
            .collect()
    }

    /// Adds a fault; returns its ID.
    pub fn fault(&self, fault: Fault) -> String {
        self.aws_state.faults().add(fault)
    }

    /// Fails the next `times` calls of an action (wildcards allowed) with an error; `None`: all of
    /// them.
    pub fn fail(&self, action: &str, times: Option<u32>, status: u16, code: &str) -> String {
        let effect = Effect::Error {
            status,
            code: code.to_owned(),
            message: "set by the test bed".to_owned(),
        };
        self.fault(Fault { times, ..Fault::new(action, effect) })
    }

    /// Throttles an action to so many calls per second, after `burst` at once.
    pub fn throttle(&self, action: &str, per_second: f64, burst: f64) -> String {
        let effect = Effect::Throttle { per_second, burst };
        self.fault(Fault::new(action, effect))
    }

    /// Answers an action later.
    pub fn delay(&self, action: &str, delay: Duration) -> String {
        let effect = Effect::Latency { seconds: delay.as_secs_f64() };
        self.fault(Fault::new(action, effect))
    }

    /// Changes the answers of an action; returns the rule's ID.
    pub fn rewrite(&self, action: &str, rewrite: Rewrite) -> String {
        self.fault(Fault::new(action, Effect::Rewrite(rewrite)))
    }

    /// Takes capacity away; returns the ID of the shortage.
    pub fn ice(&self, shortage: Shortage) -> String {
        self.aws_state.faults().add_shortage(shortage)
    }

    /// Ends one fault or shortage.
    pub fn heal(&self, id: &str) -> Result<(), ControlError> {
        if self.aws_state.faults().remove(id) {
            Ok(())
        } else {
            Err(ControlError::NoFault(id.to_owned()))
        }
    }

    /// Ends all faults and shortages.
    pub fn heal_all(&self) {
        self.aws_state.faults().clear();
    }

    /// Changes a price. `zone` `*` means every zone.
    pub fn price(
        &self,
        instance_type: &str,
        zone: &str,
        capacity_type: CapacityType,
        price: MicroUsd,
    ) {
        self.aws_state.prices().set(instance_type, zone, capacity_type, price);
    }

    /// Changes how long new things stay invisible.
    pub fn consistency(&self, delays: Delays) {
        self.aws_state.consistency().set(delays);
    }

    /// Changes how long instances take between states.
    pub fn state_times(&self, times: StateTimes) {
        self.aws_state.instances().set_times(times);
    }

    /// Warns spot instances and ends them when the notice is over; `None` is AWS's two minutes.
    pub async fn interrupt(
        &self,
        selection: Selection,
        notice: Option<Duration>,
    ) -> Result<Outcome, ControlError> {
        let instances = self.select(selection)?;
        let events: Vec<Event> =
            instances.iter().map(|id| Event::spot_interruption(&self.aws_state, id)).collect();
        let deliveries = self.send(&events).await?;
        let notice = notice.unwrap_or(Duration::from_secs_f64(NOTICE));
        let (aws_state, ids) = (Arc::clone(&self.aws_state), instances.clone());
        self.tasks.lock().spawn(async move {
            tokio::time::sleep(notice).await;
            for id in ids {
                let reason = (
                    "Server.SpotInstanceTermination",
                    "Server.SpotInstanceTermination: Spot instance termination",
                );
                aws_state.instances().begin(&id, State::ShuttingDown, Some(reason));
            }
        });
        Ok(Outcome { instances, deliveries })
    }

    /// Recommends to replace spot instances.
    pub async fn rebalance(&self, selection: Selection) -> Result<Outcome, ControlError> {
        let instances = self.select(selection)?;
        let events: Vec<Event> =
            instances.iter().map(|id| Event::rebalance(&self.aws_state, id)).collect();
        Ok(Outcome { deliveries: self.send(&events).await?, instances })
    }

    /// Reserves capacity; returns the reservation's ID.
    pub fn reserve(&self, reservation: Reservation) -> String {
        let id = self.aws_state.id("cr");
        self.aws_state.reservations().add(Reservation { id: id.clone(), ..reservation });
        id
    }

    /// Cancels a reservation: its instances run on without it.
    pub fn cancel_reservation(&self, id: &str) -> Result<(), ControlError> {
        if !self.aws_state.reservations().update(id, |reservation| reservation.cancelled = true) {
            return Err(ControlError::NoReservation(id.to_owned()));
        }
        for (instance, known) in self.alive() {
            if known.capacity_reservation.as_deref() == Some(id) {
                self.aws_state
                    .instances()
                    .update(&instance, |instance| instance.capacity_reservation = None);
            }
        }
        Ok(())
    }

    /// Moves the cluster's traffic away from a zone, by its name or ID; `None` is an autoshift,
    /// which lasts until it is cancelled. Returns the shift's ID.
    pub async fn shift_away(
        &self,
        zone: &str,
        lasts: Option<Duration>,
    ) -> Result<String, ControlError> {
        let zones = zones(&self.aws_state).await.map_err(ControlError::Zones)?;
        let id = zones.get(zone).or_else(|| zones.values().find(|id| *id == zone)).cloned();
        let id = id.ok_or_else(|| ControlError::NoZone {
            zone: zone.to_owned(),
            known: zones.into_keys().collect(),
        })?;
        let lasts =
            lasts.map(|lasts| SignedDuration::try_from(lasts).unwrap_or(SignedDuration::MAX));
        let now = self.aws_state.clock().now();
        Ok(self.aws_state.zonal_shifts().start(&id, lasts, "set by the test bed", now))
    }

    /// Ends a zonal shift or an autoshift.
    pub fn cancel_shift(&self, id: &str) -> Result<(), ControlError> {
        let now = self.aws_state.clock().now();
        let cancelled = self.aws_state.zonal_shifts().cancel(id, now);
        cancelled.map(drop).ok_or_else(|| ControlError::NoZonalShift(id.to_owned()))
    }

    /// Warns that a capacity reservation takes its instances back.
    pub(crate) async fn reclaim(&self, selection: Selection) -> Result<Outcome, ControlError> {
        let instances = self.select(selection)?;
        let events: Vec<Event> = instances
            .iter()
            .map(|id| Event::capacity_reservation_interruption(&self.aws_state, id))
            .collect();
        Ok(Outcome { deliveries: self.send(&events).await?, instances })
    }

    /// Announces maintenance through AWS Health, and lists it in the instances' status. `code` is
    /// AWS Health's: `AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED`.
    pub async fn schedule(
        &self,
        selection: Selection,
        code: &str,
    ) -> Result<Outcome, ControlError> {
        let instances = self.select(selection)?;
        let event = ScheduledEvent {
            code: "instance-retirement".to_owned(),
            description: "The instance is running on degraded hardware".to_owned(),
            not_before: self.aws_state.clock().now(),
        };
        for id in &instances {
            self.aws_state
                .instances()
                .update(id, |instance| instance.health.events.push(event.clone()));
        }
        let deliveries =
            self.send(&[Event::scheduled_change(&self.aws_state, &instances, code)]).await?;
        Ok(Outcome { instances, deliveries })
    }

    /// Terminates instances, as somebody at the console would.
    pub fn terminate(&self, ids: &[String]) -> Result<(), ControlError> {
        self.begin(ids, State::ShuttingDown)
    }

    /// Stops instances, as somebody at the console would.
    pub fn stop(&self, ids: &[String]) -> Result<(), ControlError> {
        self.begin(ids, State::Stopping)
    }

    /// Lets a status check fail from now on, or succeed again.
    pub(crate) fn impair(&self, id: &str, check: Check, healthy: bool) -> Result<(), ControlError> {
        self.known(id)?;
        let since = (!healthy).then(|| self.aws_state.clock().now());
        self.aws_state.instances().update(id, |instance| match check {
            Check::Instance => instance.health.instance_impaired_since = since,
            Check::System => instance.health.system_impaired_since = since,
        });
        Ok(())
    }

    /// Sends events through the region's rules.
    pub async fn send(&self, events: &[Event]) -> Result<Vec<Delivery>, ControlError> {
        emit(&self.aws_state, events).await.map_err(ControlError::Events)
    }

    fn begin(&self, ids: &[String], state: State) -> Result<(), ControlError> {
        for id in ids {
            self.known(id)?;
        }
        for id in ids {
            let reason = (
                "Client.UserInitiatedShutdown",
                "Client.UserInitiatedShutdown: User initiated shutdown",
            );
            self.aws_state.instances().begin(id, state, Some(reason));
        }
        Ok(())
    }

    fn known(&self, id: &str) -> Result<(), ControlError> {
        self.aws_state
            .instances()
            .get(id)
            .map(drop)
            .ok_or_else(|| ControlError::NoInstance(id.to_owned()))
    }

    fn select(&self, selection: Selection) -> Result<Vec<String>, ControlError> {
        match selection {
            Selection::Instances(ids) => {
                for id in &ids {
                    self.known(id)?;
                }
                Ok(ids)
            }
            Selection::Share(share) => {
                let mut spot: Vec<String> = self
                    .alive()
                    .into_iter()
                    .filter(|(_, instance)| {
                        instance.capacity_type == CapacityType::Spot
                            && instance.state == State::Running
                    })
                    .map(|(id, _)| id)
                    .collect();
                if spot.is_empty() {
                    return Err(ControlError::NoSpotInstance);
                }
                spot.shuffle(&mut *self.rng.lock());
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "a share between 0 and 1 of a list's length"
                )]
                let n_chosen = ((spot.len() as f64 * share.clamp(0.0, 1.0)).ceil() as usize).max(1);
                spot.truncate(n_chosen);
                Ok(spot)
            }
        }
    }
}

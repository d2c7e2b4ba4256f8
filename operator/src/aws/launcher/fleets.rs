//! CreateFleet calls: claims that ask for the same share one, and a call that got no answer is
//! repeated as it was until there is one.
//!
//! EC2 launches once for a token, however often it is asked. A repetition counts only when it is
//! the same in every field, so that the request is kept with the token, for each claim of the call
//! with its place among the instances: prices, offerings and companions of the next try are others.
//!
//! A request is large, and a burst of claims asks for the same: those that wait for each other
//! share one in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tenon_crds::NodeClaim;
use tenon_crds::labels::aws;
use tenon_planner::snapshot::CapacityType;

use super::LaunchedInstance;
use super::placement::Placed;
use super::reserved::Reservation;
use crate::aws::call_batcher::{BatchSize, CallBatcher, Window};
use crate::aws::ec2::Ec2;
use crate::aws::ec2::requests::CreateFleet;
use crate::aws::ec2::send::{self, FleetAnswer, FleetError};
use crate::aws::error::{Error, Kind};
use crate::aws::metrics::AwsMetrics;
use crate::aws::ttl::TtlMap;

const WINDOW: Window =
    Window { idle: Duration::from_millis(35), max: Duration::from_secs(1), max_items: 1000 };

/// How long a claim's calls are remembered: longer than any claim waits for its launch.
const MEMORY: Duration = Duration::from_secs(3600);

/// Sends CreateFleet calls.
#[derive(Debug)]
pub(super) struct Fleets {
    ec2: Ec2,
    batches: CallBatcher<Digest, Item, Result<LaunchedInstance, FleetFailure>>,
    /// Orders that claims wait with.
    waiting: Mutex<BTreeMap<Digest, Weak<Order>>>,
    /// How often a claim's launch was answered: part of the token, so that an answer is never
    /// played back for a later try.
    answered: TtlMap<String, u32>,
    /// Calls without an answer (yet), by uid of the claim.
    unfinished: TtlMap<String, Share>,
    metrics: AwsMetrics,
}

/// Tells orders apart.
type Digest = [u8; 32];

/// What a machine is bought with.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// For one machine.
    pub(super) request: CreateFleet,
    pub(super) capacity_type: CapacityType,
    pub(super) tenancy: &'static str,
    pub(super) placed: Option<Placed>,
    /// By type and zone.
    pub(super) reservations: BTreeMap<(String, String), Reservation>,
}

impl Order {
    /// The reservation that machines of this type in this zone are launched into.
    pub(super) fn reservation(&self, instance_type: &str, zone: &str) -> Option<&Reservation> {
        self.reservations.get(&(instance_type.to_owned(), zone.to_owned()))
    }

    /// The same for orders that are the same in every field; reservations are part of the launch
    /// templates that the request names.
    fn digest(&self) -> Digest {
        let mut hash = Hashing(Sha256::new());
        serde_json::to_writer(&mut hash, &self.request)
            .expect("plain structs with text keys serialise, and a hash takes everything");
        hash.0.update(self.capacity_type.as_str());
        hash.0.update(self.tenancy);
        hash.0.update(self.placed.as_ref().map(Placed::scope).unwrap_or_default());
        hash.0.finalize().into()
    }
}

/// Hashes what is written, so that a request is never in memory as text.
struct Hashing(Sha256);

impl std::io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One claim's part of a call.
#[derive(Clone, Debug)]
struct Item {
    claim: String,
    uid: String,
}

/// One claim's place in a call that was sent.
#[derive(Clone, Debug)]
struct Share {
    call: Arc<Call>,
    place: usize,
}

/// A call as it was sent.
#[derive(Debug)]
struct Call {
    order: Order,
    token: String,
}

/// Why a claim got no machine from a fleet.
#[derive(Clone, Debug)]
pub(super) enum FleetFailure {
    /// The call of CreateFleet failed as a whole.
    Call(Error),
    /// The call succeeded, but launched too little.
    Short(Arc<Vec<FleetError>>),
}

/// Takes note of what an answer says about offerings and subnets.
pub(super) trait Learn: Fn(&FleetAnswer, &Order) {}

impl<F: Fn(&FleetAnswer, &Order)> Learn for F {}

impl Fleets {
    pub(super) fn new(ec2: Ec2, metrics: AwsMetrics) -> Self {
        Self {
            ec2,
            batches: CallBatcher::new(WINDOW),
            waiting: Mutex::default(),
            answered: TtlMap::new(MEMORY),
            unfinished: TtlMap::new(MEMORY),
            metrics,
        }
    }

    /// Whether nobody knows what became of the claim's last call.
    pub(super) fn is_unfinished(&self, uid: &str) -> bool {
        self.unfinished.get(uid).is_some()
    }

    /// Repeats the claim's last call, if that got no answer.
    pub(super) async fn resume(
        &self,
        uid: &str,
        learn: impl Learn,
    ) -> Option<Result<LaunchedInstance, FleetFailure>> {
        let Share { call, place } = self.unfinished.get(uid)?;
        let sent = self.send(&call, &[uid], learn).await;
        Some(sent.and_then(|answer| part(&call.order, &answer, place)))
    }

    /// Launches a machine, together with those of other claims that ask for the same.
    pub(super) async fn create_instance(
        &self,
        claim: &NodeClaim,
        order: Order,
        learn: impl Learn,
    ) -> Result<LaunchedInstance, FleetFailure> {
        let digest = order.digest();
        let order = self.share(digest, order);
        let item = Item {
            claim: claim.metadata.name.clone().unwrap_or_default(),
            uid: claim.metadata.uid.clone().unwrap_or_default(),
        };
        let observe = |size: BatchSize| {
            self.metrics.batch_time.observe(["create_fleet"], size.open.as_secs_f64());
            #[expect(clippy::cast_precision_loss, reason = "batches have at most 1000 items")]
            self.metrics.batch_size.observe(["create_fleet"], size.items as f64);
        };
        self.batches
            .submit(digest, item, observe, |items| self.create(items, order, digest, learn))
            .await
    }

    /// How many claims hold each of the orders that claims wait with.
    #[cfg(test)]
    pub(super) fn holders(&self) -> Vec<usize> {
        let holders = self.waiting.lock().values().map(Weak::strong_count).collect::<Vec<_>>();
        holders.into_iter().filter(|count| *count > 0).collect()
    }

    /// The same order, as the one that others wait with already.
    fn share(&self, digest: Digest, order: Order) -> Arc<Order> {
        let mut waiting = self.waiting.lock();
        if let Some(known) = waiting.get(&digest).and_then(Weak::upgrade) {
            return known;
        }
        waiting.retain(|_, order| order.strong_count() > 0);
        let order = Arc::new(order);
        waiting.insert(digest, Arc::downgrade(&order));
        order
    }

    async fn create(
        &self,
        items: Vec<Item>,
        order: Arc<Order>,
        digest: Digest,
        learn: impl Learn,
    ) -> Vec<Result<LaunchedInstance, FleetFailure>> {
        let mut order = Arc::unwrap_or_clone(order);
        order.request.target_capacity_specification.total_target_capacity =
            i32::try_from(items.len()).unwrap_or(i32::MAX);
        // A machine that is launched alone carries its claim's name from the start: after a crash
        // it is found by it.
        if let ([item], Some(instance)) = (
            items.as_slice(),
            order
                .request
                .tag_specifications
                .iter_mut()
                .find(|tags| tags.resource_type == "instance"),
        ) {
            instance.tags.insert(aws::NODECLAIM_TAG.to_owned(), item.claim.clone());
        }
        let token = self.token(&items, digest);
        let call = Arc::new(Call { order, token });
        // Before the call: it may be cut off at any moment.
        for (place, item) in items.iter().enumerate() {
            self.unfinished.insert(item.uid.clone(), Share { call: Arc::clone(&call), place });
        }
        let uids: Vec<&str> = items.iter().map(|item| item.uid.as_str()).collect();
        match self.send(&call, &uids, learn).await {
            Ok(answer) => {
                if answer.instances.len() > items.len() {
                    let surplus = &answer.instances[items.len()..];
                    let surplus: Vec<&str> = surplus.iter().map(|one| one.id.as_str()).collect();
                    tracing::error!(
                        fleet = answer.fleet_id,
                        ?surplus,
                        "a fleet launched more than was asked for"
                    );
                }
                (0..items.len()).map(|place| part(&call.order, &answer, place)).collect()
            }
            Err(failure) => items.iter().map(|_| Err(failure.clone())).collect(),
        }
    }

    /// Sends a call for some of its claims. When there is an answer, it is the end of the call for
    /// them.
    async fn send(
        &self,
        call: &Call,
        uids: &[&str],
        learn: impl Learn,
    ) -> Result<FleetAnswer, FleetFailure> {
        let sent = send::create_fleet(&self.ec2, &call.order.request, Some(&call.token)).await;
        let unknown = sent.as_ref().is_err_and(|error| error.kind == Kind::Transient);
        // What was refused for haste was not looked at; the same token may ask again, as a new
        // call.
        let judged = sent.as_ref().map_or_else(|error| !error.is_retryable(), |_| true);
        for uid in uids {
            if !unknown {
                self.unfinished.remove(*uid);
            }
            if judged {
                let count = self.answered.get(*uid).unwrap_or(0);
                self.answered.insert((*uid).to_owned(), count + 1);
            }
        }
        let answer = sent.map_err(FleetFailure::Call)?;
        learn(&answer, &call.order);
        Ok(answer)
    }

    /// The same for the same claims, order and try.
    fn token(&self, items: &[Item], digest: Digest) -> String {
        let mut claims: Vec<(&str, u32)> = items
            .iter()
            .map(|item| (item.uid.as_str(), self.answered.get(&item.uid).unwrap_or(0)))
            .collect();
        claims.sort_unstable();
        let mut hash = Sha256::new();
        for (uid, count) in claims {
            hash.update(format!("{uid}/{count}\n"));
        }
        hash.update(digest);
        hex::encode(hash.finalize())
    }
}

/// The machine at one place of an answer; who got none shares the errors.
fn part(
    order: &Order,
    answer: &FleetAnswer,
    place: usize,
) -> Result<LaunchedInstance, FleetFailure> {
    let instance = answer.instances.get(place).cloned();
    let instance = instance.ok_or_else(|| FleetFailure::Short(Arc::new(answer.errors.clone())))?;
    let &Order { capacity_type, tenancy, .. } = order;
    let reservation = order.reservation(&instance.instance_type, &instance.zone).cloned();
    let partition = order.placed.as_ref().and_then(|placed| placed.partition);
    Ok(LaunchedInstance { instance, capacity_type, tenancy, reservation, partition })
}

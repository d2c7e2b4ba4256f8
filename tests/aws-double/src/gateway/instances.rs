//! The instances of the double: the one truth about them, how their states change, and a view that
//! the machine simulator watches.
//!
//! They live here and not in moto, because moto loses what the launch template says (groups,
//! profile, metadata options, volumes), knows no states between `running` and `terminated`, and
//! scans every tag of the region for every instance it lists: 64 s at 5,000 instances.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::instance::{Instance, State};
use crate::clock::Clock;

/// How long the states between take, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct StateTimes {
    /// From `pending` to `running`.
    pub pending: f64,
    /// From `stopping` to `stopped`.
    pub stopping: f64,
    /// From `shutting-down` to `terminated`.
    pub shutting_down: f64,
    /// For how long a terminated instance is still listed.
    pub listed: f64,
}

impl Default for StateTimes {
    /// Short, so that tests don't wait, and long enough that every state can be seen.
    fn default() -> Self {
        Self { pending: 0.5, stopping: 0.5, shutting_down: 0.5, listed: 3600.0 }
    }
}

/// Every instance that is listed, by ID.
pub type Instances = Arc<BTreeMap<String, Arc<Instance>>>;

/// A change of state, in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// Instance.
    pub id: String,
    /// Its new state.
    pub state: State,
}

/// The table of instances.
#[derive(Debug)]
pub struct InstanceTable {
    clock: Clock,
    inner: Mutex<Inner>,
    view: watch::Sender<Instances>,
    woken: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    times: StateTimes,
    /// When the state of an instance changes by itself.
    due: BTreeMap<String, Instant>,
    changes: Vec<StateChange>,
    /// The address that was handed out last in each subnet.
    last_addresses: BTreeMap<String, Ipv4Addr>,
    /// Addresses of machines that are none of these instances.
    foreign_addresses: BTreeSet<Ipv4Addr>,
}

impl InstanceTable {
    /// No instances.
    pub fn new(clock: Clock, times: StateTimes) -> Self {
        let inner = Inner { times, ..Inner::default() };
        Self {
            clock,
            inner: Mutex::new(inner),
            view: watch::Sender::new(Instances::default()),
            woken: Notify::new(),
        }
    }

    /// All instances now.
    pub fn all(&self) -> Instances {
        Arc::clone(&self.view.borrow())
    }

    /// One instance.
    pub fn get(&self, id: &str) -> Option<Arc<Instance>> {
        self.view.borrow().get(id).cloned()
    }

    /// The newest state of all instances, for those who follow them.
    pub fn watch(&self) -> watch::Receiver<Instances> {
        self.view.subscribe()
    }

    /// How long the states between take.
    pub fn times(&self) -> StateTimes {
        self.inner.lock().times
    }

    /// Changes how long the states between take, for changes that begin from now on.
    pub(crate) fn set_times(&self, times: StateTimes) {
        self.inner.lock().times = times;
    }

    /// From now on no instance gets these addresses: machines have them that the double does not
    /// know as instances.
    pub fn keep_from(&self, addresses: impl IntoIterator<Item = Ipv4Addr>) {
        self.inner.lock().foreign_addresses.extend(addresses);
    }

    /// The addresses that no instance gets.
    pub(crate) fn foreign_addresses(&self) -> BTreeSet<Ipv4Addr> {
        self.inner.lock().foreign_addresses.clone()
    }

    /// Addresses that instances use in a subnet.
    pub fn addresses(&self, subnet_id: &str) -> BTreeSet<Ipv4Addr> {
        let all = self.all();
        let in_subnet = all.values().filter(|instance| {
            instance.subnet_id == subnet_id && instance.state != State::Terminated
        });
        in_subnet
            .flat_map(|instance| instance.interfaces.iter().map(|interface| interface.private_ip))
            .collect()
    }

    /// Up to `wanted` addresses of those that a subnet has (`all`, in order) without those that are
    /// `taken`, in turn: what was freed comes again when all others have been used. A node is named
    /// by its address, and the Node of a machine that is gone stays for a while; and two launches
    /// at the same time must not get the same.
    pub(super) fn next_addresses(
        &self,
        subnet_id: &str,
        all: impl Iterator<Item = Ipv4Addr> + Clone,
        taken: &BTreeSet<Ipv4Addr>,
        wanted: usize,
    ) -> Vec<Ipv4Addr> {
        let Inner { last_addresses, foreign_addresses, .. } = &mut *self.inner.lock();
        let is_free =
            |address: &Ipv4Addr| !taken.contains(address) && !foreign_addresses.contains(address);
        let last = last_addresses.get(subnet_id).copied();
        let is_past = |address: &Ipv4Addr| last.is_some_and(|last| *address <= last);
        let in_turn = all.clone().skip_while(is_past).chain(all.take_while(is_past));
        let found: Vec<Ipv4Addr> = in_turn.filter(is_free).take(wanted).collect();
        if let Some(last) = found.last() {
            last_addresses.insert(subnet_id.to_owned(), *last);
        }
        found
    }

    /// Adds instances that were just launched.
    pub(super) fn insert(&self, launched: Vec<Instance>) {
        let mut inner = self.inner.lock();
        let due = Instant::now() + seconds(inner.times.pending);
        for instance in &launched {
            inner.due.insert(instance.id.clone(), due);
            inner.changes.push(StateChange { id: instance.id.clone(), state: instance.state });
        }
        self.view.send_modify(|view| {
            let view = Arc::make_mut(view);
            view.extend(
                launched.into_iter().map(|instance| (instance.id.clone(), Arc::new(instance))),
            );
        });
        self.woken.notify_one();
    }

    /// Changes an instance's data, not its state.
    pub fn update(&self, id: &str, change: impl FnOnce(&mut Instance)) {
        self.view.send_if_modified(|view| match Arc::make_mut(view).get_mut(id) {
            Some(instance) => {
                change(Arc::make_mut(instance));
                true
            }
            None => false,
        });
    }

    /// Begins a change of state (`stopping`, `shutting-down`, `pending` again); returns the state
    /// before, or `None` for an unknown instance. Nothing happens to an instance that is already on
    /// the way there or cannot go there.
    pub fn begin(&self, id: &str, state: State, reason: Option<(&str, &str)>) -> Option<State> {
        let before = self.get(id)?.state;
        let possible = match state {
            State::ShuttingDown => before.is_alive(),
            State::Stopping => matches!(before, State::Pending | State::Running),
            State::Pending => before == State::Stopped,
            State::Running | State::Stopped | State::Terminated => false,
        };
        if !possible {
            return Some(before);
        }
        let mut inner = self.inner.lock();
        let times = inner.times;
        let takes = match state {
            State::ShuttingDown => times.shutting_down,
            State::Stopping => times.stopping,
            _ => times.pending,
        };
        inner.due.insert(id.to_owned(), Instant::now() + seconds(takes));
        self.enter(&mut inner, id, state, reason);
        self.woken.notify_one();
        Some(before)
    }

    fn enter(&self, inner: &mut Inner, id: &str, state: State, reason: Option<(&str, &str)>) {
        let now = self.clock.now();
        self.update(id, |instance| {
            instance.state = state;
            instance.changed = now;
            if let Some((code, message)) = reason {
                instance.state_reason = Some((code.to_owned(), message.to_owned()));
            }
        });
        inner.changes.push(StateChange { id: id.to_owned(), state });
    }

    /// Makes the changes that are due; returns all changes since the last call, and when the next
    /// is due.
    pub(super) fn advance(&self) -> (Vec<StateChange>, Option<Instant>) {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        let due: Vec<String> =
            inner.due.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            inner.due.remove(&id);
            match self.get(&id).map(|instance| instance.state) {
                Some(State::Pending) => self.enter(&mut inner, &id, State::Running, None),
                Some(State::Stopping) => self.enter(&mut inner, &id, State::Stopped, None),
                Some(State::ShuttingDown) => {
                    self.enter(&mut inner, &id, State::Terminated, None);
                    let listed = seconds(inner.times.listed);
                    inner.due.insert(id, now + listed);
                }
                Some(State::Terminated) => self.view.send_modify(|view| {
                    Arc::make_mut(view).remove(&id);
                }),
                Some(State::Running | State::Stopped) | None => {}
            }
        }
        (std::mem::take(&mut inner.changes), inner.due.values().min().copied())
    }

    /// Waits until something was launched or begins to change.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::instance::{Health, Interface, MetadataOptions};
    use super::super::prices::CapacityType;
    use super::*;

    fn mk_instance(id: &str) -> Instance {
        let ip = Ipv4Addr::new(10, 0, 0, 4);
        Instance {
            id: id.to_owned(),
            reservation_id: "r-1".to_owned(),
            instance_type: "m5.large".to_owned(),
            capacity_type: CapacityType::Spot,
            state: State::Pending,
            state_reason: None,
            launched: Timestamp::UNIX_EPOCH,
            changed: Timestamp::UNIX_EPOCH,
            zone: "eu-central-1a".to_owned(),
            subnet_id: "subnet-1".to_owned(),
            vpc_id: "vpc-1".to_owned(),
            image_id: "ami-1".to_owned(),
            architecture: "x86_64".to_owned(),
            private_ip: ip,
            private_dns_name: "ip-10-0-0-4.eu-central-1.compute.internal".to_owned(),
            security_groups: vec![("sg-1".to_owned(), "nodes".to_owned())],
            profile: None,
            metadata_options: MetadataOptions {
                http_endpoint: "enabled".to_owned(),
                http_protocol_ipv6: "disabled".to_owned(),
                http_put_response_hop_limit: 1,
                http_tokens: "required".to_owned(),
                instance_metadata_tags: "disabled".to_owned(),
            },
            user_data: None,
            volumes: vec![],
            interfaces: vec![Interface {
                id: "eni-1".to_owned(),
                device_index: 0,
                card_index: 0,
                interface_type: "interface".to_owned(),
                private_ip: ip,
                tags: BTreeMap::new(),
            }],
            tenancy: "default".to_owned(),
            monitoring: false,
            tags: BTreeMap::from([("k".to_owned(), "v<".to_owned())]),
            capacity_reservation: None,
            placement_group: None,
            reservation_preference: "none".to_owned(),
            market_type: None,
            spot_request_id: Some("sir-1".to_owned()),
            fleet_id: None,
            template: None,
            client_token: String::new(),
            launched_by: String::new(),
            health: Health::default(),
        }
    }

    fn states(changes: &[StateChange]) -> Vec<State> {
        changes.iter().map(|change| change.state).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_goes_through_every_state_in_its_time() {
        let table = InstanceTable::new(
            Clock::system(),
            StateTimes { pending: 1.0, stopping: 1.0, shutting_down: 2.0, listed: 10.0 },
        );
        table.insert(vec![mk_instance("i-1")]);
        assert_eq!(states(&table.advance().0), [State::Pending]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(states(&table.advance().0), [State::Running]);
        assert_eq!(table.begin("i-1", State::ShuttingDown, Some(("c", "m"))), Some(State::Running));
        assert_eq!(
            table.begin("i-1", State::ShuttingDown, None),
            Some(State::ShuttingDown),
            "again"
        );
        assert_eq!(table.addresses("subnet-1").len(), 1, "still there");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(states(&table.advance().0), [State::ShuttingDown, State::Terminated]);
        assert!(table.addresses("subnet-1").is_empty());
        assert!(table.get("i-1").unwrap().state_reason.is_some());
        tokio::time::advance(Duration::from_secs(10)).await;
        table.advance();
        assert!(table.get("i-1").is_none());
    }

    #[test]
    fn addresses_come_in_turn_and_again_only_when_all_have_been_used() {
        let table = InstanceTable::new(Clock::system(), StateTimes::default());
        let all = || (4..8).map(|last| Ipv4Addr::new(10, 0, 0, last));
        let next = |taken: &[u8], wanted| -> Vec<u8> {
            let taken = taken.iter().map(|last| Ipv4Addr::new(10, 0, 0, *last)).collect();
            let found = table.next_addresses("subnet-1", all(), &taken, wanted);
            found.iter().map(|address| address.octets()[3]).collect()
        };
        assert_eq!(next(&[], 2), [4, 5]);
        assert_eq!(next(&[], 1), [6], "4 and 5 are free again");
        assert_eq!(next(&[4], 3), [7, 5, 6]);
        assert!(next(&[4, 5, 6, 7], 1).is_empty());
    }

    #[test]
    fn an_instance_never_gets_the_address_of_a_machine_that_is_none() {
        let table = InstanceTable::new(Clock::system(), StateTimes::default());
        let address = |last| Ipv4Addr::new(10, 0, 0, last);
        table.keep_from([address(5)]);
        let all = (4..8).map(address);
        let found = table.next_addresses("subnet-1", all, &BTreeSet::new(), 4);
        assert_eq!(found, [4, 6, 7].map(address));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_instance_can_be_started_and_a_terminated_one_cannot() {
        let table = InstanceTable::new(
            Clock::system(),
            StateTimes { pending: 0.0, stopping: 0.0, shutting_down: 0.0, listed: 9.0 },
        );
        table.insert(vec![mk_instance("i-1")]);
        table.advance();
        table.begin("i-1", State::Stopping, None);
        table.advance();
        assert_eq!(table.begin("i-1", State::Pending, None), Some(State::Stopped));
        assert_eq!(table.get("i-1").unwrap().state, State::Pending);
        table.begin("i-1", State::ShuttingDown, None);
        table.advance();
        assert_eq!(table.begin("i-1", State::Pending, None), Some(State::Terminated));
        assert_eq!(table.get("i-1").unwrap().state, State::Terminated);
    }
}

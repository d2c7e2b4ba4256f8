use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;
use crate::clock::Clock;
use crate::testing::{ApiServer, refused};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/lease";

/// A Lease in an API server, which can be made to fail.
struct Shelf {
    server: ApiServer,
    broken: Arc<AtomicBool>,
}

impl Default for Shelf {
    fn default() -> Self {
        let broken = Arc::new(AtomicBool::new(false));
        let fails = Arc::clone(&broken);
        let server = ApiServer::unless(move |request| {
            if fails.load(Ordering::Relaxed) {
                return Some(refused(503, "ServiceUnavailable"));
            }
            // Watches: the lease is read every two seconds all the same.
            (request.method == "GET" && request.path != LEASE).then(|| refused(403, "Forbidden"))
        });
        Self { server, broken }
    }
}

impl Shelf {
    fn election(&self, identity: &str) -> Election {
        let clock = Clock::anchored(Timestamp::UNIX_EPOCH);
        Election::new(self.server.client(), "default", "lease".into(), identity.into(), clock)
    }

    fn holder(&self) -> String {
        let lease = self.server.at(LEASE);
        let holder = lease.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        holder.unwrap_or("nobody").to_owned()
    }

    /// Somebody takes the lease, allowed or not.
    fn take(&self, identity: &str) {
        if let Some(mut lease) = self.server.at(LEASE) {
            lease["spec"]["holderIdentity"] = json!(identity);
            self.server.put_at(LEASE, lease);
        }
    }
}

/// How the controller of a replica behaves.
#[derive(Clone, Copy, PartialEq)]
enum Controller {
    StopsWhenTold,
    NeverStops,
    Fails,
}

/// A replica with one controller.
struct Crew {
    controller: Controller,
    warm: Notify,
    led: AtomicUsize,
    /// How long it takes to start the controller.
    starts_within: Duration,
    working: Arc<AtomicUsize>,
    stepped_down: AtomicUsize,
}

/// Counts those who work, for as long as they do.
struct Working(Arc<AtomicUsize>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Crew {
    fn new(controller: Controller) -> Arc<Self> {
        let warm = Notify::new();
        warm.notify_one();
        Arc::new(Self {
            controller,
            warm,
            led: AtomicUsize::new(0),
            starts_within: Duration::ZERO,
            working: Arc::default(),
            stepped_down: AtomicUsize::new(0),
        })
    }

    fn is_working(&self) -> bool {
        self.working.load(Ordering::Relaxed) > 0
    }
}

impl Replica for Crew {
    async fn warm_up(&self) {
        self.warm.notified().await;
        self.warm.notify_one();
    }

    async fn lead(&self, tasks: &mut Tasks) {
        tokio::time::sleep(self.starts_within).await;
        self.led.fetch_add(1, Ordering::Relaxed);
        self.working.fetch_add(1, Ordering::Relaxed);
        let (working, stop) = (Working(Arc::clone(&self.working)), tasks.stop_token().clone());
        let controller = self.controller;
        tasks.spawn_graceful("controller", async move {
            let _working = working;
            match controller {
                Controller::StopsWhenTold => stop.cancelled().await,
                Controller::NeverStops => std::future::pending().await,
                Controller::Fails => tokio::time::sleep(Duration::from_secs(5)).await,
            }
        });
    }

    fn step_down(&self) {
        assert!(!self.is_working(), "its controllers are gone first");
        self.stepped_down.fetch_add(1, Ordering::Relaxed);
    }
}

/// A replica that runs, and how to stop it.
fn start(
    shelf: &Shelf,
    crew: &Arc<Crew>,
) -> (tokio::task::JoinHandle<Result<(), Error>>, CancellationToken) {
    let (election, crew) = (shelf.election("me"), Arc::clone(crew));
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let running =
        crate::testing::spawn(async move { run(Some(&election), &*crew, &stopped).await });
    (running, stop)
}

/// Lets time pass until it is so, and tells how long that took.
async fn until(what: &str, is_so: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_mins(2), "{what}: it never was");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_does_not_know_the_cluster_yet_does_not_campaign() {
    let (shelf, crew) = (Shelf::default(), Crew::new(Controller::StopsWhenTold));
    crew.warm.notified().await;
    let (_running, _stop) = start(&shelf, &crew);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!((shelf.holder().as_str(), crew.is_working()), ("nobody", false));
    crew.warm.notify_one();
    until("it leads", || crew.is_working()).await;
    assert_eq!(shelf.holder(), "me");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_told_to_stop_gives_the_lease_up_within_a_second_whatever_is_under_way() {
    for controller in [Controller::StopsWhenTold, Controller::NeverStops] {
        let (shelf, crew) = (Shelf::default(), Crew::new(controller));
        let (running, stop) = start(&shelf, &crew);
        until("it leads", || crew.is_working()).await;
        stop.cancel();
        let took = until("the lease is free", || shelf.holder().is_empty()).await;
        assert!(took < Duration::from_secs(1), "{took:?}");
        running.await.unwrap().unwrap();
        assert_eq!(crew.stepped_down.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_can_not_renew_the_lease_stops_in_time_and_campaigns_again() {
    let (shelf, crew) = (Shelf::default(), Crew::new(Controller::NeverStops));
    let (running, _stop) = start(&shelf, &crew);
    until("it leads", || crew.is_working()).await;
    shelf.broken.store(true, Ordering::Relaxed);
    let took = until("it stops", || !crew.is_working()).await;
    // A renewal every two seconds: the last one was up to two seconds ago.
    assert!((8..=10).contains(&took.as_secs()), "{took:?}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!crew.is_working());
    shelf.broken.store(false, Ordering::Relaxed);
    until("it leads again", || crew.is_working()).await;
    assert!(!running.is_finished(), "it is the same process");
    assert_eq!(crew.led.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_takes_long_to_start_keeps_the_lease_meanwhile() {
    let (shelf, mut crew) = (Shelf::default(), Crew::new(Controller::StopsWhenTold));
    Arc::get_mut(&mut crew).unwrap().starts_within = Duration::from_mins(1);
    let (_running, _stop) = start(&shelf, &crew);
    let standby = Crew::new(Controller::StopsWhenTold);
    let election = shelf.election("other");
    let waiting = Arc::clone(&standby);
    until("it has the lease", || shelf.holder() == "me").await;
    crate::testing::spawn(async move {
        let stop = CancellationToken::new();
        run(Some(&election), &*waiting, &stop).await
    });
    let took = until("it leads", || crew.is_working()).await;
    assert!(took >= Duration::from_secs(59), "{took:?}");
    assert_eq!((shelf.holder().as_str(), standby.is_working()), ("me", false));
    assert_eq!(crew.led.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_loses_the_lease_while_it_starts_never_works() {
    let (shelf, mut crew) = (Shelf::default(), Crew::new(Controller::StopsWhenTold));
    Arc::get_mut(&mut crew).unwrap().starts_within = Duration::from_mins(1);
    let (_running, stop) = start(&shelf, &crew);
    until("it has the lease", || shelf.holder() == "me").await;
    shelf.take("another");
    until("it steps down", || crew.stepped_down.load(Ordering::Relaxed) == 1).await;
    stop.cancel();
    assert_eq!(crew.led.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_stops_and_waits_for_its_turn() {
    let (shelf, crew) = (Shelf::default(), Crew::new(Controller::StopsWhenTold));
    let (_running, _stop) = start(&shelf, &crew);
    until("it leads", || crew.is_working()).await;
    shelf.take("another");
    let took = until("it stops", || !crew.is_working()).await;
    assert!(took <= Duration::from_secs(2), "{took:?}");
    assert_eq!(shelf.holder(), "another");
    let took = until("the lease has run out", || crew.is_working()).await;
    assert!((13..=17).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_ends_by_itself_ends_the_replica_and_the_lease_is_given_up() {
    let (shelf, crew) = (Shelf::default(), Crew::new(Controller::Fails));
    let (running, _stop) = start(&shelf, &crew);
    let ended = running.await.unwrap();
    assert!(matches!(ended, Err(Error::Task(TaskEnded::Early("controller")))), "{ended:?}");
    assert_eq!(shelf.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_told_to_stop_ends_at_once() {
    let (shelf, crew) = (Shelf::default(), Crew::new(Controller::StopsWhenTold));
    let (leading, _stop) = start(&shelf, &crew);
    until("it leads", || crew.is_working()).await;
    let standby = Crew::new(Controller::StopsWhenTold);
    let election = shelf.election("other");
    let stop = CancellationToken::new();
    stop.cancel();
    run(Some(&election), &*standby, &stop).await.unwrap();
    assert_eq!(standby.led.load(Ordering::Relaxed), 0);
    assert_eq!(shelf.holder(), "me");
    assert!(!leading.is_finished());
}

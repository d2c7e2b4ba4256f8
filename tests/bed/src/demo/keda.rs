//! The story of KEDA: messages in a queue bring workers, workers bring nodes, and when the work is
//! done both go. The workload is that of the guide; the bed's pods do nothing, so the workers'
//! side of the queue is played here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenon_aws_double::moto_client::MotoClient;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::chapters::INSTALL;
use super::{Chapter, Scene, StoryError, bed, user};
use crate::failure::Failure;
use crate::guide;
use crate::keda::Keda;
use crate::objects;
use crate::user::{User, instance_of};
use crate::wait::eventually;
use crate::words::count;

pub(super) const CHAPTERS: &[Chapter] = &[
    INSTALL,
    Chapter {
        title: "KEDA",
        shows: "KEDA's operator and metrics adapter start. The queue of the guide's ScaledObject is empty, so there are no pods and no nodes.",
        tell: |scene| Box::pin(keda(scene)),
    },
    Chapter {
        title: "Messages",
        shows: "150 messages arrive. KEDA creates ten workers for them, and Tenon launches their nodes.",
        tell: |scene| Box::pin(messages(scene)),
    },
    Chapter {
        title: "Interrupt",
        shows: "AWS interrupts a spot instance. Tenon launches its replacement; its workers, which must not be disrupted, are deleted in time for their grace period to end before AWS takes the instance.",
        tell: |scene| Box::pin(interrupt(scene)),
    },
    Chapter {
        title: "Rest",
        shows: "No node with a worker on it is consolidated. All messages are done; KEDA scales to zero, and Tenon removes the nodes.",
        tell: |scene| Box::pin(rest(scene)),
    },
    Chapter {
        title: "A mistake",
        shows: "The ScaledObject names a queue that does not exist. KEDA says so, and nothing is launched.",
        tell: |scene| Box::pin(mistake(scene)),
    },
];

/// The page whose files are applied.
const GUIDE: &str = include_str!("../../../../docs/src/guides/keda.md");
const POOL: &str = "workers";
const APP: &str = "worker";
const QUEUE: &str = "jobs";
const MESSAGES: usize = 150;
/// What KEDA makes of so many messages, at most.
const WORKERS: usize = 10;
/// How long a worker works on a message.
const WORK: Duration = Duration::from_secs(10);
/// After so long a message that was received and not deleted is visible again.
const VISIBILITY_SECONDS: u64 = 20;
/// How long before it takes a spot instance AWS says so.
const NOTICE: Duration = Duration::from_mins(2);
/// KEDA has polled twice in that time.
const POLLS: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_mins(1);

/// KEDA, and what it scales.
#[derive(Debug)]
pub(super) struct Scaled {
    /// Ends with the story.
    _keda: Keda,
    queue: Queue,
    /// The bodies of messages that were worked on to the end.
    done: Arc<Mutex<BTreeSet<String>>>,
    _workers: JoinSet<()>,
}

/// A queue of the AWS double, as its owners use it.
#[derive(Clone, Debug)]
struct Queue {
    url: String,
    sqs: MotoClient,
}

impl Queue {
    async fn create(sqs: &MotoClient) -> Result<Self, Failure> {
        let body = json!({
            "QueueName": QUEUE,
            "Attributes": { "VisibilityTimeout": VISIBILITY_SECONDS.to_string() },
        });
        let answer = sqs.json("sqs", "AmazonSQS.CreateQueue", &body).await?;
        let url = answer["QueueUrl"].as_str().ok_or("a queue without a URL")?.to_owned();
        Ok(Self { url, sqs: sqs.clone() })
    }

    async fn call(&self, action: &str, mut body: Value) -> Result<Value, Failure> {
        body["QueueUrl"] = json!(self.url);
        Ok(self.sqs.json("sqs", &format!("AmazonSQS.{action}"), &body).await?)
    }

    async fn send(&self, body: &str) -> Result<(), Failure> {
        self.call("SendMessage", json!({ "MessageBody": body })).await.map(drop)
    }

    /// A message that nobody works on: its receipt and its body.
    async fn receive(&self) -> Result<Option<(String, String)>, Failure> {
        let answer = self.call("ReceiveMessage", json!({ "MaxNumberOfMessages": 1 })).await?;
        let message = &answer["Messages"][0];
        let text = |key: &str| message[key].as_str().map(str::to_owned);
        Ok(text("ReceiptHandle").zip(text("Body")))
    }

    async fn delete(&self, receipt: &str) -> Result<(), Failure> {
        self.call("DeleteMessage", json!({ "ReceiptHandle": receipt })).await.map(drop)
    }

    /// How many messages wait, and how many are being worked on.
    async fn length(&self) -> Result<(usize, usize), Failure> {
        const WAITING: &str = "ApproximateNumberOfMessages";
        const RECEIVED: &str = "ApproximateNumberOfMessagesNotVisible";
        let body = json!({ "AttributeNames": [WAITING, RECEIVED] });
        let answer = self.call("GetQueueAttributes", body).await?;
        let number = |key: &str| answer["Attributes"][key].as_str()?.parse().ok();
        number(WAITING).zip(number(RECEIVED)).ok_or_else(|| "a queue without a length".into())
    }
}

/// Plays the workers: each pod that is ready takes one message at a time, works on it, and deletes
/// it if it is still there then.
async fn play(client: Client, queue: Queue, done: Arc<Mutex<BTreeSet<String>>>) {
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let labelled = ListParams::default().labels(&format!("app={APP}"));
    let mut known = BTreeSet::new();
    let mut workers = JoinSet::new();
    loop {
        // A pod that can't be seen now is seen the next time.
        let ready = pods.list(&labelled).await.map(|list| list.items).unwrap_or_default();
        for pod in ready.iter().filter(|pod| objects::is_ready(pod)) {
            let name = pod.name_any();
            if known.insert(name.clone()) {
                workers.spawn(work(pods.clone(), name, queue.clone(), Arc::clone(&done)));
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn work(pods: Api<Pod>, name: String, queue: Queue, done: Arc<Mutex<BTreeSet<String>>>) {
    let alive = async || {
        let pod = pods.get_opt(&name).await;
        pod.is_ok_and(|pod| pod.is_some_and(|pod| objects::is_ready(&pod)))
    };
    while alive().await {
        let Ok(Some((receipt, body))) = queue.receive().await else {
            tokio::time::sleep(Duration::from_millis(500)).await;
            continue;
        };
        tokio::time::sleep(WORK).await;
        if alive().await && queue.delete(&receipt).await.is_ok() {
            done.lock().insert(body);
        }
    }
}

/// Applies a file of the guide as its reader does.
async fn apply(scene: &Scene<'_>, name: &str, text: &str) -> Result<(), StoryError> {
    let path = scene.bed.dir().join(name);
    let doing = format!("apply {name}");
    std::fs::write(&path, text).map_err(bed(&doing))?;
    let mut kubectl = scene.bed.command("kubectl".as_ref());
    let output = kubectl.arg("apply").arg("-f").arg(&path).output().await.map_err(bed(&doing))?;
    if output.status.success() {
        return Ok(());
    }
    Err(bed(&doing)(String::from_utf8_lossy(&output.stderr).into_owned()))
}

async fn scaled_object(scene: &Scene<'_>) -> Result<DynamicObject, kube::Error> {
    objects::scaled_objects(&scene.client, "default").get(APP).await
}

async fn keda(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let started = Instant::now();
    let keda = Keda::start(scene.bed, &scene.narrator.progress).await;
    let keda = keda.map_err(bed("start KEDA"))?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("KEDA runs, and the API server serves its metrics, after {seconds:.1} s"));
    let aws = scene.bed.aws().map_err(bed("use AWS"))?;
    let queue = Queue::create(aws.gateway().state().moto()).await.map_err(bed("create a queue"))?;
    apply(scene, "nodepool.yaml", guide::file(GUIDE, "nodepool.yaml")).await?;
    let worker = guide::file(GUIDE, "worker.yaml");
    let (before, rest) = worker.split_once("queueURL: ").expect("the guide names a queue");
    let (_, after) = rest.split_once('\n').expect("more lines");
    apply(scene, "worker.yaml", &format!("{before}queueURL: {}\n{after}", queue.url)).await?;
    eventually("the ScaledObject is ready", MINUTE, async || {
        let object = scaled_object(scene).await?;
        if objects::holds(&object, "Ready") {
            Ok(true)
        } else {
            Err(objects::blockers(&object).into())
        }
    })
    .await?;
    empty(scene, "there are no pods and no nodes").await?;
    let done = Arc::new(Mutex::new(BTreeSet::new()));
    let mut workers = JoinSet::new();
    workers.spawn(play(scene.client.clone(), queue.clone(), Arc::clone(&done)));
    scene.keda = Some(Scaled { _keda: keda, queue, done, _workers: workers });
    Ok(())
}

/// Waits until there are no workers and no nodes for them.
async fn empty(scene: &Scene<'_>, what: &str) -> Result<(), StoryError> {
    let user = user(scene);
    eventually(what, 3 * MINUTE, async || {
        let (pods, claims) = (user.pods(APP).await?.len(), user.claims(POOL).await?.len());
        if pods == 0 && claims == 0 {
            Ok(true)
        } else {
            Err(format!("{}, {}", count(pods, "pod"), count(claims, "NodeClaim")).into())
        }
    })
    .await?;
    Ok(())
}

fn scaled<'a>(scene: &'a Scene<'_>) -> &'a Scaled {
    scene.keda.as_ref().expect("an earlier chapter starts KEDA")
}

/// The legs of the way from messages to running workers.
const LEGS: [&str; 6] = [
    "KEDA creates the first worker",
    "Tenon creates the first NodeClaim",
    "the first node joins",
    "the first worker runs",
    "KEDA and the HorizontalPodAutoscaler have created all ten",
    "all ten run",
];

async fn messages(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let queue = scaled(scene).queue.clone();
    let started = Instant::now();
    for number in 0..MESSAGES {
        queue.send(&format!("job {number}")).await.map_err(bed("send a message"))?;
    }
    let user = user(scene);
    let legs = Mutex::new([None; LEGS.len()]);
    eventually("all workers run", 2 * MINUTE, async || {
        let (pods, claims) = (user.pods(APP).await?, user.claims(POOL).await?);
        let ready = pods.iter().filter(|pod| objects::is_ready(pod)).count();
        let over = [
            !pods.is_empty(),
            !claims.is_empty(),
            claims.iter().any(|claim| objects::holds(claim, "Registered")),
            ready > 0,
            pods.len() == WORKERS,
            ready == WORKERS,
        ];
        for (leg, over) in legs.lock().iter_mut().zip(over) {
            if over {
                leg.get_or_insert(started.elapsed());
            }
        }
        if ready == WORKERS {
            Ok(true)
        } else {
            Err(format!("{ready} of {} run", count(pods.len(), "worker")).into())
        }
    })
    .await?;
    for (what, leg) in LEGS.iter().zip(legs.into_inner()) {
        scene.note(format!("{what} after {:.1} s", leg.unwrap_or_default().as_secs_f64()));
    }
    Ok(())
}

/// How many workers are ready, by the name of their node.
async fn by_node(user: &User) -> Result<BTreeMap<String, usize>, kube::Error> {
    let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
    for pod in user.pods(APP).await?.iter().filter(|pod| objects::is_ready(pod)) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        *nodes.entry(node).or_default() += 1;
    }
    Ok(nodes)
}

/// The name of a NodeClaim's node; empty until there is one.
fn node_of(claim: &DynamicObject) -> String {
    claim.data["status"]["nodeName"].as_str().unwrap_or_default().to_owned()
}

async fn interrupt(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    let claims = user.claims(POOL).await.map_err(bed("list the NodeClaims"))?;
    let workers = by_node(&user).await.map_err(bed("list the workers"))?;
    scene.note(format!(
        "{} on {}",
        count(workers.values().sum(), "worker"),
        count(workers.len(), "node")
    ));
    let claim = claims.iter().find(|claim| workers.contains_key(&node_of(claim)));
    let claim = claim.ok_or_else(|| StoryError::Unexpected("no node has a worker".to_owned()))?;
    let (name, node) = (claim.name_any(), node_of(claim));
    let there = workers[&node];
    let started = Instant::now();
    let instance = instance_of(claim);
    let known: BTreeSet<String> = claims.iter().map(ResourceExt::name_any).collect();
    let control = scene.bed.control().map_err(bed("use AWS"))?;
    let warning = json!({ "instances": [instance], "notice": NOTICE.as_secs_f64() });
    control.post("interrupt", &warning).await.map_err(bed("interrupt an instance"))?;
    scene.note(format!("AWS takes back {instance} with {}", count(there, "worker")));
    eventually("a replacement is launched", MINUTE, async || {
        let claims = user.claims(POOL).await?;
        Ok(claims.iter().any(|claim| !known.contains(&claim.name_any())))
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("Tenon creates a NodeClaim for its replacement after {seconds:.1} s"));
    eventually("all workers run on other nodes", NOTICE, async || {
        let workers = by_node(&user).await?;
        let elsewhere: usize =
            workers.iter().filter(|(name, _)| **name != node).map(|(_, workers)| workers).sum();
        if elsewhere == WORKERS {
            Ok(true)
        } else {
            Err(format!("{} run on other nodes", count(elsewhere, "worker")).into())
        }
    })
    .await?;
    scene.note(format!("all ten run elsewhere after {:.1} s", started.elapsed().as_secs_f64()));
    eventually("the interrupted node is gone", MINUTE, async || {
        Ok(user.claims(POOL).await?.iter().all(|claim| claim.name_any() != name))
    })
    .await?;
    Ok(())
}

async fn rest(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let (queue, done) = (scaled(scene).queue.clone(), Arc::clone(&scaled(scene).done));
    let user = user(scene);
    let started = Instant::now();
    let seconds = || started.elapsed().as_secs_f64();
    let disrupted = Mutex::new(None);
    eventually("all messages are done", 3 * MINUTE, async || {
        let (waiting, received) = queue.length().await?;
        let (claims, workers) = (user.claims(POOL).await?, by_node(&user).await?);
        // A node that has lost its last worker may go.
        let going = claims.iter().find(|claim| {
            claim.metadata.deletion_timestamp.is_some() && workers.contains_key(&node_of(claim))
        });
        if let Some(claim) = going {
            disrupted.lock().get_or_insert(claim.name_any());
        }
        if done.lock().len() == MESSAGES && waiting + received == 0 {
            Ok(true)
        } else {
            Err(format!("{waiting} wait, {received} are being worked on").into())
        }
    })
    .await?;
    if let Some(claim) = disrupted.into_inner() {
        let text = format!("{claim} was disrupted while its workers were at work");
        return Err(StoryError::Unexpected(text));
    }
    scene.note(format!("all {MESSAGES} messages are done after {:.1} s", seconds()));
    eventually("KEDA scales to zero", 2 * MINUTE, async || Ok(user.pods(APP).await?.is_empty()))
        .await?;
    scene.note(format!("the last worker is gone after {:.1} s", seconds()));
    empty(scene, "the nodes are gone").await?;
    scene.note(format!("the last node is gone after {:.1} s", seconds()));
    Ok(())
}

async fn mistake(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let doing = "change the ScaledObject";
    let mut object = scaled_object(scene).await.map_err(bed(doing))?;
    let url = &mut object.data["spec"]["triggers"][0]["metadata"]["queueURL"];
    let missing = url.as_str().unwrap_or_default().replace(QUEUE, "no-such-queue");
    *url = json!(missing);
    let objects = objects::scaled_objects(&scene.client, "default");
    objects.replace(APP, &PostParams::default(), &object).await.map_err(bed(doing))?;
    let said = Mutex::new(String::new());
    eventually("KEDA says that the queue does not exist", MINUTE, async || {
        let object = scaled_object(scene).await?;
        if objects::holds(&object, "Ready") {
            return Ok(false);
        }
        *said.lock() = objects::blockers(&object);
        Ok(true)
    })
    .await?;
    scene.note(format!("the ScaledObject: {}", said.into_inner()));
    let user = user(scene);
    let launched = eventually("something is launched", POLLS, async || {
        let (pods, claims) = (user.pods(APP).await?, user.claims(POOL).await?);
        Ok(!pods.is_empty() || !claims.is_empty())
    });
    match launched.await {
        Err(_) => Ok(()),
        Ok(()) => Err(StoryError::Unexpected("something is launched all the same".to_owned())),
    }
}

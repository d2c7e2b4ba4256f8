//! The objects of a running cluster. Only reads.

use std::future::pending;
use std::panic::resume_unwind;

use futures::FutureExt as _;
use futures::future::{BoxFuture, try_join_all};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::{DeserializeGuard, ObjectList};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tenon_crds::{CapacityBuffer, EC2NodeClass, NodeClaim, NodeOverlay, NodePool};
use tenon_state::change::Watched;
use tenon_state::protobuf::Encoded;
use tenon_state::wire;
use tokio::task::JoinSet;

use super::encoded::list_page;
use super::error::SimulateError;
use super::input::{Input, PriorityClass, Read};
use super::options::{Freshness, Kind, Options, Subject};

/// Objects per request: enough to make few requests, few enough for the API server to answer at
/// once.
const PAGE: u32 = 1000;

/// How many pages of Events are read at most: what they say is helpful, not necessary.
const EVENT_PAGES: usize = 5;

/// Events of a running cluster: what has happened to its objects. They are read apart from the
/// objects, so that both can be read at the same time.
#[derive(Debug)]
pub struct Events(Vec<Event>);

impl Events {
    /// What explains one object: failed launches, and a pod's own Events.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses a request.
    pub async fn about(client: &Client, subject: &Subject) -> Result<Self, SimulateError> {
        let of_pod = async {
            if subject.kind != Kind::Pod {
                return Ok(Vec::new());
            }
            let of_pod = format!("involvedObject.kind=Pod,involvedObject.name={}", subject.name);
            some_events(client, &subject.namespace, &of_pod).await
        };
        Self::and_failed_launches(client, of_pod).await
    }

    /// What explains the state of all nodes: failed launches, and nodes that must not be disrupted.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses a request.
    pub async fn of_nodes(client: &Client) -> Result<Self, SimulateError> {
        let blocked = some_events(client, OF_NODES, "reason=DisruptionBlocked");
        Self::and_failed_launches(client, blocked).await
    }

    async fn and_failed_launches(
        client: &Client,
        others: impl Future<Output = Result<Vec<Event>, SimulateError>>,
    ) -> Result<Self, SimulateError> {
        let launches = some_events(client, OF_NODES, FAILED_LAUNCHES);
        let (mut events, others) = futures::try_join!(launches, others)?;
        events.extend(others);
        Ok(Self(events))
    }

    pub(super) fn all(&self) -> &[Event] {
        &self.0
    }
}

/// Events of objects without a namespace are in this one.
const OF_NODES: &str = "default";

const FAILED_LAUNCHES: &str = "involvedObject.kind=NodeClaim,type=Warning";

async fn some_events(
    client: &Client,
    namespace: &str,
    fields: &str,
) -> Result<Vec<Event>, SimulateError> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let mut params = ListParams::default().limit(PAGE).fields(fields);
    let mut events = Vec::new();
    for _ in 0..EVENT_PAGES {
        let page = api.list(&params).await.map_err(|source| SimulateError::List {
            resource: "events".to_owned(),
            source: Box::new(source),
        })?;
        events.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    Ok(events)
}

/// The objects of one list.
type List<'a> = BoxFuture<'a, Result<Vec<Read>, SimulateError>>;

/// Lists everything that plans depend on. Deployments and the like are left out: a running cluster
/// has their pods.
pub(super) async fn read(client: &Client, options: &Options) -> Result<Input, SimulateError> {
    let freshness = options.freshness;
    // All at once: each list waits for the API server, and that of pods for longer than all others
    // together.
    let mut lists: Vec<List<'_>> = vec![
        objects::<NodePool>(client, freshness).boxed(),
        objects::<NodeClaim>(client, freshness).boxed(),
        beside(encoded::<wire::Node>(client.clone(), freshness)).boxed(),
        beside(encoded::<wire::Pod>(client.clone(), freshness)).boxed(),
        ec2_classes(client, freshness).boxed(),
        objects::<wire::DaemonSet>(client, freshness).boxed(),
        objects::<wire::Namespace>(client, freshness).boxed(),
        objects::<wire::PodDisruptionBudget>(client, freshness).boxed(),
        priority_classes(client, freshness).boxed(),
        objects::<wire::PersistentVolume>(client, freshness).boxed(),
        objects::<wire::PersistentVolumeClaim>(client, freshness).boxed(),
        objects::<wire::StorageClass>(client, freshness).boxed(),
        objects::<wire::VolumeAttachment>(client, freshness).boxed(),
        objects::<wire::CSINode>(client, freshness).boxed(),
    ];
    if !options.ignore_dra_requests {
        lists.extend([
            objects::<wire::DeviceClass>(client, freshness).boxed(),
            objects::<wire::ResourceClaim>(client, freshness).boxed(),
            objects::<wire::ResourceClaimTemplate>(client, freshness).boxed(),
            objects::<wire::ResourceSlice>(client, freshness).boxed(),
        ]);
    }
    let gates = &options.feature_gates;
    if gates.is_on("NodeOverlay") {
        lists.push(objects::<NodeOverlay>(client, freshness).boxed());
    }
    if gates.is_on("CapacityBuffer") {
        lists.push(buffers(client, freshness).boxed());
    }
    if !options.scheduler_config.default_constraints.is_empty() {
        lists.extend([
            objects::<wire::Service>(client, freshness).boxed(),
            objects::<wire::ReplicationController>(client, freshness).boxed(),
            objects::<wire::StatefulSet>(client, freshness).boxed(),
            objects::<wire::ReplicaSet>(client, freshness).boxed(),
        ]);
    }
    let mut input = Input::default();
    for read in try_join_all(lists).await?.into_iter().flatten() {
        input.add(read);
    }
    Ok(input)
}

async fn ec2_classes(client: &Client, freshness: Freshness) -> Result<Vec<Read>, SimulateError> {
    let classes = list::<EC2NodeClass>(client, freshness).await?;
    Ok(classes.into_iter().map(|class| Read::Ec2NodeClass(Box::new(class))).collect())
}

async fn priority_classes(
    client: &Client,
    freshness: Freshness,
) -> Result<Vec<Read>, SimulateError> {
    let classes = list::<k8s_openapi::api::scheduling::v1::PriorityClass>(client, freshness);
    let read = |class: k8s_openapi::api::scheduling::v1::PriorityClass| {
        Read::PriorityClass(Box::new(PriorityClass {
            metadata: class.metadata,
            value: class.value.unwrap_or_default(),
            global_default: class.global_default.unwrap_or_default(),
        }))
    };
    Ok(classes.await?.into_iter().map(read).collect())
}

/// CapacityBuffers, and where there are some, what they may refer to and what bounds them.
async fn buffers(client: &Client, freshness: Freshness) -> Result<Vec<Read>, SimulateError> {
    let found = objects::<CapacityBuffer>(client, freshness).await?;
    if found.is_empty() {
        return Ok(found);
    }
    let (quotas, templates, deployments, sets, replicas) = futures::try_join!(
        objects::<wire::ResourceQuota>(client, freshness),
        objects::<wire::PodTemplate>(client, freshness),
        objects::<wire::Deployment>(client, freshness),
        objects::<wire::StatefulSet>(client, freshness),
        objects::<wire::ReplicaSet>(client, freshness),
    )?;
    Ok([found, quotas, templates, deployments, sets, replicas].into_iter().flatten().collect())
}

async fn objects<K: Watched>(
    client: &Client,
    freshness: Freshness,
) -> Result<Vec<Read>, SimulateError> {
    let listed = list::<K>(client, freshness).await?;
    Ok(listed.into_iter().map(|object| Read::Object(object.into_object())).collect())
}

/// The same for kinds that the API server writes in the Protobuf encoding, too.
async fn encoded<K: Encoded>(
    client: Client,
    freshness: Freshness,
) -> Result<Vec<Read>, SimulateError> {
    let mut listed = Vec::new();
    let mut params = first_page(freshness);
    loop {
        let page = list_page::<K>(&client, &params).await.map_err(unlisted::<K>)?;
        listed.extend(page.items.into_iter().filter_map(|object| match object.into_result() {
            Ok(object) => Some(Read::Object(object.into_object())),
            Err(invalid) => {
                left_out::<K>(&invalid.metadata, &invalid.error);
                None
            }
        }));
        match page.continue_token {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(listed),
        }
    }
}

/// Runs a list as a task of its own, which ends with this future. The API server sends an item at a
/// time. A connection is a task, too, and where both are, they take turns without a system call;
/// the thread that waits for a command's end would be woken once per item.
async fn beside<T: Send + 'static>(list: impl Future<Output = T> + Send + 'static) -> T {
    let mut task = JoinSet::new();
    task.spawn(list);
    match task.join_next().await {
        Some(Ok(listed)) => listed,
        Some(Err(error)) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and with it what waits here.
            Err(_) => pending().await,
        },
        None => pending().await,
    }
}

fn first_page(freshness: Freshness) -> ListParams {
    match freshness {
        Freshness::Latest => ListParams::default().limit(PAGE),
        // The watch cache answers in one piece whatever the limit.
        Freshness::Cached => ListParams::default().match_any(),
    }
}

fn left_out<K: Resource<DynamicType = ()>>(metadata: &ObjectMeta, error: &str) {
    let name = metadata.name.as_deref().unwrap_or_default();
    tracing::warn!(kind = %K::kind(&()), name, error, "leaving out an object that does not parse");
}

/// All objects of a kind; none if the API server does not know the kind. One that does not parse is
/// left out, as the operator leaves it out.
async fn list<K>(client: &Client, freshness: Freshness) -> Result<Vec<K>, SimulateError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let mut objects = Vec::new();
    let mut params = first_page(freshness);
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
            // One of them: which one, is only known when each is parsed alone, which takes twice as
            // long.
            Err(kube::Error::SerdeError(_)) => guarded(client, &params).await?,
            Err(source) => return Err(unlisted::<K>(source)),
        };
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// A page without the objects that do not parse.
async fn guarded<K>(client: &Client, params: &ListParams) -> Result<ObjectList<K>, SimulateError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    let page = api.list(params).await.map_err(unlisted::<K>)?;
    let parsed = page.items.into_iter().filter_map(|object| match object.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            left_out::<K>(&invalid.metadata, &invalid.error);
            None
        }
    });
    let items = parsed.collect();
    Ok(ObjectList { types: page.types, metadata: page.metadata, items })
}

fn unlisted<K: Resource<DynamicType = ()>>(source: kube::Error) -> SimulateError {
    SimulateError::List { resource: K::plural(&()).into_owned(), source: Box::new(source) }
}

//! Creating NodeClaims once, whatever becomes of the answer.
//!
//! A connection can die after the API server has taken a NodeClaim and before its answer arrives.
//! Nobody knows then whether it exists, and planning again would launch a second machine for the
//! same pods. So names are chosen here instead of by the API server: a creation without an answer
//! is asked for again under its name, of which there can be only one, and "already exists" means
//! that the first request has arrived. An annotation tells our NodeClaim from one of somebody else
//! who happened to choose the same name.

use std::time::Duration;

use kube::Api;
use kube::api::PostParams;
use tenon_crds::NodeClaim;
use tokio::time::Instant;
use uuid::Uuid;

use super::{MANAGER, WriteError, Writer, error};
use crate::state::change::Change;
use crate::state::cluster::{annotation, name};

/// Tells the creation that a NodeClaim comes from. It stays on the NodeClaim, and is not copied to
/// its Node.
pub(crate) const CREATION: &str = "tenon.sh/creation";

/// A creation without an answer is asked for again for so long. Further plans wait for it, and a
/// leader without an API server has lost its lease by then.
const PATIENCE: Duration = Duration::from_secs(30);
/// Why a NodeClaim was not created.
#[derive(Debug)]
enum NotCreated {
    /// Somebody else has the name.
    Taken(WriteError),
    Failed(WriteError),
}

/// Rest before it is asked for again; doubled each time.
const FIRST_REST: Duration = Duration::from_millis(250);
const LONGEST_REST: Duration = Duration::from_secs(4);

/// So many names are tried when others have them: of 14 million.
const NAMES: usize = 8;

/// What the API server makes suffixes of: no vowels, which could make words, and nothing that looks
/// like something else.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
/// As long as the API server makes names, for they become labels.
const LONGEST_NAME: usize = 63;

impl Writer {
    /// Creates a NodeClaim under a name that begins with its `generateName`. The state has it when
    /// this returns.
    pub(crate) async fn create_claim(&self, claim: &NodeClaim) -> Result<NodeClaim, WriteError> {
        let mut names_left = NAMES;
        loop {
            names_left -= 1;
            match self.create_named(&named(claim, Uuid::new_v4())).await {
                Ok(created) => {
                    self.state.apply(Change::Created(Box::new(created.clone()))).await;
                    return Ok(created);
                }
                Err(NotCreated::Taken(_)) if names_left > 0 => {}
                Err(NotCreated::Taken(error) | NotCreated::Failed(error)) => return Err(error),
            }
        }
    }

    async fn create_named(&self, claim: &NodeClaim) -> Result<NodeClaim, NotCreated> {
        let api: Api<NodeClaim> = self.all();
        let params =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let name = name(&claim.metadata);
        let give_up = Instant::now() + PATIENCE;
        let mut rest = FIRST_REST;
        let mut may_exist = false;
        loop {
            let source = match api.create(&params, claim).await {
                Ok(created) => return Ok(created),
                Err(source) => source,
            };
            let error = error("creating", "NodeClaim", &name, source);
            let is_taken = error.code() == Some(409);
            let failed = if is_taken { NotCreated::Taken } else { NotCreated::Failed };
            if !may_exist && !is_unanswered(&error) {
                return Err(failed(error));
            }
            // Now, or by an earlier request, it may have come to be.
            may_exist = true;
            let known = api.get_opt(&name).await;
            if let Ok(Some(found)) = &known {
                if annotation(found, CREATION) != annotation(claim, CREATION) {
                    return Err(NotCreated::Taken(error));
                }
                tracing::info!(
                    nodeclaim = name,
                    "a nodeclaim was created, although its creation got no answer"
                );
                return Ok(found.clone());
            }
            // A refusal of a later request holds for the first as well, once that is known not to
            // have arrived.
            let refused = !is_unanswered(&error) && known.is_ok();
            if refused || Instant::now() + rest > give_up {
                return Err(failed(error));
            }
            tracing::debug!(nodeclaim = name, error = %crate::text::chain(&error), "creating a nodeclaim again that may exist");
            tokio::time::sleep(rest).await;
            rest = (rest * 2).min(LONGEST_REST);
        }
    }
}

/// Whether the object may have been created all the same. A webhook that can't be reached is an
/// answer: it comes before the object is stored.
fn is_unanswered(error: &WriteError) -> bool {
    error.code().is_none_or(|code| matches!(code, 408 | 500..)) && !error.is_refused()
}

/// The NodeClaim with a name, and with the annotation that tells this creation from all others.
fn named(claim: &NodeClaim, id: Uuid) -> NodeClaim {
    let mut claim = claim.clone();
    let prefix = claim.metadata.generate_name.clone().unwrap_or_default();
    claim.metadata.name = Some(name_for(&prefix, id));
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.insert(CREATION.to_owned(), id.to_string());
    claim
}

/// A name as the API server would make it of a `generateName`.
fn name_for(prefix: &str, id: Uuid) -> String {
    let mut name: String = prefix.chars().take(LONGEST_NAME - SUFFIX).collect();
    let base = ALPHABET.len() as u128;
    let mut left = id.as_u128();
    for _ in 0..SUFFIX {
        let index = usize::try_from(left % base).expect("less than the alphabet is long");
        name.push(char::from(ALPHABET[index]));
        left /= base;
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::json;
    use tenon_crds::NodeClaimSpec;
    use tower::ServiceExt as _;

    use super::*;
    use crate::testing::bench::{self, Bench};
    use crate::testing::{ApiServer, refused};

    /// How a connection behaves.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        /// It dies after the API server has taken the request.
        AnswerLost,
        /// It dies before.
        RequestLost,
    }

    /// A writer whose first creations meet a fault each, and the number of creations that it asks
    /// for.
    fn writer(bench: &Bench, faults: &[Fault]) -> (Writer, Arc<AtomicUsize>) {
        let (router, faults) = (bench.api.router(), faults.to_vec());
        let creations = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&creations);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let fault = (request.method() == http::Method::POST)
                .then(|| counted.fetch_add(1, Ordering::Relaxed))
                .and_then(|number| faults.get(number).copied());
            let router = router.clone();
            async move {
                if fault == Some(Fault::RequestLost) {
                    return Err(tower::BoxError::from("connection reset"));
                }
                let answer = router.oneshot(request).await?;
                let (head, body) = answer.into_parts();
                let body = body.collect().await?.to_bytes();
                match fault {
                    Some(Fault::AnswerLost) => Err(tower::BoxError::from("connection reset")),
                    _ => Ok(http::Response::from_parts(head, Body::from(body.to_vec()))),
                }
            }
        });
        (Writer::new(kube::Client::new(service, "default"), bench.state.clone()), creations)
    }

    fn new_claim() -> NodeClaim {
        let claim = serde_json::from_value(bench::nodeclaim("x"));
        let mut claim: NodeClaim = claim.unwrap();
        claim.metadata.name = None;
        claim.metadata.generate_name = Some("default-".to_owned());
        claim
    }

    fn stored(api: &ApiServer) -> usize {
        api.count::<NodeClaim>()
    }

    #[tokio::test(start_paused = true)]
    async fn a_nodeclaim_whose_answer_was_lost_exists_once_and_is_known() {
        use Fault::{AnswerLost, RequestLost};
        for faults in [&[AnswerLost][..], &[RequestLost], &[RequestLost, RequestLost, AnswerLost]] {
            let bench = Bench::new().await;
            let (writer, _) = writer(&bench, faults);
            let created = writer.create_claim(&new_claim()).await.unwrap();
            assert_eq!(stored(&bench.api), 1);
            let state = bench.state.read();
            let known: Vec<_> = state.claims().map(|claim| name(&claim.metadata)).collect();
            assert_eq!(known, [name(&created.metadata)]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_gone_is_not_asked_for_ever() {
        let bench = Bench::new().await;
        let (writer, creations) = writer(&bench, &[Fault::RequestLost; 100]);
        let began = Instant::now();
        writer.create_claim(&new_claim()).await.unwrap_err();
        assert!(began.elapsed() <= PATIENCE, "{:?}", began.elapsed());
        let asked = creations.load(Ordering::Relaxed);
        assert!((8..20).contains(&asked), "{asked} times");
        assert_eq!(stored(&bench.api), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_somebody_else_has_is_left_to_them() {
        let bench = Bench::new().await;
        let (writer, _) = writer(&bench, &[Fault::AnswerLost]);
        let ours = named(&new_claim(), Uuid::from_u128(7));
        let name = name(&ours.metadata);
        let theirs = bench.api.put::<NodeClaim>(bench::nodeclaim(&name));
        for answer in ["lost", "409"] {
            let refused = writer.create_named(&ours).await;
            assert!(matches!(refused, Err(NotCreated::Taken(_))), "{answer}: {refused:?}");
            assert_eq!(bench.api.get::<NodeClaim>(&name), theirs);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_api_server_refuses_is_asked_for_once() {
        let bench = Bench::new().await;
        let server = ApiServer::answering(|_| refused(403, "Forbidden"));
        let writer = Writer::new(server.client(), bench.state.clone());
        let refused = writer.create_claim(&new_claim()).await.unwrap_err();
        assert_eq!(refused.code(), Some(403));
        assert_eq!(server.requests().len(), 1);
    }

    #[test]
    fn names_are_like_those_that_the_api_server_makes() {
        let names: BTreeSet<String> =
            (0..100).map(|_| name_for("default-", Uuid::new_v4())).collect();
        assert!(names.len() > 95, "{names:?}");
        for name in names {
            let suffix = name.strip_prefix("default-").unwrap();
            assert_eq!(suffix.len(), SUFFIX);
            assert!(suffix.bytes().all(|it| ALPHABET.contains(&it)), "{suffix}");
        }
        let long = "p".repeat(250) + "-";
        assert_eq!(name_for(&long, Uuid::new_v4()).len(), LONGEST_NAME);
        let claim = named(&NodeClaim::new("", NodeClaimSpec::default()), Uuid::from_u128(1));
        let annotations = json!(claim.metadata.annotations);
        assert_eq!(annotations[CREATION], json!(Uuid::from_u128(1).to_string()));
    }
}

//! The answer to a watch while it is under way: its bytes pass, wait, end with an error event, or
//! come no more, as the rules of each moment say.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use axum::body::Bytes;
use futures::{Stream, stream};
use http_body_util::BodyExt;
use hyper::body::Frame;
use kube::client::Body;
use tokio::sync::watch;

use super::Fault;
use super::gate::Gate;
use super::refusal::Refusal;
use super::requests::ApiRequest;
use super::rules::Rules;

type Item = Result<Frame<Bytes>, kube::Error>;

/// A watch's answer.
pub(super) struct UnderWay {
    request: ApiRequest,
    rules: Arc<Rules>,
    gate: Arc<Gate>,
    changes: watch::Receiver<()>,
    /// `None` when it has ended, or nobody is to hear the rest.
    upstream: Option<Body>,
    /// What has come and was not given yet. It grows while the answer is held, so that the API
    /// server does not drop a watch that nobody reads.
    waiting: VecDeque<Item>,
    /// The rules that hold the answer.
    held_by: Vec<u64>,
    /// The error event with which the watch is to end.
    last: Option<Refusal>,
    /// Whether what was given so far ends with a whole event.
    between_events: bool,
}

impl UnderWay {
    /// `held_by` is the rule that held the request, if one did.
    pub(super) fn new(
        request: ApiRequest,
        rules: &Arc<Rules>,
        gate: &Arc<Gate>,
        upstream: Body,
        held_by: Option<u64>,
    ) -> Self {
        Self {
            request,
            rules: Arc::clone(rules),
            gate: Arc::clone(gate),
            changes: rules.changes(),
            upstream: Some(upstream),
            waiting: VecDeque::new(),
            held_by: held_by.into_iter().collect(),
            last: None,
            between_events: true,
        }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Item> + Send {
        stream::unfold(self, async |mut this| this.next().await.map(|item| (item, this)))
    }

    async fn next(&mut self) -> Option<Item> {
        loop {
            self.changes.mark_unchanged();
            self.obey().await;
            if self.held_by.is_empty() {
                if self.between_events
                    && let Some(refusal) = self.last.take()
                {
                    self.upstream = None;
                    self.waiting.clear();
                    return Some(Ok(Frame::data(refusal.event(&self.request))));
                }
                if let Some(item) = self.waiting.pop_front() {
                    let data = item.as_ref().ok().and_then(Frame::data_ref);
                    if let Some(byte) = data.and_then(|data| data.last()) {
                        self.between_events = *byte == b'\n';
                    }
                    return Some(item);
                }
                self.upstream.as_ref()?;
            }
            self.hear().await;
        }
    }

    /// Waits until something comes or the rules change.
    async fn hear(&mut self) {
        let heard = async {
            match &mut self.upstream {
                Some(upstream) => upstream.frame().await,
                None => pending().await,
            }
        };
        tokio::select! {
            heard = heard => match heard {
                Some(item) => self.waiting.push_back(item),
                None => self.upstream = None,
            },
            // The sender lives as long as the rules, which are ours.
            _ = self.changes.changed() => {}
        }
    }

    /// Meets the rules that are new to it. Does not return from a rule that silences it.
    async fn obey(&mut self) {
        self.held_by.retain(|id| self.rules.holds(*id));
        while self.last.is_none() && self.upstream.is_some() {
            let Some(met) = self.rules.meet_under_way(&self.request, &self.held_by) else { return };
            match met.fault {
                Fault::Hold => self.held_by.push(met.id),
                Fault::Refuse(refusal) => self.last = Some(refusal),
                Fault::Expire => self.last = Some(Refusal::expired()),
                Fault::Silence | Fault::LoseAnswer => self.fall_silent().await,
                Fault::Hang => {
                    self.gate.hang();
                    self.fall_silent().await;
                }
                Fault::Cut => {
                    self.gate.cut();
                    self.fall_silent().await;
                }
            }
        }
    }

    async fn fall_silent(&mut self) {
        self.upstream = None;
        pending::<()>().await;
    }
}

//! What says which pods belong together where they have no topology spread of their own: Services,
//! and the selectors of pods' controllers.
//!
//! As in kube-scheduler, which forbids selectors in its default constraints and finds one for each
//! pod. A pod for which there is none is not spread.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::ObjectMeta;
use tenon_crds::labels::LabelRules;
use tenon_planner::snapshot::TopologySpread;

use super::Cluster;
use super::apply::key;
use crate::change::{Kind, ObjectKey};
use crate::pod::Controller;
use crate::scheduler::SchedulerConfig;

type Labels = BTreeMap<String, String>;

/// The default constraints, and the objects that say about which pods they are.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// Without selectors.
    constraints: Vec<TopologySpread>,
    /// What Services select, by namespace and name. Those that select nothing are left out.
    services: BTreeMap<ObjectKey, Labels>,
    /// What controllers of pods select.
    controllers: BTreeMap<(Kind, ObjectKey), LabelSelector>,
}

impl Spread {
    pub(super) fn new(config: &SchedulerConfig, rules: &LabelRules) -> Self {
        let constraints = config.default_constraints.iter().map(|it| it.to_planner(rules));
        Self {
            constraints: constraints.collect(),
            services: BTreeMap::new(),
            controllers: BTreeMap::new(),
        }
    }

    pub(super) fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        if kind == Kind::Service {
            return self.services.keys().cloned().collect();
        }
        let of_kind = self.controllers.keys().filter(|(of, _)| *of == kind);
        of_kind.map(|(_, key)| key.clone()).collect()
    }

    /// The constraints of a pod that has none of its own; none where nothing says which pods are
    /// like it.
    pub(crate) fn constraints(
        &self,
        namespace: &str,
        labels: &Labels,
        controller: Option<&Controller>,
    ) -> Vec<TopologySpread> {
        let Some(selector) = self.selector(namespace, labels, controller) else {
            return Vec::new();
        };
        let with_selector = |constraint: &TopologySpread| TopologySpread {
            selector: Some(selector.clone()),
            ..constraint.clone()
        };
        self.constraints.iter().map(with_selector).collect()
    }

    fn selector(
        &self,
        namespace: &str,
        labels: &Labels,
        controller: Option<&Controller>,
    ) -> Option<LabelSelector> {
        let mut wanted = Labels::new();
        let of_namespace = self
            .services
            .range(ObjectKey::new(namespace, "")..)
            .take_while(|(service, _)| *service.namespace == *namespace);
        for (_, selected) in of_namespace {
            if selected.iter().all(|(key, value)| labels.get(key) == Some(value)) {
                wanted.extend(selected.clone());
            }
        }
        let mut expressions = Vec::new();
        let own = controller.and_then(|Controller { kind, name }| {
            let key = (*kind, ObjectKey::new(namespace, &**name));
            Some((*kind, self.controllers.get(&key)?))
        });
        match own {
            Some((Kind::ReplicationController, selector)) => {
                wanted.extend(selector.match_labels.clone().unwrap_or_default());
            }
            Some((_, selector)) => {
                let labels = selector.match_labels.iter().flatten();
                expressions.extend(labels.map(|(key, value)| LabelSelectorRequirement {
                    key: key.clone(),
                    operator: "In".to_owned(),
                    values: Some(vec![value.clone()]),
                }));
                expressions.extend(selector.match_expressions.iter().flatten().cloned());
            }
            None => {}
        }
        // A selector that asks for nothing would count every pod of the namespace.
        if wanted.is_empty() && expressions.is_empty() {
            return None;
        }
        Some(LabelSelector {
            match_labels: (!wanted.is_empty()).then_some(wanted),
            match_expressions: (!expressions.is_empty()).then_some(expressions),
        })
    }
}

impl Cluster {
    pub(super) fn put_selector(
        &mut self,
        kind: Kind,
        metadata: &ObjectMeta,
        selector: Option<LabelSelector>,
    ) {
        let Some(spread) = &mut self.spread else { return };
        spread.controllers.insert((kind, key(metadata)), selector.unwrap_or_default());
    }

    pub(super) fn put_labels(&mut self, kind: Kind, metadata: &ObjectMeta, labels: Option<Labels>) {
        let Some(spread) = &mut self.spread else { return };
        if kind != Kind::Service {
            let selector = LabelSelector { match_labels: labels, match_expressions: None };
            spread.controllers.insert((kind, key(metadata)), selector);
            return;
        }
        match labels.filter(|labels| !labels.is_empty()) {
            Some(labels) => spread.services.insert(key(metadata), labels),
            None => spread.services.remove(&key(metadata)),
        };
    }

    pub(super) fn forget_selector(&mut self, kind: Kind, key: &ObjectKey) {
        let Some(spread) = &mut self.spread else { return };
        if kind == Kind::Service {
            spread.services.remove(key);
        } else {
            spread.controllers.remove(&(kind, key.clone()));
        }
    }
}

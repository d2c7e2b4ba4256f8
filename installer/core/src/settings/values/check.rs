//! What the schema can't say about the values: what the API server would refuse of the objects that
//! are made from them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use tenon_crds::Quantity;

use super::Values;
use super::monitor::alerts;
use crate::settings::syntax::{
    DNS_LABEL, DNS_NAME, LABEL_KEY, LABEL_VALUE, REPOSITORY, TAG, is_digest, is_dns_label,
    is_dns_name, is_label_key, is_label_value, is_repository, is_tag,
};

/// A value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::settings) struct Refused {
    /// Its path among the values.
    pub(in crate::settings) path: String,
    /// As it was given.
    pub(in crate::settings) value: String,
    /// What is allowed.
    pub(in crate::settings) allowed: String,
}

#[derive(Default)]
struct Judge {
    refused: Vec<Refused>,
}

impl Judge {
    fn expect(&mut self, holds: bool, path: &str, value: &str, allowed: &str) {
        if !holds {
            let (path, value, allowed) = (path.to_owned(), value.to_owned(), allowed.to_owned());
            self.refused.push(Refused { path, value, allowed });
        }
    }

    /// An empty text stands for the default.
    fn if_set(&mut self, holds: fn(&str) -> bool, path: &str, value: &str, allowed: &str) {
        self.expect(value.is_empty() || holds(value), path, value, allowed);
    }

    fn not_negative(&mut self, path: &str, value: i64) {
        self.expect(value >= 0, path, &value.to_string(), "0 or more");
    }

    fn one_of(&mut self, path: &str, value: &str, allowed: &[&str]) {
        self.expect(allowed.contains(&value), path, value, &allowed.join(", "));
    }

    fn keys(&mut self, path: &str, map: &BTreeMap<String, String>) {
        for key in map.keys() {
            self.expect(is_label_key(key), path, key, LABEL_KEY);
        }
    }

    fn labels(&mut self, path: &str, map: &BTreeMap<String, String>) {
        self.keys(path, map);
        for (key, value) in map {
            self.expect(is_label_value(value), &format!("{path}.{key}"), value, LABEL_VALUE);
        }
    }

    fn resources(&mut self, path: &str, resources: &ResourceRequirements) {
        let limits = resources.limits.iter().flatten();
        for (name, limit) in limits {
            let request = resources.requests.as_ref().and_then(|requests| requests.get(name));
            let Some(request) = request else { continue };
            if let (Ok(asked), Ok(most)) =
                (request.0.parse::<Quantity>(), limit.0.parse::<Quantity>())
            {
                // A negative limit is refused already.
                self.expect(
                    asked <= most || most < Quantity::ZERO,
                    &format!("{path}.requests.{name}"),
                    &request.0,
                    &format!("at most the limit, {}", limit.0),
                );
            }
        }
    }
}

impl Values {
    /// What the API server would refuse.
    pub(in crate::settings) fn check(&self) -> Vec<Refused> {
        let mut judge = Judge::default();
        self.check_names(&mut judge);
        self.check_labels(&mut judge);
        self.check_image(&mut judge);
        self.check_scheduling(&mut judge);
        judge.not_negative("revisionHistoryLimit", self.revision_history_limit.into());
        match &self.pod_disruption_budget.max_unavailable {
            IntOrString::Int(number) => {
                judge.not_negative("podDisruptionBudget.maxUnavailable", (*number).into());
            }
            IntOrString::String(share) => judge.expect(
                share.strip_suffix('%').is_some_and(|it| it.parse::<u32>().is_ok()),
                "podDisruptionBudget.maxUnavailable",
                share,
                "0 or more, or a share such as 50%",
            ),
        }
        if let Some(seconds) = self.termination_grace_period_seconds {
            judge.not_negative("terminationGracePeriodSeconds", seconds);
        }
        let alerts = alerts();
        for name in &self.prometheus_rule.disabled {
            let known: Vec<&str> = alerts.iter().map(String::as_str).collect();
            judge.one_of("prometheusRule.disabled", name, &known);
        }
        judge.resources("controller.resources", &self.controller.resources);
        for (key, text) in self.settings.texts() {
            let is_template = text.contains("{{");
            judge.expect(
                !is_template,
                &format!("settings.{key}"),
                text,
                "the value itself, because only Helm renders templates",
            );
        }
        judge.expect(
            !self.settings.aws_feature_gates.node_class_cel,
            "settings.awsFeatureGates.nodeClassCEL",
            "true",
            "false, because Tenon does not evaluate CEL expressions in spec.kubelet; write maxPods, kubeReserved and \
             systemReserved of EC2NodeClasses as values",
        );
        judge.refused
    }

    fn check_names(&self, judge: &mut Judge) {
        judge.if_set(is_label_value, "nameOverride", &self.name_override, LABEL_VALUE);
        // A Service has this name, too, and its name begins with a letter.
        let fits = |name: &str| is_dns_label(name) && name.starts_with(|c: char| c.is_alphabetic());
        judge.if_set(
            fits,
            "fullnameOverride",
            &self.fullname_override,
            "a DNS label that begins with a letter: at most 63 lower-case letters, digits and \
             dashes, no dash at an end",
        );
        judge.expect(
            fits(&self.fullname()) || !self.fullname_override.is_empty(),
            "nameOverride",
            &self.name_override,
            "a DNS label, because the names of objects end with it",
        );
        judge.if_set(is_dns_name, "serviceAccount.name", &self.service_account.name, DNS_NAME);
        let budget = &self.pod_disruption_budget.name;
        judge.expect(is_dns_name(budget), "podDisruptionBudget.name", budget, DNS_NAME);
        judge.if_set(is_dns_name, "priorityClassName", &self.priority_class_name, DNS_NAME);
        let container = &self.controller.container_name;
        judge.if_set(is_dns_label, "controller.containerName", container, DNS_LABEL);
    }

    fn check_labels(&self, judge: &mut Judge) {
        judge.labels("additionalLabels", &self.additional_labels);
        judge.labels("podLabels", &self.pod_labels);
        judge.labels("nodeSelector", &self.node_selector);
        judge.keys("additionalAnnotations", &self.additional_annotations);
        judge.keys("podAnnotations", &self.pod_annotations);
        judge.keys("service.annotations", &self.service.annotations);
        judge.keys("serviceAccount.annotations", &self.service_account.annotations);
    }

    fn check_image(&self, judge: &mut Judge) {
        let image = &self.controller.image;
        let repository = &image.repository;
        let path = "controller.image.repository";
        judge.expect(
            !image.is_karpenters(),
            path,
            repository,
            "the image of Tenon, such as REGISTRY/tenon-operator; this one is Karpenter's, and so are a tag and a \
             digest that were set with it",
        );
        judge.expect(is_repository(repository), path, repository, REPOSITORY);
        judge.if_set(is_tag, "controller.image.tag", &image.tag, TAG);
        let digest = "sha256: and 64 hexadecimal digits";
        judge.if_set(is_digest, "controller.image.digest", &image.digest, digest);
        let policies = ["Always", "IfNotPresent", "Never"];
        judge.one_of("imagePullPolicy", &self.image_pull_policy, &policies);
    }

    fn check_scheduling(&self, judge: &mut Judge) {
        let policies = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
        judge.one_of("dnsPolicy", &self.dns_policy, &policies);
        for (i, toleration) in self.tolerations.iter().enumerate() {
            if let Some(effect) = toleration.effect.as_deref().filter(|effect| !effect.is_empty()) {
                let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
                judge.one_of(&format!("tolerations[{i}].effect"), effect, &effects);
            }
        }
        for (i, spread) in self.topology_spread_constraints.iter().enumerate() {
            let path = format!("topologySpreadConstraints[{i}]");
            let skew = spread.max_skew;
            judge.expect(skew >= 1, &format!("{path}.maxSkew"), &skew.to_string(), "1 or more");
            let ways = ["DoNotSchedule", "ScheduleAnyway"];
            judge.one_of(&format!("{path}.whenUnsatisfiable"), &spread.when_unsatisfiable, &ways);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(overrides: &Value) -> Vec<String> {
        let refused = Values::merged(overrides).expect("the right types").check();
        refused.into_iter().map(|Refused { path, value, .. }| format!("{path} {value}")).collect()
    }

    #[test]
    fn the_defaults_are_allowed() {
        assert_eq!(Values::default().check(), []);
    }

    #[test]
    fn what_the_api_server_would_refuse_is_found() {
        let found = refused(&json!({
            "fullnameOverride": "9x", "serviceAccount": { "name": "A" },
            "podLabels": { "a b": "x", "team": "a/b" }, "podAnnotations": { "/x": "" },
            "imagePullPolicy": "always", "dnsPolicy": "Cluster", "revisionHistoryLimit": -1,
            "terminationGracePeriodSeconds": -5, "podDisruptionBudget": { "maxUnavailable": -1 },
            "tolerations": [{ "effect": "NoSchedul" }],
            "topologySpreadConstraints":
                [{ "maxSkew": 0, "topologyKey": "x", "whenUnsatisfiable": "Never" }],
            "controller": {
                "containerName": "A", "image": { "repository": "a:1", "tag": ".", "digest": "x" },
                "resources": { "requests": { "memory": "2Gi" }, "limits": { "memory": "1Gi" } },
            },
        }));
        insta::assert_snapshot!(found.join("\n"), @r"
        fullnameOverride 9x
        serviceAccount.name A
        controller.containerName A
        podLabels a b
        podLabels.team a/b
        podAnnotations /x
        controller.image.repository a:1
        controller.image.tag .
        controller.image.digest x
        imagePullPolicy always
        dnsPolicy Cluster
        tolerations[0].effect NoSchedul
        topologySpreadConstraints[0].maxSkew 0
        topologySpreadConstraints[0].whenUnsatisfiable Never
        revisionHistoryLimit -1
        podDisruptionBudget.maxUnavailable -1
        terminationGracePeriodSeconds -5
        controller.resources.requests.memory 2Gi
        ");
    }
}

//! The counters of the AWS provider, under upstream's names, and what the conditions of
//! EC2NodeClasses say.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenon_crds::{Condition, EC2NodeClass};
use tokio::sync::broadcast::error::RecvError;

use crate::clock::Clock;
use crate::context::Context;
use crate::gauges::conditions::of_classes;
use crate::gauges::transitions::Observer;
use crate::metrics::DURATION_BUCKETS;
use crate::metrics::declare::families;
use crate::metrics::exposition::{Exposed, Exposition, Gone};
use crate::metrics::transitions::Kind;
use crate::node_classes::NodeClasses;
use crate::tasks::Tasks;

const BATCH_SIZES: &[f64] = &[
    1.0, 2.0, 4.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0,
    125.0, 150.0, 175.0, 200.0, 225.0, 250.0, 275.0, 300.0, 350.0, 400.0, 450.0, 500.0, 550.0,
    600.0, 700.0, 800.0, 900.0, 1000.0,
];

families! {
    /// What the provider counts.
    #[derive(Clone, Debug)]
    pub(crate) struct AwsMetrics {
        /// Number of errors of CreateFleet, by offering and reason
        pub launch_failures: counters(
            "karpenter_cloudprovider_instance_launch_failures_total",
            ["zone", "zone_id", "capacity_type", "reason"],
        ),
        /// Number of terminations that EC2 refused
        pub termination_failures: counters(
            "karpenter_cloudprovider_instance_termination_failures_total", ["zone", "zone_id"],
        ),
        /// Time for which a batch of calls was open
        pub batch_time: histograms(
            "karpenter_cloudprovider_batcher_batch_time_seconds", ["batcher"], DURATION_BUCKETS,
        ),
        /// Number of calls in a batch
        pub batch_size: histograms(
            "karpenter_cloudprovider_batcher_batch_size", ["batcher"], BATCH_SIZES,
        ),
        /// Number of messages received from the interruption queue
        pub received_messages: counters(
            "karpenter_interruption_received_messages_total", ["message_type"],
        ),
        /// Number of messages deleted from the interruption queue
        pub deleted_messages: counters("karpenter_interruption_deleted_messages_total", []),
        /// Time from the event until it is handled
        pub message_latency: histograms(
            "karpenter_interruption_message_queue_duration_seconds", [], DURATION_BUCKETS,
        ),
        /// Number of instances that failed status checks or have scheduled events
        pub unhealthy_instances: counters(
            "karpenter_interruption_instance_status_unhealthy_total", ["category"],
        ),
        /// Size of the user data of launch templates before base64
        pub user_data_bytes: gauges("karpenter_ec2nodeclasses_userdata_bytes", ["nodeclass"]),
        /// Virtual CPUs of an instance type
        pub type_cores: gauges(
            "karpenter_cloudprovider_instance_type_cpu_cores", ["instance_type"],
        ),
        /// Memory of an instance type
        pub type_memory: gauges(
            "karpenter_cloudprovider_instance_type_memory_bytes", ["instance_type"],
        ),
        /// Price per hour in dollars
        pub offering_price: gauges(
            "karpenter_cloudprovider_instance_type_offering_price_estimate",
            ["instance_type", "capacity_type", "zone"],
        ),
        /// Whether the offering is currently available
        pub offering_available: gauges(
            "karpenter_cloudprovider_instance_type_offering_available",
            ["instance_type", "capacity_type", "zone"],
        ),
    }
}

/// Exposes the conditions of EC2NodeClasses, and counts how they change.
pub(super) fn follow(
    classes: &Arc<NodeClasses<EC2NodeClass>>,
    context: &Context,
    tasks: &mut Tasks,
) {
    let conditions = Conditions { classes: Arc::clone(classes), clock: context.clock };
    context.metrics.expose(Arc::new(conditions));
    let observer = Observer::new(context.metrics.clone(), context.clock, &[]);
    let (classes, mut changes) = (Arc::clone(classes), classes.changes());
    tasks.spawn("metrics.ec2nodeclass", async move {
        let mut known = BTreeMap::new();
        loop {
            match changes.recv().await {
                Ok(name) => observer.observe(&mut known, &name, classes.get(&name)),
                Err(RecvError::Lagged(_)) => {
                    let mut names: Vec<String> = known.keys().cloned().collect();
                    names.extend(classes.all().iter().filter_map(|it| it.metadata.name.clone()));
                    for name in names {
                        observer.observe(&mut known, &name, classes.get(&name));
                    }
                }
                // The store lives as long as the task.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    });
}

#[derive(Debug)]
struct Conditions {
    classes: Arc<NodeClasses<EC2NodeClass>>,
    clock: Clock,
}

impl Exposed for Conditions {
    fn expose(&self, out: &mut Exposition<'_>) -> Result<(), Gone> {
        fn conditions(class: &EC2NodeClass) -> &[Condition] {
            class.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
        }
        of_classes(Kind::EC2NodeClass, &self.classes.all(), conditions, self.clock.now(), out)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test(start_paused = true)]
    async fn the_conditions_of_an_ec2nodeclass_can_be_watched() {
        let classes = Arc::new(NodeClasses::<EC2NodeClass>::new());
        let class = serde_json::from_value(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {"amiSelectorTerms": [], "subnetSelectorTerms": [], "securityGroupSelectorTerms": []},
            "status": {"conditions": [{"type": "AMIsReady", "status": "False", "reason": "AMINotFound",
                "message": "", "lastTransitionTime": "2026-11-20T00:00:00Z"}]},
        }));
        classes.apply(class.unwrap());
        let metrics = Metrics::new();
        let clock = Clock::anchored("2026-11-20T01:00:00Z".parse().unwrap());
        metrics.expose(Arc::new(Conditions { classes, clock }));
        let text = metrics.encode().unwrap();
        let labels =
            r#"name="default",namespace="",type="AMIsReady",status="False",reason="AMINotFound""#;
        for line in [
            format!("operator_ec2nodeclass_status_condition_count{{{labels}}} 1.0"),
            format!(
                "operator_ec2nodeclass_status_condition_current_status_seconds{{{labels}}} 3600.0"
            ),
        ] {
            assert!(text.lines().any(|got| got == line), "no line {line} in\n{text}");
        }
    }
}

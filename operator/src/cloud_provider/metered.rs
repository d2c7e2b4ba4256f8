//! A cloud provider whose calls are measured, under the name of the controller that makes them.

use std::future::Future;
use std::sync::Arc;

use tenon_crds::labels::LabelRules;
use tenon_crds::nodeclaim::NodeClaim;
use tenon_planner::snapshot::{Catalog, NodeClassRef};
use tokio::time::Instant;

use super::{
    CloudError, CloudProvider, Context, Hook, Instance, Launched, NodeClassKind, NodeClassState,
    RepairPolicy,
};
use crate::claims::pool_of;
use crate::metrics::Metrics;
use crate::state::State;
use crate::tasks::{self, Tasks};
use crate::write::Writer;

/// Counts and times what is asked of a cloud.
#[derive(Debug)]
pub(crate) struct Metered<P> {
    inner: Arc<P>,
    metrics: Metrics,
}

impl<P: CloudProvider> Metered<P> {
    /// Measures `inner`.
    pub(crate) fn new(inner: Arc<P>, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }

    async fn measured<T>(
        &self,
        method: &'static str,
        node_pool: &str,
        call: impl Future<Output = Result<T, CloudError>> + Send,
    ) -> Result<T, CloudError> {
        let started = Instant::now();
        let result = call.await;
        self.observe(method, node_pool, started, result.as_ref().err());
        result
    }

    fn observe(
        &self,
        method: &'static str,
        node_pool: &str,
        started: Instant,
        error: Option<&CloudError>,
    ) {
        let (controller, provider) = (tasks::current(), self.inner.name());
        let seconds = started.elapsed().as_secs_f64();
        self.metrics.cloudprovider_duration.observe([controller, method, provider], seconds);
        if let Some(error) = error {
            let labels = [controller, method, provider, error.label(), node_pool];
            self.metrics.cloudprovider_errors.inc(labels);
        }
    }
}

impl<P: CloudProvider> CloudProvider for Metered<P> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn node_class_kinds(&self) -> &'static [NodeClassKind] {
        self.inner.node_class_kinds()
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        self.inner.repair_policies()
    }

    fn label_rules(&self) -> LabelRules {
        self.inner.label_rules()
    }

    async fn synced(&self) {
        self.inner.synced().await;
    }

    fn node_class(&self, reference: &NodeClassRef) -> Option<NodeClassState> {
        self.inner.node_class(reference)
    }

    fn catalog(&self, reference: &NodeClassRef) -> Result<Arc<Catalog>, CloudError> {
        let started = Instant::now();
        let result = self.inner.catalog(reference);
        self.observe("GetInstanceTypes", "", started, result.as_ref().err());
        result
    }

    async fn create(
        &self,
        claim: &NodeClaim,
        overlaid: Option<Arc<Catalog>>,
    ) -> Result<Launched, CloudError> {
        self.measured("Create", pool_of(claim), self.inner.create(claim, overlaid)).await
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        self.measured("Delete", pool_of(claim), self.inner.delete(claim)).await
    }

    async fn get(&self, provider_id: &str) -> Result<Instance, CloudError> {
        self.measured("Get", "", self.inner.get(provider_id)).await
    }

    async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        self.measured("List", "", self.inner.list()).await
    }

    async fn reboot(&self, claim: &NodeClaim, operation: &str) -> Result<(), CloudError> {
        self.measured("Reboot", pool_of(claim), self.inner.reboot(claim, operation)).await
    }

    async fn before_registration(&self, claim: &NodeClaim) -> Vec<Hook> {
        self.inner.before_registration(claim).await
    }

    async fn is_drifted(&self, claim: &NodeClaim) -> Result<Option<String>, CloudError> {
        self.measured("IsDrifted", pool_of(claim), self.inner.is_drifted(claim)).await
    }

    fn start_watching(self: &Arc<Self>, context: &Context, state: &State, tasks: &mut Tasks) {
        self.inner.start_watching(context, state, tasks);
    }

    fn start_controllers(self: &Arc<Self>, context: &Context, write: &Writer, tasks: &mut Tasks) {
        self.inner.start_controllers(context, write, tasks);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenon_crds::NodeClaimSpec;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Takes two seconds for everything, and has nothing.
    #[derive(Debug)]
    struct Empty;

    impl CloudProvider for Empty {
        fn name(&self) -> &'static str {
            "empty"
        }

        fn node_class_kinds(&self) -> &'static [NodeClassKind] {
            &[]
        }

        fn repair_policies(&self) -> Vec<RepairPolicy> {
            Vec::new()
        }

        async fn synced(&self) {}

        fn node_class(&self, _: &NodeClassRef) -> Option<NodeClassState> {
            None
        }

        fn catalog(&self, reference: &NodeClassRef) -> Result<Arc<Catalog>, CloudError> {
            Err(CloudError::NodeClassNotReady(reference.name.clone()))
        }

        async fn create(
            &self,
            _: &NodeClaim,
            _: Option<Arc<Catalog>>,
        ) -> Result<Launched, CloudError> {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Err(CloudError::InsufficientCapacity("there is nothing".to_owned()))
        }

        async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError> {
            Err(CloudError::NotFound(claim.metadata.name.clone().unwrap_or_default()))
        }

        async fn get(&self, provider_id: &str) -> Result<Instance, CloudError> {
            Err(CloudError::NotFound(provider_id.to_owned()))
        }

        async fn list(&self) -> Result<Vec<Instance>, CloudError> {
            Ok(Vec::new())
        }

        async fn is_drifted(&self, _: &NodeClaim) -> Result<Option<String>, CloudError> {
            Ok(None)
        }

        fn start_watching(self: &Arc<Self>, _: &Context, _: &State, _: &mut Tasks) {}

        fn start_controllers(self: &Arc<Self>, _: &Context, _: &Writer, _: &mut Tasks) {}
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_counted_under_the_controller_that_makes_them() {
        let metrics = Metrics::new();
        let cloud = Metered::new(Arc::new(Empty), metrics.clone());
        let mut claim = NodeClaim::new("a", NodeClaimSpec::default());
        claim.metadata.labels =
            Some([("karpenter.sh/nodepool".to_owned(), "default".to_owned())].into());
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn_graceful("nodeclaim.lifecycle", async move {
            cloud.create(&claim, None).await.unwrap_err();
            cloud.list().await.unwrap();
            cloud.reboot(&claim, "once").await.unwrap_err();
            stop.cancel();
        });
        tasks.join().await.unwrap();
        let text = metrics.encode().unwrap();
        for line in [
            r#"karpenter_cloudprovider_duration_seconds_sum{controller="nodeclaim.lifecycle",method="Create",provider="empty"} 2.0"#,
            r#"karpenter_cloudprovider_errors_total{controller="nodeclaim.lifecycle",method="Create",provider="empty",error="InsufficientCapacityError",nodepool="default"} 1"#,
            r#"karpenter_cloudprovider_duration_seconds_count{controller="nodeclaim.lifecycle",method="List",provider="empty"} 1"#,
            r#"karpenter_cloudprovider_errors_total{controller="nodeclaim.lifecycle",method="Reboot",provider="empty",error="NodeRebootNotImplementedError",nodepool="default"} 1"#,
        ] {
            assert!(text.lines().any(|got| got == line), "no line {line} in\n{text}");
        }
        assert!(!text.contains(r#"method="List",provider="empty",error"#), "{text}");
    }
}

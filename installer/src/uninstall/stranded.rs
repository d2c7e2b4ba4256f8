//! What the operator leaves when it is gone before its nodes: claims, nodes and classes whose
//! finalizers nobody takes off any more.
//!
//! A finalizer is removed only after what it protects is proven gone: a NodeClaim's after its
//! instance is terminated, an EC2NodeClass's after no claim is left and its instance profiles and
//! launch templates are deleted. Only where the user abandons instances it goes without that proof.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, PropagationPolicy};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tenon_iam_policies::Scope;
use tenon_installer_core::apply::drain::must_leave;
use tenon_installer_core::apply::{Context, ec2, iam};
use tenon_installer_core::aws::Aws;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::Eviction;
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::observe;
use tenon_installer_core::words::count;
use tokio::time::Instant;

use super::abandoned::Abandoned;
use super::objects::key;

pub(super) const CLAIM_FINALIZER: &str = "karpenter.sh/termination";
pub(super) const CLASS_FINALIZER: &str = "karpenter.k8s.aws/termination";

/// How many nodes are drained at once.
const AT_ONCE: usize = 10;

/// How claims are removed that no operator removes.
pub(crate) struct ClaimRemoval<'a> {
    pub(crate) context: &'a Context,
    /// How long pods may take to leave a node.
    pub(crate) evict_for: Duration,
    /// How long an instance may take to terminate.
    pub(crate) timeout: Duration,
    /// Which instances were let go of without a proof.
    pub(crate) abandoned: &'a Abandoned,
}

impl ClaimRemoval<'_> {
    /// Drains, terminates and lets go of claims.
    pub(crate) async fn claims(
        &self,
        scope: &Scope,
        claims: &[DynamicObject],
    ) -> Result<(), Failure> {
        let ours = observe::ec2::instances(&self.context.aws, scope).await?;
        all_of(claims.iter().map(|claim| self.claim(claim, &ours))).await
    }

    async fn claim(&self, claim: &DynamicObject, ours: &[String]) -> Result<(), Failure> {
        let context = self.context;
        let text = |pointer: &str| {
            claim.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let instance = text("/status/providerID").rsplit('/').next().unwrap_or_default().to_owned();
        let node = text("/status/nodeName");
        if !node.is_empty() {
            drain(context, &node, self.evict_for).await?;
        }
        if !instance.is_empty() {
            let end = async {
                // Only what carries the cluster's tags is terminated; one that is not in that list
                // is terminated already, or was never ours.
                if ours.contains(&instance) {
                    ec2::terminate(&context.aws, std::slice::from_ref(&instance)).await?;
                }
                prove_terminated(&context.aws, &instance, self.timeout).await
            };
            self.abandoned.instead_of(end.await, &instance)?;
        }
        if !node.is_empty() {
            remove_node(context, &node).await?;
        }
        let resource = resources::node_claims();
        let key = key(&resource, &claim.name_any());
        context.cluster.delete(&resource, &key, PropagationPolicy::Background).await?;
        context.cluster.remove_finalizer(&resource, &key, CLAIM_FINALIZER).await?;
        Ok(())
    }
}

/// Drains, terminates and proves gone instances that have no NodeClaim, and removes their Nodes.
pub(crate) async fn remove_instances(
    context: &Context,
    ids: &[String],
    drain_timeout: Duration,
    timeout: Duration,
    abandoned: &Abandoned,
) -> Result<(), Failure> {
    if ids.is_empty() {
        return Ok(());
    }
    let nodes: Vec<Node> = context.cluster.all().await?;
    all_of(ids.iter().map(|id| {
        let node = nodes.iter().find(|node| instance_of(node) == Some(id)).map(Node::name_any);
        async move {
            if let Some(node) = &node {
                drain(context, node, drain_timeout).await?;
            }
            let end = async {
                ec2::terminate(&context.aws, std::slice::from_ref(id)).await?;
                prove_terminated(&context.aws, id, timeout).await
            };
            abandoned.instead_of(end.await, id)?;
            match &node {
                Some(node) => remove_node(context, node).await,
                None => Ok(()),
            }
        }
    }))
    .await
}

/// Brings all removals to their end, a few at once, and answers the first failure.
async fn all_of(
    removals: impl Iterator<Item = impl Future<Output = Result<(), Failure>>>,
) -> Result<(), Failure> {
    let removals = futures::stream::iter(removals).buffer_unordered(AT_ONCE);
    removals.fold(Ok(()), async |first, next| first.and(next)).await
}

/// The instance behind a node.
fn instance_of(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()?.rsplit('/').next()
}

/// Removes a Node whose instance is gone.
async fn remove_node(context: &Context, name: &str) -> Result<(), Failure> {
    let resource = ApiResource::erase::<Node>(&());
    let key = key(&resource, name);
    context.cluster.delete(&resource, &key, PropagationPolicy::Background).await?;
    Ok(context.cluster.remove_finalizer(&resource, &key, CLAIM_FINALIZER).await?)
}

/// Cordons a node and evicts its pods, as long as their budgets take, and no longer than `at_most`.
async fn drain(context: &Context, node: &str, at_most: Duration) -> Result<(), Failure> {
    let resource = ApiResource::erase::<Node>(&());
    match context
        .cluster
        .merge(&resource, &key(&resource, node), &json!({"spec": {"unschedulable": true}}))
        .await
    {
        Err(error) if error.is_not_found() => return Ok(()),
        result => result?,
    }
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let end = Instant::now() + at_most;
    loop {
        let listed = context.cluster.pods(&format!("pods on {node}"), &on_node).await?;
        let left = listed.into_iter().filter(must_leave).collect::<Vec<_>>();
        if left.is_empty() {
            return Ok(());
        }
        let mut refusals = Vec::new();
        for pod in left.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            match context.cluster.evict(pod).await {
                Ok(Eviction::Accepted | Eviction::Gone) => {}
                Ok(Eviction::Refused(why)) => refusals.push(format!("{}: {why}", pod.name_any())),
                // The pod is asked again in the next round.
                Err(error) if error.is_transient() => refusals.push(error.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        if Instant::now() >= end {
            tracing::warn!(
                "{} did not leave {node}, which is terminated now: {}",
                count(left.len(), "pod"),
                refusals.join("; ")
            );
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until EC2 says twice in a row that an instance is terminated or unknown.
pub(crate) async fn prove_terminated(
    aws: &Aws,
    id: &str,
    at_most: Duration,
) -> Result<(), Failure> {
    let end = Instant::now() + at_most;
    let mut gone = 0;
    loop {
        let states = observe::ec2::instance_states(aws, id).await?;
        gone = if states.iter().all(|state| state == "terminated") { gone + 1 } else { 0 };
        if gone == 2 {
            return Ok(());
        }
        // A first answer that it is gone is worth a second, however late it is.
        if gone == 0 && Instant::now() >= end {
            return Err(Failure::Wait {
                what: format!("instance {id} to be terminated"),
                last: format!("it is {}", states.join(", ")),
            });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Deletes what the classes' finalizers protect, then the finalizers. Called when no NodeClaim is
/// left.
pub(super) async fn remove_classes(
    context: &Context,
    desired: &Desired,
    classes: &[DynamicObject],
) -> Result<(), Failure> {
    let claims = context.cluster.list(&resources::node_claims()).await?;
    if !claims.is_empty() {
        let names = claims.iter().map(ResourceExt::name_any).collect::<Vec<_>>().join(", ");
        return Err(Failure::Wait {
            what: "NodeClaims to be gone".to_owned(),
            last: format!("still present: {names}"),
        });
    }
    for name in
        observe::iam::instance_profiles(&context.aws, &desired.scope.instance_profile_path())
            .await?
    {
        iam::delete_instance_profile(&context.aws, &name).await?;
    }
    for id in observe::ec2::launch_templates(&context.aws, &desired.scope).await? {
        ec2::delete_launch_template(&context.aws, &id).await?;
    }
    release_classes(context, classes).await
}

/// Takes the finalizers off classes of which nothing is left.
pub(crate) async fn release_classes(
    context: &Context,
    classes: &[DynamicObject],
) -> Result<(), Failure> {
    let resource = resources::node_classes();
    for class in classes {
        context
            .cluster
            .remove_finalizer(&resource, &key(&resource, &class.name_any()), CLASS_FINALIZER)
            .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;
    use aws_sdk_ec2::config::{BehaviorVersion, Region};
    use aws_sdk_ec2::error::ErrorMetadata;
    use aws_sdk_ec2::operation::describe_instances::DescribeInstancesOutput;
    use aws_sdk_ec2::operation::terminate_instances::{
        TerminateInstancesError, TerminateInstancesOutput,
    };
    use aws_sdk_ec2::types::{Instance, InstanceState, InstanceStateName, Reservation};
    use aws_smithy_mocks::{
        MockResponseInterceptor, Rule, RuleMode, create_mock_http_client, mock,
    };

    use super::*;
    use tenon_installer_core::testing::Double;
    use tenon_installer_core::testing::desired;

    const NODE: &str = "/api/v1/nodes/one";
    const CLAIM: &str = "/apis/karpenter.sh/v1/nodeclaims/default-1";

    /// An account whose one instance is in this state whatever it is told.
    fn stuck(state: InstanceStateName) -> Aws {
        let described = move || {
            let state = InstanceState::builder().name(state.clone()).build();
            let instance = Instance::builder().instance_id("i-1").state(state).build();
            let reservation = Reservation::builder().instances(instance).build();
            DescribeInstancesOutput::builder().reservations(reservation).build()
        };
        let describe = mock!(aws_sdk_ec2::Client::describe_instances).then_output(described);
        let terminate = mock!(aws_sdk_ec2::Client::terminate_instances)
            .then_output(|| TerminateInstancesOutput::builder().build());
        account(&[describe, terminate])
    }

    fn account(rules: &[Rule]) -> Aws {
        let answers = MockResponseInterceptor::new().rule_mode(RuleMode::MatchAny);
        let config = aws_sdk_ec2::config::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .http_client(create_mock_http_client())
            .interceptor(rules.iter().fold(answers, MockResponseInterceptor::with_rule));
        Aws { ec2: aws_sdk_ec2::Client::from_conf(config.build()), ..Aws::nowhere() }
    }

    fn context(aws: Aws, server: &Double) -> Context {
        Context {
            aws,
            cluster: server.cluster(),
            cluster_name: "prod".to_owned(),
            install_id: "abcd0123".to_owned(),
        }
    }

    async fn remove(
        state: InstanceStateName,
        is_allowed: bool,
    ) -> (Result<(), Failure>, Vec<String>, Vec<String>) {
        let claim = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": "default-1", "finalizers": [CLAIM_FINALIZER]},
            "status": {"providerID": "aws:///eu-central-1a/i-1"},
        });
        let server = Double::start(&[(CLAIM, claim)]).await;
        let context = context(stuck(state), &server);
        let abandoned = Abandoned::new(is_allowed);
        let (evict_for, timeout) = (Duration::ZERO, Duration::ZERO);
        let removal = ClaimRemoval { context: &context, evict_for, timeout, abandoned: &abandoned };
        let claims = context.cluster.list(&resources::node_claims()).await.expect("it answers");
        let result = removal.claims(&desired("").scope, &claims).await;
        (result, server.paths(), abandoned.ids())
    }

    #[tokio::test]
    async fn a_claim_whose_instance_runs_on_goes_only_where_that_is_allowed() {
        let (result, left, abandoned) = remove(InstanceStateName::Running, false).await;
        let error = result.expect_err("there is no proof").to_string();
        assert!(error.contains("instance i-1 to be terminated"), "{error}");
        assert_eq!((left, abandoned), (vec![CLAIM.to_owned()], vec![]));
        let (result, left, abandoned) = remove(InstanceStateName::Running, true).await;
        result.expect("it is allowed");
        assert_eq!((left, abandoned), (vec![], vec!["i-1".to_owned()]));
    }
    #[tokio::test]
    async fn an_instance_that_is_gone_is_proven_so_even_when_time_is_up() {
        let (result, left, abandoned) = remove(InstanceStateName::Terminated, true).await;
        result.expect("it is gone");
        assert_eq!((left, abandoned), (vec![], vec![]));
    }
    #[tokio::test]
    async fn one_instance_that_can_t_be_ended_holds_up_no_other() {
        for is_allowed in [false, true] {
            let is_protected = |ids: &[String]| ids.iter().any(|id| id == "i-0");
            let refuse = mock!(aws_sdk_ec2::Client::terminate_instances)
                .match_requests(move |request| is_protected(request.instance_ids()))
                .then_error(|| {
                    let denied = ErrorMetadata::builder().code("OperationNotPermitted");
                    TerminateInstancesError::generic(denied.build())
                });
            let terminate = mock!(aws_sdk_ec2::Client::terminate_instances)
                .match_requests(move |request| !is_protected(request.instance_ids()))
                .then_output(|| TerminateInstancesOutput::builder().build());
            let describe = mock!(aws_sdk_ec2::Client::describe_instances)
                .then_output(|| DescribeInstancesOutput::builder().build());
            let node = json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "one", "finalizers": [CLAIM_FINALIZER]},
                "spec": {"providerID": "aws:///eu-central-1a/i-1"},
            });
            let server = Double::start(&[(NODE, node)]).await;
            let context = context(account(&[refuse, terminate, describe]), &server);
            let ids = ["i-0".to_owned(), "i-1".to_owned()];
            let abandoned = Abandoned::new(is_allowed);
            let (drain_for, timeout) = (Duration::ZERO, Duration::ZERO);
            let result = remove_instances(&context, &ids, drain_for, timeout, &abandoned).await;
            assert_eq!(result.is_ok(), is_allowed);
            assert!(server.paths().is_empty(), "the other is terminated, and its Node is removed");
            let expected: &[&str] = if is_allowed { &["i-0"] } else { &[] };
            assert_eq!(abandoned.ids(), expected);
        }
    }
}

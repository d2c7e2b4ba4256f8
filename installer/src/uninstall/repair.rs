//! Brings a missing operator back for the time of an uninstall: it drains its nodes, and takes its finalizers off, better than anybody else.

use super::objects::key;
use super::resources;
use crate::apply::wait;
use crate::errors::Failure;
use crate::kubernetes::client::{Cluster, KubeError};
use crate::kubernetes::freeze;
use crate::plan::{Op, Plan};

/// What of a plan the operator needs to work: all but new NodePools and EC2NodeClasses, and nothing that takes something away.
pub(crate) fn repair(mut plan: Plan) -> Plan {
    let is_for_nodes = |kind: &str| matches!(kind, "NodePool" | "EC2NodeClass");
    plan.steps.retain(|step| step.op != Op::Delete && !is_for_nodes(&step.kind));
    let ids = plan.steps.iter().map(|step| step.id.clone()).collect::<Vec<_>>();
    for step in &mut plan.steps {
        step.depends_on.retain(|id| ids.contains(id));
    }
    plan
}

/// Keeps NodePools from launching anything while others are drained.
pub(crate) async fn freeze_pools(cluster: &Cluster) -> Result<(), Failure> {
    let resource = resources::node_pools();
    for pool in cluster.list(&resource).await? {
        let key = key(&resource, pool.metadata.name.as_deref().unwrap_or_default());
        // Read anew each time: the patch holds only for the version that it was made from.
        let frozen = wait::transient(wait::Tries::seconds(30), || async {
            let live = cluster.get(&resource, &key).await?;
            match live.as_ref().and_then(freeze::freeze) {
                Some(patch) => cluster.merge(&resource, &key, &patch).await,
                None => Ok::<_, KubeError>(()),
            }
        });
        frozen.await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::is_runnable;
    use crate::plan::diff;
    use crate::plan::tests::{complete, desired, untouched};

    #[test]
    fn a_repair_brings_the_operator_back_and_makes_no_node_object() {
        let desired = desired("");
        let all = diff(&desired, &untouched()).expect("nothing is in the way");
        let repaired = repair(all.clone());
        assert!(is_runnable(&repaired));
        let gone =
            all.steps.iter().filter(|step| !repaired.steps.iter().any(|it| it.id == step.id));
        let gone = gone.map(|step| step.kind.as_str()).collect::<Vec<_>>();
        assert_eq!(gone, ["EC2NodeClass", "NodePool"]);
        let mut world = complete(&desired);
        world.objects.remove(&desired.deployment().expect("one").key());
        let plan = repair(diff(&desired, &world).expect("nothing is in the way"));
        let ids = plan.steps.iter().map(|step| step.id.as_str()).collect::<Vec<_>>();
        assert_eq!(ids, ["Deployment/kube-system/karpenter"]);
    }
}

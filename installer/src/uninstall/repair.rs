//! Brings a missing operator back for the time of an uninstall: it drains its nodes, and takes its
//! finalizers off, better than anybody else.

use tenon_installer_core::plan::{Op, Plan};

/// What of a plan the operator needs to work: all but new NodePools and EC2NodeClasses, and nothing
/// that takes something away.
pub(crate) fn repair(mut plan: Plan) -> Plan {
    let is_for_nodes = |kind: &str| matches!(kind, "NodePool" | "EC2NodeClass");
    plan.steps.retain(|step| step.op != Op::Delete && !is_for_nodes(&step.kind));
    let ids = plan.steps.iter().map(|step| step.id.clone()).collect::<Vec<_>>();
    for step in &mut plan.steps {
        step.depends_on.retain(|id| ids.contains(id));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_installer_core::apply::is_runnable;
    use tenon_installer_core::plan::diff;
    use tenon_installer_core::testing::{complete, desired, untouched};

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
        let mut actual = complete(&desired);
        actual.objects.remove(&desired.deployment().expect("one").key());
        let plan = repair(diff(&desired, &actual).expect("nothing is in the way"));
        let ids = plan.steps.iter().map(|step| step.id.as_str()).collect::<Vec<_>>();
        assert_eq!(ids, ["Deployment/kube-system/karpenter"]);
    }
}

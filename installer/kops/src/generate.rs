//! From an InstanceGroup to the objects that take its place.

use serde_json::{Value, json};
use tenon_crds::Taint;

use crate::boot::Boot;
use crate::cluster::{Cluster, Subnet, SubnetType};
use crate::group::{Group, Manager};
use crate::image::Image;
use crate::input::{Input, Note, Report};
use crate::problem::Problem;
use crate::{node_class, node_pool, taint};

/// The label of everything that is generated: the name of the InstanceGroup.
pub const GROUP_LABEL: &str = "tenon.sh/kops-instance-group";

/// The kubelet's label of worker nodes.
const ROLE_LABEL: &str = "node-role.kubernetes.io/node";

/// What only AWS knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The group's image.
    pub image: Image,
    /// Names of all instance types of the region; read only if the group excludes types by
    /// patterns.
    pub instance_types: Vec<String>,
}

/// The objects of an InstanceGroup.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// Its name.
    pub group: String,
    /// The EC2NodeClass, then the NodePools.
    pub objects: Vec<Value>,
    /// What is different from an Auto Scaling group, by field.
    pub notes: Vec<Note>,
}

/// The EC2NodeClass and NodePools that take the place of an InstanceGroup.
///
/// # Errors
/// Every field that cannot be mapped.
pub fn generate(
    cluster: &Cluster,
    group: &Group,
    boot: &Boot,
    facts: &Facts,
) -> Result<Generated, Vec<Problem>> {
    let mut report = Report::default();
    if group.manager != Manager::Karpenter || !group.is_of_nodes() {
        let why = "only groups of role Node with `manager: Karpenter` become NodePools";
        report.problem("spec.manager", why.to_owned());
    }
    let subnets = subnets(cluster, group, &mut report);
    let mut labels = boot.kubelet.node_labels.clone();
    labels.extend(cluster.node_labels.clone());
    labels.insert(ROLE_LABEL.to_owned(), String::new());
    labels.extend(group.spec.node_labels.clone());
    let own_taints = own_taints(group, &mut report);
    let mut taints = own_taints.clone();
    let registered = boot.taints.iter().filter(|taint| !taint::is_unregistered(taint));
    for taint in registered {
        if !taints.iter().any(|own| own.matches(taint)) {
            taints.push(taint.clone());
        }
    }
    let input = Input {
        cluster,
        group,
        boot,
        image: &facts.image,
        instance_types: &facts.instance_types,
        subnets,
        labels,
        taints,
        own_taints,
    };
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": group.name},
        "spec": node_class::spec(&input, &mut report),
    });
    let mut objects = vec![class];
    objects.extend(node_pool::pools(&input, &mut report));
    for object in &mut objects {
        object["metadata"]["labels"] = json!({GROUP_LABEL: group.name});
    }
    if !report.problems.is_empty() {
        let document = group.document();
        let problems = report.problems.iter();
        return Err(problems
            .map(|(field, message)| Problem::new(&document, field, message.as_str()))
            .collect());
    }
    let unmapped = group.unmapped.iter();
    report.notes.extend(
        unmapped.map(|field| Note { field: field.field.clone(), text: field.why.to_owned() }),
    );
    Ok(Generated { group: group.name.clone(), objects, notes: report.notes })
}

/// The group's subnets; kOps' choice where the group names none.
fn subnets<'a>(cluster: &'a Cluster, group: &Group, report: &mut Report) -> Vec<&'a Subnet> {
    let named = &group.spec.subnets;
    for name in named {
        if !cluster.subnets.iter().any(|subnet| subnet.name == *name) {
            let known = cluster.subnets.iter().map(|subnet| subnet.name.as_str());
            let known = known.collect::<Vec<_>>().join(", ");
            report
                .problem("spec.subnets", format!("the Cluster has no subnet {name}, only {known}"));
        }
    }
    let of = |pick: &dyn Fn(&Subnet) -> bool| {
        cluster.subnets.iter().filter(|subnet| pick(subnet)).collect::<Vec<_>>()
    };
    if !named.is_empty() {
        return of(&|subnet| named.contains(&subnet.name));
    }
    let usual = of(&|subnet| !matches!(subnet.kind, SubnetType::Utility | SubnetType::DualStack));
    if !usual.is_empty() {
        return usual;
    }
    let found = of(&|subnet| subnet.kind != SubnetType::Utility);
    if found.is_empty() {
        report.problem("spec.subnets", "the Cluster has no subnet for nodes".to_owned());
    }
    found
}

fn own_taints(group: &Group, report: &mut Report) -> Vec<Taint> {
    let mut taints = Vec::new();
    for text in &group.spec.taints {
        match taint::parse(text) {
            Some(taint) => taints.push(taint),
            None => report.problem(
                "spec.taints",
                format!(
                    "{text:?} is no taint: write KEY[=VALUE]:EFFECT with NoSchedule, \
                     PreferNoSchedule or NoExecute"
                ),
            ),
        }
    }
    taints
}

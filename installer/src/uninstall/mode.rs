//! What an uninstall takes and what it leaves on purpose.

use tenon_installer_core::desired::Desired;

use super::Inventory;

/// Which side is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Side {
    /// Both.
    #[default]
    Both,
    /// Only what is in the cluster, with the nodes.
    Kubernetes,
    /// Only what the installer made in AWS, when somebody else has removed the operator.
    Aws,
}

/// What is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mode {
    /// Which side.
    pub side: Side,
    /// Nodes stay, with everything that they need to live. Only where there are nodes.
    pub keep_nodes: bool,
    /// CRDs stay.
    pub keep_crds: bool,
}

impl Mode {
    /// Takes out of an inventory what stays, and says what that is and why.
    pub(crate) fn narrow(self, inventory: &mut Inventory, desired: &Desired) -> Vec<String> {
        let mut kept = Vec::new();
        if self.keep_crds {
            kept.extend(names(&mut inventory.crds, |crd| crd.key().to_string(), "--keep-crds"));
        }
        match self.side {
            Side::Both => {}
            Side::Kubernetes => kept.extend(keep_aws(inventory)),
            Side::Aws => kept.extend(keep_kubernetes(inventory)),
        }
        if self.keep_nodes {
            kept.extend(keep_nodes(inventory, desired));
        }
        kept
    }
}

fn names<T>(list: &mut Vec<T>, name: impl Fn(&T) -> String, why: &str) -> Vec<String> {
    std::mem::take(list).iter().map(|item| format!("{} ({why})", name(item))).collect()
}

fn one<T>(item: &mut Option<T>, name: impl Fn(&T) -> String, why: &str) -> Vec<String> {
    item.take().iter().map(|item| format!("{} ({why})", name(item))).collect()
}

/// What bears our tags in AWS. What the operator made for its nodes is not in it: it goes with
/// them.
fn keep_aws(inventory: &mut Inventory) -> Vec<String> {
    let why = "--k8s-only";
    let id = |what: &'static str| move |name: &String| format!("{what} {name}");
    let rule = |(name, _): &(String, Vec<String>)| format!("EventBridge rule {name}");
    let queue = |(name, _): &(String, String)| format!("SQS queue {name}");
    [
        one(&mut inventory.association, id("Pod Identity association"), why),
        one(&mut inventory.fargate, id("Fargate profile"), why),
        names(&mut inventory.access_entries, id("EKS access entry of"), why),
        names(&mut inventory.rules, rule, why),
        one(&mut inventory.queue, queue, why),
        names(&mut inventory.marked, id("discovery tag of"), why),
        one(&mut inventory.profile, id("instance profile"), why),
        one(&mut inventory.provider, id("identity provider"), why),
        names(&mut inventory.roles, id("IAM role"), why),
    ]
    .concat()
}

/// `aws-auth` is not in it: its element lets in a role that is about to go.
fn keep_kubernetes(inventory: &mut Inventory) -> Vec<String> {
    let why = "--aws-only";
    let kept = [
        names(&mut inventory.nodes.classes, |class| named("EC2NodeClass", class), why),
        names(&mut inventory.nodes.pools, |pool| named("NodePool", pool), why),
        names(&mut inventory.nodes.overlays, |overlay| named("NodeOverlay", overlay), why),
        names(&mut inventory.operator, |object| object.key().to_string(), why),
        names(&mut inventory.releases, |secret| format!("Helm revision {secret}"), why),
        names(&mut inventory.leases, |lease| lease.key().to_string(), why),
        names(&mut inventory.crds, |crd| crd.key().to_string(), why),
        one(&mut inventory.namespace, |namespace| namespace.key().to_string(), why),
    ];
    kept.concat()
}

fn named(kind: &str, object: &kube::api::DynamicObject) -> String {
    format!("{kind} {}", kube::ResourceExt::name_any(object))
}

/// A node without its role, its instance profile or its access entry loses the cluster; without the
/// record nobody would know that they are ours.
fn keep_nodes(inventory: &mut Inventory, desired: &Desired) -> Vec<String> {
    let why = "the kept nodes need it";
    let id = |what: &'static str| move |name: &String| format!("{what} {name}");
    // Nodes from before the settings named another role go on with the one that was made for them.
    let node_roles = [&desired.node_role.name, &desired.own_roles.node];
    let mut roles = Vec::new();
    inventory.roles.retain(|role| {
        let stays = node_roles.contains(&role);
        if stays {
            roles.push(format!("IAM role {role} ({why})"));
        }
        !stays
    });
    let mut kept = vec![format!(
        "{} ({})",
        tenon_installer_core::words::count(inventory.nodes.instances.len(), "EC2 instance"),
        inventory.nodes.instances.join(", ")
    )];
    inventory.nodes.instances.clear();
    kept.extend(roles);
    kept.extend(names(&mut inventory.nodes.instance_profiles, id("instance profile"), why));
    kept.extend(one(&mut inventory.profile, id("instance profile"), why));
    kept.extend(names(&mut inventory.access_entries, id("EKS access entry of"), why));
    kept.extend(one(&mut inventory.aws_auth, id("aws-auth element of"), why));
    kept.extend(one(
        &mut inventory.namespace,
        |namespace| namespace.key().to_string(),
        "it holds the record",
    ));
    inventory.has_record = false;
    kept.push(
        "the record of the installation (`tenon uninstall` uses it to find and remove the \
         kept resources)"
            .to_owned(),
    );
    kept
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;

    use super::*;
    use crate::uninstall::Nodes;
    use tenon_installer_core::desired::RoleUse;
    use tenon_installer_core::kubernetes::resources;
    use tenon_installer_core::testing::desired;

    fn inventory(desired: &Desired) -> Inventory {
        Inventory {
            nodes: Nodes {
                claims: vec![DynamicObject::new("default-1", &resources::node_claims())],
                overlays: vec![DynamicObject::new("cheaper", &resources::node_overlays())],
                instances: vec!["i-1".to_owned()],
                instance_profiles: vec!["made-by-the-operator".to_owned()],
                ..Nodes::default()
            },
            crds: desired.crds.clone(),
            operator: desired.operator.clone(),
            namespace: Some(desired.namespace.clone()),
            access_entries: vec![desired.node_role.arn.clone()],
            queue: Some((desired.queue_name.clone(), "https://queue".to_owned())),
            roles: vec![desired.controller_role.name.clone(), desired.node_role.name.clone()],
            has_record: true,
            ..Inventory::default()
        }
    }

    #[test]
    fn everything_goes_unless_it_is_said() {
        let desired = desired("");
        let mut all = inventory(&desired);
        let before = all.lines();
        assert_eq!(Mode::default().narrow(&mut all, &desired), Vec::<String>::new());
        assert_eq!(all.lines(), before);
    }

    #[test]
    fn nodes_that_stay_keep_what_they_live_on_and_nothing_else() {
        let desired = desired("");
        let mut left = inventory(&desired);
        let mode = Mode { keep_nodes: true, ..Mode::default() };
        let kept = mode.narrow(&mut left, &desired).join("\n");
        for word in ["i-1", "made-by-the-operator", "access entry", "the record"] {
            assert!(kept.contains(word), "{word} is not kept: {kept}");
        }
        assert!(kept.contains(&desired.node_role.name), "{kept}");
        assert_eq!(left.roles, std::slice::from_ref(&desired.controller_role.name));
        assert!(left.queue.is_some() && !left.operator.is_empty() && !left.crds.is_empty());
        assert!(
            left.nodes.instances.is_empty() && left.access_entries.is_empty() && !left.has_record
        );
    }

    #[test]
    fn nodes_that_stay_keep_a_role_that_the_settings_no_longer_ask_for() {
        let mut desired = desired("");
        let mut left = inventory(&desired);
        desired.node_role = RoleUse {
            arn: "arn:aws:iam::111122223333:role/theirs".to_owned(),
            name: "theirs".to_owned(),
            spec: None,
        };
        let kept = Mode { keep_nodes: true, ..Mode::default() }.narrow(&mut left, &desired);
        let role = &desired.own_roles.node;
        let why = format!("IAM role {role} (the kept nodes need it)");
        assert!(kept.contains(&why), "{kept:?}");
        assert_eq!(left.roles, std::slice::from_ref(&desired.controller_role.name));
    }

    #[test]
    fn each_side_leaves_the_other() {
        let desired = desired("");
        let mut kubernetes = inventory(&desired);
        Mode { side: Side::Kubernetes, ..Mode::default() }.narrow(&mut kubernetes, &desired);
        assert!(kubernetes.roles.is_empty() && kubernetes.queue.is_none());
        assert!(!kubernetes.operator.is_empty() && !kubernetes.nodes.instances.is_empty());
        assert!(kubernetes.lines().contains(&" - 1 NodeOverlay: cheaper".to_owned()));
        let mut aws = inventory(&desired);
        let kept = Mode { side: Side::Aws, ..Mode::default() }.narrow(&mut aws, &desired);
        assert!(kept.contains(&"NodeOverlay cheaper (--aws-only)".to_owned()), "{kept:?}");
        assert!(aws.nodes.overlays.is_empty());
        assert!(aws.operator.is_empty() && aws.crds.is_empty() && aws.namespace.is_none());
        assert!(!aws.roles.is_empty() && aws.queue.is_some());
    }
}

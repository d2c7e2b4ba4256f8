//! What the operator may do in the cluster: upstream's rules, so that a cluster's own RBAC audits
//! need not change.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};

use super::lease;
use super::object::Object;
use super::release::{Release, metadata};
use crate::settings::values::Values;

const KARPENTER: &str = "karpenter.sh";
const PROVIDER: &str = "karpenter.k8s.aws";
const BUFFERS: &str = "autoscaling.x-k8s.io";

const READ: [&str; 3] = ["get", "list", "watch"];

/// The roles and their bindings.
pub fn objects(values: &Values, release: &Release) -> Vec<Object> {
    let name = &*values.fullname();
    let core = format!("{name}-core");
    let dns = format!("{name}-dns");
    let reader = format!("{name}-decisions-reader");
    let mut objects = vec![
        Object::new(&admin(values, release)),
        Object::new(&cluster_role(values, release, &core, core_rules(values))),
        Object::new(&cluster_role(values, release, name, provider_rules())),
        Object::new(&cluster_role(values, release, &reader, vec![get_url("/decisions")])),
        Object::new(&cluster_role_binding(values, release, &core)),
        Object::new(&cluster_role_binding(values, release, name)),
        Object::new(&role(values, release, name, &release.namespace, lease_rules(values))),
        Object::new(&role(
            values,
            release,
            &dns,
            "kube-system",
            vec![rule(&[""], &["services"], &["get"], &["kube-dns"])],
        )),
        Object::new(&role(values, release, &reader, &release.namespace, reach_rules())),
        Object::new(&role_binding(values, release, name, &release.namespace)),
        Object::new(&role_binding(values, release, &dns, "kube-system")),
    ];
    if values.controller.dashboard.enabled {
        objects.extend(dashboard(values, release));
    }
    objects
}

/// Who may see the dashboard: the bearer of a token of this account, and who may request one.
fn dashboard(values: &Values, release: &Release) -> [Object; 4] {
    let name = &*format!("{}-dashboard-reader", values.fullname());
    let account = ServiceAccount {
        metadata: metadata(values, release, name, Some(&release.namespace)),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    };
    let mut rules = reach_rules();
    rules.push(rule(&[""], &["serviceaccounts/token"], &["create"], &[name]));
    let binding = ClusterRoleBinding {
        metadata: metadata(values, release, name, None),
        role_ref: role_ref("ClusterRole", name),
        subjects: Some(vec![subject(release, name)]),
    };
    [
        Object::new(&account),
        Object::new(&cluster_role(values, release, name, vec![get_url("/dashboard")])),
        Object::new(&binding),
        Object::new(&role(values, release, name, &release.namespace, rules)),
    ]
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(owned(groups)),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        resource_names: (!names.is_empty()).then(|| owned(names)),
        non_resource_urls: None,
    }
}

fn core_rules(values: &Values) -> Vec<PolicyRule> {
    let mut rules = vec![
        rule(
            &[KARPENTER],
            &[
                "nodepools",
                "nodepools/status",
                "nodeclaims",
                "nodeclaims/status",
                "nodeoverlays",
                "nodeoverlays/status",
            ],
            &READ,
            &[],
        ),
        rule(&[BUFFERS], &["capacitybuffers", "capacitybuffers/status"], &READ, &[]),
        rule(
            &[""],
            &[
                "podtemplates",
                "resourcequotas",
                "pods",
                "nodes",
                "persistentvolumes",
                "persistentvolumeclaims",
                "replicationcontrollers",
                "services",
                "namespaces",
                "events",
            ],
            &READ,
            &[],
        ),
        rule(&["storage.k8s.io"], &["storageclasses", "csinodes", "volumeattachments"], &READ, &[]),
        rule(&["apps"], &["daemonsets", "deployments", "replicasets", "statefulsets"], &READ, &[]),
        rule(
            &["resource.k8s.io"],
            &["deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"],
            &READ,
            &[],
        ),
        rule(&["policy"], &["poddisruptionbudgets"], &READ, &[]),
        rule(
            &[KARPENTER],
            &["nodeclaims", "nodeclaims/status"],
            &["create", "delete", "update", "patch"],
            &[],
        ),
        rule(
            &[KARPENTER],
            &["nodepools", "nodepools/status", "nodeoverlays/status"],
            &["update", "patch"],
            &[],
        ),
        // Owner references with blockOwnerDeletion need this where that admission plugin is on.
        rule(&[KARPENTER], &["nodeclaims/finalizers", "nodepools/finalizers"], &["update"], &[]),
        rule(&[BUFFERS], &["capacitybuffers/status"], &["update", "patch"], &[]),
        rule(&[""], &["events"], &["create", "patch"], &[]),
        rule(&["events.k8s.io"], &["events"], &["create", "patch"], &[]),
        rule(&[""], &["nodes"], &["patch", "delete", "update"], &[]),
        rule(&[""], &["pods/eviction"], &["create"], &[]),
        rule(&[""], &["pods/status"], &["patch"], &[]),
        rule(&[""], &["pods"], &["delete", "patch"], &[]),
        // Who asks for decisions, and tokens of the operator's own account, for users with
        // client certificates.
        rule(&["authentication.k8s.io"], &["tokenreviews"], &["create"], &[]),
        rule(&["authorization.k8s.io"], &["subjectaccessreviews"], &["create"], &[]),
        get_url("/decisions"),
    ];
    rules.extend(values.additional_cluster_role_rules.iter().cloned());
    rules
}

/// Reading what the operator serves at a path.
fn get_url(path: &str) -> PolicyRule {
    PolicyRule {
        non_resource_urls: Some(vec![path.to_owned()]),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    }
}

/// What it takes to find the operator and to reach its ledger.
fn reach_rules() -> Vec<PolicyRule> {
    vec![
        rule(&["apps"], &["deployments"], &["get", "list"], &[]),
        rule(&["coordination.k8s.io"], &["leases"], &["get"], &[]),
        rule(&[""], &["pods"], &["get", "list"], &[]),
        rule(&[""], &["pods/portforward"], &["get", "create"], &[]),
    ]
}

fn provider_rules() -> Vec<PolicyRule> {
    vec![
        rule(&[PROVIDER], &["ec2nodeclasses"], &READ, &[]),
        rule(&[PROVIDER], &["ec2nodeclasses", "ec2nodeclasses/status"], &["patch", "update"], &[]),
    ]
}

fn lease_rules(values: &Values) -> Vec<PolicyRule> {
    let mut names = vec![lease::NAME];
    let told = values.controller.env.iter().filter(|entry| entry.name == lease::NAME_VARIABLE);
    names.extend(told.filter_map(|entry| entry.value.as_deref()).filter(|name| !name.is_empty()));
    let leases = ["leases"];
    let group = ["coordination.k8s.io"];
    vec![
        rule(&group, &leases, &["get", "watch"], &[]),
        rule(&group, &leases, &["patch", "update"], &names),
        // RBAC can't name what is to be created.
        rule(&group, &leases, &["create"], &[]),
    ]
}

fn admin(values: &Values, release: &Release) -> ClusterRole {
    let verbs = ["get", "list", "watch", "create", "delete", "patch"];
    let mut metadata = metadata(values, release, &format!("{}-admin", values.fullname()), None);
    metadata
        .labels
        .get_or_insert_default()
        .insert("rbac.authorization.k8s.io/aggregate-to-admin".to_owned(), "true".to_owned());
    ClusterRole {
        metadata,
        rules: Some(vec![
            rule(
                &[KARPENTER],
                &["nodepools", "nodepools/status", "nodeclaims", "nodeclaims/status"],
                &verbs,
                &[],
            ),
            rule(&[PROVIDER], &["ec2nodeclasses"], &verbs, &[]),
        ]),
        aggregation_rule: None,
    }
}

fn cluster_role(
    values: &Values,
    release: &Release,
    name: &str,
    rules: Vec<PolicyRule>,
) -> ClusterRole {
    ClusterRole {
        metadata: metadata(values, release, name, None),
        rules: Some(rules),
        aggregation_rule: None,
    }
}

fn role(
    values: &Values,
    release: &Release,
    name: &str,
    namespace: &str,
    rules: Vec<PolicyRule>,
) -> Role {
    Role { metadata: metadata(values, release, name, Some(namespace)), rules: Some(rules) }
}

fn subjects(values: &Values, release: &Release) -> Vec<Subject> {
    vec![subject(release, &values.service_account_name())]
}

fn subject(release: &Release, account: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: account.to_owned(),
        namespace: Some(release.namespace.clone()),
        api_group: None,
    }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

fn cluster_role_binding(values: &Values, release: &Release, name: &str) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: metadata(values, release, name, None),
        role_ref: role_ref("ClusterRole", name),
        subjects: Some(subjects(values, release)),
    }
}

fn role_binding(values: &Values, release: &Release, name: &str, namespace: &str) -> RoleBinding {
    RoleBinding {
        metadata: metadata(values, release, name, Some(namespace)),
        role_ref: role_ref("Role", name),
        subjects: Some(subjects(values, release)),
    }
}

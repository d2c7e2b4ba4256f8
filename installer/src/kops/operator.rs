//! Tenon's operator in a kOps cluster, as kOps and Helm install it: the permissions that go into
//! the Cluster, and the values of the chart.

use serde_json::{Value, json};
use tenon_iam_policies::controller::{ControllerPolicy, controller_policies};
use tenon_iam_policies::size::{SizeError, check_inline};
use tenon_iam_policies::{Features, InstanceProfiles, Partition, Scope};
use tenon_kops::{queue_name, role_name};

/// The operator's ServiceAccount, as the chart names it.
const ACCOUNT: &str = "karpenter";
/// Its namespace.
const NAMESPACE: &str = "kube-system";
/// For whom kOps' OIDC provider takes tokens.
const AUDIENCE: &str = "amazonaws.com";
/// Where the token is, as in kOps' own add-ons.
const TOKEN_FOLDER: &str = "/var/run/secrets/amazonaws.com/";
/// How long a token is good, in seconds, as in kOps' own add-ons.
const TOKEN_SECONDS: u32 = 86_400;
/// The label and taint of nodes of the control plane.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Where the operator runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// As in `metadata.name` of the Cluster.
    pub cluster: String,
    /// Where its subnets are.
    pub region: String,
    /// Twelve digits, as STS says of the caller.
    pub account: String,
    /// How many nodes its control plane has.
    pub control_planes: i64,
    /// ARNs of the roles of its nodes.
    pub node_roles: Vec<String>,
}

impl Place {
    fn scope(&self) -> Scope {
        Scope {
            partition: Partition::of_region(&self.region),
            region: self.region.clone(),
            account: self.account.clone(),
            cluster: self.cluster.clone(),
            queue: Some(queue_name(&self.cluster)),
            node_roles: self.node_roles.clone(),
            features: Features {
                instance_profiles: InstanceProfiles::Static,
                // ARC shifts EKS clusters only.
                zonal_shift: false,
                ..Features::default()
            },
        }
    }
}

/// What `kops edit cluster` is to add: kOps creates the operator's role from it.
///
/// # Errors
/// If the statements are more than a role may have.
pub(crate) fn cluster_spec(place: &Place) -> Result<Value, SizeError> {
    let mut policies = controller_policies(&place.scope());
    policies.retain(|policy| policy.part != ControllerPolicy::EksIntegration);
    check_inline(&policies)?;
    let statements = policies.iter().flat_map(|policy| {
        let document: Value = serde_json::from_str(&policy.document.to_json()).unwrap_or_default();
        document["Statement"].as_array().cloned().unwrap_or_default()
    });
    // kOps takes the list of statements, and writes the document around it.
    let statements = Value::Array(statements.collect());
    let policy = serde_json::to_string_pretty(&statements).unwrap_or_default();
    Ok(json!({
        "spec": {
            "iam": {
                "useServiceAccountExternalPermissions": true,
                "serviceAccountExternalPermissions": [{
                    "name": ACCOUNT,
                    "namespace": NAMESPACE,
                    "aws": {"inlinePolicy": policy},
                }],
            },
        },
    }))
}

/// The values of the chart: the operator runs beside the control plane, where it needs no node of
/// its own, and takes the role that kOps created.
pub(crate) fn values(place: &Place) -> Value {
    let cluster = &place.cluster;
    let name = role_name(ACCOUNT, NAMESPACE, cluster);
    let role = place.scope().role_arn("/", &name);
    let token = json!({
        "serviceAccountToken": {
            "audience": AUDIENCE,
            "expirationSeconds": TOKEN_SECONDS,
            "path": "token",
        },
    });
    json!({
        "replicas": place.control_planes.clamp(1, 2),
        // The cluster's own name server may be waiting for the first node.
        "dnsPolicy": "Default",
        "nodeSelector": {"kubernetes.io/os": "linux", CONTROL_PLANE: ""},
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"key": CONTROL_PLANE, "operator": "Exists"},
        ],
        "extraVolumes": [{"name": "aws-token", "projected": {"sources": [token]}}],
        "controller": {
            "extraVolumeMounts": [
                {"name": "aws-token", "mountPath": TOKEN_FOLDER, "readOnly": true},
            ],
            "env": [
                {"name": "AWS_REGION", "value": place.region},
                {"name": "AWS_ROLE_ARN", "value": role},
                {"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": format!("{TOKEN_FOLDER}token")},
            ],
        },
        "settings": {
            "clusterName": cluster,
            "clusterEndpoint": format!("https://api.internal.{cluster}"),
            "interruptionQueue": queue_name(cluster),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(control_planes: i64) -> Place {
        Place {
            cluster: "shop.example.com".to_owned(),
            region: "eu-west-1".to_owned(),
            account: "123456789012".to_owned(),
            control_planes,
            node_roles: vec!["arn:aws:iam::123456789012:role/nodes.shop.example.com".to_owned()],
        }
    }

    #[test]
    fn the_values_let_the_operator_run_beside_the_control_plane() {
        insta::assert_yaml_snapshot!(values(&place(3)));
        let replicas = [0, 1, 2].map(|n| values(&place(n))["replicas"].as_i64());
        assert_eq!(replicas, [Some(1), Some(1), Some(2)]);
    }

    #[test]
    fn the_cluster_gets_every_statement_but_those_for_eks() {
        let spec = cluster_spec(&place(1)).expect("it is small enough");
        let account = &spec["spec"]["iam"]["serviceAccountExternalPermissions"][0];
        let statements = account["aws"]["inlinePolicy"].as_str().expect("statements");
        let statements: Vec<Value> = serde_json::from_str(statements).expect("a list");
        for statement in &statements {
            let actions = statement["Action"].to_string();
            let is_of_eks = actions.contains("eks:") || actions.contains("arc-zonal-shift:");
            assert!(!is_of_eks, "{actions}");
        }
        let of = |sid: &str| statements.iter().find(|statement| statement["Sid"] == sid);
        let pass = of("AllowPassingInstanceRole").expect("nodes have a role");
        assert!(pass["Resource"].to_string().contains("role/nodes.shop.example.com"), "{pass}");
        let queue = of("AllowInterruptionQueueActions").expect("there is a queue");
        assert!(queue["Resource"].to_string().contains(":shop-example-com-tenon"), "{queue}");
    }

    #[test]
    fn more_roles_than_fit_into_a_policy_are_an_error() {
        let role = |n: usize| format!("arn:aws:iam::123456789012:role/{n:0>60}");
        let place = Place { node_roles: (0..200).map(role).collect(), ..place(1) };
        assert!(cluster_spec(&place).is_err());
    }
}

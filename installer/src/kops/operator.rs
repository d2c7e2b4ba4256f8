//! Tenon's operator in a kOps cluster, as kOps and Helm install it: the permissions that go into
//! the Cluster, and the values of the chart.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use kube::core::ApiResource;
use serde_json::{Map, Value, json};
use tenon_iam_policies::controller::{ControllerPolicy, controller_policies};
use tenon_iam_policies::size::{SizeError, check_inline};
use tenon_iam_policies::{Document, Features, InstanceProfiles, Partition, Scope, Statement};
use tenon_installer_core::kubernetes::object::Key;
use tenon_installer_core::settings::values::merge;
use tenon_kops::{
    CLUSTER_FILE, GROUPS_FOLDER, Location, node_config_file, queue_name, role_name, script_file,
};

/// The operator's ServiceAccount, as the chart names it.
pub(crate) const ACCOUNT: &str = "karpenter";
/// Its namespace.
pub(crate) const NAMESPACE: &str = "kube-system";
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
    /// The state store.
    pub store: Location,
    /// Where in it, or elsewhere, the scripts of its nodes are.
    pub config_base: Location,
}

/// The operator's Deployment, as the chart names it.
pub(crate) fn deployment() -> Key {
    Key {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some(NAMESPACE.to_owned()),
        name: ACCOUNT.to_owned(),
    }
}

/// What it is among the types of the API server.
pub(crate) fn deployments() -> ApiResource {
    ApiResource::erase::<Deployment>(&())
}

impl Place {
    pub(super) fn scope(&self) -> Scope {
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

    /// The permissions to read the state store; none for a folder.
    pub(super) fn reads_store(&self) -> Vec<Statement> {
        let partition = Partition::of_region(&self.region).as_str();
        let arn = |folder: &Location, file: &str| match folder {
            Location::Bucket { bucket, prefix } if prefix.is_empty() => {
                Some(format!("arn:{partition}:s3:::{bucket}/{file}"))
            }
            Location::Bucket { bucket, prefix } => {
                Some(format!("arn:{partition}:s3:::{bucket}/{prefix}/{file}"))
            }
            Location::Folder(_) => None,
        };
        let folder = self.store.join(&self.cluster);
        let files = [
            arn(&folder, CLUSTER_FILE),
            arn(&folder, &format!("{GROUPS_FOLDER}*")),
            arn(&self.config_base, &script_file("*")),
            arn(&self.config_base, &node_config_file("*")),
        ];
        let files = files.into_iter().flatten().collect::<Vec<_>>();
        if files.is_empty() {
            return Vec::new();
        }
        let bucket = |arn: &String| arn.split('/').next().unwrap_or_default().to_owned();
        let buckets = files.iter().map(bucket).collect::<BTreeSet<_>>();
        // Without the right to list a bucket, a file that kOps has not written yet looks like one
        // that may not be read.
        vec![
            Statement::allow("AllowFindingStateStoreObjects", ["s3:ListBucket"]).on(buckets),
            Statement::allow("AllowReadingInstanceGroups", ["s3:GetObject"]).on(files),
        ]
    }
}

/// The operator's role, which kOps creates.
pub(crate) fn role(place: &Place) -> String {
    role_name(ACCOUNT, NAMESPACE, &place.cluster)
}

/// What the operator's role must allow.
///
/// # Errors
/// If that is more than a role may have.
pub(crate) fn permissions(place: &Place) -> Result<Vec<Document>, SizeError> {
    let mut policies = controller_policies(&place.scope());
    policies.retain(|policy| policy.part != ControllerPolicy::EksIntegration);
    let documents = policies.into_iter().map(|policy| policy.document);
    let reads_store = Some(place.reads_store()).filter(|statements| !statements.is_empty());
    let documents = documents.chain(reads_store.map(Document::new)).collect::<Vec<_>>();
    check_inline(&documents)?;
    Ok(documents)
}

/// What `kops edit cluster` is to add: kOps creates the operator's role from it.
///
/// # Errors
/// If the statements are more than a role may have.
pub(crate) fn cluster_spec(place: &Place) -> Result<Value, SizeError> {
    let documents = permissions(place)?;
    let statements = documents.iter().flat_map(|document| {
        let document: Value = serde_json::from_str(&document.to_json()).unwrap_or_default();
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
    let role = place.scope().role_arn("/", &role(place));
    let token = json!({
        "serviceAccountToken": {
            "audience": AUDIENCE,
            "expirationSeconds": TOKEN_SECONDS,
            "path": "token",
        },
    });
    let mut settings = json!({
        "clusterName": cluster,
        "clusterEndpoint": format!("https://api.internal.{cluster}"),
        "interruptionQueue": queue_name(cluster),
        // kOps makes them; the role may not look for others.
        "staticInstanceProfiles": true,
    });
    if matches!(place.store, Location::Bucket { .. }) {
        settings["kopsStateStore"] = place.store.to_string().into();
    }
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
        "settings": settings,
    })
}

/// Values that people give, over those that the operator needs here. Lists that hold its
/// credentials are extended instead of replaced.
pub(crate) fn values_with(place: &Place, own: Map<String, Value>) -> Map<String, Value> {
    let needed = values(place);
    let mut own = Value::Object(own);
    for path in ["/extraVolumes", "/controller/extraVolumeMounts", "/controller/env"] {
        let Some(Value::Array(list)) = own.pointer_mut(path) else { continue };
        let given = list.iter().map(|one| one["name"].clone()).collect::<Vec<_>>();
        let needed = needed.pointer(path).and_then(Value::as_array).into_iter().flatten();
        list.extend(needed.filter(|one| !given.contains(&one["name"])).cloned());
    }
    let mut all = needed;
    if let Some(settings) = all["settings"].as_object_mut() {
        // The installer sets these itself.
        settings.retain(|name, _| !["clusterName", "interruptionQueue"].contains(&name.as_str()));
    }
    merge(&mut all, &own);
    match all {
        Value::Object(all) => all,
        _ => Map::new(),
    }
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
            store: Location::parse("s3://states").expect("a bucket"),
            config_base: Location::parse("s3://configs/shop").expect("a bucket"),
        }
    }

    #[test]
    fn the_values_let_the_operator_run_beside_the_control_plane() {
        insta::assert_yaml_snapshot!(values(&place(3)));
        let replicas = [0, 1, 2].map(|n| values(&place(n))["replicas"].as_i64());
        assert_eq!(replicas, [Some(1), Some(1), Some(2)]);
    }

    #[test]
    fn values_of_people_win_and_leave_the_operator_its_credentials() {
        let own = json!({
            "replicas": 3,
            "tolerations": [],
            "controller": {"env": [
                {"name": "AWS_REGION", "value": "eu-west-2"},
                {"name": "HTTPS_PROXY", "value": "http://proxy"},
            ]},
            "settings": {"batchIdleDuration": "2s"},
        });
        let Value::Object(own) = own else { panic!("a map") };
        let values = Value::Object(values_with(&place(3), own));
        assert_eq!(values["replicas"], 3);
        assert_eq!(values["tolerations"], json!([]));
        assert_eq!(values["settings"]["batchIdleDuration"], "2s");
        assert_eq!(values["settings"]["kopsStateStore"], "s3://states");
        assert!(values["settings"]["clusterName"].is_null());
        let env = values["controller"]["env"].as_array().expect("a list");
        let names = env.iter().map(|one| one["name"].as_str().expect("a name"));
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["AWS_REGION", "HTTPS_PROXY", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"]
        );
        assert_eq!(env[0]["value"], "eu-west-2");
        assert_eq!(values["extraVolumes"][0]["name"], "aws-token");
        let bare = values_with(&place(3), Map::new());
        assert_eq!(bare["controller"], super::values(&place(3))["controller"]);
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
        let read = of("AllowReadingInstanceGroups").expect("it follows the state store");
        assert_eq!(
            read["Resource"],
            json!([
                "arn:aws:s3:::states/shop.example.com/config",
                "arn:aws:s3:::states/shop.example.com/instancegroup/*",
                "arn:aws:s3:::configs/shop/igconfig/node/*/nodeupscript.sh",
                "arn:aws:s3:::configs/shop/igconfig/node/*/nodeupconfig.yaml",
            ])
        );
        let list = of("AllowFindingStateStoreObjects").expect("it follows the state store");
        assert_eq!(list["Resource"], json!(["arn:aws:s3:::configs", "arn:aws:s3:::states"]));
        let queue = of("AllowInterruptionQueueActions").expect("there is a queue");
        assert!(queue["Resource"].to_string().contains(":shop-example-com-tenon"), "{queue}");
    }

    #[test]
    fn a_state_store_in_a_folder_is_not_followed() {
        let store = Location::parse("file:///states").expect("a folder");
        let place = Place { config_base: store.join("shop"), store, ..place(1) };
        assert_eq!(place.reads_store(), []);
        assert!(values(&place)["settings"]["kopsStateStore"].is_null());
    }

    #[test]
    fn more_roles_than_fit_into_a_policy_are_an_error() {
        let role = |n: usize| format!("arn:aws:iam::123456789012:role/{n:0>60}");
        let place = Place { node_roles: (0..200).map(role).collect(), ..place(1) };
        assert!(cluster_spec(&place).is_err());
    }
}

//! Tenon's operator in a kOps cluster: where it runs, and the values of the chart.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use kube::core::ApiResource;
use serde_json::{Map, Value, json};
use tenon_iam_policies::{Features, InstanceProfiles, Partition, Scope, Statement};
use tenon_installer_core::kubernetes::object::Key;
use tenon_installer_core::settings::values::merge;
use tenon_kops::{
    AdditionalPolicy, CLUSTER_FILE, GROUPS_FOLDER, Location, node_config_file, queue_name,
    role_name, script_file,
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

/// How the operator gets its permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// By a role that kOps creates for its ServiceAccount.
    ServiceAccount,
    /// By the role of the control plane's nodes, since AWS does not trust the cluster's tokens.
    ControlPlane {
        /// ARNs of the roles.
        roles: Vec<String>,
        /// What the Cluster adds to them.
        policy: Option<AdditionalPolicy>,
    },
}

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
    /// How it gets its permissions.
    pub identity: Identity,
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

/// The values of the chart: the operator runs beside the control plane, where it needs no node of
/// its own, and takes the role that kOps created.
pub(crate) fn values(place: &Place) -> Value {
    let cluster = &place.cluster;
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
    let mut values = json!({
        "replicas": place.control_planes.clamp(1, 2),
        // The cluster's own name server may be waiting for the first node.
        "dnsPolicy": "Default",
        "nodeSelector": {"kubernetes.io/os": "linux", CONTROL_PLANE: ""},
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"key": CONTROL_PLANE, "operator": "Exists"},
        ],
        "controller": {"env": [{"name": "AWS_REGION", "value": place.region}]},
        "settings": settings,
    });
    let credentials = match &place.identity {
        Identity::ServiceAccount => with_token(place),
        Identity::ControlPlane { .. } => on_the_host(),
    };
    merge(&mut values, &credentials);
    values
}

/// The role that kOps creates for the operator's ServiceAccount.
pub(super) fn account_role(place: &Place) -> String {
    role_name(ACCOUNT, NAMESPACE, &place.cluster)
}

/// A token of the ServiceAccount, for which AWS gives credentials of its role.
fn with_token(place: &Place) -> Value {
    let role = place.scope().role_arn("/", &account_role(place));
    let token = json!({
        "serviceAccountToken": {
            "audience": AUDIENCE,
            "expirationSeconds": TOKEN_SECONDS,
            "path": "token",
        },
    });
    json!({
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
    })
}

/// On the network of the node, because the metadata service of kOps' instances answers nobody who
/// is further away. The ports are none of Kubernetes, of kOps or of its add-ons; the chart's
/// defaults are.
fn on_the_host() -> Value {
    json!({
        "hostNetwork": true,
        "controller": {
            "metrics": {"port": 18_080},
            "healthProbe": {"port": 18_081},
            // It asks nobody who they are, and every process of the node would reach it.
            "debug": {"port": 0},
            "decisions": {"port": 18_085},
            "dashboard": {"port": 18_086},
        },
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
pub(crate) mod tests {
    use super::*;

    pub(crate) fn place(control_planes: i64) -> Place {
        Place {
            cluster: "shop.example.com".to_owned(),
            region: "eu-west-1".to_owned(),
            account: "123456789012".to_owned(),
            control_planes,
            identity: Identity::ServiceAccount,
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
    fn without_an_oidc_provider_it_is_on_the_network_of_the_node() {
        let identity = Identity::ControlPlane { roles: Vec::new(), policy: None };
        let with_token = values(&place(3));
        let values = values(&Place { identity, ..place(3) });
        assert_eq!(values["hostNetwork"], true);
        assert_eq!(values["extraVolumes"], Value::Null);
        assert_eq!(values["controller"]["env"].as_array().map(Vec::len), Some(1));
        assert_eq!(values["controller"]["metrics"]["port"], 18_080);
        assert_eq!(values["controller"]["debug"]["port"], 0);
        assert_eq!(values["settings"], with_token["settings"]);
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
    fn a_state_store_in_a_folder_is_not_followed() {
        let store = Location::parse("file:///states").expect("a folder");
        let place = Place { config_base: store.join("shop"), store, ..place(1) };
        assert_eq!(place.reads_store(), []);
        assert!(values(&place)["settings"]["kopsStateStore"].is_null());
    }
}

//! EKS: the bed's one cluster, who may get into it (access entries), which pods get which role (pod
//! identity associations), add-ons, Fargate profiles and node groups. moto lacks most of it and
//! simplifies the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use json_patch::merge;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::aws_state::{AwsState, Cluster};
use super::consistency::Kind;
use super::policy_store::{PolicyStore, Role};
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};
use crate::clock::Clock;

pub mod access;
mod addons;
mod compute;
mod page;
pub mod pods;

use access::AccessEntry;
use addons::Addon;
use compute::{FargateProfile, NodeGroup};
use pods::Association;

/// Tags of a resource.
type Tags = BTreeMap<String, String>;

/// Where the cluster looks up who somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AuthenticationMode {
    /// In the ConfigMap `kube-system/aws-auth` only.
    ConfigMap,
    /// In access entries first, then in the ConfigMap.
    ApiAndConfigMap,
    /// In access entries only.
    Api,
}

/// The state of EKS.
#[derive(Debug)]
pub struct Eks {
    clock: Clock,
    policies: Arc<PolicyStore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    created: Timestamp,
    mode: AuthenticationMode,
    zonal_shift: bool,
    /// How long add-ons and Fargate profiles take to be made and deleted.
    takes: SignedDuration,
    tags: Tags,
    /// By the ARN of the principal.
    entries: BTreeMap<String, AccessEntry>,
    /// By id.
    associations: BTreeMap<String, Association>,
    /// By name.
    addons: BTreeMap<String, Addon>,
    /// By name.
    fargate_profiles: BTreeMap<String, FargateProfile>,
    /// By name.
    node_groups: BTreeMap<String, NodeGroup>,
    /// By id.
    updates: BTreeMap<String, Value>,
    /// What `DescribeCluster` says instead.
    told: Value,
}

/// Something that takes a while to be made and to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lifetime {
    created: Timestamp,
    deleted: Option<Timestamp>,
}

impl Eks {
    /// A cluster with access entries and aws-auth, and with the add-ons that every cluster has.
    pub fn new(clock: Clock, policies: Arc<PolicyStore>) -> Self {
        let state = State {
            created: clock.now(),
            mode: AuthenticationMode::ApiAndConfigMap,
            zonal_shift: false,
            takes: SignedDuration::from_millis(500),
            tags: Tags::new(),
            entries: BTreeMap::new(),
            associations: BTreeMap::new(),
            addons: addons::installed(clock.now()),
            fargate_profiles: BTreeMap::new(),
            node_groups: BTreeMap::new(),
            updates: BTreeMap::new(),
            told: Value::Null,
        };
        Self { clock, policies, state: Mutex::new(state) }
    }

    /// Whether ARC manages the cluster.
    pub(crate) fn has_zonal_shift(&self) -> bool {
        self.state.lock().zonal_shift
    }

    /// Registers the cluster with ARC, or takes it away from there.
    pub fn set_zonal_shift(&self, enabled: bool) {
        self.state.lock().zonal_shift = enabled;
    }

    /// Changes where the cluster looks up who somebody is, in any direction.
    pub fn set_authentication_mode(&self, mode: AuthenticationMode) {
        self.state.lock().mode = mode;
    }

    /// Where the cluster looks up who somebody is.
    pub(crate) fn authentication_mode(&self) -> AuthenticationMode {
        self.state.lock().mode
    }

    /// Takes an add-on away at once, as if it had never been there.
    pub fn remove_addon(&self, name: &str) {
        self.state.lock().addons.remove(name);
    }

    /// Lets `DescribeCluster` say this instead, field by field of its answer: a version in extended
    /// support, Auto Mode, another status. Nothing else changes. `Null` ends it.
    pub fn tell(&self, instead: Value) {
        self.state.lock().told = instead;
    }

    /// Tags of the cluster or of anything in it, by ARN; `None` when there is no such thing.
    pub fn tags(&self, arn: &str) -> Option<Tags> {
        self.state.lock().tags_mut(arn).cloned()
    }

    /// ARN of something in the cluster, by the names of the API's paths: `access-entries` and the
    /// principal's ARN, `addons` and the add-on's name, and so on.
    pub(crate) fn arn_of(&self, _cluster: &str, kind: &str, name: &str) -> Option<String> {
        let state = self.state.lock();
        match kind {
            "access-entries" => state.entries.get(name).map(|entry| entry.arn.clone()),
            "pod-identity-associations" => {
                state.associations.get(name).map(|association| association.arn.clone())
            }
            "addons" => state.addons.get(name).map(|addon| addon.arn.clone()),
            "fargate-profiles" => {
                state.fargate_profiles.get(name).map(|profile| profile.arn.clone())
            }
            "node-groups" => state.node_groups.get(name).map(|group| group.arn.clone()),
            _ => None,
        }
    }

    async fn answer(&self, request: &AwsRequest, aws_state: &AwsState) -> Result<Value, AwsError> {
        let segments = request.segments();
        let segment = |index: usize| segments.get(index).map(String::as_str);
        if segment(0) == Some("tags") {
            return self.tagging(request, segment(1).unwrap_or_default());
        }
        if segment(0) == Some("addons") {
            return addons::describe_versions(request);
        }
        match request.action.as_str() {
            "ListClusters" => {
                let names =
                    aws_state.cluster().map(|cluster| json!(cluster.name)).into_iter().collect();
                return page::page(request, "clusters", names);
            }
            "CreateCluster" | "DeleteCluster" => return Err(AwsError::not_implemented(request)),
            "ListAccessPolicies" => {
                return page::page(request, "accessPolicies", access::policies(aws_state));
            }
            _ => {}
        }
        let cluster = aws_state
            .cluster()
            .filter(|cluster| segment(1) == Some(&cluster.name))
            .ok_or_else(|| no_cluster(segment(1).unwrap_or_default()))?;
        let call = OnCluster {
            request,
            aws_state,
            cluster: &cluster,
            name: segment(3),
            policy_arn: segment(5),
        };
        {
            let mut state = self.state.lock();
            state.settle(self.clock.now());
            addons::complete_arns(&mut state.addons, &call);
        }
        match request.action.as_str() {
            "DescribeCluster" => Ok(json!({ "cluster": self.describe(&call) })),
            "UpdateClusterConfig" => self.update_config(&call),
            "DescribeUpdate" => {
                let id = call.name()?;
                let update = self.state.lock().updates.get(id).cloned();
                let update =
                    update.ok_or_else(|| not_found(format!("No update found for ID: {id}")))?;
                Ok(json!({ "update": update }))
            }
            "ListUpdates" => {
                let ids = self.state.lock().updates.keys().map(|id| json!(id)).collect();
                page::page(request, "updateIds", ids)
            }
            "ListInsights" => Ok(json!({ "insights": [] })),
            action if action.contains("AccessEntr") || action.contains("AccessPolic") => {
                self.access(&call).await
            }
            action if action.contains("PodIdentityAssociation") => self.pod_identity(&call).await,
            action if action.contains("Addon") => self.addon(&call),
            action if action.contains("FargateProfile") => self.fargate_profile(&call),
            action if action.contains("Nodegroup") => self.node_group(&call).await,
            _ => Err(AwsError::not_implemented(request)),
        }
    }

    fn describe(&self, call: &OnCluster<'_>) -> Value {
        let cluster = call.cluster;
        let state = self.state.lock();
        let mut answer = json!({
            "name": cluster.name,
            "arn": call.arn(&format!("cluster/{}", cluster.name)),
            "createdAt": seconds(state.created),
            "version": cluster.version,
            "endpoint": cluster.endpoint,
            "roleArn": call.aws_state.iam_arn(&format!("role/eks-cluster-{}", cluster.name)),
            "resourcesVpcConfig": {
                "subnetIds": cluster.subnet_ids,
                "securityGroupIds": [],
                "clusterSecurityGroupId": cluster.cluster_security_group_id,
                "vpcId": cluster.vpc_id,
                "endpointPublicAccess": true,
                "endpointPrivateAccess": true,
                "publicAccessCidrs": ["0.0.0.0/0"],
            },
            "kubernetesNetworkConfig": {
                "serviceIpv4Cidr": cluster.service_cidr,
                "ipFamily": "ipv4",
                "elasticLoadBalancing": { "enabled": false },
            },
            "logging": { "clusterLogging": [{
                "types": ["api", "audit", "authenticator", "controllerManager", "scheduler"],
                "enabled": false,
            }] },
            "identity": { "oidc": { "issuer": cluster.issuer } },
            "status": "ACTIVE",
            "certificateAuthority": { "data": STANDARD.encode(&cluster.ca_pem) },
            "platformVersion": "eks.1",
            "tags": state.tags,
            "health": { "issues": [] },
            "accessConfig": { "authenticationMode": state.mode },
            "upgradePolicy": { "supportType": "STANDARD" },
            "zonalShiftConfig": { "enabled": state.zonal_shift },
            "deletionProtection": false,
        });
        if state.told.is_object() {
            merge(&mut answer, &state.told);
        }
        answer
    }

    fn update_config(&self, call: &OnCluster<'_>) -> Result<Value, AwsError> {
        let body = &call.request.json;
        let mut state = self.state.lock();
        let (kind, params) = if let Some(mode) = body.pointer("/accessConfig/authenticationMode") {
            let mode: AuthenticationMode = serde_json::from_value(mode.clone()).map_err(|_| {
                invalid(&format!("Invalid authentication mode {mode}."))
                    .with_field("clusterName", call.cluster.name.as_str())
            })?;
            if mode <= state.mode {
                return Err(invalid(&format!(
                    "Unsupported authentication mode update from {} to {}",
                    json!(state.mode).as_str().unwrap_or_default(),
                    json!(mode).as_str().unwrap_or_default(),
                )));
            }
            state.mode = mode;
            ("AccessConfigUpdate", json!([{ "type": "AuthenticationMode", "value": mode }]))
        } else if let Some(enabled) =
            body.pointer("/zonalShiftConfig/enabled").and_then(Value::as_bool)
        {
            state.zonal_shift = enabled;
            (
                "ZonalShiftConfigUpdate",
                json!([{ "type": "ZonalShiftConfig", "value": enabled.to_string() }]),
            )
        } else {
            return Err(AwsError::not_implemented(call.request));
        };
        let id = Uuid::new_v4().to_string();
        let update = json!({
            "id": id,
            "status": "Successful",
            "type": kind,
            "params": params,
            "createdAt": seconds(self.clock.now()),
            "errors": [],
        });
        state.updates.insert(id, update.clone());
        Ok(json!({ "update": update }))
    }

    fn tagging(&self, request: &AwsRequest, arn: &str) -> Result<Value, AwsError> {
        let mut state = self.state.lock();
        let tags = state.tags_mut(arn).ok_or_else(|| {
            AwsError::new("NotFoundException", format!("Resource with ARN {arn} not found."))
                .with_status(404)
        })?;
        match request.action.as_str() {
            "ListTagsForResource" => Ok(json!({ "tags": tags })),
            "TagResource" => {
                tags.extend(string_map(&request.json["tags"]));
                Ok(json!({}))
            }
            "UntagResource" => {
                for pair in request.query.as_deref().unwrap_or_default().split('&') {
                    if let Some(("tagKeys", key)) = pair.split_once('=') {
                        let key = percent_encoding::percent_decode_str(&key.replace('+', " "))
                            .decode_utf8_lossy()
                            .into_owned();
                        tags.remove(&key);
                    }
                }
                Ok(json!({}))
            }
            _ => Err(AwsError::not_implemented(request)),
        }
    }

    /// A role that a call names, once EKS can see it.
    async fn role(&self, arn: &str, aws_state: &AwsState) -> Result<Option<Arc<Role>>, AwsError> {
        let Some(name) = arn.split_once(":role/").and_then(|(_, path)| path.rsplit('/').next())
        else {
            return Ok(None);
        };
        if !aws_state.consistency().is_visible(Kind::Role, name) {
            return Ok(None);
        }
        match self.policies.role(name, aws_state).await {
            Ok(role) if role.arn == arn => Ok(Some(role)),
            Ok(_) => Ok(None),
            Err(error) if error.code == "NoSuchEntity" => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Service for Eks {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "eks"
    }

    async fn call(
        &self,
        request: &AwsRequest,
        _caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let answer = self.answer(request, aws_state).await?;
        Ok(AwsResponse::json(request, &answer))
    }
}

/// A call about the cluster or something in it.
struct OnCluster<'a> {
    request: &'a AwsRequest,
    aws_state: &'a AwsState,
    cluster: &'a Cluster,
    /// The fourth segment of the path: the name of what the call is about.
    name: Option<&'a str>,
    /// The sixth segment: an access policy's ARN.
    policy_arn: Option<&'a str>,
}

impl OnCluster<'_> {
    /// The name of what the call is about, for actions whose path has one.
    fn name(&self) -> Result<&str, AwsError> {
        self.name.ok_or_else(|| AwsError::not_implemented(self.request))
    }

    /// ARN of something of EKS in the bed's region.
    fn arn(&self, resource: &str) -> String {
        self.aws_state.arn("eks", resource)
    }

    /// A text of the body.
    fn text(&self, field: &str) -> Option<&str> {
        self.request.json[field].as_str()
    }

    /// A text of the body that must be there.
    fn required(&self, field: &str) -> Result<&str, AwsError> {
        self.text(field)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| invalid(&format!("{field} is required.")))
    }

    fn tags(&self) -> Tags {
        string_map(&self.request.json["tags"])
    }
}

impl State {
    /// Removes what has been deleted for long enough.
    fn settle(&mut self, now: Timestamp) {
        let takes = self.takes;
        let is_there =
            |lifetime: &Lifetime| lifetime.deleted.is_none_or(|at| now.duration_since(at) < takes);
        self.addons.retain(|_, addon| is_there(&addon.lifetime));
        self.fargate_profiles.retain(|_, profile| is_there(&profile.lifetime));
    }

    fn tags_mut(&mut self, arn: &str) -> Option<&mut Tags> {
        if arn.contains(":cluster/") {
            return Some(&mut self.tags);
        }
        let entries = self.entries.values_mut().map(|entry| (&entry.arn, &mut entry.tags));
        let associations = self
            .associations
            .values_mut()
            .map(|association| (&association.arn, &mut association.tags));
        let addons = self.addons.values_mut().map(|addon| (&addon.arn, &mut addon.tags));
        let profiles =
            self.fargate_profiles.values_mut().map(|profile| (&profile.arn, &mut profile.tags));
        let groups = self.node_groups.values_mut().map(|group| (&group.arn, &mut group.tags));
        let mut all = entries.chain(associations).chain(addons).chain(profiles).chain(groups);
        all.find(|(of, _)| *of == arn).map(|(_, tags)| tags)
    }
}

impl Lifetime {
    fn status(&self, now: Timestamp, takes: SignedDuration) -> &'static str {
        if self.deleted.is_some() {
            "DELETING"
        } else if now.duration_since(self.created) < takes {
            "CREATING"
        } else {
            "ACTIVE"
        }
    }
}

fn string_map(value: &Value) -> Tags {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    value
        .as_object()
        .map(Map::iter)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Seconds since 1970, as REST services write times.
fn seconds(at: Timestamp) -> Value {
    json!(at.as_second())
}

fn no_cluster(name: &str) -> AwsError {
    not_found(format!("No cluster found for name: {name}.")).with_field("clusterName", name)
}

fn not_found(message: impl Into<String>) -> AwsError {
    AwsError::new("ResourceNotFoundException", message)
}

fn invalid(message: &str) -> AwsError {
    AwsError::new("InvalidParameterException", message)
}

fn in_use(message: impl Into<String>) -> AwsError {
    AwsError::new("ResourceInUseException", message)
}

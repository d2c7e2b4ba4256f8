//! The AWS double's gateway before a real moto: every gap of moto that the gateway fills, over HTTP
//! as an SDK would.
//!
//! All tests share one gateway and take turns, because faults, consistency and prices are of the
//! whole double.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Value, json};
use tenon_aws_double::consistency::Delays;
use tenon_aws_double::faults::Shortage;
use tenon_aws_double::instance::{Instance, State};
use tenon_aws_double::instances::StateTimes;
use tenon_aws_double::moto_client::MotoClient;
use tenon_aws_double::request::Params;
use tenon_aws_double::response::AwsError;
use tenon_aws_double::seed::{self, Seed};
use tenon_aws_double::xml::Element;
use tenon_aws_double::{Gateway, GatewayConfig};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

#[path = "gateway/auto_scaling.rs"]
mod auto_scaling;
#[path = "gateway/buckets.rs"]
mod buckets;
#[path = "gateway/consistency.rs"]
mod consistency;
#[path = "gateway/events.rs"]
mod events;
#[path = "gateway/faults.rs"]
mod faults;
#[path = "gateway/fleet.rs"]
mod fleet;
#[path = "gateway/iam.rs"]
mod iam;
#[path = "gateway/lists.rs"]
mod lists;
#[path = "gateway/placement_groups.rs"]
mod placement_groups;
#[path = "gateway/reservations.rs"]
mod reservations;
#[path = "gateway/states.rs"]
mod states;

const REGION: &str = "eu-central-1";

/// The gateway that all tests use, on a runtime that outlives each test's.
struct Shared {
    runtime: Runtime,
    gateway: Gateway,
    seed: Seed,
    turn: Mutex<()>,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("runtime");
    let (gateway, seed) = runtime.block_on(async {
        let gateway = Gateway::start(GatewayConfig::new(directory("gateway")))
            .await
            .expect("the gateway starts");
        let seed = seed::network(gateway.state(), "c1").await.expect("seed");
        let moto = gateway.state().moto();
        moto.query("iam", "CreateRole", [("RoleName", "node"), ("AssumeRolePolicyDocument", "{}")])
            .await
            .expect("role");
        moto.query("iam", "CreateInstanceProfile", [("InstanceProfileName", "node")])
            .await
            .expect("profile");
        let params = [("InstanceProfileName", "node"), ("RoleName", "node")];
        moto.query("iam", "AddRoleToInstanceProfile", params).await.expect("role in profile");
        (gateway, seed)
    });
    Shared { runtime, gateway, seed, turn: Mutex::default() }
});

fn directory(name: &str) -> PathBuf {
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("directory");
    path
}

/// What a test works with.
struct Bed {
    gateway: &'static Gateway,
    seed: &'static Seed,
    aws: MotoClient,
}

/// Runs a test when it is its turn, with nothing left of the one before.
fn on_the_gateway(test: impl AsyncFnOnce(Bed)) {
    let shared = &*SHARED;
    shared.runtime.block_on(async {
        let _turn = shared.turn.lock().await;
        let control = shared.gateway.control();
        control.heal_all();
        shared.gateway.state().reservations().clear();
        shared.gateway.state().placement_groups().clear();
        control.consistency(Delays::default());
        control.state_times(StateTimes {
            pending: 0.0,
            stopping: 0.0,
            shutting_down: 0.0,
            listed: 3600.0,
        });
        let left: Vec<String> = control.alive().into_keys().collect();
        control.terminate(&left).expect("they are there");
        let aws = MotoClient::new(shared.gateway.url(), REGION);
        test(Bed { gateway: &shared.gateway, seed: &shared.seed, aws }).await;
    });
}

impl Bed {
    async fn ec2(&self, action: &str, params: &[(&str, &str)]) -> Result<Element, AwsError> {
        self.aws.query("ec2", action, params.iter().copied()).await
    }

    async fn iam(&self, action: &str, params: &[(&str, &str)]) -> Result<Element, AwsError> {
        self.aws.query("iam", action, params.iter().copied()).await
    }

    /// The newest AL2023 image of an architecture.
    fn image(&self, architecture: &str) -> String {
        let name = format!(
            "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/{architecture}/standard/recommended/image_id"
        );
        let amis = self.gateway.state().amis();
        tenon_aws_double::amis::by_parameter(amis, &name).expect("there is an image").id.clone()
    }

    /// Makes a launch template as the operator does; returns its name.
    async fn template(&self, name: &str) -> String {
        self.template_with(name, &[]).await
    }

    async fn template_with(&self, name: &str, more: &[(&str, &str)]) -> String {
        drop(self.ec2("DeleteLaunchTemplate", &[("LaunchTemplateName", name)]).await);
        let image = self.image("x86_64");
        let mut params = Params::of([
            ("LaunchTemplateName", name),
            ("LaunchTemplateData.ImageId", image.as_str()),
            ("LaunchTemplateData.IamInstanceProfile.Name", "node"),
            ("LaunchTemplateData.UserData", "aGVsbG8="),
            ("LaunchTemplateData.MetadataOptions.HttpTokens", "required"),
            ("LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit", "2"),
            ("LaunchTemplateData.BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
            ("LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize", "33"),
            ("LaunchTemplateData.BlockDeviceMapping.1.Ebs.Encrypted", "true"),
            ("LaunchTemplateData.NetworkInterface.1.DeviceIndex", "0"),
            (
                "LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1",
                &self.seed.node_security_group_id,
            ),
            ("LaunchTemplateData.TagSpecification.1.ResourceType", "network-interface"),
            ("LaunchTemplateData.TagSpecification.1.Tag.1.Key", "eni"),
            ("LaunchTemplateData.TagSpecification.1.Tag.1.Value", "yes"),
            ("TagSpecification.1.ResourceType", "launch-template"),
            ("TagSpecification.1.Tag.1.Key", "test"),
            ("TagSpecification.1.Tag.1.Value", name),
        ]);
        for (key, value) in more {
            params.set(*key, *value);
        }
        params.set("Action", "CreateLaunchTemplate");
        self.aws.query_params("ec2", "CreateLaunchTemplate", &params).await.expect("template");
        name.to_owned()
    }

    /// A CreateFleet request as the operator sends it: every type in every zone.
    fn fleet(&self, template: &str, capacity_type: &str, types: &[&str], count: u32) -> Params {
        let mut params = Params::of([
            ("Action", "CreateFleet"),
            ("Type", "instant"),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", template),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "$Latest"),
            ("TargetCapacitySpecification.DefaultTargetCapacityType", capacity_type),
            ("SpotOptions.AllocationStrategy", "price-capacity-optimized"),
            ("OnDemandOptions.AllocationStrategy", "lowest-price"),
        ]);
        params.set("TargetCapacitySpecification.TotalTargetCapacity", count.to_string());
        for (index, resource) in ["instance", "volume", "fleet"].iter().enumerate() {
            let spec = format!("TagSpecification.{}", index + 1);
            params.set(format!("{spec}.ResourceType"), *resource);
            params.set(format!("{spec}.Tag.1.Key"), "karpenter.sh/nodepool");
            params.set(format!("{spec}.Tag.1.Value"), template);
        }
        let mut index = 1;
        for name in types {
            for (subnet, letter) in self.seed.subnet_ids.iter().zip(["a", "b", "c"]) {
                let one = format!("LaunchTemplateConfigs.1.Overrides.{index}");
                params.set(format!("{one}.InstanceType"), *name);
                params.set(format!("{one}.SubnetId"), subnet.as_str());
                params.set(format!("{one}.AvailabilityZone"), format!("{REGION}{letter}"));
                index += 1;
            }
        }
        params
    }

    async fn send(&self, params: &Params) -> Result<Element, AwsError> {
        let action = params.get("Action").expect("an action").to_owned();
        self.aws.query_params("ec2", &action, params).await
    }

    /// Launches and returns the IDs.
    async fn launch(
        &self,
        template: &str,
        capacity_type: &str,
        types: &[&str],
        count: u32,
    ) -> Vec<String> {
        ids(&self.send(&self.fleet(template, capacity_type, types, count)).await.expect("fleet"))
    }

    fn instance(&self, id: &str) -> Instance {
        (*self.gateway.state().instances().get(id).expect("the instance is listed")).clone()
    }

    /// Waits until an instance has a state.
    async fn reaches(&self, id: &str, state: State) {
        let mut instances = self.gateway.instances();
        let reached =
            instances.wait_for(|all| all.get(id).is_some_and(|instance| instance.state == state));
        let waited = tokio::time::timeout(Duration::from_secs(20), reached).await;
        assert!(waited.is_ok(), "{id} does not reach {state:?}");
    }

    /// The control over HTTP.
    async fn control(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let url = format!("{}/_bed/{path}", self.gateway.url());
        let request = hyper::Request::builder()
            .method(method)
            .uri(url)
            .body(http_body_util::Full::new(axum::body::Bytes::from(body.to_string())))
            .expect("request");
        let client =
            hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
                .build_http();
        let response = client.request(request).await.expect("the control answers");
        let status = response.status().as_u16();
        let body =
            http_body_util::BodyExt::collect(response.into_body()).await.expect("body").to_bytes();
        (status, serde_json::from_slice(&body).expect("JSON"))
    }
}

fn ids(fleet: &Element) -> Vec<String> {
    let groups = fleet.items("fleetInstanceSet");
    groups
        .iter()
        .flat_map(|group| group.items("instanceIds"))
        .map(|item| item.text.clone())
        .collect()
}

fn code(result: Result<Element, AwsError>) -> String {
    result.expect_err("it is refused").code
}

#[test]
fn stopping_the_gateway_ends_moto_and_frees_the_port() {
    let runtime = Runtime::new().expect("runtime");
    runtime.block_on(async {
        let gateway = Gateway::start(GatewayConfig::new(directory("stopped")))
            .await
            .expect("the gateway starts");
        let (url, pid) = (gateway.url().to_owned(), gateway.moto().process().pid());
        gateway.stop().await;
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "moto still runs: {state}");
        let error = MotoClient::new(url, REGION)
            .query("ec2", "DescribeVpcs", [])
            .await
            .expect_err("nobody answers");
        assert!(error.message.contains("did not answer"), "{error}");
    });
}

#[test]
fn a_call_that_nobody_implements_is_refused_by_name() {
    on_the_gateway(async |bed| {
        let error = bed.ec2("DescribeMacHosts", &[]).await.expect_err("not implemented");
        assert_eq!((error.code.as_str(), error.status), ("NotImplementedInDouble", 418));
        assert!(error.message.contains("ec2:DescribeMacHosts"), "{error}");
    });
}

#[test]
fn every_call_is_logged_with_what_it_made() {
    on_the_gateway(async |bed| {
        let template = bed.template("logged").await;
        bed.gateway.control().calls().clear();
        let launched = bed.launch(&template, "on-demand", &["m5.large"], 1).await;
        drop(bed.ec2("DescribeInstances", &[("InstanceId.1", "i-00000000000000000")]).await);
        let calls = bed.gateway.control().calls().all();
        let fleet = calls.iter().find(|call| call.action == "ec2:CreateFleet").expect("logged");
        assert!(
            fleet.resources.contains(&launched[0]) && fleet.status == 200 && fleet.error.is_none(),
            "{fleet:?}"
        );
        assert!(fleet.request_tags.contains(&(
            "instance".into(),
            "karpenter.sh/nodepool".into(),
            "logged".into()
        )));
        assert_eq!(
            calls.last().expect("logged").error.as_deref(),
            Some("InvalidInstanceID.NotFound")
        );
        let counts = bed.gateway.control().calls().counts();
        assert_eq!(
            (counts["ec2:DescribeInstances"].calls, counts["ec2:DescribeInstances"].errors),
            (1, 1)
        );
        let (status, filtered) = bed.control("GET", "calls?failed=true", json!(null)).await;
        assert_eq!((status, filtered.as_array().map(Vec::len)), (200, Some(1)));
        let file =
            std::fs::read_to_string(directory("gateway").join("calls.jsonl")).expect("log file");
        assert!(
            file.lines().any(|line| line.contains(&fleet.id) && line.contains("ec2:CreateFleet"))
        );
    });
}

fn shortage(instance_type: &str) -> Shortage {
    serde_json::from_value(json!({ "instanceType": instance_type })).expect("a shortage")
}

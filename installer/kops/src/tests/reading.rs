//! State stores in memory.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::read::{Cloud, Files, FoundImage, Unfit, objects, state};

/// Files by their addresses, and a cloud with one image.
#[derive(Clone)]
struct Memory(Vec<(String, String)>);

struct Folder {
    files: Vec<(String, String)>,
    /// With a slash at its end.
    prefix: String,
}

impl Cloud for Memory {
    type Error = Unfit;
    type Files = Folder;

    async fn open(&self, folder: &Location) -> Result<Folder, Unfit> {
        Ok(Folder { files: self.0.clone(), prefix: format!("{folder}/") })
    }

    async fn parameter(&self, _: &str) -> Result<Option<String>, Unfit> {
        Ok(None)
    }

    async fn image(&self, id: &str) -> Result<Option<FoundImage>, Unfit> {
        let image = FoundImage {
            architecture: Some("x86_64".to_owned()),
            root_device: Some("/dev/xvda".to_owned()),
        };
        Ok((id == "ami-0123456789abcdef0").then_some(image))
    }

    async fn newest_image(&self, _: &str, _: &str) -> Result<Option<FoundImage>, Unfit> {
        Ok(None)
    }

    async fn instance_types(&self) -> Result<Vec<String>, Unfit> {
        Ok(Vec::new())
    }
}

impl Files for Folder {
    type Error = Unfit;

    async fn read(&self, name: &str) -> Result<Option<String>, Unfit> {
        let address = format!("{}{name}", self.prefix);
        let found = self.files.iter().find(|(file, _)| *file == address);
        Ok(found.map(|(_, text)| text.clone()))
    }

    async fn names(&self, folder: &str) -> Result<Vec<String>, Unfit> {
        let prefix = format!("{}{folder}", self.prefix);
        let below = self.files.iter().filter_map(|(file, _)| file.strip_prefix(&prefix));
        let mut names = below
            .map(|rest| match rest.split_once('/') {
                Some((folder, _)) => format!("{folder}/"),
                None => rest.to_owned(),
            })
            .collect::<Vec<_>>();
        names.dedup();
        Ok(names)
    }
}

/// Nothing here waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("memory answers at once"),
    }
}

impl Memory {
    /// A cluster with an InstanceGroup of nodes and one of the control plane.
    fn new() -> Self {
        let masters =
            PLAIN.replace("name: plain", "name: masters").replace("role: Node", "role: Master");
        let mut memory = Self(Vec::new());
        memory.put("config", CLUSTER);
        memory.put("instancegroup/masters", &masters);
        memory.group("plain", PLAIN);
        memory
    }

    fn put(&mut self, file: &str, text: &str) {
        let file = format!("s3://states/shop.example.com/{file}");
        self.0.retain(|(there, _)| *there != file);
        self.0.push((file, text.to_owned()));
        self.0.sort();
    }

    fn group(&mut self, name: &str, text: &str) {
        self.put(&format!("instancegroup/{name}"), text);
        self.put(&script_file(name), &script("shop.example.com", name, NODE_CONFIG));
        self.put(&node_config_file(name), NODE_CONFIG);
    }

    fn read(&self, cluster: &str, wanted: &[&str]) -> Result<read::State, Unfit> {
        let location = Location::parse("s3://states").expect("a bucket");
        let wanted = wanted.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        now(state(self, &location, cluster, &wanted))
    }
}

#[test]
fn one_instance_group_that_cannot_be_used_does_not_hide_the_others() {
    let mut memory = Memory::new();
    let of = |name: &str| PLAIN.replace("name: plain", &format!("name: {name}"));
    memory.group("image", &of("image").replace("ami-0123456789abcdef0", "ami-1"));
    memory.group("taints", &format!("{}  taints: [a]\n", of("taints")));
    memory.put("instancegroup/new", &of("new"));
    memory.put("instancegroup/broken", "spec: [");
    memory.group("half", &of("half"));
    memory.put(&node_config_file("half"), "KubeletConfig: {maxPods: 1}\n");
    let read = memory.read("shop.example.com", &[]).expect("a cluster");
    assert_eq!(read.control_planes, 1);
    assert_eq!(read.all, ["half", "image", "new", "plain", "taints"]);
    let refused = read.problems.keys().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(refused, ["broken", "half", "new"]);
    let said = read.problems["new"][0].to_string();
    assert!(
        said.ends_with("nodeupscript.sh is missing: run `kops update cluster --yes`"),
        "{said}"
    );
    let made = now(objects(&memory, &read)).expect("the cloud answers");
    assert_eq!(made.generated.iter().map(|one| one.group.as_str()).collect::<Vec<_>>(), ["plain"]);
    let refused = made.problems.keys().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(refused, ["image", "taints"]);
    let said = made.problems["image"][0].to_string();
    assert_eq!(said, "InstanceGroup image: spec.image: EC2 has no image ami-1 in this region");
}

#[test]
fn what_is_not_the_whole_state_store_is_not_believed() {
    let mut memory = Memory::new();
    let Unfit(why) = memory.read("other.example.com", &[]).expect_err("another cluster");
    assert_eq!(
        why,
        ["there is no cluster other.example.com in s3://states; it has shop.example.com"]
    );
    let missing = memory.read("shop.example.com", &["gone", "masters"]).expect("a cluster");
    assert_eq!(missing.problems.len(), 2, "{:?}", missing.problems);
    memory.0.retain(|(file, _)| !file.contains("/instancegroup/"));
    let Unfit(why) = memory.read("shop.example.com", &[]).expect_err("half a state store");
    assert!(why[0].contains("this is not the whole state store"), "{why:?}");
}

#[test]
fn the_region_is_that_of_the_subnets() {
    let read = Memory::new().read("shop.example.com", &[]).expect("a cluster");
    assert_eq!(read.region().as_deref(), Some("eu-west-1"));
}

#[test]
fn the_control_plane_has_the_instance_profiles_of_its_groups() {
    let mut memory = Memory::new();
    let profiles = |memory: &Memory| {
        let read = memory.read("shop.example.com", &[]).expect("a cluster");
        read.control_plane_profiles.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(profiles(&memory), ["masters.shop.example.com"]);
    let own = PLAIN.replace("name: plain", "name: own").replace("role: Node", "role: ControlPlane");
    let arn = "arn:aws:iam::123456789012:instance-profile/ours";
    memory.put("instancegroup/own", &format!("{own}  iam: {{profile: '{arn}'}}\n"));
    assert_eq!(profiles(&memory), ["masters.shop.example.com", "ours"]);
}

#[test]
fn what_the_cluster_adds_to_roles_of_nodes_is_not_that_of_the_control_plane() {
    let read = Memory::new().read("shop.example.com", &[]).expect("a cluster");
    let policy = read.cluster.control_plane_policy.expect("statements").statements;
    assert!(policy.contains("s3:GetObject") && !policy.contains("ListAllMyBuckets"), "{policy}");
    assert!(read.cluster.has_oidc_provider);
}

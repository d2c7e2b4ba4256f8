//! What must hold of any input that Tenon reads: one function for each format, which panics where
//! it does not hold. The programs in `fuzz_targets/` give them what libFuzzer finds, the tests of
//! this crate what they make of the files in `corpus/`.

use jiff::Timestamp;
use tenon_crds::cron::Schedule;
use tenon_crds::{EC2NodeClassSpec, NodePoolSpec, Quantity};
use tenon_kops::{Boot, Cluster, Facts, Group, Image, generate};
use tenon_planner::{Policy, Snapshot, check, disrupt, provision};
use tenon_state::cel::{DeviceView, Program, Value, version};

#[cfg(feature = "aws")]
mod aws;

#[cfg(feature = "aws")]
pub use aws::{messages, settings, user_data};

/// Inputs beyond this are other tests' business, and would only be slow here.
const LONGEST: usize = 64 * 1024;

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok().filter(|text| text.len() <= LONGEST)
}

/// A quantity that is read and written is the same amount.
pub fn quantities(data: &[u8]) {
    let Some(Ok(quantity)) = text(data).map(str::parse::<Quantity>) else { return };
    let written = quantity.to_string();
    let again = written.parse::<Quantity>().expect("what is written can be read");
    assert_eq!(again.nanos(), quantity.nanos(), "{written}");
    assert_eq!(again.to_string(), written);
    let _ = (quantity.millis(), quantity.units());
    assert_eq!(quantity.minus(quantity).nanos(), 0);
}

/// The next time of a schedule is later than now and no time of it lies between.
pub fn schedules(data: &[u8]) {
    let Some(Ok(schedule)) = text(data).map(str::parse::<Schedule>) else { return };
    for now in ["1970-01-01T00:00:00Z", "2024-02-29T23:59:59Z", "2026-12-31T12:30:30Z"] {
        let now = now.parse::<Timestamp>().expect("a time");
        let Some(next) = schedule.next_after(now) else { continue };
        assert!(next > now);
        assert_eq!(schedule.last_until(next), Some(next), "a time of its own");
        let before = schedule.last_until(next - jiff::SignedDuration::from_nanos(1));
        assert!(before.is_none_or(|before| before <= now), "{before:?} lies before {next}");
    }
}

/// What an InstanceGroup becomes can be read as a NodePool and an EC2NodeClass.
pub fn instance_groups(data: &[u8]) {
    const CLUSTER: &str = "apiVersion: kops.k8s.io/v1alpha2
kind: Cluster
metadata: {name:                            a.b}
spec: {cloudProvider: aws, subnets: [{name: eu-west-1b, zone:                            eu-west-1b}, {name: public-eu-west-1a, zone: eu-west-1a}]}
";
    const CONFIG: &str = "KubeletConfig: {}
";
    const SCRIPT: &str = "conf/kube_env.yaml << '__EOF_KUBE_ENV'
ClusterName:                           a.b
InstanceGroupName: fuzz
NodeupConfigHash:                           umtSR7sxGG7mluvzPxfYdrYAbl1gjfutOhSyBeKbwMI=
__EOF_KUBE_ENV
";
    let Some(text) = text(data) else { return };
    let _ = tenon_kops::parse_patches(text);
    let _ = Boot::parse(("a.b", "fuzz"), text, CONFIG);
    let Ok(group) = Group::parse("fuzz", text) else { return };
    let cluster = Cluster::parse(CLUSTER).expect("a cluster");
    let boot = Boot::parse(("a.b", "fuzz"), SCRIPT, CONFIG).expect("its script");
    let image = Image { architecture: "arm64".to_owned(), root_device: "/dev/sda1".to_owned() };
    let facts = Facts { image, instance_types: vec!["m6g.large".to_owned()] };
    let Ok(generated) = generate(&cluster, &group, &boot, &facts) else { return };
    for object in generated.objects {
        let spec = object["spec"].clone();
        if object["kind"] == "NodePool" {
            serde_json::from_value::<NodePoolSpec>(spec).expect("a NodePool");
        } else {
            serde_json::from_value::<EC2NodeClassSpec>(spec).expect("an EC2NodeClass");
        }
    }
}

/// A selector that is accepted gives an answer or an error for every device.
pub fn selectors(data: &[u8]) {
    let Some(Ok(program)) = text(data).map(Program::parse) else { return };
    let _ = program.reads();
    let version = version("1.2.3").expect("a version");
    let attributes = [
        ("model", Value::text("a100")),
        ("index", Value::Int(3)),
        ("healthy", Value::Bool(true)),
        ("gpu.example.com/driverVersion", version),
    ];
    let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value));
    let capacity = [("memory".to_owned(), "40Gi".parse::<Quantity>().expect("a quantity"))];
    let device = DeviceView::new("gpu.example.com", attributes, capacity.into_iter(), false);
    let empty = DeviceView::new("other.example.com", [].into_iter(), [].into_iter(), true);
    for device in [device, empty] {
        let first = program.matches(&device).ok();
        assert_eq!(program.matches(&device).ok(), first, "the same answer again");
    }
}

/// A snapshot that is accepted can be planned. Its amounts and rules may make no sense, so the
/// plans need not either.
pub fn snapshots(data: &[u8]) {
    let Some(Ok(snapshot)) = text(data).map(Snapshot::from_json) else { return };
    let policy = Policy::default();
    let now = Timestamp::UNIX_EPOCH;
    for plan in
        [provision(&snapshot, &policy, now, 1, &()), disrupt(&snapshot, &policy, now, 1, &())]
    {
        let _ = check(&snapshot, &plan);
    }
}

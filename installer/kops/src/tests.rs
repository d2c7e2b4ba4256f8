//! Documents of our own, with every field that is read.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tenon_crds::labels::LabelRules;
use tenon_crds::validation::node_pool;
use tenon_crds::{EC2NodeClassSpec, NodePoolSpec};

use crate::*;

mod reading;

const CLUSTER: &str = include_str!("tests/cluster-v1alpha2.yaml");
const CLUSTER_3: &str = include_str!("tests/cluster-v1alpha3.yaml");
const PLAIN: &str = include_str!("tests/plain.yaml");
const FULL: &str = include_str!("tests/full-v1alpha2.yaml");
const FULL_3: &str = include_str!("tests/full-v1alpha3.yaml");

const NODE_CONFIG: &str = "\
ClusterName: shop.example.com
KubeletConfig:
  evictionHard: memory.available<100Mi,nodefs.available<10%,imagefs.available<15%
  maxPods: 58
  kubeReserved: {cpu: 100m, memory: 300Mi}
  nodeLabels:
    node-role.kubernetes.io/node: \"\"
  taints:
  - karpenter.sh/unregistered=:NoExecute
  - nvidia.com/gpu:NoSchedule
";

fn script(cluster: &str, group: &str, node_config: &str) -> String {
    let hash = STANDARD.encode(Sha256::digest(node_config));
    format!(
        "#!/bin/bash\ncat > conf/kube_env.yaml << '__EOF_KUBE_ENV'\nCloudProvider: aws\n\
         ClusterName: {cluster}\nInstanceGroupName: {group}\nNodeupConfigHash: {hash}\n\n\
         __EOF_KUBE_ENV\n\ndownload-release\n"
    )
}

fn boot(group: &str) -> Boot {
    let script = script("shop.example.com", group, NODE_CONFIG);
    Boot::parse(("shop.example.com", group), &script, NODE_CONFIG).expect("it belongs together")
}

fn facts() -> Facts {
    Facts {
        image: Image { architecture: "arm64".to_owned(), root_device: "/dev/sda1".to_owned() },
        instance_types: ["m6g.large", "m6gd.large", "c6gn.xlarge"].map(str::to_owned).to_vec(),
    }
}

fn cluster() -> Cluster {
    Cluster::parse(CLUSTER).expect("a cluster")
}

fn group(text: &str) -> Group {
    let name = text.split("\n  name: ").nth(1).and_then(|rest| rest.split('\n').next());
    Group::parse(name.expect("a name"), text).expect("a group")
}

fn generated(text: &str) -> Generated {
    let group = group(text);
    generate(&cluster(), &group, &boot(&group.name), &facts()).expect("it can be mapped")
}

/// What is wrong with a group that has these fields beside those of the plain one.
fn problems(fields: &str) -> Vec<String> {
    let text = format!("{PLAIN}{fields}");
    let group = match Group::parse("plain", &text) {
        Ok(group) => group,
        Err(problem) => return vec![problem.to_string()],
    };
    let found = generate(&cluster(), &group, &boot("plain"), &facts());
    found.expect_err("it cannot be mapped").iter().map(ToString::to_string).collect()
}

/// Whether JSON keeps the order of its fields depends on what else is built.
fn sorted() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_sort_maps(true);
    settings
}

#[test]
fn a_group_with_every_field() {
    sorted().bind(|| insta::assert_yaml_snapshot!(generated(FULL).objects));
}

#[test]
fn a_group_with_nothing_but_an_image() {
    sorted().bind(|| insta::assert_yaml_snapshot!(generated(PLAIN).objects));
}

#[test]
fn what_differs_from_an_auto_scaling_group_is_said_field_by_field() {
    let notes = generated(FULL).notes;
    let notes = notes.iter().map(|note| format!("{}: {}", note.field, note.text));
    insta::assert_snapshot!(notes.collect::<Vec<_>>().join("\n"));
}

#[test]
fn both_versions_of_the_api_say_the_same() {
    let mut cluster_3 = Cluster::parse(CLUSTER_3).expect("a cluster");
    let policy = cluster_3.control_plane_policy.as_mut().expect("statements");
    assert_eq!(std::mem::replace(&mut policy.key, "master".to_owned()), "control-plane");
    assert_eq!(cluster_3, cluster());
    assert_eq!(generated(FULL_3).objects, generated(FULL).objects);
    assert_eq!(generated(FULL_3).notes.len(), generated(FULL).notes.len());
}

#[test]
fn what_is_generated_is_valid() {
    for text in [PLAIN, FULL] {
        for object in generated(text).objects {
            if object["kind"] == "EC2NodeClass" {
                let _: EC2NodeClassSpec = serde_json::from_value(object["spec"].clone())
                    .unwrap_or_else(|error| panic!("{error}: {object}"));
                continue;
            }
            let spec: NodePoolSpec = serde_json::from_value(object["spec"].clone())
                .unwrap_or_else(|error| panic!("{error}: {object}"));
            let wrong = node_pool(&spec, &LabelRules::aws());
            assert!(wrong.is_empty(), "{wrong:?}: {object}");
        }
    }
}

#[test]
fn fields_that_cannot_be_mapped_are_named_one_by_one() {
    let cases = [
        ("  minSize: 0\n", "InstanceGroup plain: spec.minSize: leave it out"),
        ("  maxSize: 0\n", "InstanceGroup plain: spec.maxSize: write a number above 0"),
        ("  maxSize: many\n", "InstanceGroup plain: spec.maxSize: invalid type"),
        ("  tenancy: host\n", "InstanceGroup plain: spec.tenancy: \"host\" is not possible"),
        ("  taints: [dedicated]\n", "InstanceGroup plain: spec.taints: \"dedicated\" is no taint"),
        (
            "  taints: ['a=b:Never']\n",
            "InstanceGroup plain: spec.taints: \"a=b:Never\" is no taint",
        ),
        (
            "  subnets: [moon-1a]\n",
            "InstanceGroup plain: spec.subnets: the Cluster has no subnet moon-1a",
        ),
        (
            "  maxInstanceLifetime: soon\n",
            "InstanceGroup plain: spec.maxInstanceLifetime: `soon` is not a duration",
        ),
        (
            "  volumes: [{size: 5}]\n",
            "InstanceGroup plain: spec.volumes[0].device: name the device",
        ),
        (
            "  mixedInstancesPolicy: {instanceRequirements: {cpu: {min: 8, max: 2}}}\n",
            "InstanceGroup plain: spec.mixedInstancesPolicy.instanceRequirements.cpu: min 8 is above max 2",
        ),
        (
            "  rollingUpdate: {maxUnavailable: []}\n",
            "InstanceGroup plain: spec.rollingUpdate.maxUnavailable: write a number",
        ),
    ];
    for (fields, begin) in cases {
        let found = problems(fields);
        assert_eq!(found.len(), 1, "{fields}: {found:?}");
        assert!(found[0].starts_with(begin), "{fields}: {found:?}");
    }
    let both = problems("  minSize: -1\n  tenancy: host\n");
    assert_eq!(both.len(), 2, "{both:?}");
    let text = PLAIN.replace("manager: Karpenter", "manager: CloudGroup");
    let found = generate(&cluster(), &group(&text), &boot("plain"), &facts());
    assert!(found.is_err_and(|found| found[0].field == "spec.manager"));
}

#[test]
fn images_are_named_in_four_ways() {
    let name = |owner: &str, name: &str| ImageSource::Name {
        owner: owner.to_owned(),
        name: name.to_owned(),
    };
    let cases = [
        ("ami-0123", Some(ImageSource::Id("ami-0123".to_owned()))),
        ("ssm:/our/image", Some(ImageSource::Parameter("/our/image".to_owned()))),
        ("our-image-*", Some(name("self", "our-image-*"))),
        ("ubuntu/ubuntu/images/noble", Some(name("099720109477", "ubuntu/images/noble"))),
        ("123456789012/ours", Some(name("123456789012", "ours"))),
        ("", None),
        ("ssm:", None),
        ("/images", None),
        ("s3://bucket/image", None),
    ];
    for (text, wanted) in cases {
        assert_eq!(ImageSource::parse(text), wanted, "{text}");
    }
}

#[test]
fn types_are_excluded_by_patterns_of_any_length() {
    let excluded = |pattern: &str, kind: &str| {
        let text = format!(
            "{PLAIN}  mixedInstancesPolicy:\n    instanceRequirements: {{excludedInstanceTypes: \
             ['{pattern}']}}\n"
        );
        let facts = Facts { instance_types: vec![kind.to_owned()], ..facts() };
        let made = generate(&cluster(), &group(&text), &boot("plain"), &facts).expect("objects");
        made.objects[1].to_string().contains(&format!("[\"{kind}\"]"))
    };
    for (pattern, kind) in
        [("*", "m6g.large"), ("c*", "c6gn.xlarge"), ("*gn*", "c6gn.xlarge"), ("m*.*e", "m6g.large")]
    {
        assert!(excluded(pattern, kind), "{pattern} {kind}");
    }
    for (pattern, kind) in
        [("*gn*", "m6g.large"), ("c*.large", "c6gn.xlarge"), ("m6g.*.*", "m6g.large")]
    {
        assert!(!excluded(pattern, kind), "{pattern} {kind}");
    }
    // Nothing that takes time exponential in the number of asterisks.
    assert!(!excluded(&"*a".repeat(200), &"a".repeat(100)));
}

#[test]
fn addresses_of_state_stores() {
    let folder = Location::parse("file:///srv/kops").expect("a folder");
    assert_eq!(folder.join("shop.example.com").to_string(), "file:///srv/kops/shop.example.com");
    assert_eq!(Location::parse("/srv/kops"), Ok(folder));
    let bucket = Location::parse("s3://states/eu/").expect("a bucket");
    assert_eq!(bucket.join("shop.example.com").to_string(), "s3://states/eu/shop.example.com");
    assert_eq!(
        Location::parse("s3://states").expect("a bucket").join("a").to_string(),
        "s3://states/a"
    );
    let refused = |text: &str| Location::parse(text).expect_err(text).to_string();
    assert_eq!(
        refused("gs://states"),
        "gs:// state stores are not supported; Tenon reads s3:// and file://"
    );
    for text in ["", "s3://", "s3:///prefix", "srv/kops", "file://srv"] {
        assert!(refused(text).contains("is not the address of a state store"), "{text}");
    }
}

#[test]
fn a_store_that_is_half_written_is_refused() {
    let of = ("shop.example.com", "plain");
    let good = script(of.0, of.1, NODE_CONFIG);
    let said = |script: &str, config: &str| {
        Boot::parse(of, script, config).expect_err("it is refused").to_string()
    };
    let newer = NODE_CONFIG.replace("maxPods: 58", "maxPods: 110");
    assert!(said(&good, &newer).contains("is running or was interrupted; run it again"));
    assert!(said("#!/bin/bash\n", NODE_CONFIG).ends_with("it does not say which node it boots"));
    let other = script(of.0, "other", NODE_CONFIG);
    assert!(said(&other, NODE_CONFIG).contains("boots nodes of InstanceGroup other"));
    let long = format!("{good}# {}\n", "x".repeat(USER_DATA_LIMIT));
    assert!(said(&long, NODE_CONFIG).contains("EC2 takes user data of at most 16384 bytes"));
    for (name, text) in [("Cluster", ""), ("Cluster", "a: [\n"), ("Cluster", "kind: Cluster\n")] {
        assert!(Cluster::parse(text).is_err(), "{name} {text}");
    }
    let wrong = Group::parse("else", PLAIN).expect_err("another name");
    assert_eq!(
        wrong.to_string(),
        "InstanceGroup else: metadata.name: the file else holds \"plain\""
    );
    let old = PLAIN.replace("v1alpha2", "v1alpha1");
    assert!(Group::parse("plain", &old).is_err_and(|problem| problem.field == "apiVersion"));
    let elsewhere = CLUSTER.replace("cloudProvider: aws", "cloudProvider: gce");
    let wrong = Cluster::parse(&elsewhere).expect_err("another cloud").to_string();
    assert_eq!(
        wrong,
        "Cluster shop.example.com: spec.cloudProvider: Tenon launches nodes on AWS only"
    );
}

#[test]
fn a_compressed_environment_is_read_as_well() {
    use std::io::Write;
    let plain = script("shop.example.com", "plain", NODE_CONFIG);
    let (before, rest) = plain.split_once("cat >").expect("an environment");
    let (environment, after) = rest
        .split_once("__EOF_KUBE_ENV'\n")
        .expect("its begin")
        .1
        .split_once("\n__EOF_KUBE_ENV")
        .expect("its end");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(environment.as_bytes()).expect("memory");
    let packed = STANDARD.encode(packed.finish().expect("memory"));
    let script =
        format!("{before}echo \"{packed}\" | base64 -d | gzip -d > conf/kube_env.yaml{after}");
    let read = Boot::parse(("shop.example.com", "plain"), &script, NODE_CONFIG);
    assert!(read.is_ok(), "{read:?}");
    assert_eq!(config_hash(&script), config_hash(&boot("plain").user_data));
    assert!(config_hash(&script).is_some());
}

#[test]
fn patches_change_what_is_generated() {
    let mut objects = generated(PLAIN).objects;
    let patches = "\
# Every pool.
---
kind: NodePool
metadata: {name: '*'}
spec: {disruption: {consolidateAfter: 5m}, weight: 3}
---
kind: NodePool
metadata: {name: plain}
spec: {weight: null, limits: {cpu: 100}}
";
    let patches = parse_patches(patches).expect("patches");
    patches.apply(&mut objects, &[]).expect("they are there");
    assert_eq!(objects[1]["spec"]["disruption"], json!({"consolidateAfter": "5m"}));
    assert_eq!(objects[1]["spec"]["limits"], json!({"cpu": 100}));
    assert_eq!(objects[1]["spec"]["weight"], Value::Null);
    assert_eq!(objects[0]["metadata"]["annotations"], Value::Null);

    // Whoever generates them again needs no file.
    let mut again = generated(PLAIN).objects.remove(1);
    let recorded = objects[1]["metadata"]["annotations"][PATCH_ANNOTATION].clone();
    let recorded = recorded.as_str().expect("it has been patched");
    apply_recorded(&mut again, recorded).expect("a record");
    assert_eq!(again, objects[1]);
    apply_recorded(&mut again, "{}").expect_err("no list");

    let text = "kind: NodePool\nmetadata: {name: gone}\nspec: {weight: 1}\n";
    let patches = parse_patches(text).expect("a patch");
    let wrong = patches.apply(&mut objects, &["other".to_owned()]);
    let wrong = wrong.expect_err("no object");
    assert_eq!(wrong[0].to_string(), "patch for NodePool gone: no such object is generated");
    let before = objects.clone();
    patches.apply(&mut objects, &["gone".to_owned()]).expect("a group that was not asked for");
    let of_base = parse_patches(&text.replace("gone", "gone-base")).expect("a patch");
    of_base.apply(&mut objects, &["gone".to_owned()]).expect("its other NodePool");
    assert_eq!(objects, before);
    let wrong = parse_patches("kind: Pod\n---\nnot: [\n").expect_err("no patches");
    let fields = wrong.iter().map(|problem| problem.field.as_str()).collect::<BTreeSet<_>>();
    assert_eq!(fields, BTreeSet::from(["", "kind", "metadata.name", "spec"]));
}

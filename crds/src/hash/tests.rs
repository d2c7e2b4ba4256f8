//! The vectors are published: NodePool hashes seen in clusters, EC2NodeClass hashes of Karpenter's
//! releases.

use serde_json::{Value, json};

use super::*;
use crate::{EC2NodeClassSpec, NodePoolSpec};

fn pool(group: &str, kind: &str, expire_after: &str) -> Value {
    json!({ "template": { "spec": {
        "nodeClassRef": { "group": group, "kind": kind, "name": "default" },
        "requirements": [],
        "expireAfter": expire_after,
    } } })
}

fn hash_of(pool: &Value) -> String {
    let spec: NodePoolSpec = serde_json::from_value(pool.clone()).unwrap();
    node_pool(&spec)
}

fn kwok_pool() -> Value {
    pool("karpenter.kwok.sh", "KWOKNodeClass", "720h")
}

#[test]
fn node_pools_hash_as_karpenter_hashes_them() {
    let mut eks = pool("eks.amazonaws.com", "NodeClass", "336h");
    eks["template"]["spec"]["terminationGracePeriod"] = json!("24h");
    assert_eq!(hash_of(&eks), "4012513481623584108");
    assert_eq!(hash_of(&pool("karpenter.k8s.aws", "EC2NodeClass", "720h")), "6821555240594823858");

    assert_eq!(hash_of(&kwok_pool()), "12745407319442031341");
    assert_eq!(
        hash_of(&pool("karpenter.kwok.sh", "KWOKNodeClass", "Never")),
        "7428780003907761376"
    );
    let mut labelled = kwok_pool();
    labelled["template"]["metadata"] = json!({ "labels": { "team": "a" } });
    assert_eq!(hash_of(&labelled), "10172464548043488983");
    let mut annotated = kwok_pool();
    annotated["template"]["metadata"] = json!({ "annotations": { "x": "y" } });
    assert_eq!(hash_of(&annotated), "14887539423823369657");
    let mut tainted = kwok_pool();
    tainted["template"]["spec"]["taints"] =
        json!([{ "key": "CriticalAddonsOnly", "effect": "NoSchedule" }]);
    assert_eq!(hash_of(&tainted), "8408281970771717688");
}

#[test]
fn a_node_pool_hashes_by_value_and_without_what_does_not_drift() {
    let base = hash_of(&kwok_pool());

    let mut other = kwok_pool();
    other["template"]["spec"]["expireAfter"] = json!("43200m");
    assert_eq!(hash_of(&other), base, "the text of a duration does not count");

    let mut other = kwok_pool();
    other["template"]["spec"]["requirements"] =
        json!([{ "key": "kubernetes.io/arch", "operator": "Exists" }]);
    other["weight"] = json!(7);
    other["limits"] = json!({ "cpu": 5 });
    other["disruption"] = json!({ "consolidateAfter": "1h" });
    assert_eq!(hash_of(&other), base, "only the template without its requirements counts");

    let mut swapped = kwok_pool();
    swapped["template"]["spec"]["taints"] = json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "b", "effect": "NoExecute", "value": "" }]);
    let mut tainted = kwok_pool();
    tainted["template"]["spec"]["taints"] =
        json!([{ "key": "b", "effect": "NoExecute" }, { "key": "a", "effect": "NoSchedule" }]);
    assert_eq!(hash_of(&swapped), hash_of(&tainted), "the order of taints does not count");
    assert_ne!(hash_of(&tainted), base);
}

#[test]
fn an_empty_field_is_not_an_absent_one() {
    let base = hash_of(&kwok_pool());
    for (pointer, empty) in
        [("metadata", json!({ "labels": {} })), ("metadata", json!({ "annotations": {} }))]
    {
        let mut other = kwok_pool();
        other["template"][pointer] = empty;
        assert_ne!(hash_of(&other), base);
        let back: NodePoolSpec = serde_json::from_value(other.clone()).unwrap();
        assert_eq!(
            hash_of(&serde_json::to_value(back).unwrap()),
            hash_of(&other),
            "writing keeps it"
        );
    }
    let mut other = kwok_pool();
    other["template"]["spec"]["startupTaints"] = json!([]);
    assert_ne!(hash_of(&other), base);
}

#[test]
fn the_time_of_a_taint_counts() {
    let mut other = kwok_pool();
    other["template"]["spec"]["taints"] =
        json!([{ "key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z" }]);
    let with_time = hash_of(&other);
    other["template"]["spec"]["taints"][0]["timeAdded"] = json!("2026-01-02T03:04:06Z");
    assert_ne!(hash_of(&other), with_time);
}

fn base_class() -> Value {
    json!({
        "role": "role-1",
        "tags": { "keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2" },
        "context": "fake-context",
        "detailedMonitoring": false,
        "associatePublicIPAddress": false,
        "metadataOptions": {
            "httpEndpoint": "disabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "optional",
        },
        "blockDeviceMappings": [
            { "deviceName": "map-device-1", "rootVolume": false, "ebs": {
                "deleteOnTermination": false, "encrypted": false, "iops": 0, "kmsKeyID": "fakeKMSKeyID",
                "snapshotID": "fakeSnapshot", "throughput": 0, "volumeSize": "2G", "volumeType": "standard",
            } },
            { "deviceName": "map-device-2" },
        ],
        "userData": "userdata-test-1",
        "subnetSelectorTerms": [], "securityGroupSelectorTerms": [], "amiSelectorTerms": [],
    })
}

fn class_hash(class: &Value, kubelet_in: KubeletIn) -> String {
    let spec: EC2NodeClassSpec = serde_json::from_value(class.clone()).unwrap();
    ec2_node_class_with(&spec, Some("test-ca-bundle"), kubelet_in)
}

fn changed(pointer: &str, value: Value) -> Value {
    let mut class = base_class();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = class.pointer_mut(parent).unwrap();
    parent[field] = value;
    class
}

#[test]
fn ec2_node_classes_hash_as_release_1_14_1_hashes_them() {
    let v5 = |class: &Value| class_hash(class, KubeletIn::Spec);
    assert_eq!(v5(&base_class()), "2608468723537941485");
    let ebs = "/blockDeviceMappings/0/ebs";
    for (pointer, value, expected) in [
        ("/userData", json!("userdata-test-2"), "2153344579995979450"),
        ("/tags/keyTag-test-3", json!("valueTag-test-3"), "4608386791045313156"),
        ("/context", json!("context-2"), "11612053647989098410"),
        ("/detailedMonitoring", json!(true), "11845605438531206428"),
        ("/instanceStorePolicy", json!("RAID0"), "6430637013089544585"),
        ("/associatePublicIPAddress", json!(true), "6811176403923819181"),
        ("/metadataOptions/httpEndpoint", json!("enabled"), "8158886403801636337"),
        ("/metadataOptions/httpProtocolIPv6", json!("enabled"), "12355196004817691031"),
        ("/metadataOptions/httpPutResponseHopLimit", json!(10), "8968306366664488826"),
        ("/metadataOptions/httpTokens", json!("required"), "12408995450371615650"),
        ("/connectionTracking", json!({ "tcpEstablishedTimeout": 300 }), "12177489405137904098"),
        ("/connectionTracking", json!({ "udpStreamTimeout": 120 }), "17567831983996427"),
        ("/connectionTracking", json!({ "udpTimeout": 45 }), "5078825826133662844"),
        ("/cpuOptions", json!({ "nestedVirtualization": "enabled" }), "17001101224536964682"),
    ] {
        assert_eq!(v5(&changed(pointer, value)), expected, "{pointer}");
    }
    for (field, value, expected) in [
        ("deleteOnTermination", json!(true), "12316454167870753581"),
        ("encrypted", json!(true), "17753517657333560591"),
        ("iops", json!(10), "2249322442135400321"),
        ("kmsKeyID", json!("test"), "12259594419287406661"),
        ("snapshotID", json!("test"), "1149563513090550380"),
        ("throughput", json!(10), "12068199760789564545"),
        ("volumeType", json!("io1"), "16361719363399715944"),
        ("volumeSize", json!("10G"), "3564293065344858862"),
    ] {
        assert_eq!(v5(&changed(&format!("{ebs}/{field}"), value)), expected, "{field}");
    }
    assert_eq!(
        v5(&changed("/blockDeviceMappings/0/deviceName", json!("map-device-test-3"))),
        "13986335469721503441"
    );
    assert_eq!(
        v5(&changed("/blockDeviceMappings/0/rootVolume", json!(true))),
        "14242690863945643402"
    );

    let mut profile = base_class();
    profile["role"] = json!("");
    profile["instanceProfile"] = json!("test-instance-profile");
    assert_eq!(v5(&profile), "3585768058063247698");
}

#[test]
fn selectors_and_the_order_of_disks_do_not_count() {
    let base = class_hash(&base_class(), KubeletIn::Spec);
    let mut other = base_class();
    other["subnetSelectorTerms"] = json!([{ "tags": { "a": "b" } }]);
    other["securityGroupSelectorTerms"] = json!([{ "name": "n" }]);
    other["capacityReservationSelectorTerms"] = json!([{ "id": "cr-1" }]);
    other["amiSelectorTerms"] = json!([{ "id": "ami-1" }]);
    other["ipPrefixCount"] = json!(3);
    other["amiFamily"] = json!("Custom");
    other["blockDeviceMappings"].as_array_mut().unwrap().reverse();
    assert_eq!(class_hash(&other, KubeletIn::Spec), base);

    other["amiFamily"] = json!("AL2023");
    assert_ne!(class_hash(&other, KubeletIn::Spec), base, "the family does count");
    let explicit = class_hash(&other, KubeletIn::Spec);
    other.as_object_mut().unwrap().remove("amiFamily");
    other["amiSelectorTerms"] = json!([{ "alias": "al2023@latest" }]);
    assert_eq!(
        class_hash(&other, KubeletIn::Spec),
        explicit,
        "whether the alias or the field says it does not"
    );
}

#[test]
fn the_next_version_of_the_algorithm_is_at_hand() {
    let v6 = |class: &Value| class_hash(class, KubeletIn::Json);
    assert_eq!(v6(&base_class()), "11148166120438674859");
    for (pointer, value, expected) in [
        ("/userData", json!("userdata-test-2"), "11774429238106843388"),
        ("/blockDeviceMappings/0/ebs/volumeSize", json!("10G"), "10372902467896351912"),
        ("/detailedMonitoring", json!(true), "1936848126751988570"),
        ("/instanceStorePolicy", json!("RAID0"), "16697988646989909967"),
        ("/cpuOptions", json!({ "nestedVirtualization": "enabled" }), "6157846767212910604"),
        ("/context", json!("context-2"), "2279761750428738028"),
        ("/associatePublicIPAddress", json!(true), "16141801171825097963"),
        ("/connectionTracking", json!({ "tcpEstablishedTimeout": 300 }), "1619669030802245540"),
        ("/tags/keyTag-test-3", json!("valueTag-test-3"), "9327338697296909506"),
    ] {
        assert_eq!(v6(&changed(pointer, value)), expected, "{pointer}");
    }
    let mut profile = base_class();
    profile.as_object_mut().unwrap().remove("role");
    profile["instanceProfile"] = json!("test-instance-profile");
    assert_eq!(v6(&profile), "10323991363677716244");
}

#[test]
fn every_kubelet_setting_counts() {
    let base = class_hash(&base_class(), KubeletIn::Spec);
    let mut seen = vec![base];
    for kubelet in [
        json!({ "clusterDNS": ["10.0.0.10"] }),
        json!({ "maxPods": 10 }),
        json!({ "podsPerCore": 10 }),
        json!({ "systemReserved": { "cpu": "1" } }),
        json!({ "kubeReserved": { "cpu": "1" } }),
        json!({ "evictionHard": { "memory.available": "5%" } }),
        json!({ "evictionSoft": { "memory.available": "5%" } }),
        json!({ "evictionSoftGracePeriod": { "memory.available": "1m" } }),
        json!({ "evictionMaxPodGracePeriod": 10 }),
        json!({ "imageGCHighThresholdPercent": 10 }),
        json!({ "imageGCLowThresholdPercent": 10 }),
        json!({ "cpuCFSQuota": false }),
        json!({}),
    ] {
        let hash = class_hash(&changed("/kubelet", kubelet.clone()), KubeletIn::Spec);
        assert!(!seen.contains(&hash), "{kubelet}");
        seen.push(hash);
    }
    let one_minute =
        changed("/kubelet", json!({ "evictionSoftGracePeriod": { "memory.available": "60s" } }));
    assert!(
        seen.contains(&class_hash(&one_minute, KubeletIn::Spec)),
        "grace periods count by length"
    );
}

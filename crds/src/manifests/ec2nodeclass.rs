//! Rules of EC2NodeClass.

use serde_json::{Value, json};

use super::schema::{Schema, cel_list, rule};
use super::shared::{self, Conditions};
use super::{AGE_PATH, Column, READY_PATH};
use crate::labels;
use crate::quantity;

pub(super) const COLUMNS: &[Column] = &[
    ("Ready", "string", READY_PATH, 0),
    ("Age", "date", AGE_PATH, 0),
    ("Role", "string", ".spec.role", 1),
];

/// Families that an alias can name: in the alias, and as `amiFamily`.
const ALIAS_FAMILIES: &[(&str, &str)] = &[
    ("al2", "AL2"),
    ("al2023", "AL2023"),
    ("bottlerocket", "Bottlerocket"),
    ("windows2019", "Windows2019"),
    ("windows2022", "Windows2022"),
    ("windows2025", "Windows2025"),
];

/// A size in Gi up to 59000, G up to 64000, Ti up to 58 or T up to 64. That some sizes in Ti are
/// missing (18, 19, 28, …) and that a bare `Ti` or `T` passes is what Karpenter's API does.
const VOLUME_SIZE: &str = r"^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|([1-9]?|[1-5][0-7]|58)Ti|([1-9]?|[1-5][0-9]|6[0-3]|64)T)$";

const EVICTION_SIGNALS: &[&str] = &[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];

const RESERVABLE: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];

pub(super) fn constrain(schema: &mut Schema) {
    spec(schema);
    selectors(schema);
    disks_and_network(schema);
    kubelet(schema);
    status(schema);
}

fn spec(schema: &mut Schema) {
    let has_alias = |family: &str| {
        format!(
            "self.amiSelectorTerms.exists(t, has(t.alias) && t.alias.find('^[^@]+') == '{family}')"
        )
    };
    let family_rules = ALIAS_FAMILIES.iter().map(|(alias, family)| {
        rule(
            format!(
                "!has(self.amiFamily) || self.amiFamily in ['{family}', 'Custom'] || !{}",
                has_alias(alias)
            ),
            format!("with an alias of '{alias}', amiFamily can only be '{family}' or 'Custom'"),
        )
    });
    schema
        .rules(
            "spec",
            [
                rule("has(self.role) != has(self.instanceProfile)", "exactly one of 'role' and 'instanceProfile' must be set"),
                rule(
                    "has(self.amiFamily) || self.amiSelectorTerms.exists(t, has(t.alias))",
                    "amiFamily must be set unless amiSelectorTerms has an alias",
                ),
            ],
        )
        .rules("spec", family_rules)
        .rules("spec.role", [rule("self != ''", "role may not be empty")])
        .rules("spec.instanceProfile", [rule("self != ''", "instanceProfile may not be empty")])
        .at("spec.ipPrefixCount", json!({ "minimum": 0 }))
        .at("spec.metadataOptions.httpPutResponseHopLimit", json!({ "minimum": 1, "maximum": 64 }))
        .rules(
            "spec.tags",
            [
                rule("!('' in self)", "tag keys may not be empty"),
                rule(
                    "self.all(key, !key.startsWith('kubernetes.io/cluster'))",
                    "tag keys may not start with \"kubernetes.io/cluster\": those tags are set by the operator",
                ),
            ],
        );
    for tag in [
        labels::aws::EKS_CLUSTER_NAME_TAG,
        labels::NODEPOOL,
        labels::aws::NODECLAIM_TAG,
        labels::aws::EC2NODECLASS,
    ] {
        schema.rules(
            "spec.tags",
            [rule(format!("!('{tag}' in self)"), format!("tag \"{tag}\" is set by the operator"))],
        );
    }
}

fn selectors(schema: &mut Schema) {
    for terms in [
        "subnetSelectorTerms",
        "securityGroupSelectorTerms",
        "capacityReservationSelectorTerms",
        "amiSelectorTerms",
    ] {
        schema
            .at(&format!("spec.{terms}"), json!({ "maxItems": 30 }))
            .at(&format!("spec.{terms}[].tags"), json!({ "maxProperties": 20 }))
            .rules(
                &format!("spec.{terms}[].tags"),
                [rule(
                    "self.all(key, key != '' && self[key] != '')",
                    "keys and values of tags may not be empty",
                )],
            );
    }
    for terms in ["subnetSelectorTerms", "securityGroupSelectorTerms", "amiSelectorTerms"] {
        schema.at(&format!("spec.{terms}"), json!({ "minItems": 1 }));
    }
    // Karpenter's API refuses mixed terms only if every term is mixed, except for AMIs; anything
    // stricter would refuse objects that are in use.
    schema
        .rules(
            "spec.subnetSelectorTerms",
            [
                rule("self.all(t, has(t.tags) || has(t.id))", "each term needs 'tags' or 'id'"),
                rule("!self.all(t, has(t.id) && has(t.tags))", "'id' cannot be combined with 'tags' in a term"),
            ],
        )
        .at("spec.subnetSelectorTerms[].id", json!({ "pattern": "subnet-[0-9a-z]+" }))
        .rules(
            "spec.securityGroupSelectorTerms",
            [
                rule("self.all(t, has(t.tags) || has(t.id) || has(t.name))", "each term needs 'tags', 'id' or 'name'"),
                rule(
                    "!self.all(t, has(t.id) && (has(t.tags) || has(t.name)))",
                    "'id' cannot be combined with 'tags' or 'name' in a term",
                ),
                rule(
                    "!self.all(t, has(t.name) && (has(t.tags) || has(t.id)))",
                    "'name' cannot be combined with 'tags' or 'id' in a term",
                ),
            ],
        )
        .at("spec.securityGroupSelectorTerms[].id", json!({ "pattern": "sg-[0-9a-z]+" }))
        .rules(
            "spec.capacityReservationSelectorTerms",
            [
                rule(
                    "self.all(t, has(t.tags) || has(t.id) || has(t.instanceMatchCriteria))",
                    "each term needs 'tags', 'id' or 'instanceMatchCriteria'",
                ),
                rule(
                    "size(self) == 0 || !self.all(t, has(t.id) && (has(t.tags) || has(t.ownerID) || has(t.instanceMatchCriteria)))",
                    "'id' cannot be combined with 'tags', 'ownerID' or 'instanceMatchCriteria' in a term",
                ),
            ],
        )
        .at("spec.capacityReservationSelectorTerms[].id", json!({ "pattern": "^cr-[0-9a-z]+$" }))
        .at("spec.capacityReservationSelectorTerms[].ownerID", json!({ "pattern": "^[0-9]{12}$" }))
        .rules(
            "spec.amiSelectorTerms",
            [
                rule(
                    "self.all(t, has(t.tags) || has(t.id) || has(t.name) || has(t.alias) || has(t.ssmParameter))",
                    "each term needs 'tags', 'id', 'name', 'alias' or 'ssmParameter'",
                ),
                rule(
                    "self.all(t, !has(t.id) || !(has(t.alias) || has(t.tags) || has(t.name) || has(t.owner)))",
                    "'id' cannot be combined with 'alias', 'tags', 'name' or 'owner' in a term",
                ),
                rule(
                    "self.all(t, !has(t.alias) || !(has(t.id) || has(t.tags) || has(t.name) || has(t.owner)))",
                    "'alias' cannot be combined with 'id', 'tags', 'name' or 'owner' in a term",
                ),
                rule("size(self) == 1 || !self.exists(t, has(t.alias))", "a term with 'alias' must be the only term"),
            ],
        )
        .at("spec.amiSelectorTerms[].id", json!({ "pattern": "ami-[0-9a-z]+" }))
        .at("spec.amiSelectorTerms[].alias", json!({ "maxLength": 30 }))
        .rules(
            "spec.amiSelectorTerms[].alias",
            [
                rule("self.matches('^[a-zA-Z0-9]+@.+$')", "alias must have the form 'family@version'"),
                rule(
                    format!("self.split('@')[0] in {}", cel_list(ALIAS_FAMILIES.iter().map(|(alias, _)| *alias))),
                    "the family of an alias must be 'al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022' or 'windows2025'",
                ),
                rule(
                    "!(self.split('@')[0] in ['windows2019', 'windows2022', 'windows2025']) || (size(self.split('@')) > 1 && self.split('@')[1] == 'latest')",
                    "an alias of a Windows family can only have the version 'latest'",
                ),
            ],
        )
        .at("spec.placementGroupSelector.id", json!({ "pattern": "^pg-[0-9a-z]+$" }))
        .at("spec.placementGroupSelector.name", json!({ "minLength": 1 }))
        .rules(
            "spec.placementGroupSelector",
            [rule("has(self.name) != has(self.id)", "exactly one of 'name' and 'id' must be set")],
        );
}

fn disks_and_network(schema: &mut Schema) {
    schema
        .at("spec.blockDeviceMappings", json!({ "maxItems": 50 }))
        .rules(
            "spec.blockDeviceMappings",
            [rule(
                "self.filter(m, has(m.rootVolume) && m.rootVolume).size() <= 1",
                "at most one of the blockDeviceMappings can be the rootVolume",
            )],
        )
        .rules(
            "spec.blockDeviceMappings[].ebs",
            [
                rule("has(self.snapshotID) || has(self.volumeSize)", "snapshotID or volumeSize must be set"),
                rule(
                    "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
                    "volumeInitializationRate needs a snapshotID",
                ),
            ],
        )
        .at("spec.blockDeviceMappings[].ebs.volumeSize", json!({ "pattern": VOLUME_SIZE }))
        .at("spec.blockDeviceMappings[].ebs.volumeInitializationRate", json!({ "minimum": 100, "maximum": 300 }))
        .at("spec.networkInterfaces", json!({ "maxItems": 150 }))
        .rules(
            "spec.networkInterfaces",
            [
                rule(
                    "size(self) == 0 || self.exists(i, i.networkCardIndex == 0 && i.deviceIndex == 0 && i.interfaceType == 'interface')",
                    "networkInterfaces must have one with networkCardIndex 0, deviceIndex 0 and interfaceType 'interface'",
                ),
                rule(
                    "self.all(i, self.exists_one(j, j.networkCardIndex == i.networkCardIndex && j.deviceIndex == i.deviceIndex))",
                    "no two networkInterfaces can have the same networkCardIndex and deviceIndex",
                ),
                rule(
                    "self.all(i, i.interfaceType != 'efa-only' || self.exists_one(j, j.networkCardIndex == i.networkCardIndex && j.interfaceType == 'efa-only'))",
                    "a network card can have at most one interface of type 'efa-only'",
                ),
            ],
        )
        .at("spec.networkInterfaces[].networkCardIndex", json!({ "minimum": 0 }))
        .at("spec.networkInterfaces[].deviceIndex", json!({ "minimum": 0 }))
        .rules(
            "spec.connectionTracking",
            [rule(
                "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
                "connectionTracking needs tcpEstablishedTimeout, udpStreamTimeout or udpTimeout",
            )],
        )
        .at("spec.connectionTracking.tcpEstablishedTimeout", json!({ "minimum": 60, "maximum": 432_000 }))
        .at("spec.connectionTracking.udpStreamTimeout", json!({ "minimum": 60, "maximum": 180 }))
        .at("spec.connectionTracking.udpTimeout", json!({ "minimum": 30, "maximum": 60 }));
}

fn kubelet(schema: &mut Schema) {
    let keys = |field: &str, allowed: &[&str]| -> Value {
        rule(
            format!("self.all(key, key in {})", cel_list(allowed.iter().copied())),
            format!("keys of {field} can only be {}", allowed.join(", ")),
        )
    };
    schema.rules(
        "spec.kubelet",
        [
            rule(
                "!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) || self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent",
                "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent",
            ),
            rule(
                "!has(self.evictionSoft) || self.evictionSoft.all(key, has(self.evictionSoftGracePeriod) && key in self.evictionSoftGracePeriod)",
                "each key of evictionSoft must be in evictionSoftGracePeriod",
            ),
            rule(
                "!has(self.evictionSoftGracePeriod) || self.evictionSoftGracePeriod.all(key, has(self.evictionSoft) && key in self.evictionSoft)",
                "each key of evictionSoftGracePeriod must be in evictionSoft",
            ),
        ],
    );
    for field in ["maxPods", "podsPerCore"] {
        schema.at(&format!("spec.kubelet.{field}"), json!({ "minimum": 0 }));
    }
    for field in ["imageGCHighThresholdPercent", "imageGCLowThresholdPercent"] {
        schema.at(&format!("spec.kubelet.{field}"), json!({ "minimum": 0, "maximum": 100 }));
    }
    for field in ["kubeReserved", "systemReserved"] {
        let path = format!("spec.kubelet.{field}");
        let not_negative = rule(
            "self.all(key, !self[key].startsWith('-'))",
            format!("values of {field} may not be negative"),
        );
        schema
            .rules(&path, [keys(field, RESERVABLE), not_negative])
            .at(&format!("{path}{{}}"), json!({ "pattern": quantity::PATTERN }));
    }
    for field in ["evictionHard", "evictionSoft", "evictionSoftGracePeriod"] {
        schema.rules(&format!("spec.kubelet.{field}"), [keys(field, EVICTION_SIGNALS)]);
    }
    // A percentage, a quantity, or nothing at all.
    let quantity = quantity::PATTERN.trim_start_matches('^').trim_end_matches('$');
    let threshold = format!(r"^((\d{{1,2}}(\.\d{{1,2}})?|100(\.0{{1,2}})?)%||{quantity})$");
    for field in ["evictionHard", "evictionSoft"] {
        schema.at(&format!("spec.kubelet.{field}{{}}"), json!({ "pattern": threshold }));
    }
}

fn status(schema: &mut Schema) {
    shared::conditions(schema, Conditions::Whole);
    schema
        .at("status.capacityReservations[].id", json!({ "pattern": "^cr-[0-9a-z]+$" }))
        .at("status.capacityReservations[].ownerID", json!({ "pattern": "^[0-9]{12}$" }))
        .without("status.amis[].requirements[].operator", &["enum"])
        .without("status.amis[].requirements[].minValues", &["format"])
        .at("status.amis[].requirements[].values", json!({ "x-kubernetes-list-type": "atomic" }));
}

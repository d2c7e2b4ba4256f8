//! Capacity reservations: used before anything else is bought, and outlived by their machines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_aws_double::reservations::Reservation;
use tenon_bed::bed::Bed;
use tenon_bed::user::{instance_of, one_of};
use tenon_bed::wait::{eventually, must};

use super::setup::{control, installed};

const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
const ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
const KIND: &str = "karpenter.k8s.aws/capacity-reservation-type";

/// The operator looks once a minute for machines whose reservation has ended.
const RELABELLED: Duration = Duration::from_secs(90);

fn label<'l>(labels: &'l BTreeMap<String, String>, key: &str) -> Option<&'l str> {
    labels.get(key).map(String::as_str)
}

/// NodeClaims by their capacity type.
fn by_capacity_type(claims: Vec<DynamicObject>) -> BTreeMap<String, DynamicObject> {
    let key =
        |claim: &DynamicObject| label(claim.labels(), CAPACITY_TYPE).unwrap_or_default().to_owned();
    claims.into_iter().map(|claim| (key(&claim), claim)).collect()
}

pub(super) async fn machines_go_into_reservations_and_outlive_them(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    let user = tenon.user();
    let id = control(&bed).reserve(Reservation {
        instance_type: "m6i.large".to_owned(),
        zone: format!("{}a", bed.region()),
        total: 1,
        tags: [("for".to_owned(), "reserved".to_owned())].into(),
        ..Reservation::default()
    });
    let mut spec: Value = must(user.objects("EC2NodeClass").get("default").await).data;
    spec = spec["spec"].take();
    spec["capacityReservationSelectorTerms"] = json!([{ "tags": { "for": "reserved" } }]);
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": { "name": "reserved" }, "spec": spec,
    });
    must(user.apply(&class).await);
    must(user.ready("EC2NodeClass", "reserved").await);
    let requirements = json!([
        one_of("node.kubernetes.io/instance-type", &["m6i.large"]),
        one_of(CAPACITY_TYPE, &["reserved", "on-demand"]),
    ]);
    let of_class = json!({ "template": { "spec": { "nodeClassRef": { "name": "reserved" } } } });
    must(user.pool("reserved", &requirements, &of_class).await);

    // There is room for one of two machines: the other is bought.
    let apart = json!({ "spec": {
        "nodeSelector": { "scenario": "reserved" },
        "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": { "matchLabels": { "app": "reserved" } },
        }] } },
    } });
    must(user.deploy("reserved", 2, &apart).await);
    must(user.runs("reserved", 2).await);
    let claims = by_capacity_type(must(user.claims("reserved").await));
    let kinds: Vec<&String> = claims.keys().collect();
    assert_eq!(kinds, ["on-demand", "reserved"]);
    let reserved = &claims["reserved"];
    assert_eq!(label(reserved.labels(), ID), Some(id.as_str()));
    assert_eq!(label(reserved.labels(), KIND), Some("default"));
    assert_eq!(label(claims["on-demand"].labels(), ID), None);
    let launched = control(&bed).alive()[&instance_of(reserved)].capacity_reservation.clone();
    assert_eq!(launched.as_ref(), Some(&id));

    // The reservation goes, the machine stays, and is what it is now.
    must(control(&bed).cancel_reservation(&id));
    let name = reserved.name_any();
    let nodes: Api<Node> = Api::all(user.client());
    let look = async || {
        let claim = user.objects("NodeClaim").get(&name).await?;
        let node = nodes.get(claim.data["status"]["nodeName"].as_str().unwrap_or_default()).await?;
        let labels = [claim.labels(), node.labels()];
        let as_bought = |labels: &&BTreeMap<String, String>| {
            label(labels, CAPACITY_TYPE) == Some("on-demand") && label(labels, ID).is_none()
        };
        if labels.iter().all(as_bought) {
            return Ok(true);
        }
        let seen = labels.map(|labels| (label(labels, CAPACITY_TYPE), label(labels, ID)));
        Err(format!("{seen:?}").into())
    };
    let what = "NodeClaim and Node are labelled on-demand";
    must(eventually(what, RELABELLED, look).await);
    must(user.remove("reserved").await);
    must(user.objects("NodePool").delete("reserved", &DeleteParams::default()).await);
    must(user.objects("EC2NodeClass").delete("reserved", &DeleteParams::default()).await);
}

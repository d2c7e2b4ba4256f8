//! EC2NodeClasses with a placement group: their nodes are in its partitions and say in which, and
//! where there is no such group the NodeClass says that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use serde_json::{Value, json};
use tenon_aws_double::placement_groups::{PlacementGroup, Strategy};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::user::{condition, instance_of, one_of};
use tenon_bed::wait::{eventually, must};

const GROUP: &str = "karpenter.k8s.aws/placement-group-id";
const PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";

/// The operator looks at a NodeClass again that lacks something.
const SEEN: Duration = Duration::from_mins(2);

/// A NodeClass like the default one with this placement group.
async fn class(tenon: &Installation, name: &str, selector: Value) {
    let user = tenon.user();
    let mut spec: Value = must(user.objects("EC2NodeClass").get("default").await).data;
    spec = spec["spec"].take();
    spec["placementGroupSelector"] = selector;
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": { "name": name }, "spec": spec,
    });
    must(user.apply(&class).await);
}

/// A NodePool of the NodeClass of the same name, which is ready.
async fn pool(tenon: &Installation, name: &str) {
    let user = tenon.user();
    must(user.ready("EC2NodeClass", name).await);
    let requirements = json!([
        one_of("node.kubernetes.io/instance-type", &["m6i.large"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
    ]);
    let of_class = json!({ "template": { "spec": { "nodeClassRef": { "name": name } } } });
    must(user.pool(name, &requirements, &of_class).await);
}

/// The group and the partition of each node of a pool, as its labels have them. They are what EC2
/// says of the instance, and the NodeClaim says the same.
async fn placed(tenon: &Installation, pool: &str) -> Vec<(String, String)> {
    must(tenon.user().joined(pool).await);
    let alive = must(tenon.instances());
    let claims = must(tenon.user().claims(pool).await);
    let nodes = must(tenon.user().nodes(pool).await);
    assert_eq!(claims.len(), nodes.len());
    let of = |labels: &BTreeMap<String, String>| {
        let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
        (label(GROUP), label(PARTITION))
    };
    let nodes: BTreeMap<String, (String, String)> =
        nodes.iter().map(|node| (node.name_any(), of(node.labels()))).collect();
    let mut placed = Vec::new();
    for claim in &claims {
        let instance = &alive[&instance_of(claim)];
        let seen = instance.placement_group.as_ref().expect("it is in a group");
        let seen = (seen.group_id.clone(), seen.partition.expect("a partition").to_string());
        assert_eq!(of(claim.labels()), seen, "{}", claim.name_any());
        let node = claim.data["status"]["nodeName"].as_str().expect("a node");
        assert_eq!(nodes[node], seen, "{node}");
        placed.push(seen);
    }
    placed
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_spread_over_the_partitions_of_their_placement_group() {
    let bed = Arc::new(Bed::start(BedConfig::default()).await.expect("the bed starts"));
    let tenon = must(Installation::ensure(&bed, &json!({})).await);
    let user = tenon.user();

    // A group that is not there yet.
    class(&tenon, "spread-over", json!({ "name": "parts" })).await;
    let says = async || {
        let class = user.objects("EC2NodeClass").get("spread-over").await?;
        let found = ["PlacementGroupReady", "Ready"].map(|kind| condition(&class, kind));
        let (status, reason, message) = &found[0];
        let told = message.contains("\"parts\" not found") && found[1].0 == "False";
        if status == "False" && reason == "PlacementGroupNotFound" && told {
            return Ok(true);
        }
        Err(format!("{found:?}").into())
    };
    must(eventually("the NodeClass says that its group is not there", SEEN, says).await);

    let aws_state = must(bed.aws()).gateway().state();
    let id = aws_state.id("pg");
    let group = PlacementGroup {
        id: id.clone(),
        name: "parts".to_owned(),
        strategy: Strategy::Partition,
        partitions: 3,
        ..PlacementGroup::default()
    };
    assert!(aws_state.placement_groups().add(group));
    pool(&tenon, "spread-over").await;
    let over = |app: &str| {
        json!({ "spec": {
            "nodeSelector": { "scenario": app },
            "topologySpreadConstraints": [{
                "topologyKey": PARTITION, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": app } },
            }],
        } })
    };
    must(user.deploy("spread-over", 3, &over("spread-over")).await);
    must(user.runs("spread-over", 3).await);
    let partitions: BTreeSet<(String, String)> =
        placed(&tenon, "spread-over").await.into_iter().collect();
    let all = ["1", "2", "3"].map(|number| (id.clone(), number.to_owned()));
    assert_eq!(partitions, BTreeSet::from(all));

    // By its ID, and without anybody who cares for the partition: EC2 chooses one, and the node has
    // it as a label before it takes pods.
    class(&tenon, "anywhere", json!({ "id": id })).await;
    pool(&tenon, "anywhere").await;
    must(
        user.deploy(
            "anywhere",
            1,
            &json!({ "spec": { "nodeSelector": { "scenario": "anywhere" } } }),
        )
        .await,
    );
    must(user.runs("anywhere", 1).await);
    assert_eq!(placed(&tenon, "anywhere").await.len(), 1);

    drop(tenon);
    let bed = Arc::into_inner(bed).expect("nobody else has the bed");
    bed.stop().await.expect("the bed stops");
}

use super::*;
use k8s_openapi::api::core::v1::Taint;
use tenon_planner::plan::PodRef;
use tenon_planner::resources::{MicroUsd, Resources};

fn launch() -> Launch {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let taint = |key: &str| Taint {
        key: key.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    Launch {
        node_pool: "default".to_owned(),
        node_pool_uid: "pool-uid".to_owned(),
        labels: BTreeMap::from([pair("team", "a")]).into(),
        annotations: BTreeMap::from([pair("note", "b")]).into(),
        requirements: vec![Requirement {
            key: "cpu".to_owned(),
            operator: snapshot::Operator::Gte,
            values: vec!["4".to_owned()],
            min_values: Some(2),
        }]
        .into(),
        instance_types: vec!["c-4x".to_owned()].into(),
        capacity_types: vec![],
        requests: Resources { cpu: 1500, memory: 1 << 30, pods: 3, ..Resources::default() },
        taints: vec![taint("kept")].into(),
        startup_taints: vec![taint("start")].into(),
        node_class: snapshot::NodeClassRef {
            group: "karpenter.kwok.sh".to_owned(),
            kind: "KWOKNodeClass".to_owned(),
            name: "class".to_owned(),
        },
        expire_after: Some("720h".to_owned()),
        termination_grace_period: Some("1h30m".to_owned()),
        pods: vec![PodRef { namespace: "n".into(), name: "p".into(), uid: "u".into() }],
        buffer_pods: vec![],
        devices: vec![],
        price: MicroUsd(1),
        reason: LaunchReason::Provisioned,
    }
}

#[test]
fn a_nodeclaim_carries_everything_that_the_plan_says() {
    let claim = node_claim(&launch()).unwrap();
    insta::assert_json_snapshot!(claim, @r#"
    {
      "apiVersion": "karpenter.sh/v1",
      "kind": "NodeClaim",
      "metadata": {
        "annotations": {
          "note": "b"
        },
        "finalizers": [
          "karpenter.sh/termination"
        ],
        "generateName": "default-",
        "labels": {
          "team": "a"
        },
        "ownerReferences": [
          {
            "apiVersion": "karpenter.sh/v1",
            "blockOwnerDeletion": true,
            "kind": "NodePool",
            "name": "default",
            "uid": "pool-uid"
          }
        ]
      },
      "spec": {
        "expireAfter": "720h",
        "nodeClassRef": {
          "group": "karpenter.kwok.sh",
          "kind": "KWOKNodeClass",
          "name": "class"
        },
        "requirements": [
          {
            "key": "cpu",
            "operator": "Gte",
            "values": [
              "4"
            ],
            "minValues": 2
          }
        ],
        "resources": {
          "requests": {
            "cpu": "1500m",
            "memory": "1Gi",
            "pods": "3"
          }
        },
        "startupTaints": [
          {
            "key": "start",
            "effect": "NoSchedule"
          }
        ],
        "taints": [
          {
            "key": "kept",
            "effect": "NoSchedule"
          }
        ],
        "terminationGracePeriod": "1h30m"
      }
    }
    "#);
}

#[test]
fn never_is_kept_and_values_that_the_api_can_not_express_are_refused() {
    let never = Launch { expire_after: None, ..launch() };
    assert_eq!(node_claim(&never).unwrap().spec.expire_after, NillableDuration::Never);
    let broken = Launch { expire_after: Some("soon".to_owned()), ..launch() };
    assert!(matches!(node_claim(&broken), Err(LaunchError::Field { field: "expireAfter", .. })));
    let mut effect = launch();
    effect.taints[0].effect = "Sometimes".to_owned();
    assert!(matches!(node_claim(&effect), Err(LaunchError::Field { field: "taints", .. })));
}

#[tokio::test(start_paused = true)]
async fn a_nodepool_that_is_gone_is_no_error() {
    let server = crate::testing::ApiServer::answering(|request| panic!("{request:?}"));
    let cluster =
        crate::state::cluster::Cluster::new(crate::testing::KINDS, labels::LabelRules::core());
    let (operator, _publisher) = crate::testing::operator(&server, cluster);
    let (logs, _collecting) = crate::testing::Logs::collect();
    launch_all(&operator, &[launch()], &CancellationToken::new()).await;
    let lines = logs.with("failed to create a nodeclaim");
    assert!(matches!(lines.as_slice(), [line] if line.contains("DEBUG")), "{lines:?}");
}

//! Observations on which every check passes, and for each check a fault that it must find.

use std::collections::BTreeMap;

use serde_json::json;
use tenon_state::probe::{ProbeReport, Reach, ServiceReach};

use super::observed::Seen::{Known, Unknown};
use super::observed::*;

fn marks(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A pod of the operator's that reaches all but the price list.
fn all_reached() -> InsideView {
    let service = |service: &str| ServiceReach {
        service: service.into(),
        host: format!("{service}.eu-central-1.amazonaws.com"),
        addresses: vec![[10, 0, 0, 7].into()],
        outcome: if service == "pricing" { Reach::Unresolved } else { Reach::Ok },
        message: String::new(),
        millis: 12,
    };
    let services = ["ec2", "sqs", "sts", "pricing"].map(service).into();
    let report = ProbeReport { services, ..ProbeReport::default() };
    InsideView { as_operator: true, report }
}

fn reaches(seen: &mut Observed, service: &str, outcome: Reach) {
    let Some(Known(inside)) = &mut seen.inside else { panic!("it was asked for") };
    let services = inside.report.services.iter_mut();
    services.filter(|it| it.service == service).for_each(|it| it.outcome = outcome);
}

/// Everything is as it should be, and every check applies but those that `irsa` and `isolated` are
/// about.
pub(crate) fn healthy() -> Observed {
    let subnet = |id: &str, zone: &str| SubnetView {
        id: id.into(),
        vpc: "vpc-1".into(),
        zone: zone.into(),
        zone_type: "availability-zone".into(),
        free_addresses: 4000,
        class: SubnetClass::Private,
        discovery: Some("prod".into()),
        ..SubnetView::default()
    };
    let node = |name: &str, zone: &str| NodeView {
        name: name.into(),
        zone: Some(zone.into()),
        ready: true,
        architecture: "amd64".into(),
        free_cpu: 3000,
        free_memory: 8 << 30,
        ..NodeView::default()
    };
    let system = |name: &str| WorkloadView {
        namespace: "kube-system".into(),
        name: name.into(),
        wanted: 3,
        ready: 3,
        tolerates_all: true,
        ..WorkloadView::default()
    };
    Observed {
        now: 1_760_000_000,
        inside: Some(Known(all_reached())),
        cost_tags: Some(CostTags { active: ["team".to_owned()].into() }),
        asked: Asked {
            cluster: "prod".into(),
            region: "eu-central-1".into(),
            namespace: "kube-system".into(),
            service_account: "karpenter".into(),
            replicas: 2,
            pod_identity: true,
            interruption_queue: "tenon-prod".into(),
            discovery_by_tag: true,
            spot: true,
            architectures: vec!["amd64".into()],
            cpu_limit: Some(1000),
            ami_alias: Some("al2023@latest".into()),
            image: "example/tenon-operator".into(),
            image_digest: true,
            zonal_shift: true,
            manage_operator: true,
            manage_crds: true,
            unfit: Known(vec![]),
            names: vec![NameView { kind: "role".into(), name: "tenon-prod-node".into(), limit: 64 }],
            ..Asked::default()
        },
        caller: CallerView {
            identity: Known(IdentityView {
                account: "111122223333".into(),
                arn: "arn:aws:iam::111122223333:user/ops".into(),
            }),
            clock_skew: Known(1),
            endpoint: Known("https://ABC.gr7.eu-central-1.eks.amazonaws.com/".into()),
            https_proxy: None,
            no_proxy: None,
            denied: Known(vec![]),
            rbac: Known(vec![]),
        },
        cluster: Known(ClusterView {
            status: "ACTIVE".into(),
            version: "1.34".into(),
            endpoint: "https://abc.gr7.eu-central-1.eks.amazonaws.com".into(),
            private_endpoint: true,
            authentication_mode: "API".into(),
            zonal_shift: true,
            vpc: "vpc-1".into(),
            subnets: vec!["subnet-a".into(), "subnet-b".into()],
            security_group: Some("sg-1".into()),
            issuer: Some("https://oidc.eks.eu-central-1.amazonaws.com/id/ABC".into()),
            ..ClusterView::default()
        }),
        kubernetes: KubernetesView {
            version: Known("1.34".into()),
            nodes: Known(vec![node("a", "eu-central-1a"), node("b", "eu-central-1b")]),
            deployments: Known(vec![
                WorkloadView { images: vec!["coredns:v1".into()], ..system("coredns") },
                WorkloadView {
                    images: vec!["example/tenon-operator:1".into()],
                    marks: marks(&[("tenon.sh/install-id", "00000000")]),
                    wanted: 2,
                    ready: 2,
                    ..system("karpenter")
                },
            ]),
            daemon_sets: Known(vec![system("aws-node"), system("kube-proxy")]),
            dns_endpoints: Known(2),
            namespace: Known(Some(BTreeMap::new())),
            priority_quotas: Known(vec![]),
            flow_schemas: Known(vec!["workload-high".into()]),
            webhooks: Known(vec![WebhookView {
                name: "policy/validate".into(),
                fails_closed: true,
                resources: vec!["pods".into()],
                service: Some("policy/webhook".into()),
                endpoints: 2,
            }]),
            crds: Known(vec![
                CrdView {
                    name: "nodepools.karpenter.sh".into(),
                    stored_versions: vec!["v1".into()],
                    marks: marks(&[("tenon.sh/install-id", "00000000")]),
                    ..CrdView::default()
                },
                CrdView {
                    name: "servicemonitors.monitoring.coreos.com".into(),
                    stored_versions: vec!["v1".into()],
                    ..CrdView::default()
                },
            ]),
            releases: Known(vec![ReleaseView {
                name: "tenon".into(),
                namespace: "kube-system".into(),
                status: "deployed".into(),
                ours: true,
            }]),
            service_account_role: Known(None),
            aws_auth: Known(None),
            node_pools: Known(vec![json!({
                "metadata": {"name": "default"},
                "spec": {"limits": {"cpu": "1000"}, "template": {"spec": {"nodeClassRef": {"name": "default"}}}},
                "status": {"resources": {"cpu": "12500m"}, "conditions": [{"type": "Ready", "status": "True"}]},
            })]),
            node_classes: Known(vec![json!({
                "metadata": {"name": "default"},
                "spec": {"tags": {"team": "shop"}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            })]),
            node_claims: Known(vec![json!({
                "metadata": {"name": "default-x", "creationTimestamp": "2025-10-09T08:00:00Z"},
                "status": {"conditions": [{"type": "Registered", "status": "True"}]},
            })]),
            scalers: Known(vec![ScalerView {
                name: "ScaledObject default/worker".into(),
                ready: Some("True".into()),
                message: "ScaledObject is defined correctly".into(),
            }]),
        },
        network: NetworkView {
            subnets: Known(vec![
                subnet("subnet-a", "eu-central-1a"),
                subnet("subnet-b", "eu-central-1b"),
            ]),
            groups: Known(vec![GroupView {
                id: "sg-1".into(),
                vpc: "vpc-1".into(),
                cluster_tag: true,
                open_to_itself: true,
                open_to_cluster: true,
            }]),
            endpoints: Known(vec![]),
            dns_support: Known(true),
            dns_hostnames: Known(true),
            offerings: Known(BTreeMap::from([
                ("eu-central-1a".to_owned(), 300),
                ("eu-central-1b".to_owned(), 290),
            ])),
        },
        iam: IamView {
            provider_audiences: Known(Some(vec!["sts.amazonaws.com".into()])),
            agent: Known(Some("ACTIVE".into())),
            association: Known(true),
            account_summary: Known(BTreeMap::from([
                ("Roles".to_owned(), 100),
                ("RolesQuota".to_owned(), 1000),
            ])),
            spot_role: Known(true),
            access_entry: Known(Some(AccessEntryView {
                kind: "EC2_LINUX".into(),
                created: 1_750_000_100,
            })),
            node_role_created: Known(Some(1_750_000_000)),
            node_role_arn: "arn:aws:iam::111122223333:role/tenon/prod/tenon-prod-node".into(),
            boundary_blocks: Known(vec![]),
            trust_problems: Known(vec![]),
            controller_gaps: Known(Some(vec![])),
        },
        compute: ComputeView {
            quotas: Known(BTreeMap::from([
                ("L-1216C47A".to_owned(), 2000.0),
                ("L-34B43A08".to_owned(), 2000.0),
                ("L-7A658B76".to_owned(), 50.0),
            ])),
            instances: Known(vec![InstanceView {
                id: "i-1".into(),
                node_claim: Some("default-x".into()),
                state_reason: None,
            }]),
            launch_templates: Known(12),
            images: Known(vec![ImageView {
                architecture: "amd64".into(),
                parameter: "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id".into(),
                id: Some("ami-1".into()),
                name: Some("amazon-eks-node-al2023-x86_64-standard-1.34-v20260101".into()),
            }]),
            volume_keys: Known(vec![]),
        },
        image: Known(Some(RegistryView {
            status: 200,
            architectures: vec!["amd64".into(), "arm64".into()],
        })),
        queue: Known(Some(QueueView {
            senders: vec!["events.amazonaws.com".into()],
            ..QueueView::default()
        })),
        queue_key: Known(Some(KeyView {
            id: "arn:aws:kms:eu-central-1:111122223333:key/queue".into(),
            open_to_events: Known(true),
        })),
        queue_deleted: Known(Some(1_750_000_000)),
        rules: Known(vec![RuleView {
            name: "tenon-prod-spot".into(),
            exists: true,
            enabled: true,
            to_queue: true,
        }]),
        operator: OperatorView {
            deployment: Some(OperatorDeploymentView {
                namespace: "kube-system".into(),
                name: "karpenter".into(),
                managed_by: None,
            }),
            pods: Known(vec![PodView { name: "karpenter-1".into(), ready: true, ..PodView::default() }]),
            log: Known(vec!["{\"level\":\"INFO\",\"message\":\"launched nodeclaim\"}".into()]),
            leader: Known(Some(LeaderView { holder: "karpenter-1".into(), renewed_seconds_ago: 2 })),
            events: Known(vec![]),
        },
    }
}

fn edit<T>(seen: &mut Seen<T>, change: impl FnOnce(&mut T)) {
    match seen {
        Known(value) => change(value),
        Unknown(why) => panic!("the healthy observations know everything, but: {why}"),
    }
}

/// Changes the observations so that a check applies: some are only about IRSA or isolated VPCs.
pub(crate) fn applies(id: &str) -> Observed {
    let mut seen = healthy();
    match id {
        "IA-01" => seen.asked.pod_identity = false,
        "SN-05" => {
            seen.asked.isolated_vpc = true;
            edit(&mut seen.network.subnets, |all| all[0].class = SubnetClass::Isolated);
            let services = [
                "arc-zonal-shift",
                "ec2",
                "ecr.api",
                "ecr.dkr",
                "eks",
                "eks-auth",
                "s3",
                "sqs",
                "ssm",
                "sts",
            ];
            seen.network.endpoints = Known(
                services
                    .map(|service| EndpointView {
                        service: service.into(),
                        gateway: service == "s3",
                        private_dns: service != "s3",
                    })
                    .into(),
            );
        }
        _ => {}
    }
    seen
}

/// Puts a workload into the cluster.
fn run(seen: &mut Observed, name: &str, image: &str) {
    edit(&mut seen.kubernetes.deployments, |all| {
        all.push(WorkloadView {
            namespace: "kube-system".into(),
            name: name.into(),
            images: vec![image.into()],
            wanted: 1,
            ready: 1,
            ..WorkloadView::default()
        });
    });
}

/// Without the operator, as before an installation.
fn not_installed(seen: &mut Observed) {
    edit(&mut seen.kubernetes.deployments, |all| all.retain(|one| one.name != "karpenter"));
}

/// Makes the fault that a check is there for.
#[expect(clippy::too_many_lines, reason = "one line or two for each check")]
pub(crate) fn break_it(id: &str, seen: &mut Observed) {
    match id {
        "AC-01" => seen.caller.identity = Unknown("ExpiredToken".into()),
        "AC-02" => seen.asked.region = "frankfurt".into(),
        "AC-03" => seen.caller.endpoint = Known("https://127.0.0.1:6443".into()),
        "AC-04" => {
            edit(&mut seen.caller.identity, |one| one.arn = "arn:aws-iso:iam::1:user/x".into());
        }
        "AC-05" => {
            let denied = DeniedView { action: "sqs:CreateQueue".into(), ..DeniedView::default() };
            seen.caller.denied = Known(vec![denied]);
        }
        "AC-06" => {
            let denied = DeniedView {
                action: "iam:CreateRole".into(),
                by_organization: true,
                ..DeniedView::default()
            };
            seen.caller.denied = Known(vec![denied]);
        }
        "AC-07" => seen.caller.rbac = Known(vec!["create clusterroles".into()]),
        "AC-08" => seen.caller.clock_skew = Known(-600),
        "AC-09" => seen.caller.https_proxy = Some("http://proxy:3128".into()),
        "CL-01" => edit(&mut seen.cluster, |one| one.status = "FAILED".into()),
        "CL-02" => seen.kubernetes.version = Known("1.21+".into()),
        "CL-03" => edit(&mut seen.cluster, |one| one.extended_support = true),
        "CL-04" => edit(&mut seen.cluster, |one| one.auto_mode = true),
        "CL-05" => {
            edit(&mut seen.cluster, |one| one.private_endpoint = false);
            edit(&mut seen.network.subnets, |all| all[0].class = SubnetClass::Isolated);
        }
        "CL-06" => edit(&mut seen.cluster, |one| one.authentication_mode = "CONFIG_MAP".into()),
        "CL-07" => edit(&mut seen.cluster, |one| one.outpost = true),
        "CL-08" => edit(&mut seen.cluster, |one| one.ipv6 = true),
        "CL-09" => {
            not_installed(seen);
            edit(&mut seen.kubernetes.nodes, |all| all[1].free_cpu = 300);
        }
        "CL-10" => seen.kubernetes.dns_endpoints = Known(0),
        "CL-11" => edit(&mut seen.kubernetes.daemon_sets, |all| all[0].tolerates_all = false),
        "CL-12" => seen.kubernetes.priority_quotas = Known(vec!["critical".into()]),
        "CL-13" => seen.asked.namespace = "tenon".into(),
        "CL-14" => edit(&mut seen.kubernetes.webhooks, |all| all[0].endpoints = 0),
        // Nothing is wrong without a Prometheus operator.
        "CL-15" => edit(&mut seen.kubernetes.crds, |all| all.truncate(1)),
        "CL-16" => {
            seen.asked.unfit = Known(vec!["the cluster does not support access entries".into()]);
        }
        "EX-01" => run(seen, "karpenter-old", "public.ecr.aws/karpenter/controller:1.6.0@sha256:0"),
        "EX-02" => {
            edit(&mut seen.kubernetes.crds, |all| all[0].stored_versions.push("v1beta1".into()));
        }
        "EX-03" => run(seen, "ca", "registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0"),
        "EX-04" => run(seen, "nth", "public.ecr.aws/aws-ec2/aws-node-termination-handler:v1"),
        "EX-05" => run(seen, "descheduler", "registry.k8s.io/descheduler/descheduler:v0.34"),
        "EX-06" => edit(&mut seen.kubernetes.crds, |all| {
            all[0].marks = marks(&[("meta.helm.sh/release-name", "karpenter-crd")]);
        }),
        "EX-07" => {
            edit(&mut seen.kubernetes.releases, |all| all[0].status = "pending-upgrade".into());
        }
        "EX-08" => edit(&mut seen.kubernetes.deployments, |all| {
            all[1].marks.insert("argocd.argoproj.io/tracking-id".into(), "tenon".into());
        }),
        "EX-09" => seen.asked.conflicts = vec!["IAM role tenon-prod-node exists".into()],
        "EX-10" => seen.queue_deleted = Known(Some(seen.now - 59)),
        "EX-11" => edit(&mut seen.compute.instances, |all| all[0].node_claim = None),
        "EX-12" => seen.iam.node_role_created = Known(Some(1_750_000_200)),
        "EX-14" => edit(&mut seen.kubernetes.scalers, |all| {
            all[0].ready = Some("False".into());
            all[0].message = "Triggers defined in ScaledObject are not working correctly".into();
        }),
        "EX-13" => {
            not_installed(seen);
            edit(&mut seen.kubernetes.node_claims, |all| {
                all[0]["metadata"]["deletionTimestamp"] = json!("2025-10-09T08:10:00Z");
            });
        }
        "SN-01" => seen.network.subnets = Known(vec![]),
        "SN-02" => edit(&mut seen.network.subnets, |all| all[1].free_addresses = 3),
        "SN-03" | "SN-04" => {
            edit(&mut seen.network.subnets, |all| all[0].class = SubnetClass::Public);
        }
        "SN-05" => edit(&mut seen.network.endpoints, |all| all.retain(|one| one.service != "sts")),
        "SN-06" => seen.network.dns_hostnames = Known(false),
        "SN-07" => edit(&mut seen.network.subnets, |all| all[0].discovery = Some("other".into())),
        "SN-08" => edit(&mut seen.network.subnets, |all| all[0].zone_type = "local-zone".into()),
        "SN-09" => edit(&mut seen.network.subnets, |all| all[0].id = "subnet-c".into()),
        "SN-10" => edit(&mut seen.network.offerings, |all| {
            all.remove("eu-central-1b");
        }),
        "SN-11" => edit(&mut seen.network.subnets, |all| all[1].zone = all[0].zone.clone()),
        "SG-01" => seen.network.groups = Known(vec![]),
        "SG-02" => edit(&mut seen.network.groups, |all| all.push(all[0].clone())),
        "SG-03" => edit(&mut seen.network.groups, |all| all[0].open_to_cluster = false),
        "SG-04" => edit(&mut seen.network.groups, |all| all[0].vpc = "vpc-2".into()),
        "IA-01" => seen.iam.provider_audiences = Known(None),
        "IA-02" => seen.iam.agent = Known(None),
        "IA-03" => {
            seen.kubernetes.service_account_role = Known(Some("arn:aws:iam::1:role/x".into()));
        }
        "IA-04" => seen.asked.names[0].name = "x".repeat(65),
        "IA-05" => seen.asked.document_problems = vec!["12,000 characters".into()],
        "IA-06" => edit(&mut seen.iam.account_summary, |all| {
            all.insert("Roles".into(), 999);
        }),
        "IA-07" => seen.iam.spot_role = Known(false),
        "IA-08" => seen.iam.access_entry = Known(None),
        "IA-09" => seen.iam.boundary_blocks = Known(vec!["ec2:CreateFleet".into()]),
        "IA-10" => seen.iam.trust_problems = Known(vec!["role x trusts no principal".into()]),
        "IA-11" => seen.iam.controller_gaps = Known(Some(vec!["ec2:CreateFleet on *".into()])),
        "IA-12" => edit(&mut seen.kubernetes.node_classes, |all| {
            all[0]["spec"] = json!({"amiSelectorTerms": [{"alias": "windows2022@latest"}]});
        }),
        "QU-01" => edit(&mut seen.compute.quotas, |all| {
            all.insert("L-34B43A08".into(), 32.0);
        }),
        "QU-02" => edit(&mut seen.compute.quotas, |all| {
            all.insert("L-7A658B76".into(), 0.5);
        }),
        "QU-03" => seen.compute.launch_templates = Known(4990),
        "AM-01" => edit(&mut seen.compute.images, |all| all[0].id = None),
        "AM-02" => edit(&mut seen.compute.images, |all| {
            all[0].name = Some("amazon-eks-node-al2023-x86_64-standard-1.35-v1".into());
        }),
        "AM-03" => edit(&mut seen.compute.volume_keys, |all| {
            all.push(VolumeKeyView { of: "image ami-1".into(), key: "arn:aws:kms:x".into() });
        }),
        "IM-01" => edit(&mut seen.operator.pods, |all| {
            all[0].waiting = Some("ImagePullBackOff".into());
        }),
        "IM-02" => seen.asked.image_digest = false,
        "QS-01" => edit(&mut seen.queue_key, |key| {
            key.as_mut().expect("a key").open_to_events = Known(false);
        }),
        "QS-02" => edit(&mut seen.kubernetes.deployments, |all| {
            all[1].interruption_queue = Some("arn:aws:sqs:eu-central-1:1:q".into());
        }),
        "QS-03" => edit(&mut seen.rules, |all| all[0].enabled = false),
        "ZS-01" => edit(&mut seen.cluster, |one| one.zonal_shift = false),
        "NP-01" => {
            edit(&mut seen.kubernetes.node_pools, |all| all[0]["spec"]["limits"] = json!({}));
        }
        "NP-02" => edit(&mut seen.kubernetes.node_pools, |all| {
            all[0]["status"]["resources"]["cpu"] = json!("1k");
        }),
        "IC-01" => reaches(seen, "ec2", Reach::Unresolved),
        "IC-02" => reaches(seen, "sqs", Reach::Unreachable),
        "IC-03" => reaches(seen, "sts", Reach::Unauthenticated),
        "IC-04" => reaches(seen, "ec2", Reach::Denied),
        "OP-01" => edit(&mut seen.operator.pods, |all| all[0].ready = false),
        "OP-02" => edit(&mut seen.operator.pods, |all| all[0].restarts = 9),
        "OP-03" => edit(&mut seen.operator.leader, |one| {
            one.as_mut().expect("a leader").renewed_seconds_ago = 300;
        }),
        "OP-04" => edit(&mut seen.operator.log, |all| all.push("VcpuLimitExceeded".into())),
        "OP-05" => edit(&mut seen.operator.events, |all| {
            all.push(EventView {
                object: "NodeClaim x".into(),
                reason: "LaunchFailed".into(),
                message: "InsufficientInstanceCapacity".into(),
            });
        }),
        "NC-01" => edit(&mut seen.kubernetes.node_classes, |all| {
            all[0]["status"]["conditions"] = json!([
                {"type": "ValidationSucceeded", "status": "False", "reason": "CreateFleetAuthCheckFailed", "message": "x"},
                {"type": "Ready", "status": "False"},
            ]);
        }),
        "NC-02" => edit(&mut seen.kubernetes.node_classes, |all| {
            all[0]["spec"]["tags"]["stage"] = json!("prod");
        }),
        "NO-01" => edit(&mut seen.kubernetes.node_claims, |all| {
            all[0]["status"]["conditions"] = json!([]);
        }),
        other => panic!("no fault is known for {other}: add one"),
    }
}

//! The cluster: whether its control plane, its add-ons and its nodes are fit for the operator.

use std::collections::BTreeSet;

use tenon_crds::versions::{SUPPORTED_MINORS, minor};
use tenon_installer_core::words::count;

use super::observed::{NodeView, Observed};
use super::{Check, Outcome, Severity, When, known, skip};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "CL-01",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the cluster is active",
        cause: "While it is being created or deleted, or has failed, neither access entries nor \
             associations can be created.",
        fix: "aws eks wait cluster-active --region <region> --name <cluster>",
        run: active,
    },
    Check {
        id: "CL-02",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the operator supports this version of Kubernetes",
        cause: "Outside the supported range, APIs that the operator needs are missing or behave \
             differently.",
        fix: "aws eks update-cluster-version --region <region> --name <cluster> --kubernetes-version 1.36",
        run: version,
    },
    Check {
        id: "CL-03",
        severity: Severity::Info,
        when: When::Always,
        title: "the cluster does not drift into extended support",
        cause: "EKS charges six times as much for a control plane in extended support.",
        fix: "aws eks update-cluster-config --region <region> --name <cluster> --upgrade-policy supportType=STANDARD",
        run: support,
    },
    Check {
        id: "CL-04",
        severity: Severity::Warning,
        when: When::Always,
        title: "EKS Auto Mode does not manage nodes in the same cluster",
        cause: "Two autoscalers launch nodes for the same pending pods. They can coexist only if \
             their NodePools never match the same pods.",
        fix: "aws eks update-cluster-config --region <region> --name <cluster> --compute-config enabled=false",
        run: auto_mode,
    },
    Check {
        id: "CL-05",
        severity: Severity::Warning,
        when: When::Always,
        title: "nodes reach the API server",
        cause: "Nodes without a route to the internet can register only through the private \
             endpoint.",
        fix: "aws eks update-cluster-config --region <region> --name <cluster> --resources-vpc-config endpointPrivateAccess=true",
        run: endpoint,
    },
    Check {
        id: "CL-06",
        severity: Severity::Info,
        when: When::Always,
        title: "the cluster supports access entries",
        cause: "Without access entries, nodes are authorized by the ConfigMap aws-auth, which many \
             tools edit and which a single mistake breaks.",
        fix: "aws eks update-cluster-config --region <region> --name <cluster> --access-config \
             authenticationMode=API_AND_CONFIG_MAP   # irreversible",
        run: authentication,
    },
    Check {
        id: "CL-07",
        severity: Severity::Info,
        when: When::Always,
        title: "EKS runs the control plane in an AWS region",
        cause: "Outposts and kOps clusters need other steps.",
        fix: "tenon kops install   # its InstanceGroups become NodePools",
        run: kind,
    },
    Check {
        id: "CL-08",
        severity: Severity::Info,
        when: When::Always,
        title: "the network is IPv4",
        cause: "On an IPv6 cluster nodes need a special policy. Tenon creates it; a role that you \
             supply must have it.",
        fix: "tenon iam print --cluster <cluster> --region <region>   # see node-role-ipv6-cni",
        run: ip_family,
    },
    Check {
        id: "CL-09",
        severity: Severity::Fatal,
        when: When::Always,
        title: "there is room for the operator's pods",
        cause: "The operator never runs on nodes that it launches itself. Each replica needs a \
             separate node, in a separate zone if there are several, with 1 CPU and 1 GiB free.",
        fix: "eksctl create nodegroup --region <region> --cluster <cluster> --name system --nodes 2   # or install with --replicas 1",
        run: somewhere_to_run,
    },
    Check {
        id: "CL-10",
        severity: Severity::Warning,
        when: When::Always,
        title: "the cluster's DNS answers",
        cause: "The operator resolves AWS's endpoints through it. If DNS runs only on nodes that \
             the operator launches, neither can start: set dnsPolicy to Default.",
        fix: "kubectl -n kube-system get deployment coredns",
        run: dns,
    },
    Check {
        id: "CL-11",
        severity: Severity::Warning,
        when: When::Always,
        title: "the system DaemonSets tolerate the taints of new nodes",
        cause: "A node is ready for pods only after its network plugin runs. A DaemonSet that \
             doesn't tolerate the taints of new nodes never starts there.",
        fix: "kubectl -n kube-system get daemonset aws-node kube-proxy -o jsonpath='{..tolerations}'",
        run: daemon_sets,
    },
    Check {
        id: "CL-12",
        severity: Severity::Warning,
        when: When::Always,
        title: "the namespace admits the operator's pods",
        cause: "A quota on priority classes without room for system-cluster-critical rejects these pods.",
        fix: "kubectl -n <namespace> get resourcequota -o yaml",
        run: admission,
    },
    Check {
        id: "CL-13",
        severity: Severity::Warning,
        when: When::Always,
        title: "the API server gives the operator priority",
        cause: "Only service accounts of kube-system have priority by default. In other namespaces, the operator loses its lease when the API server is busy.",
        fix: "tenon install --cluster <cluster> --region <region> --namespace kube-system",
        run: priority,
    },
    Check {
        id: "CL-14",
        severity: Severity::Warning,
        when: When::Always,
        title: "no webhook blocks pods, nodes or leases",
        cause: "A webhook with failurePolicy Fail whose pods are gone blocks evictions, new nodes \
             and leader election.",
        fix: "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
        run: webhooks,
    },
    Check {
        id: "CL-15",
        severity: Severity::Info,
        when: When::Always,
        title: "a Prometheus operator can discover the metrics",
        cause: "With the CRD ServiceMonitor the chart can create one: serviceMonitor.enabled.",
        fix: "tenon config explain deploy.values",
        run: metrics,
    },
    Check {
        id: "CL-16",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the settings match the cluster",
        cause: "The settings require something that the cluster does not have, so `tenon install` \
             would refuse them.",
        fix: "tenon config explain nodes.authorization   # or the setting that the message names",
        run: fits,
    },
];

fn active(seen: &Observed) -> Outcome {
    known(&seen.cluster, |cluster| {
        Outcome::when(
            matches!(cluster.status.as_str(), "ACTIVE" | "UPDATING"),
            &cluster.status,
            format!("it is {}", cluster.status),
        )
    })
}

fn version(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.version, |version| match minor(version) {
        Some(minor) if SUPPORTED_MINORS.contains(&minor) => Outcome::Pass(version.clone()),
        _ => Outcome::Fail(format!(
            "it is {version}, and 1.{} to 1.{} are supported",
            SUPPORTED_MINORS.start(),
            SUPPORTED_MINORS.end()
        )),
    })
}

fn support(seen: &Observed) -> Outcome {
    known(&seen.cluster, |cluster| {
        Outcome::when(
            !cluster.extended_support,
            "it is upgraded at the end of standard support",
            format!(
                "version {} moves to extended support at the end of standard support",
                cluster.version
            ),
        )
    })
}

fn auto_mode(seen: &Observed) -> Outcome {
    known(&seen.cluster, |cluster| {
        Outcome::when(
            !cluster.auto_mode,
            "it is off",
            "it is on: make sure that its NodePools and Tenon's never match the same pods",
        )
    })
}

fn endpoint(seen: &Observed) -> Outcome {
    use super::observed::SubnetClass::Isolated;
    known(&seen.cluster, |cluster| {
        if cluster.private_endpoint {
            return Outcome::Pass("through the private endpoint".to_owned());
        }
        known(&seen.network.subnets, |subnets| {
            let cut_off = subnets.iter().filter(|subnet| subnet.class == Isolated);
            let problems = cut_off
                .map(|subnet| {
                    format!(
                        "{} has no route to the internet, and the private endpoint is off",
                        subnet.id
                    )
                })
                .collect::<Vec<_>>();
            Outcome::of(&problems, "through the public endpoint")
        })
    })
}

fn authentication(seen: &Observed) -> Outcome {
    known(&seen.cluster, |cluster| {
        Outcome::when(
            cluster.authentication_mode != "CONFIG_MAP",
            &cluster.authentication_mode,
            "it supports only aws-auth",
        )
    })
}

fn kind(seen: &Observed) -> Outcome {
    known(&seen.cluster, |cluster| {
        let kops =
            seen.kubernetes.nodes.known().is_some_and(|nodes| nodes.iter().any(|node| node.kops));
        match (cluster.outpost, kops) {
            (true, _) => Outcome::Fail("the control plane runs on an Outpost".to_owned()),
            (false, true) => Outcome::Fail("some nodes were created by kOps".to_owned()),
            (false, false) => Outcome::Pass("EKS".to_owned()),
        }
    })
}

fn ip_family(seen: &Observed) -> Outcome {
    known(&seen.cluster, |cluster| Outcome::when(!cluster.ipv6, "IPv4", "it is IPv6"))
}

/// What one operator asks for.
const OPERATOR_CPU: i64 = 1000;
const OPERATOR_MEMORY: i64 = 1 << 30;

fn somewhere_to_run(seen: &Observed) -> Outcome {
    if seen.asked.fargate {
        return Outcome::Pass("on Fargate".to_owned());
    }
    let wanted = usize::try_from(seen.asked.replicas).unwrap_or(0);
    known(&seen.kubernetes.nodes, |nodes| {
        let has_room = |node: &&NodeView| {
            node.ready
                && !node.from_node_pool
                && !node.fargate
                && node.free_cpu >= OPERATOR_CPU
                && node.free_memory >= OPERATOR_MEMORY
        };
        let fit = nodes.iter().filter(has_room).collect::<Vec<_>>();
        let zones = |nodes: &[&NodeView]| {
            nodes.iter().map(|node| node.zone.clone()).collect::<BTreeSet<_>>().len()
        };
        let all = nodes.iter().filter(|node| !node.from_node_pool).collect::<Vec<_>>();
        let running = seen.kubernetes.deployments.known().into_iter().flatten().any(|one| {
            super::autoscalers::is_ours(one) && one.ready >= i64::from(seen.asked.replicas)
        });
        if running {
            return Outcome::Pass("it runs".to_owned());
        }
        // Several zones must be used only where there are several.
        let zones_wanted = wanted.min(zones(&all)).min(2);
        Outcome::when(
            fit.len() >= wanted && zones(&fit) >= zones_wanted,
            format!("{} with room in {}", count(fit.len(), "node"), count(zones(&fit), "zone")),
            format!(
                "{} of {} outside of NodePools with 1 CPU and 1 GiB free, in {}; configured: {}",
                fit.len(),
                count(all.len(), "node"),
                count(zones(&fit), "zone"),
                count(wanted, "replica")
            ),
        )
    })
}

fn dns(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.dns_endpoints, |n| {
        Outcome::when(*n > 0, count(*n, "endpoint"), "kube-system/kube-dns has no ready endpoint")
    })
}

fn daemon_sets(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.daemon_sets, |sets| {
        let system =
            |name: &str| ["aws-node", "kube-proxy", "eks-pod-identity-agent"].contains(&name);
        let problems = sets
            .iter()
            .filter(|set| set.namespace == "kube-system" && system(&set.name) && !set.tolerates_all)
            .map(|set| format!("{} doesn't tolerate every taint", set.name))
            .collect::<Vec<_>>();
        Outcome::of(&problems, "they tolerate every taint")
    })
}

fn admission(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.priority_quotas, |quotas| {
        let problems = quotas
            .iter()
            .map(|quota| format!("quota {quota} leaves no room for system-cluster-critical"))
            .collect::<Vec<_>>();
        Outcome::of(&problems, "no quota blocks them")
    })
}

fn priority(seen: &Observed) -> Outcome {
    if seen.asked.namespace == "kube-system" {
        return Outcome::Pass("as all of kube-system".to_owned());
    }
    known(&seen.kubernetes.flow_schemas, |names| {
        let ours = |prefix: &str| names.iter().any(|name| name.starts_with(prefix));
        Outcome::when(
            ours("karpenter-leader-election") && ours("karpenter-workload"),
            "by its flow schemas",
            format!(
                "no flow schemas karpenter-leader-election and karpenter-workload for namespace {}",
                seen.asked.namespace
            ),
        )
    })
}

fn webhooks(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.webhooks, |hooks| {
        let relevant = |resource: &String| {
            ["pods", "pods/eviction", "nodes", "leases", "*", "*/*"].contains(&resource.as_str())
        };
        let problems = hooks
            .iter()
            .filter(|hook| hook.fails_closed && hook.endpoints == 0)
            .filter(|hook| hook.resources.iter().any(relevant))
            .filter_map(|hook| {
                let service = hook.service.as_ref()?;
                Some(format!("{}: service {service} has no ready endpoint", hook.name))
            })
            .collect::<Vec<_>>();
        Outcome::of(&problems, "all relevant webhooks have ready endpoints")
    })
}

fn fits(seen: &Observed) -> Outcome {
    known(&seen.asked.unfit, |reasons| Outcome::of(reasons, "they do"))
}

fn metrics(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.crds, |crds| {
        if crds.iter().any(|crd| crd.name == "servicemonitors.monitoring.coreos.com") {
            Outcome::Pass("the CRD ServiceMonitor is installed".to_owned())
        } else {
            skip("no Prometheus operator is installed; the Service has the port http-metrics")
        }
    })
}

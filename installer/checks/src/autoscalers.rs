//! Other autoscalers, other owners of the same objects, and what earlier installations left.

use serde_json::Value;
use tenon_installer_core::kubernetes::operator_deployment::{gitops_key, is_image};

use super::observed::{Observed, ScalerView, WorkloadView};
use super::{Check, Outcome, Severity, When, known};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "EX-01",
        severity: Severity::Fatal,
        when: When::Always,
        title: "no other Karpenter runs",
        cause: "Two controllers with the same CRDs and tags fight over NodeClaims, and each \
             garbage-collects the other's instances.",
        fix: "tenon adopt --cluster <cluster> --region <region>   # take over from Karpenter: its \
             NodePools and nodes stay",
        run: other_karpenter,
    },
    Check {
        id: "EX-02",
        severity: Severity::Fatal,
        when: When::Always,
        title: "no object is stored in an API version before v1",
        cause: "The CRDs no longer contain v1beta1 and v1alpha5, and their conversion webhook is \
             gone: such objects would become unreadable.",
        fix: "kubectl get crd nodepools.karpenter.sh -o jsonpath='{.status.storedVersions}'   # \
             upgrade Karpenter to 1.0 first, then rewrite all objects",
        run: old_versions,
    },
    Check {
        id: "EX-03",
        severity: Severity::Warning,
        when: When::Always,
        title: "no Cluster Autoscaler runs",
        cause: "The Cluster Autoscaler and Tenon launch nodes for the same pending pods, and each \
             removes nodes that the other one keeps.",
        fix: "tenon migrate cas --cluster <cluster> --region <region> --dry-run   # shows how its \
             node groups would become NodePools",
        run: cluster_autoscaler,
    },
    Check {
        id: "EX-04",
        severity: Severity::Warning,
        when: When::Always,
        title: "no Node Termination Handler drains Tenon's nodes",
        cause: "Tenon handles interruptions itself; both would drain the same node.",
        fix: "tenon migrate nth --cluster <cluster> --region <region>   # stops it without a gap",
        run: termination_handler,
    },
    Check {
        id: "EX-05",
        severity: Severity::Info,
        when: When::Always,
        title: "no descheduler runs",
        cause: "A descheduler evicts pods by its own rules, and each eviction restarts \
             consolidation.",
        fix: "kubectl get cronjob,deployment -A -o wide | grep descheduler",
        run: descheduler,
    },
    Check {
        id: "EX-06",
        severity: Severity::Fatal,
        when: When::Always,
        title: "no other tool owns the CRDs",
        cause: "Helm refuses objects without its ownership metadata (\"invalid ownership metadata\"), and two owners overwrite each other's schema.",
        fix: "tenon install --cluster <cluster> --region <region> -f tenon.yaml   # with deploy.crds: skip, or remove the other release first",
        run: crd_owner,
    },
    Check {
        id: "EX-07",
        severity: Severity::Fatal,
        when: When::Always,
        title: "no stuck Helm release has the same name",
        cause: "A release that is stuck in pending-install or pending-upgrade blocks every later \
             one.",
        fix: "helm -n <namespace> rollback tenon   # or helm uninstall, for a release that was \
             never deployed",
        run: helm_release,
    },
    Check {
        id: "EX-08",
        severity: Severity::Warning,
        when: When::Always,
        title: "no GitOps tool owns the operator's objects",
        cause: "Flux or Argo CD reverts the installer's changes, and vice versa.",
        fix: "tenon export flux --cluster <cluster> --region <region> --charts <url>   # or \
             argocd; make the change in git, and pass --aws-only to tenon install",
        run: gitops,
    },
    Check {
        id: "EX-09",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the names in AWS and Kubernetes are unused or belong to this installation",
        cause: "Objects without the mark of this installation are never touched.",
        fix: "tenon install --cluster <cluster> --region <region> --name-prefix <other>",
        run: names_taken,
    },
    Check {
        id: "EX-10",
        severity: Severity::Info,
        when: When::Always,
        title: "the queue's name is available",
        cause: "SQS reserves the name of a deleted queue for a minute. The installer waits for it. \
             Only deletions from this machine are known.",
        fix: "tenon install --cluster <cluster> --region <region>   # again, a minute later",
        run: queue_name,
    },
    Check {
        id: "EX-11",
        severity: Severity::Warning,
        when: When::Always,
        title: "no instance of an earlier installation is left",
        cause: "Instances with this cluster's tags and no NodeClaim cost money, and the operator terminates them as soon as it starts.",
        fix: "aws ec2 terminate-instances --region <region> --instance-ids <instance>   # or leave it to the operator",
        run: leftover_instances,
    },
    Check {
        id: "EX-12",
        severity: Severity::Warning,
        when: When::Always,
        title: "the node role's access entry belongs to the current role",
        cause: "An access entry keeps the id of the role that it was created for. If the role was \
             recreated since, nodes are refused.",
        fix: "tenon install --cluster <cluster> --region <region>   # replaces its own entry; for \
             any other: aws eks delete-access-entry",
        run: stale_entry,
    },
    Check {
        id: "EX-13",
        severity: Severity::Warning,
        when: When::Always,
        title: "no object waits for a finalizer without a controller",
        cause: "Objects are being deleted, and no controller runs that could finish the deletion.",
        fix: "tenon uninstall --cluster <cluster> --region <region>   # finishes the deletion, \
             after verifying that the instance is gone",
        run: stuck_finalizers,
    },
    Check {
        id: "EX-14",
        severity: Severity::Warning,
        when: When::Always,
        title: "KEDA can evaluate its ScaledObjects and ScaledJobs",
        cause: "KEDA can't read what it scales by, so the number of pods stays as it is or falls \
             back, and so does the number of nodes.",
        fix: "kubectl describe scaledobjects,scaledjobs --all-namespaces",
        run: scalers,
    },
];

/// A Deployment of Tenon's, by the mark that all its objects carry.
pub(super) fn is_ours(workload: &WorkloadView) -> bool {
    workload.marks.contains_key(tenon_installer_core::ownership::INSTALL_ID)
        || workload.marks.get("helm.sh/chart").is_some_and(|chart| chart.starts_with("tenon-"))
        || workload.images.iter().any(|image| is_image(image))
}

pub(super) fn is_karpenter(workload: &WorkloadView) -> bool {
    workload.env.iter().any(|name| name == "KARPENTER_SERVICE")
        || workload.images.iter().any(|image| {
            let path = image.split(['@', ':']).next().unwrap_or_default();
            path.ends_with("karpenter/controller") || image.contains("/karpenter/controller")
        })
}

fn running<'a>(
    workloads: &'a [WorkloadView],
    which: impl Fn(&WorkloadView) -> bool + 'a,
) -> Vec<String> {
    let found = workloads.iter().filter(|one| one.wanted > 0 && which(one));
    found.map(|one| format!("{}/{} runs", one.namespace, one.name)).collect()
}

fn has_image(workload: &WorkloadView, part: &str) -> bool {
    workload.images.iter().any(|image| image.contains(part))
}

fn scalers(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.scalers, |all| {
        let says = |one: &ScalerView| match one.ready.as_deref() {
            Some("True") => None,
            None => Some("KEDA has not processed it".to_owned()),
            Some(status) if one.message.is_empty() => Some(format!("Ready is {status}")),
            Some(_) => Some(one.message.trim_end_matches('.').to_owned()),
        };
        let problems = all.iter().filter_map(|one| Some(format!("{}: {}", one.name, says(one)?)));
        let fine = if all.is_empty() { "there are none" } else { "all are ready" };
        Outcome::of(&problems.collect::<Vec<_>>(), fine)
    })
}

fn other_karpenter(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.deployments, |all| {
        let found = running(all, |one| is_karpenter(one) && !is_ours(one));
        Outcome::of(&found, "none runs")
    })
}

fn old_versions(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.crds, |crds| {
        let karpenters = crds.iter().filter(|crd| crd.name.contains("karpenter"));
        let mut problems = Vec::new();
        for crd in karpenters {
            let old = crd.stored_versions.iter().filter(|version| {
                // NodeOverlay is itself an alpha API of today.
                !crd.name.starts_with("nodeoverlays") && *version != "v1"
            });
            problems.extend(
                old.map(|version| format!("{} may contain objects in {version}", crd.name)),
            );
            if crd.conversion_webhook {
                problems.push(format!("{} converts by a webhook", crd.name));
            }
        }
        Outcome::of(&problems, "all are stored as v1")
    })
}

pub(super) fn is_cluster_autoscaler(workload: &WorkloadView) -> bool {
    has_image(workload, "cluster-autoscaler")
}

fn cluster_autoscaler(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.deployments, |all| {
        Outcome::of(&running(all, is_cluster_autoscaler), "none runs")
    })
}

fn termination_handler(seen: &Observed) -> Outcome {
    let classes = seen.kubernetes.node_classes.known();
    let tags = |class: &Value, tag: &str| class["spec"]["tags"].get(tag).is_some();
    let is_tagged = |tag: &str| classes.into_iter().flatten().any(|class: &Value| tags(class, tag));
    known(&seen.kubernetes.deployments, |deployments| {
        known(&seen.kubernetes.daemon_sets, |sets| {
            let drains_ours = |one: &WorkloadView| {
                has_image(one, "node-termination-handler")
                    && one.managed_tag.as_deref().is_none_or(is_tagged)
            };
            let mut found = running(deployments, drains_ours);
            // A DaemonSet handles the nodes on which its pods are, a Deployment all of them.
            found.extend(running(sets, |one| drains_ours(one) && !one.avoids_pools));
            Outcome::of(&found, "none does")
        })
    })
}

fn descheduler(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.deployments, |all| {
        Outcome::of(&running(all, |one| has_image(one, "descheduler")), "none runs")
    })
}

const NOT_OURS: &str = "deploy.operator is skip";
const RELEASE: &str = "meta.helm.sh/release-name";

fn crd_owner(seen: &Observed) -> Outcome {
    if !seen.asked.manage_operator {
        return super::skip(NOT_OURS);
    }
    if !seen.asked.manage_crds {
        return super::skip("deploy.crds is skip");
    }
    if let Some(tool) = seen.operator.managed_by() {
        return super::skip(&format!("{tool} manages the operator, and the CRDs with it"));
    }
    known(&seen.kubernetes.crds, |crds| {
        let problems = crds
            .iter()
            .filter(|crd| crd.name.contains("karpenter"))
            .filter(|crd| !crd.marks.contains_key(tenon_installer_core::ownership::INSTALL_ID))
            .filter_map(|crd| {
                let release = crd.marks.get(RELEASE)?;
                Some(format!("{} belongs to Helm release {release}", crd.name))
            })
            .collect::<Vec<_>>();
        Outcome::of(&problems, "they are unused or belong to this installation")
    })
}

fn helm_release(seen: &Observed) -> Outcome {
    let is_installed_otherwise =
        !seen.asked.manage_operator || seen.operator.managed_by().is_some();
    known(&seen.kubernetes.releases, |releases| {
        let ours = |name: &str| name == "tenon" || name == "tenon-crds";
        let problems = releases
            .iter()
            .filter(|release| release.namespace == seen.asked.namespace && ours(&release.name))
            .filter(|release| {
                release.status.starts_with("pending-") || !release.ours && !is_installed_otherwise
            })
            .map(|release| format!("release {} is {}", release.name, release.status))
            .collect::<Vec<_>>();
        Outcome::of(&problems, "none is")
    })
}

fn gitops(seen: &Observed) -> Outcome {
    if !seen.asked.manage_operator {
        return super::skip(NOT_OURS);
    }
    if let Some(tool) = seen.operator.managed_by() {
        return super::skip(&format!("{tool} manages the operator, and the installer does not"));
    }
    known(&seen.kubernetes.deployments, |deployments| {
        let ours = deployments.iter().filter(|one| is_ours(one) || is_karpenter(one));
        let mut problems = ours
            .filter_map(|one| {
                let owner = one.marks.keys().find_map(|key| gitops_key(key))?;
                Some(format!("{owner} owns deployment {}/{}", one.namespace, one.name))
            })
            .collect::<Vec<_>>();
        for crd in seen.kubernetes.crds.known().into_iter().flatten() {
            if let Some(owner) = crd.marks.keys().find_map(|key| gitops_key(key)) {
                problems.push(format!("{owner} owns {}", crd.name));
            }
        }
        Outcome::of(&problems, "none does")
    })
}

fn names_taken(seen: &Observed) -> Outcome {
    Outcome::of(&seen.asked.conflicts, "they are")
}

/// For how long SQS keeps the name of a deleted queue.
const NAME_KEPT_SECONDS: i64 = 60;

fn queue_name(seen: &Observed) -> Outcome {
    if seen.asked.interruption_queue.is_empty() {
        return super::skip("the settings disable the queue");
    }
    known(&seen.queue_deleted, |deleted| match deleted.map(|at| seen.now - at) {
        Some(ago) if ago < NAME_KEPT_SECONDS => Outcome::Fail(format!(
            "a queue of that name was deleted {ago} s ago; the name is available again in {} s",
            NAME_KEPT_SECONDS - ago
        )),
        _ => Outcome::Pass("it can".to_owned()),
    })
}

fn leftover_instances(seen: &Observed) -> Outcome {
    known(&seen.compute.instances, |instances| {
        known(&seen.kubernetes.node_claims, |claims| {
            let has_claim = |name: &Option<String>| {
                name.as_ref().is_some_and(|name| {
                    claims.iter().any(|claim| claim["metadata"]["name"].as_str() == Some(name))
                })
            };
            let problems = instances
                .iter()
                .filter(|instance| instance.state_reason.is_none())
                .filter(|instance| !has_claim(&instance.node_claim))
                .map(|instance| format!("{} is running and has no NodeClaim", instance.id))
                .collect::<Vec<_>>();
            Outcome::of(&problems, "none is")
        })
    })
}

fn stale_entry(seen: &Observed) -> Outcome {
    known(&seen.iam.access_entry, |entry| {
        known(&seen.iam.node_role_created, |role| match (entry, role) {
            (Some(entry), Some(role)) if entry.created < *role => Outcome::Fail(format!(
                "the role {} was created after its access entry",
                seen.iam.node_role_arn
            )),
            (Some(_), Some(_)) => Outcome::Pass("it does".to_owned()),
            _ => Outcome::Pass("there is none yet".to_owned()),
        })
    })
}

fn stuck_finalizers(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.deployments, |deployments| {
        if deployments.iter().any(|one| (is_ours(one) || is_karpenter(one)) && one.ready > 0) {
            return Outcome::Pass("a controller handles them".to_owned());
        }
        let kinds = [
            ("NodePool", &seen.kubernetes.node_pools),
            ("EC2NodeClass", &seen.kubernetes.node_classes),
            ("NodeClaim", &seen.kubernetes.node_claims),
        ];
        let mut problems = Vec::new();
        for (kind, objects) in kinds {
            let deleted = objects
                .known()
                .into_iter()
                .flatten()
                .filter(|object| object.pointer("/metadata/deletionTimestamp").is_some());
            problems.extend(deleted.map(|object| {
                let name = object.pointer("/metadata/name").and_then(Value::as_str);
                format!("{kind} {} is being deleted", name.unwrap_or_default())
            }));
        }
        Outcome::of(&problems, "nothing does")
    })
}

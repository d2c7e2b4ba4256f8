//! Quotas, machine images, the operator's image, the queue, and the NodePools that are there.

use std::collections::BTreeSet;

use serde_json::Value;
use tenon_installer_core::settings::values::PLACEHOLDER;
use tenon_installer_core::words::{count, count_are};

use super::autoscalers::{is_karpenter, is_ours};
use super::observed::{ImageView, KeyView, Observed, PodView, RegistryView};
use super::{Check, Outcome, Severity, When, known, skip};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "QU-01",
        severity: Severity::Warning,
        when: When::Always,
        title: "the account's vCPU quotas cover the NodePool's limit",
        cause: "EC2 counts vCPUs of running instances per family group and refuses more with VcpuLimitExceeded, or MaxSpotInstanceCountExceeded for spot.",
        fix: "aws service-quotas request-service-quota-increase --region <region> --service-code ec2 --quota-code L-1216C47A --desired-value 1000",
        run: vcpus,
    },
    Check {
        id: "QU-02",
        severity: Severity::Info,
        when: When::Always,
        title: "the account's storage quota covers the nodes' volumes",
        cause: "Every node has a gp3 volume of 20 GiB or more, and EC2 limits their total size, in \
             TiB.",
        fix: "aws service-quotas request-service-quota-increase --region <region> --service-code ebs --quota-code L-7A658B76 --desired-value 100",
        run: volumes,
    },
    Check {
        id: "QU-03",
        severity: Severity::Info,
        when: When::Always,
        title: "there is room for launch templates",
        cause: "EC2 allows 5,000 launch templates in a region. The operator deletes its own; other \
             tools often don't.",
        fix: "aws ec2 describe-launch-templates --region <region> --query 'LaunchTemplates[].[LaunchTemplateName,CreateTime]'",
        run: launch_templates,
    },
    Check {
        id: "AM-01",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the AMI alias resolves to an image",
        cause: "An EC2NodeClass without an AMI is not ready, and nothing is launched. Not every \
             release exists for every Kubernetes version, region and architecture.",
        fix: "tenon install --cluster <cluster> --region <region> --ami-alias al2023@latest",
        run: images,
    },
    Check {
        id: "AM-02",
        severity: Severity::Warning,
        when: When::Always,
        title: "the AMI matches the cluster's version",
        cause: "A kubelet newer than the API server, or more than three versions older, is not \
             supported.",
        fix: "tenon install --cluster <cluster> --region <region> --ami-alias al2023@latest",
        run: image_version,
    },
    Check {
        id: "AM-03",
        severity: Severity::Warning,
        when: When::Always,
        title: "the volumes of nodes don't need your own KMS key",
        cause: "EBS may encrypt every new volume of the account with your own key, and the AMIs of \
             an EC2NodeClass may be encrypted with one. Without a grant on the key, instances \
             terminate right after launch with Client.InternalError.",
        fix: "tenon iam print --cluster <cluster> --region <region> --volume-key <key>   # attach the policy VolumeEncryption",
        run: volume_keys,
    },
    Check {
        id: "IM-01",
        severity: Severity::Warning,
        when: When::Always,
        title: "the operator's image can be pulled",
        cause: "The registry doesn't have it, refuses access, or has it only for other \
             architectures. public.ecr.aws answers a stale login with 403. Before an installation \
             the check queries the registry from this machine, without a login.",
        fix: "kubectl -n <namespace> describe pod -l app.kubernetes.io/name=karpenter   # then docker logout public.ecr.aws, or --image <mirror>",
        run: image_pull,
    },
    Check {
        id: "IM-02",
        severity: Severity::Info,
        when: When::Always,
        title: "the operator's image is pinned by its digest",
        cause: "A tag can be moved to another image after you tested this one.",
        fix: "tenon config explain deploy.values   # controller.image.digest",
        run: image_digest,
    },
    Check {
        id: "QS-01",
        severity: Severity::Fatal,
        when: When::Always,
        title: "EventBridge can write into the queue",
        cause: "With the key alias/aws/sqs, or a key whose policy doesn't allow EventBridge, \
             messages are lost without an error.",
        fix: "aws sqs set-queue-attributes --region <region> --queue-url <queue> --attributes SqsManagedSseEnabled=true",
        run: queue_key,
    },
    Check {
        id: "QS-02",
        severity: Severity::Fatal,
        when: When::Installed,
        title: "the operator's queue setting is a name",
        cause: "The setting expects the queue's name; with an ARN or URL, Tenon's operator \
             receives no interruptions, and Karpenter's does not start. The check inspects the \
             operators in the cluster, however they were deployed; in the settings of `tenon`, \
             anything but a name is an error in every command.",
        fix: "kubectl -n <namespace> set env deployment/karpenter INTERRUPTION_QUEUE=<name>   # with the Helm chart: settings.interruptionQueue",
        run: queue_name,
    },
    Check {
        id: "QS-03",
        severity: Severity::Warning,
        when: When::Installed,
        title: "the queue and its rules work",
        cause: "If a rule is disabled or has another target, or messages are not received, spot \
             instances are interrupted before their pods have moved.",
        fix: "tenon install --cluster <cluster> --region <region>   # restores queue and rules",
        run: queue_works,
    },
    Check {
        id: "ZS-01",
        severity: Severity::Fatal,
        when: When::Always,
        title: "the cluster is registered for zonal shift if the operator follows it",
        cause: "Otherwise the operator queries a resource that is not registered, and does not \
             become ready.",
        fix: "aws eks update-cluster-config --region <region> --name <cluster> --zonal-shift-config enabled=true",
        run: zonal_shift,
    },
    Check {
        id: "NP-01",
        severity: Severity::Warning,
        when: When::Always,
        title: "NodePools have limits and reference an existing EC2NodeClass",
        cause: "Without a limit, a mistake in one workload can launch hundreds of nodes; a \
             NodePool with a dangling reference launches none.",
        fix: "kubectl get nodepool -o yaml   # set spec.limits.cpu; correct spec.template.spec.nodeClassRef",
        run: node_pools,
    },
];

/// Quota of vCPUs of standard on-demand instances (families A, C, D, H, I, M, R, T, Z).
pub(super) const ON_DEMAND: &str = "L-1216C47A";
/// The same for spot.
pub(super) const SPOT: &str = "L-34B43A08";
/// Quota of gp3 volumes, in TiB.
pub(super) const GP3: &str = "L-7A658B76";

fn vcpus(seen: &Observed) -> Outcome {
    let Some(limit) = seen.asked.cpu_limit else { return skip("no default NodePool is created") };
    known(&seen.compute.quotas, |quotas| {
        let mut kinds = vec![(ON_DEMAND, "on-demand")];
        if seen.asked.spot {
            kinds.push((SPOT, "spot"));
        }
        let problems = kinds
            .into_iter()
            .filter_map(|(code, kind)| {
                let quota = *quotas.get(code)?;
                (quota < f64::from(limit)).then(|| {
                    format!(
                        "the quota is {quota} vCPUs of {kind} instances, and the NodePool's \
                         limit is {limit}"
                    )
                })
            })
            .collect::<Vec<_>>();
        Outcome::of(&problems, format!("its limit of {limit} is within the quotas"))
    })
}

/// TiB; about fifty nodes with the default volume.
const FEW_TIB: f64 = 1.0;

fn volumes(seen: &Observed) -> Outcome {
    known(&seen.compute.quotas, |quotas| match quotas.get(GP3) {
        None => Outcome::Unknown("the quota is not known".to_owned()),
        Some(tib) => Outcome::when(*tib > FEW_TIB, format!("{tib} TiB"), format!("{tib} TiB")),
    })
}

/// Most launch templates of a region.
const LAUNCH_TEMPLATES: usize = 5_000;

fn launch_templates(seen: &Observed) -> Outcome {
    known(&seen.compute.launch_templates, |n| {
        Outcome::when(
            *n * 10 < LAUNCH_TEMPLATES * 9,
            format!("{n} of {LAUNCH_TEMPLATES}"),
            format!("{n} of {LAUNCH_TEMPLATES}"),
        )
    })
}

fn over_images(
    seen: &Observed,
    pass: &str,
    problem: impl Fn(&ImageView) -> Option<String>,
) -> Outcome {
    if seen.asked.ami_alias.is_none() {
        return skip("no default EC2NodeClass is created");
    }
    known(&seen.compute.images, |images| {
        Outcome::of(&images.iter().filter_map(problem).collect::<Vec<_>>(), pass)
    })
}

fn images(seen: &Observed) -> Outcome {
    over_images(seen, "it does", |image| {
        image.id.is_none().then(|| {
            format!("for {}: {} resolves to no image", image.architecture, image.parameter)
        })
    })
}

/// `1.34` out of a name such as `amazon-eks-node-al2023-x86_64-standard-1.34-v20260101`.
fn version_in(name: &str) -> Option<u32> {
    name.split('-').find_map(|part| part.strip_prefix("1.")?.parse().ok())
}

fn image_version(seen: &Observed) -> Outcome {
    let server = match &seen.kubernetes.version {
        super::observed::Seen::Known(version) => version_in(version.trim_end_matches('+')),
        super::observed::Seen::Unknown(why) => return Outcome::Unknown(why.clone()),
    };
    over_images(seen, "it is", |image| {
        let kubelet = image.name.as_deref().and_then(version_in)?;
        let server = server?;
        (kubelet > server || kubelet + 3 < server).then(|| {
            format!("{} is for 1.{kubelet}, and the cluster is 1.{server}", image.architecture)
        })
    })
}

fn volume_keys(seen: &Observed) -> Outcome {
    known(&seen.compute.volume_keys, |keys| {
        let problems = keys
            .iter()
            .map(|one| format!("{} is encrypted with {}", one.of, one.key))
            .collect::<Vec<_>>();
        Outcome::of(&problems, "none is needed")
    })
}

fn image_pull(seen: &Observed) -> Outcome {
    let pods = seen.operator.pods.known();
    let mut problems = pods.into_iter().flatten().filter_map(not_pulled).collect::<Vec<_>>();
    let image = seen.image.known().and_then(Option::as_ref);
    problems.extend(image.and_then(|image| not_there(seen, image)));
    problems.extend(placeholder(seen));
    let name = seen.asked.image.as_str();
    if !problems.is_empty() || pods.is_some() {
        return Outcome::of(&problems, name);
    }
    known(&seen.image, |image| match image.as_ref().map(|image| image.status) {
        None => skip("the image reference has no registry"),
        Some(200) => Outcome::Pass(name.to_owned()),
        Some(status) => Outcome::Unknown(format!(
            "the registry answers {status}: nodes, which have credentials, may still have access"
        )),
    })
}

fn not_pulled(pod: &PodView) -> Option<String> {
    let waits = matches!(
        pod.waiting.as_deref(),
        Some("ImagePullBackOff" | "ErrImagePull" | "InvalidImageName")
    );
    waits.then(|| format!("{}: {}", pod.name, pod.message.as_deref().unwrap_or("no reason given")))
}

/// Why the default image of a build that no release made can't be used. Nodes may have been given
/// such an image by hand, and where none reports its images nothing is known.
pub fn placeholder(seen: &Observed) -> Option<String> {
    let nodes = seen.kubernetes.nodes.known().into_iter().flatten();
    let images: Vec<&String> = nodes.flat_map(|node| &node.images).collect();
    let has_it = images.iter().any(|name| {
        let last = name.rsplit('/').next().unwrap_or_default();
        last.split([':', '@']).next() == Some(PLACEHOLDER)
    });
    (seen.asked.image == PLACEHOLDER && !images.is_empty() && !has_it).then(|| {
        format!(
            "this build of tenon has no default image, and no node has an image named {PLACEHOLDER}: pass --image REGISTRY/PATH/{PLACEHOLDER}; \
             `cargo release image` and `cargo release push` make one"
        )
    })
}

/// Why an installation would wait for an image that does not exist: its registry was asked without
/// a login and has not got it, pods bring no login of their own (`has_secrets`), and no node has it
/// (`reference`, as pods name it).
pub fn missing_image(seen: &Observed, reference: &str, has_secrets: bool) -> Option<String> {
    let image = seen.image.known().and_then(Option::as_ref)?;
    let nodes = seen.kubernetes.nodes.known().into_iter().flatten();
    let is_there = nodes.flat_map(|node| &node.images).any(|name| name == reference);
    if image.status != 404 || has_secrets || is_there {
        return None;
    }
    Some(format!(
        "the registry has no image {reference} (404): push it (`cargo release push`), or correct \
         --image and --image-tag; if the registry hides images from programs without a login, add \
         --skip IM-01"
    ))
}

/// Why nodes that the operator may run on can't have its image, by what the registry says of it.
fn not_there(seen: &Observed, image: &RegistryView) -> Option<String> {
    let name = &seen.asked.image;
    match image.status {
        403 => Some(format!("the registry refuses {name} (403)")),
        404 => Some(format!("the registry doesn't have {name} in this version (404)")),
        _ => {
            let nodes = seen.kubernetes.nodes.known().into_iter().flatten();
            let wanted = nodes.filter(|node| !node.from_node_pool && !node.architecture.is_empty());
            let missing = wanted
                .map(|node| node.architecture.as_str())
                .filter(|one| !image.architectures.iter().any(|there| there == one))
                .collect::<BTreeSet<_>>();
            let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
            (!image.architectures.is_empty() && !missing.is_empty()).then(|| {
                format!(
                    "{name} does not exist for {missing}, the architecture of some \
                     nodes"
                )
            })
        }
    }
}

fn image_digest(seen: &Observed) -> Outcome {
    Outcome::when(seen.asked.image_digest, "it is", format!("{} is named by tag", seen.asked.image))
}

fn queue_key(seen: &Observed) -> Outcome {
    known(&seen.queue_key, |key| match key {
        None => Outcome::Pass("it uses SQS-managed keys".to_owned()),
        Some(key) if key.id.ends_with("alias/aws/sqs") => {
            Outcome::Fail(format!("EventBridge may not use {}", key.id))
        }
        Some(KeyView { id, open_to_events }) => known(open_to_events, |open| {
            Outcome::when(
                *open,
                format!("{id} lets it"),
                format!(
                    "the policy of {id} doesn't let events.amazonaws.com kms:GenerateDataKey and kms:Decrypt"
                ),
            )
        }),
    })
}

fn queue_name(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.deployments, |all| {
        let operators = all.iter().filter(|one| is_ours(one) || is_karpenter(one));
        let problems = operators
            .filter_map(|one| {
                let queue = one.interruption_queue.as_ref()?;
                let is_name = !queue.contains([':', '/']);
                (!is_name)
                    .then(|| format!("{queue} in {}/{} is not a name", one.namespace, one.name))
            })
            .collect::<Vec<_>>();
        let wanted = seen.asked.interruption_queue.as_str();
        Outcome::of(&problems, if wanted.is_empty() { "there is no queue" } else { wanted })
    })
}

/// Messages that wait while the operator fetches ten at a time, all the time.
const MANY_WAITING: i64 = 100;

fn queue_works(seen: &Observed) -> Outcome {
    if seen.asked.interruption_queue.is_empty() {
        return skip("interruptions are not handled");
    }
    known(&seen.queue, |queue| {
        let Some(queue) = queue else { return Outcome::Fail("there is no queue".to_owned()) };
        known(&seen.rules, |rules| {
            let mut problems = Vec::new();
            for rule in rules {
                if !rule.exists {
                    problems.push(format!("rule {} is missing", rule.name));
                } else if !rule.enabled {
                    problems.push(format!("rule {} is off", rule.name));
                } else if !rule.to_queue {
                    problems.push(format!("rule {} has another target", rule.name));
                }
            }
            if queue.senders.is_empty() {
                problems.push("the queue's policy allows no sender".to_owned());
            }
            let waiting = usize::try_from(queue.waiting).unwrap_or_default();
            if queue.waiting > MANY_WAITING {
                problems.push(format!("{} have not been received", count(waiting, "message")));
            }
            Outcome::of(&problems, format!("{} waiting", count_are(waiting, "message")))
        })
    })
}

fn zonal_shift(seen: &Observed) -> Outcome {
    if !seen.asked.zonal_shift {
        return skip("the operator doesn't follow it");
    }
    known(&seen.cluster, |cluster| Outcome::when(cluster.zonal_shift, "it is", "it is not"))
}

fn node_pools(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.node_pools, |pools| {
        known(&seen.kubernetes.node_classes, |classes| {
            let text = |value: &Value, pointer: &str| {
                value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let mut problems = Vec::new();
            for pool in pools {
                let name = text(pool, "/metadata/name");
                let limits = pool.pointer("/spec/limits").and_then(Value::as_object);
                let is_static = pool.pointer("/spec/replicas").is_some();
                if limits.is_none_or(serde_json::Map::is_empty) && !is_static {
                    problems.push(format!("{name} has no limits"));
                }
                let class = text(pool, "/spec/template/spec/nodeClassRef/name");
                if !classes.iter().any(|one| text(one, "/metadata/name") == class) {
                    problems.push(format!(
                        "{name} references EC2NodeClass {class}, which does not exist"
                    ));
                }
                let grace = pool.pointer("/spec/template/spec/terminationGracePeriod");
                if grace.and_then(Value::as_str) == Some("0s") {
                    problems.push(format!(
                        "{name} gives pods no time to terminate: \
                             terminationGracePeriod is 0s"
                    ));
                }
            }
            Outcome::of(&problems, format!("{} are", pools.len()))
        })
    })
}

//! Subnets, security groups and the way out of the VPC.

use std::collections::BTreeSet;

use tenon_installer_core::words::count;

use super::observed::{Observed, SubnetClass, SubnetView};
use super::{Check, Outcome, Severity, When, known, skip};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "SN-01",
        severity: Severity::Fatal,
        when: When::Always,
        title: "there are subnets for nodes",
        cause: "Without a subnet, nothing can be launched.",
        fix: "tenon install --cluster <cluster> --region <region> --subnets subnet-…,subnet-…",
        run: subnets,
    },
    Check {
        id: "SN-02",
        severity: Severity::Warning,
        when: When::Always,
        title: "the subnets have free addresses",
        cause: "Every pod uses an address. Launches into a full subnet fail with \
             InsufficientFreeAddressesInSubnet.",
        fix: "aws ec2 describe-subnets --region <region> --query 'Subnets[].[SubnetId,AvailableIpAddressCount]'   # choose others with --subnets",
        run: addresses,
    },
    Check {
        id: "SN-03",
        severity: Severity::Warning,
        when: When::Always,
        title: "nodes have a route out of their subnets",
        cause: "A node in a public subnet without a public address can reach nothing; a node in an \
             isolated subnet, only VPC endpoints.",
        fix: "aws ec2 modify-subnet-attribute --region <region> --subnet-id <subnet> --map-public-ip-on-launch   # or choose private subnets",
        run: way_out,
    },
    Check {
        id: "SN-04",
        severity: Severity::Warning,
        when: When::Always,
        title: "public and private subnets are not mixed",
        cause: "Prices and capacity decide which one a node gets, so it is left to chance whether \
             a workload is reachable from outside.",
        fix: "tenon install --cluster <cluster> --region <region> --subnets <private-subnets>",
        run: mixed,
    },
    Check {
        id: "SN-05",
        severity: Severity::Warning,
        when: When::Always,
        title: "an isolated VPC has the endpoints that the nodes and the operator need",
        cause: "Without a route to the internet every AWS service is reached through a VPC \
             endpoint or not at all. IAM and the price list have none: use static instance \
             profiles and set isolatedVPC. Endpoints that another VPC shares are not visible here, \
             so this does not stop an installation.",
        fix: "aws ec2 create-vpc-endpoint --region <region> --vpc-id <vpc> --vpc-endpoint-type Interface --service-name com.amazonaws.<region>.<service>",
        run: endpoints,
    },
    Check {
        id: "SN-06",
        severity: Severity::Warning,
        when: When::Always,
        title: "the VPC has DNS resolution and DNS host names enabled",
        cause: "Nodes find the API server, ECR and VPC endpoints by name.",
        fix: "aws ec2 modify-vpc-attribute --region <region> --vpc-id <vpc> --enable-dns-hostnames",
        run: vpc_dns,
    },
    Check {
        id: "SN-07",
        severity: Severity::Fatal,
        when: When::Always,
        title: "no other cluster uses the discovery tag of the subnets",
        cause: "A tag key has only one value. A subnet that two clusters share must be selected by \
             id.",
        fix: "tenon install --cluster <cluster> --region <region> --discovery ids",
        run: discovery,
    },
    Check {
        id: "SN-08",
        severity: Severity::Warning,
        when: When::Always,
        title: "no subnet is in a Local Zone, a Wavelength Zone or on an Outpost",
        cause: "Few instance types are available there, at different prices.",
        fix: "tenon install --cluster <cluster> --region <region> --subnets <subnets>",
        run: zone_types,
    },
    Check {
        id: "SN-09",
        severity: Severity::Info,
        when: When::Always,
        title: "nodes use the subnets of the control plane",
        cause: "Separate subnets for nodes are fine, as long as they can reach the control plane's.",
        fix: "aws eks describe-cluster --region <region> --name <cluster> --query cluster.resourcesVpcConfig.subnetIds",
        run: control_plane_subnets,
    },
    Check {
        id: "SN-10",
        severity: Severity::Warning,
        when: When::Always,
        title: "every zone offers the selected instance types",
        cause: "Pods that must run in a zone without a suitable instance type stay pending forever.",
        fix: "aws ec2 describe-instance-type-offerings --region <region> --location-type availability-zone --filters Name=location,Values=<zone>",
        run: offerings,
    },
    Check {
        id: "SN-11",
        severity: Severity::Warning,
        when: When::Always,
        title: "the subnets are in several zones",
        cause: "With only one zone, its failure takes down all nodes, and spot capacity comes from \
             a third of the pools.",
        fix: "tenon install --cluster <cluster> --region <region> --subnets subnet-…,subnet-…",
        run: several_zones,
    },
    Check {
        id: "SG-01",
        severity: Severity::Fatal,
        when: When::Always,
        title: "nodes get one to five security groups",
        cause: "A network interface allows five by default; without any, the launch fails.",
        fix: "tenon install --cluster <cluster> --region <region> --security-groups sg-…",
        run: groups,
    },
    Check {
        id: "SG-02",
        severity: Severity::Warning,
        when: When::Always,
        title: "exactly one security group carries the cluster's tag",
        cause: "The AWS load balancer controller opens ports in the tagged group, and fails with \
             \"Multiple tagged security groups\" if there are several.",
        fix: "aws ec2 delete-tags --region <region> --resources <group> --tags Key=kubernetes.io/cluster/<cluster>",
        run: cluster_tag,
    },
    Check {
        id: "SG-03",
        severity: Severity::Warning,
        when: When::Always,
        title: "nodes and control plane can reach each other",
        cause: "Without ports 443 and 10250 between them, nodes don't register, and logs and exec \
             fail; without 53, pods can't resolve names.",
        fix: "aws ec2 authorize-security-group-ingress --region <region> --group-id <group> --protocol all --source-group <group>",
        run: reachable,
    },
    Check {
        id: "SG-04",
        severity: Severity::Fatal,
        when: When::Always,
        title: "subnets and security groups are in the cluster's VPC",
        cause: "EC2 refuses launches that mix resources of two VPCs.",
        fix: "tenon install --cluster <cluster> --region <region> --subnets … --security-groups …",
        run: same_vpc,
    },
];

fn each(seen: &Observed, pass: &str, problem: impl Fn(&SubnetView) -> Option<String>) -> Outcome {
    known(&seen.network.subnets, |subnets| {
        Outcome::of(&subnets.iter().filter_map(problem).collect::<Vec<_>>(), pass)
    })
}

fn subnets(seen: &Observed) -> Outcome {
    known(&seen.network.subnets, |subnets| {
        let zones = subnets.iter().map(|subnet| &subnet.zone).collect::<BTreeSet<_>>();
        Outcome::when(
            !subnets.is_empty(),
            format!("{} in {}", subnets.len(), count(zones.len(), "zone")),
            "there is none",
        )
    })
}

fn several_zones(seen: &Observed) -> Outcome {
    known(&seen.network.subnets, |subnets| {
        let zones = subnets.iter().map(|subnet| subnet.zone.as_str()).collect::<BTreeSet<_>>();
        let named = zones.iter().copied().collect::<Vec<_>>().join(", ");
        Outcome::when(zones.len() != 1, &named, format!("all are in {named}"))
    })
}

/// Fewer free addresses than one well filled node takes.
const FEW_ADDRESSES: i32 = 32;

fn addresses(seen: &Observed) -> Outcome {
    each(seen, "all have", |subnet| {
        (subnet.free_addresses < FEW_ADDRESSES)
            .then(|| format!("{} has {} left", subnet.id, subnet.free_addresses))
    })
}

fn way_out(seen: &Observed) -> Outcome {
    each(seen, "they have", |subnet| match subnet.class {
        SubnetClass::Public if !subnet.public_addresses => {
            Some(format!("{} is public and assigns no public addresses", subnet.id))
        }
        SubnetClass::Isolated => Some(format!("{} has none: see SN-05", subnet.id)),
        _ => None,
    })
}

fn mixed(seen: &Observed) -> Outcome {
    known(&seen.network.subnets, |subnets| {
        let of = |class| {
            subnets
                .iter()
                .filter(|subnet| subnet.class == class)
                .map(|subnet| subnet.id.as_str())
                .collect::<Vec<_>>()
        };
        let (public, other) = (of(SubnetClass::Public), of(SubnetClass::Private));
        Outcome::when(
            public.is_empty() || other.is_empty(),
            "they are all of the same kind",
            format!("public: {}; private: {}", public.join(", "), other.join(", ")),
        )
    })
}

/// What nodes and operator call, by the last part of the endpoint's service name.
fn needed_endpoints(seen: &Observed) -> Vec<&'static str> {
    let mut needed = vec!["ec2", "ecr.api", "ecr.dkr", "eks", "s3", "ssm", "sts"];
    if seen.asked.pod_identity {
        needed.push("eks-auth");
    }
    if !seen.asked.interruption_queue.is_empty() {
        needed.push("sqs");
    }
    if seen.asked.zonal_shift {
        needed.push("arc-zonal-shift");
    }
    needed
}

fn endpoints(seen: &Observed) -> Outcome {
    known(&seen.network.subnets, |subnets| {
        if !subnets.iter().any(|subnet| subnet.class == SubnetClass::Isolated) {
            return skip("no subnet is isolated");
        }
        known(&seen.network.endpoints, |endpoints| {
            let mut problems = Vec::new();
            for service in needed_endpoints(seen) {
                match endpoints.iter().find(|endpoint| endpoint.service == service) {
                    None => problems.push(format!("no endpoint for {service}")),
                    Some(endpoint) if !endpoint.gateway && !endpoint.private_dns => {
                        problems
                            .push(format!("the endpoint for {service} has no private DNS name"));
                    }
                    Some(_) => {}
                }
            }
            if !seen.asked.isolated_vpc {
                problems.push("the operator's setting isolatedVPC is off".to_owned());
            }
            Outcome::of(&problems, "all exist")
        })
    })
}

fn vpc_dns(seen: &Observed) -> Outcome {
    known(&seen.network.dns_support, |support| {
        known(&seen.network.dns_hostnames, |hostnames| {
            let mut problems = Vec::new();
            if !support {
                problems.push("enableDnsSupport is off".to_owned());
            }
            if !hostnames {
                problems.push("enableDnsHostnames is off".to_owned());
            }
            Outcome::of(&problems, "it does")
        })
    })
}

fn discovery(seen: &Observed) -> Outcome {
    if !seen.asked.discovery_by_tag {
        return skip("subnets are selected by id");
    }
    each(seen, "none does", |subnet| {
        let other = subnet.discovery.as_ref().filter(|value| **value != seen.asked.cluster)?;
        Some(format!("{} is tagged for cluster {other}", subnet.id))
    })
}

fn zone_types(seen: &Observed) -> Outcome {
    each(seen, "none is", |subnet| {
        if subnet.outpost {
            Some(format!("{} is on an Outpost", subnet.id))
        } else if subnet.zone_type == "availability-zone" {
            None
        } else {
            Some(format!("{} is in a {}", subnet.id, subnet.zone_type))
        }
    })
}

fn control_plane_subnets(seen: &Observed) -> Outcome {
    known(&seen.cluster, |cluster| {
        each(seen, "they do", |subnet| {
            (!cluster.subnets.contains(&subnet.id)).then(|| format!("{} is not one", subnet.id))
        })
    })
}

/// With fewer types in a zone there is little to choose from when one runs out.
const FEW_TYPES: usize = 5;

fn offerings(seen: &Observed) -> Outcome {
    known(&seen.network.offerings, |offered| {
        known(&seen.network.subnets, |subnets| {
            let zones = subnets.iter().map(|subnet| &subnet.zone).collect::<BTreeSet<_>>();
            let problems = zones
                .into_iter()
                .filter_map(|zone| {
                    let n = offered.get(zone).copied().unwrap_or(0);
                    (n < FEW_TYPES).then(|| format!("{zone} offers {n} of them"))
                })
                .collect::<Vec<_>>();
            Outcome::of(&problems, "all do")
        })
    })
}

fn groups(seen: &Observed) -> Outcome {
    known(&seen.network.groups, |groups| {
        Outcome::when(
            (1..=5).contains(&groups.len()),
            format!("{}", groups.len()),
            format!("they get {}", groups.len()),
        )
    })
}

fn cluster_tag(seen: &Observed) -> Outcome {
    known(&seen.network.groups, |groups| {
        let tagged = groups.iter().filter(|group| group.cluster_tag).collect::<Vec<_>>();
        let names = tagged.iter().map(|group| group.id.as_str()).collect::<Vec<_>>().join(", ");
        match tagged.len() {
            0 => Outcome::Fail("none does".to_owned()),
            1 => Outcome::Pass(names),
            n => Outcome::Fail(format!("{n} do: {names}")),
        }
    })
}

fn reachable(seen: &Observed) -> Outcome {
    known(&seen.network.groups, |groups| {
        let open = groups.iter().any(|group| group.open_to_itself && group.open_to_cluster);
        let names = groups.iter().map(|group| group.id.as_str()).collect::<Vec<_>>().join(", ");
        Outcome::when(
            open,
            "they do",
            format!("no rule of {names} allows traffic from its members and the control plane"),
        )
    })
}

fn same_vpc(seen: &Observed) -> Outcome {
    known(&seen.cluster, |cluster| {
        known(&seen.network.groups, |groups| {
            known(&seen.network.subnets, |subnets| {
                let all = groups
                    .iter()
                    .map(|group| (&group.id, &group.vpc))
                    .chain(subnets.iter().map(|subnet| (&subnet.id, &subnet.vpc)));
                let problems = all
                    .filter(|(_, vpc)| **vpc != cluster.vpc)
                    .map(|(id, vpc)| format!("{id} is in {vpc}"))
                    .collect::<Vec<_>>();
                Outcome::of(&problems, &cluster.vpc)
            })
        })
    })
}

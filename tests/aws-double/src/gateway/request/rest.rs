//! Names of the REST services' actions by method and path (EKS, EKS Auth, ARC): the services
//! themselves never send them.

use axum::http::Method;

/// The service of a REST call, or `None` for paths that several services have.
pub(super) fn service(segments: &[String]) -> Option<&'static str> {
    let path: Vec<&str> = segments.iter().map(String::as_str).collect();
    match path.as_slice() {
        ["clusters", _, "assume-role-for-pod-identity"] => Some("eks-auth"),
        ["managedresources" | "zonalshifts" | "autoshifts", ..] => Some("arc-zonal-shift"),
        ["clusters" | "access-policies" | "addons" | "cluster-versions", ..] => Some("eks"),
        _ => None,
    }
}

/// The action of a REST call, or `None` for one that we do not know.
pub(super) fn action(method: &Method, segments: &[String]) -> Option<&'static str> {
    let path: Vec<&str> = segments.iter().map(String::as_str).collect();
    let verb = method.as_str();
    Some(match (verb, path.as_slice()) {
        ("GET", ["clusters"]) => "ListClusters",
        ("POST", ["clusters"]) => "CreateCluster",
        ("GET", ["clusters", _]) => "DescribeCluster",
        ("DELETE", ["clusters", _]) => "DeleteCluster",
        ("POST", ["clusters", _, "update-config"]) => "UpdateClusterConfig",
        ("POST", ["clusters", _, "updates"]) => "UpdateClusterVersion",
        ("GET", ["clusters", _, "updates"]) => "ListUpdates",
        ("GET", ["clusters", _, "updates", _]) => "DescribeUpdate",
        ("POST", ["clusters", _, "assume-role-for-pod-identity"]) => "AssumeRoleForPodIdentity",
        ("GET", ["clusters", _, kind]) => match *kind {
            "access-entries" => "ListAccessEntries",
            "addons" => "ListAddons",
            "fargate-profiles" => "ListFargateProfiles",
            "identity-provider-configs" => "ListIdentityProviderConfigs",
            "node-groups" => "ListNodegroups",
            "pod-identity-associations" => "ListPodIdentityAssociations",
            _ => return None,
        },
        ("POST", ["clusters", _, kind]) => match *kind {
            "access-entries" => "CreateAccessEntry",
            "addons" => "CreateAddon",
            "fargate-profiles" => "CreateFargateProfile",
            "insights" => "ListInsights",
            "node-groups" => "CreateNodegroup",
            "pod-identity-associations" => "CreatePodIdentityAssociation",
            _ => return None,
        },
        ("GET", ["clusters", _, kind, _]) => match *kind {
            "access-entries" => "DescribeAccessEntry",
            "addons" => "DescribeAddon",
            "fargate-profiles" => "DescribeFargateProfile",
            "insights" => "DescribeInsight",
            "node-groups" => "DescribeNodegroup",
            "pod-identity-associations" => "DescribePodIdentityAssociation",
            _ => return None,
        },
        ("DELETE", ["clusters", _, kind, _]) => match *kind {
            "access-entries" => "DeleteAccessEntry",
            "addons" => "DeleteAddon",
            "fargate-profiles" => "DeleteFargateProfile",
            "node-groups" => "DeleteNodegroup",
            "pod-identity-associations" => "DeletePodIdentityAssociation",
            _ => return None,
        },
        ("POST", ["clusters", _, "access-entries", _]) => "UpdateAccessEntry",
        ("POST", ["clusters", _, "pod-identity-associations", _]) => "UpdatePodIdentityAssociation",
        ("GET", ["clusters", _, "access-entries", _, "access-policies"]) => {
            "ListAssociatedAccessPolicies"
        }
        ("POST", ["clusters", _, "access-entries", _, "access-policies"]) => {
            "AssociateAccessPolicy"
        }
        ("DELETE", ["clusters", _, "access-entries", _, "access-policies", _]) => {
            "DisassociateAccessPolicy"
        }
        ("POST", ["clusters", _, "addons", _, "update"]) => "UpdateAddon",
        ("POST", ["clusters", _, "node-groups", _, "update-config"]) => "UpdateNodegroupConfig",
        ("POST", ["clusters", _, "node-groups", _, "update-version"]) => "UpdateNodegroupVersion",
        ("GET", ["managedresources"]) => "ListManagedResources",
        ("GET", ["managedresources", _]) => "GetManagedResource",
        ("GET", ["zonalshifts"]) => "ListZonalShifts",
        ("POST", ["zonalshifts"]) => "StartZonalShift",
        ("PATCH", ["zonalshifts", _]) => "UpdateZonalShift",
        ("DELETE", ["zonalshifts", _]) => "CancelZonalShift",
        ("GET", ["autoshifts"]) => "ListAutoshifts",
        ("GET", ["access-policies"]) => "ListAccessPolicies",
        ("GET", ["addons", "supported-versions"]) => "DescribeAddonVersions",
        ("GET", ["addons", "configuration-schemas"]) => "DescribeAddonConfiguration",
        ("GET", ["cluster-versions"]) => "DescribeClusterVersions",
        ("GET", ["tags", _]) => "ListTagsForResource",
        ("POST", ["tags", _]) => "TagResource",
        ("DELETE", ["tags", _]) => "UntagResource",
        _ => return None,
    })
}

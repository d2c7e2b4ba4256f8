//! EKS: clusters, what belongs to them, and the roles that calls pass on.

use tenon_iam_policies::identity::POD_IDENTITY_SERVICE;

use super::{Check, Resolver};

pub(super) fn checks(resolver: &Resolver<'_>) -> Vec<Check> {
    let request = resolver.request;
    let body = |field: &str| request.json[field].as_str();
    let segments = request.segments();
    let cluster = match segments.first().map(String::as_str) {
        Some("clusters") => segments.get(1).map_or("*", String::as_str),
        _ => "*",
    };
    let on_cluster = || resolver.own(resolver.arn("eks", &format!("cluster/{cluster}")));
    let mut checks = match request.action.as_str() {
        "ListClusters"
        | "DescribeAddonVersions"
        | "DescribeAddonConfiguration"
        | "ListAccessPolicies"
        | "DescribeClusterVersions" => vec![resolver.own("*")],
        "TagResource" | "UntagResource" | "ListTagsForResource" => {
            let arn = segments.get(1).cloned().unwrap_or_default();
            let tags = resolver.eks.tags(&arn).unwrap_or_default();
            vec![resolver.own(arn).tagged(tags)]
        }
        "CreateAccessEntry" => {
            let mut check = on_cluster();
            check = check.with("eks:accessEntryType", body("type").unwrap_or("STANDARD"));
            if let Some(principal) = body("principalArn") {
                check = check.with("eks:principalArn", principal);
            }
            if let Some(username) = body("username") {
                check = check.with("eks:username", username);
            }
            for group in request.json["kubernetesGroups"].as_array().into_iter().flatten() {
                check = check.with("eks:kubernetesGroups", group.as_str().unwrap_or_default());
            }
            vec![check]
        }
        "CreatePodIdentityAssociation" => {
            let role = body("roleArn").unwrap_or_default();
            vec![
                on_cluster(),
                resolver.pass_role(role, POD_IDENTITY_SERVICE),
                resolver.check("iam:GetRole", role),
            ]
        }
        "CreateFargateProfile" => {
            let role = body("podExecutionRoleArn").unwrap_or_default();
            vec![on_cluster(), resolver.pass_role(role, "eks-fargate-pods.amazonaws.com")]
        }
        "CreateNodegroup" => {
            vec![
                on_cluster(),
                resolver.pass_role(body("nodeRole").unwrap_or_default(), &resolver.ec2_service()),
            ]
        }
        "CreateAddon" => {
            let pass = body("serviceAccountRoleArn")
                .map(|role| resolver.pass_role(role, "eks.amazonaws.com"));
            [Some(on_cluster()), pass].into_iter().flatten().collect()
        }
        action if segments.len() >= 4 => {
            let mut checks = vec![on_child(resolver, cluster, &segments)];
            if action == "UpdatePodIdentityAssociation"
                && let Some(role) = body("roleArn")
            {
                checks.push(resolver.pass_role(role, POD_IDENTITY_SERVICE));
                checks.push(resolver.check("iam:GetRole", role));
            }
            checks
        }
        _ => vec![
            on_cluster().tagged(
                resolver
                    .eks
                    .tags(&resolver.arn("eks", &format!("cluster/{cluster}")))
                    .unwrap_or_default(),
            ),
        ],
    };
    let tags = request.request_tags().into_iter().map(|(_, key, value)| (key, value));
    if let Some(first) = checks.first_mut() {
        let mut check = first.clone().tagging(tags);
        if request.action == "UntagResource" {
            for pair in request.query.as_deref().unwrap_or_default().split('&') {
                if let Some(("tagKeys", key)) = pair.split_once('=') {
                    let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy();
                    check = check.with("aws:TagKeys", key);
                }
            }
        }
        *first = check;
    }
    checks
}

/// Something below a cluster: `/clusters/<cluster>/<kind>/<name>/…`. Its ARN ends with an id that
/// only EKS knows; what does not exist gets `*`'s place holder.
fn on_child(resolver: &Resolver<'_>, cluster: &str, segments: &[String]) -> Check {
    let (kind, name) = (segments[2].as_str(), segments[3].as_str());
    if let Some(arn) = resolver.eks.arn_of(cluster, kind, name) {
        let tags = resolver.eks.tags(&arn).unwrap_or_default();
        return resolver.own(arn).tagged(tags);
    }
    let resource = match kind {
        "access-entries" => {
            // arn:aws:iam::<account>:role/<path><name>
            let mut parts = name.splitn(6, ':').skip(4);
            let account = parts.next().unwrap_or_default();
            let (of, path) =
                parts.next().and_then(|rest| rest.split_once('/')).unwrap_or(("role", ""));
            let principal = path.rsplit('/').next().unwrap_or_default();
            format!("access-entry/{cluster}/{of}/{account}/{principal}/unknown")
        }
        "pod-identity-associations" => format!("podidentityassociation/{cluster}/{name}"),
        "addons" => format!("addon/{cluster}/{name}/unknown"),
        "fargate-profiles" => format!("fargateprofile/{cluster}/{name}/unknown"),
        "node-groups" => format!("nodegroup/{cluster}/{name}/unknown"),
        _ => format!("cluster/{cluster}"),
    };
    resolver.own(resolver.arn("eks", &resource))
}

//! EKS over HTTP: access entries, pod identity associations, add-ons, Fargate profiles, tags and
//! pages.

use tenon_aws_double::token_review::NotAdmitted;

use super::*;

fn path(rest: &str) -> String {
    format!("/clusters/{CLUSTER}/{rest}")
}

fn entry_path(principal_arn: &str) -> String {
    path(&format!("access-entries/{}", encoded(principal_arn)))
}

#[test]
fn a_cluster_tells_all_that_installer_and_operator_ask_for() {
    on_the_gateway(async |bed| {
        let answer = bed.admin.eks("GET", "/clusters/bed", Value::Null).await.expect("cluster");
        let cluster = &answer["cluster"];
        assert_eq!(cluster["arn"], "arn:aws:eks:eu-central-1:123456789012:cluster/bed");
        assert_eq!(cluster["version"], "1.36");
        assert_eq!(cluster["status"], "ACTIVE");
        assert_eq!(
            cluster["resourcesVpcConfig"]["clusterSecurityGroupId"],
            bed.seed.cluster_security_group_id.as_str()
        );
        assert_eq!(cluster["resourcesVpcConfig"]["vpcId"], bed.seed.vpc_id.as_str());
        assert_eq!(cluster["resourcesVpcConfig"]["subnetIds"], json!(bed.seed.subnet_ids));
        assert_eq!(cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"], "172.20.0.0/16");
        assert!(
            cluster["identity"]["oidc"]["issuer"]
                .as_str()
                .expect("an issuer")
                .starts_with("https://")
        );
        assert_eq!(cluster["accessConfig"]["authenticationMode"], "API_AND_CONFIG_MAP");
        assert_eq!(cluster["health"]["issues"], json!([]));
        let absent = bed.admin.eks("GET", "/clusters/absent", Value::Null).await;
        assert_eq!(refused(absent), ("ResourceNotFoundException".into(), 404));
        assert_eq!(
            bed.admin.eks("GET", "/clusters", Value::Null).await.expect("list")["clusters"],
            json!(["bed"])
        );
    });
}

#[test]
fn an_access_entry_lives_and_dies() {
    on_the_gateway(async |bed| {
        let role =
            bed.role("/tenon/bed/", "entered", &trust(r#"{"Service":"ec2.amazonaws.com"}"#)).await;
        let create = json!({ "principalArn": role, "type": "EC2_LINUX", "tags": { "a": "b" } });
        let made =
            bed.admin.eks("POST", &path("access-entries"), create.clone()).await.expect("made");
        assert_eq!(made["accessEntry"]["username"], "system:node:{{EC2PrivateDNSName}}");
        assert_eq!(
            made["accessEntry"]["kubernetesGroups"],
            json!(["system:bootstrappers", "system:nodes"])
        );
        assert_eq!(made["accessEntry"]["type"], "EC2_LINUX");
        assert_eq!(
            refused(bed.admin.eks("POST", &path("access-entries"), create).await),
            ("ResourceInUseException".into(), 409)
        );
        let found = bed.admin.eks("GET", &entry_path(&role), Value::Null).await.expect("found");
        assert_eq!(found["accessEntry"]["tags"], json!({ "a": "b" }));
        let arn = found["accessEntry"]["accessEntryArn"].as_str().expect("an ARN");
        assert!(
            arn.starts_with(
                "arn:aws:eks:eu-central-1:123456789012:access-entry/bed/role/123456789012/entered/"
            ),
            "{arn}"
        );
        bed.admin.eks("DELETE", &entry_path(&role), Value::Null).await.expect("deleted");
        for method in ["GET", "DELETE"] {
            assert_eq!(
                refused(bed.admin.eks(method, &entry_path(&role), Value::Null).await),
                ("ResourceNotFoundException".into(), 404)
            );
        }
    });
}

#[test]
fn access_entries_that_eks_would_refuse_are_refused() {
    on_the_gateway(async |bed| {
        let role = bed.role("/", "refused", &trust(r#"{"Service":"ec2.amazonaws.com"}"#)).await;
        for body in [
            json!({ "principalArn": "arn:aws:iam::123456789012:role/absent", "type": "EC2_LINUX" }),
            json!({ "principalArn": "arn:aws:iam::123456789012:role/other/path/refused" }),
            json!({ "principalArn": role, "type": "EC2_LINUX", "kubernetesGroups": ["x"] }),
            json!({ "principalArn": role, "type": "EC2_LINUX", "username": "x" }),
            json!({ "principalArn": role, "kubernetesGroups": ["system:masters"] }),
            json!({ "principalArn": role, "username": "system:admin" }),
            json!({ "principalArn": role, "type": "EC2_BSD" }),
            json!({}),
        ] {
            let answer = bed.admin.eks("POST", &path("access-entries"), body.clone()).await;
            assert_eq!(refused(answer), ("InvalidParameterException".into(), 400), "{body}");
        }
    });
}

#[test]
fn a_role_made_anew_under_its_old_name_does_not_get_in_by_the_old_entry() {
    on_the_gateway(async |bed| {
        let document = trust(r#"{"Service":"ec2.amazonaws.com"}"#);
        let role = bed.role("/", "reborn", &document).await;
        bed.admin
            .eks(
                "POST",
                &path("access-entries"),
                json!({ "principalArn": role, "type": "EC2_LINUX" }),
            )
            .await
            .expect("entry");
        let authenticator = &bed.guard.authenticator;
        assert_eq!(authenticator.admits_nodes_of(&role), Ok(()));
        bed.admin.query("iam", "DeleteRole", &[("RoleName", "reborn")]).await.expect("deleted");
        bed.role("/", "reborn", &document).await;
        assert_eq!(authenticator.admits_nodes_of(&role), Err(NotAdmitted::Stale(role.clone())));
        bed.admin.eks("DELETE", &entry_path(&role), Value::Null).await.expect("deleted");
        bed.admin
            .eks(
                "POST",
                &path("access-entries"),
                json!({ "principalArn": role, "type": "EC2_LINUX" }),
            )
            .await
            .expect("entry");
        assert_eq!(authenticator.admits_nodes_of(&role), Ok(()));
    });
}

#[test]
fn access_policies_come_and_go_on_entries_of_people_only() {
    on_the_gateway(async |bed| {
        let node = bed.role("/", "policied", &trust(r#"{"Service":"ec2.amazonaws.com"}"#)).await;
        bed.admin
            .eks(
                "POST",
                &path("access-entries"),
                json!({ "principalArn": node, "type": "EC2_LINUX" }),
            )
            .await
            .expect("entry");
        let user = "arn:aws:iam::123456789012:user/policied";
        bed.admin
            .eks("POST", &path("access-entries"), json!({ "principalArn": user }))
            .await
            .expect("entry");
        let policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy";
        let body = json!({ "policyArn": policy, "accessScope": { "type": "cluster" } });
        let on = |principal: &str| format!("{}/access-policies", entry_path(principal));
        assert_eq!(
            refused(bed.admin.eks("POST", &on(&node), body.clone()).await).0,
            "InvalidRequestException"
        );
        bed.admin.eks("POST", &on(user), body.clone()).await.expect("associated");
        bed.admin.eks("POST", &on(user), body).await.expect("associated again");
        let listed = bed.admin.eks("GET", &on(user), Value::Null).await.expect("list");
        assert_eq!(listed["associatedAccessPolicies"].as_array().map(Vec::len), Some(1));
        assert_eq!(listed["associatedAccessPolicies"][0]["policyArn"], policy);
        let unknown = json!({ "policyArn": "arn:aws:eks::aws:cluster-access-policy/Nope", "accessScope": { "type": "cluster" } });
        assert_eq!(
            refused(bed.admin.eks("POST", &on(user), unknown).await).0,
            "InvalidParameterException"
        );
        let one = format!("{}/{}", on(user), encoded(policy));
        bed.admin.eks("DELETE", &one, Value::Null).await.expect("gone");
        assert_eq!(
            refused(bed.admin.eks("DELETE", &one, Value::Null).await).0,
            "ResourceNotFoundException"
        );
    });
}

#[test]
fn lists_come_in_pages() {
    on_the_gateway(async |bed| {
        for name in ["paged-1", "paged-2", "paged-3"] {
            let body = json!({ "principalArn": format!("arn:aws:iam::123456789012:user/{name}") });
            bed.admin.eks("POST", &path("access-entries"), body).await.expect("entry");
        }
        let (mut found, mut token, mut n_pages) = (Vec::new(), String::new(), 0);
        loop {
            let answer = bed
                .admin
                .eks("GET", &path(&format!("access-entries?maxResults=2{token}")), Value::Null)
                .await
                .expect("page");
            let page = answer["accessEntries"].as_array().expect("a list").clone();
            assert!(page.len() <= 2);
            found.extend(page.into_iter().map(|arn| arn.as_str().expect("an ARN").to_owned()));
            n_pages += 1;
            match answer["nextToken"].as_str() {
                Some(next) => token = format!("&nextToken={next}"),
                None => break,
            }
        }
        assert!(n_pages >= 2);
        for name in ["paged-1", "paged-2", "paged-3"] {
            assert_eq!(found.iter().filter(|arn| arn.ends_with(name)).count(), 1, "{found:?}");
        }
        for bad in ["maxResults=0", "maxResults=101", "maxResults=x", "nextToken=x"] {
            let answer =
                bed.admin.eks("GET", &path(&format!("access-entries?{bad}")), Value::Null).await;
            assert_eq!(refused(answer).0, "InvalidParameterException", "{bad}");
        }
    });
}

#[test]
fn an_association_needs_a_role_that_pods_may_take() {
    on_the_gateway(async |bed| {
        let associations = path("pod-identity-associations");
        let body =
            |role: &str| json!({ "namespace": "assoc", "serviceAccount": "a", "roleArn": role });
        let absent = bed
            .admin
            .eks("POST", &associations, body("arn:aws:iam::123456789012:role/absent"))
            .await
            .expect_err("no role");
        assert_eq!(
            (absent.code.as_str(), absent.message.as_str()),
            ("InvalidParameterException", "Role provided in the request does not exist.")
        );
        let closed =
            bed.role("/", "assoc-closed", &trust(r#"{"Service":"ec2.amazonaws.com"}"#)).await;
        let distrusting =
            bed.admin.eks("POST", &associations, body(&closed)).await.expect_err("not trusted");
        assert!(distrusting.message.starts_with("Trust policy of role"), "{distrusting}");
        let open =
            bed.role("/", "assoc-open", &trust(r#"{"Service":"pods.eks.amazonaws.com"}"#)).await;
        let made = bed.admin.eks("POST", &associations, body(&open)).await.expect("made");
        let id = made["association"]["associationId"].as_str().expect("an id").to_owned();
        assert!(id.starts_with("a-") && id.len() == 19, "{id}");
        let again =
            bed.admin.eks("POST", &associations, body(&open)).await.expect_err("there is one");
        assert_eq!(
            (again.code.as_str(), again.status, again.message),
            ("ResourceInUseException", 409, format!("Association already exists: {id}"))
        );
        let listed = bed
            .admin
            .eks("GET", &format!("{associations}?namespace=assoc&serviceAccount=a"), Value::Null)
            .await
            .expect("list");
        assert_eq!(listed["associations"][0]["associationId"], id.as_str());
        let none = bed
            .admin
            .eks("GET", &format!("{associations}?namespace=assoc&serviceAccount=b"), Value::Null)
            .await
            .expect("list");
        assert_eq!(none["associations"], json!([]));
        let one = format!("{associations}/{id}");
        let found = bed.admin.eks("GET", &one, Value::Null).await.expect("found");
        assert_eq!(found["association"]["roleArn"], open.as_str());
        assert_eq!(
            refused(bed.admin.eks("POST", &one, json!({ "roleArn": closed })).await).0,
            "InvalidParameterException"
        );
        bed.admin.eks("DELETE", &one, Value::Null).await.expect("deleted");
        assert_eq!(
            refused(bed.admin.eks("GET", &one, Value::Null).await),
            ("ResourceNotFoundException".into(), 404)
        );
    });
}

#[test]
fn a_repeated_request_with_its_token_gives_the_same_association() {
    on_the_gateway(async |bed| {
        let role =
            bed.role("/", "repeated", &trust(r#"{"Service":"pods.eks.amazonaws.com"}"#)).await;
        let body = json!({ "namespace": "repeated", "serviceAccount": "a", "roleArn": role, "clientRequestToken": "t" });
        let first = bed
            .admin
            .eks("POST", &path("pod-identity-associations"), body.clone())
            .await
            .expect("made");
        let second = bed
            .admin
            .eks("POST", &path("pod-identity-associations"), body)
            .await
            .expect("the same");
        assert_eq!(first, second);
    });
}

#[test]
fn add_ons_are_made_and_deleted_in_a_while() {
    on_the_gateway(async |bed| {
        let name = "coredns";
        let one = path(&format!("addons/{name}"));
        let status = async || match bed.admin.eks("GET", &one, Value::Null).await {
            Ok(answer) => answer["addon"]["status"].as_str().expect("a status").to_owned(),
            Err(error) => error.code,
        };
        let reaches = async |wanted: &str| {
            let wait = async {
                while status().await != wanted {
                    tokio::task::yield_now().await;
                }
            };
            let waited = tokio::time::timeout(std::time::Duration::from_secs(20), wait).await;
            assert!(waited.is_ok(), "{name} does not get {wanted}");
        };
        assert_eq!(status().await, "ACTIVE");
        bed.admin.eks("DELETE", &one, Value::Null).await.expect("deleted");
        reaches("ResourceNotFoundException").await;
        let made = bed
            .admin
            .eks("POST", &path("addons"), json!({ "addonName": name, "tags": { "a": "b" } }))
            .await
            .expect("made");
        assert_eq!(made["addon"]["status"], "CREATING");
        reaches("ACTIVE").await;
        assert_eq!(
            refused(bed.admin.eks("POST", &path("addons"), json!({ "addonName": name })).await),
            ("ResourceInUseException".into(), 409)
        );
        assert_eq!(
            refused(
                bed.admin.eks("POST", &path("addons"), json!({ "addonName": "unknown" })).await
            )
            .0,
            "InvalidParameterException"
        );
        assert_eq!(
            refused(bed.admin.eks("GET", &path("addons/unknown"), Value::Null).await).0,
            "ResourceNotFoundException"
        );
        let versions = bed
            .admin
            .eks(
                "GET",
                "/addons/supported-versions?addonName=vpc-cni&kubernetesVersion=1.36",
                Value::Null,
            )
            .await
            .expect("versions");
        assert_eq!(
            versions["addons"][0]["addonVersions"][0]["compatibilities"][0]["clusterVersion"],
            "1.36"
        );
    });
}

#[test]
fn fargate_profiles_change_one_at_a_time() {
    on_the_gateway(async |bed| {
        let role = bed
            .role("/", "fargate", &trust(r#"{"Service":"eks-fargate-pods.amazonaws.com"}"#))
            .await;
        let body = |name: &str| json!({ "fargateProfileName": name, "podExecutionRoleArn": role, "subnets": [], "selectors": [{ "namespace": "n" }] });
        bed.admin.eks("POST", &path("fargate-profiles"), body("one")).await.expect("made");
        assert_eq!(
            refused(bed.admin.eks("POST", &path("fargate-profiles"), body("two")).await),
            ("ResourceInUseException".into(), 409)
        );
        let listed =
            bed.admin.eks("GET", &path("fargate-profiles"), Value::Null).await.expect("list");
        assert_eq!(listed["fargateProfileNames"], json!(["one"]));
        bed.admin.eks("DELETE", &path("fargate-profiles/one"), Value::Null).await.expect("deleted");
    });
}

#[test]
fn everything_in_a_cluster_can_be_tagged() {
    on_the_gateway(async |bed| {
        let user = "arn:aws:iam::123456789012:user/tagged";
        let made = bed
            .admin
            .eks("POST", &path("access-entries"), json!({ "principalArn": user }))
            .await
            .expect("entry");
        let cluster = "arn:aws:eks:eu-central-1:123456789012:cluster/bed";
        for arn in [made["accessEntry"]["accessEntryArn"].as_str().expect("an ARN"), cluster] {
            let tags = format!("/tags/{}", encoded(arn));
            bed.admin
                .eks("POST", &tags, json!({ "tags": { "tenon.sh/a": "1", "b": "2" } }))
                .await
                .expect("tagged");
            bed.admin
                .eks("DELETE", &format!("{tags}?tagKeys=tenon.sh%2Fa"), Value::Null)
                .await
                .expect("untagged");
            let left = bed.admin.eks("GET", &tags, Value::Null).await.expect("tags");
            assert_eq!(left["tags"], json!({ "b": "2" }), "{arn}");
        }
        let absent = bed
            .admin
            .eks(
                "GET",
                &format!(
                    "/tags/{}",
                    encoded("arn:aws:eks:eu-central-1:123456789012:addon/bed/x/y")
                ),
                Value::Null,
            )
            .await;
        assert_eq!(refused(absent), ("NotFoundException".into(), 404));
    });
}

#[test]
fn what_the_double_lacks_is_said_and_not_guessed() {
    on_the_gateway(async |bed| {
        let answer = bed.admin.eks("POST", "/clusters", json!({ "name": "new" })).await;
        assert_eq!(refused(answer), ("NotImplementedInDouble".into(), 418));
        let answer = bed
            .admin
            .eks(
                "POST",
                &path("node-groups"),
                json!({ "nodegroupName": "new", "nodeRole": "arn:aws:iam::1:role/x" }),
            )
            .await;
        assert_eq!(refused(answer), ("NotImplementedInDouble".into(), 418));
    });
}

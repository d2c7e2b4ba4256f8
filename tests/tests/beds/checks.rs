//! What is wrong with an account, a network and a cluster before anything is installed: each check
//! passes first, and fails once its fault is there.

use http::Method;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tenon_aws_double::identity::Grants;
use tenon_aws_double::policy::NamedDocument;
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::kwok_operators::definitions;
use tenon_bed::user::{NodeClass, User};
use tenon_bed::wait::must;
use tenon_iam_policies::document::Document;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::requests::{apply, ec2, run_instance};
use super::verdicts::{Verdicts, outcome, passes};

mod answers;

/// The checks that fail here, each after it has passed.
pub(super) const BROKEN: &[&str] = &[
    "AC-01", "AC-02", "AC-03", "AC-04", "AC-05", "AC-06", "AC-07", "AC-08", "AC-09", "AM-02",
    "AM-03", "CL-01", "CL-02", "CL-03", "CL-04", "CL-05", "CL-06", "CL-07", "CL-08", "CL-10",
    "CL-11", "CL-12", "CL-13", "CL-16", "EX-02", "EX-06", "EX-07", "EX-08", "EX-09", "EX-11",
    "EX-13", "IA-01", "IA-04", "IA-05", "IA-06", "IA-09", "IM-01", "IM-02", "NP-01", "QS-01",
    "QU-01", "QU-02", "QU-03", "SG-01", "SG-02", "SG-03", "SG-04", "SN-01", "SN-02", "SN-03",
    "SN-04", "SN-05", "SN-08", "SN-09", "SN-10", "SN-11",
];

/// A subnet with a route table of its own, and with nothing but this route out.
async fn subnet(bed: &Bed, cidr: &str, gateway: Option<&str>) -> String {
    let vpc = must(bed.aws()).seed().vpc_id.clone();
    let (vpc, zone) = (("VpcId", vpc.as_str()), format!("{}a", bed.region()));
    let of = [vpc, ("CidrBlock", cidr), ("AvailabilityZone", &zone)];
    let subnet = ec2(bed, "CreateSubnet", &of, &["subnet", "subnetId"]).await;
    let table = ec2(bed, "CreateRouteTable", &[vpc], &["routeTable", "routeTableId"]).await;
    let table = ("RouteTableId", table.as_str());
    if let Some(gateway) = gateway {
        let route = [table, ("DestinationCidrBlock", "0.0.0.0/0"), ("GatewayId", gateway)];
        ec2(bed, "CreateRoute", &route, &[]).await;
    }
    ec2(bed, "AssociateRouteTable", &[table, ("SubnetId", &subnet)], &[]).await;
    subnet
}

async fn security_group(bed: &Bed, name: &str, vpc: &str) -> String {
    let group = [("GroupName", name), ("GroupDescription", name), ("VpcId", vpc)];
    ec2(bed, "CreateSecurityGroup", &group, &["groupId"]).await
}

/// A name that only proxies resolve. The API server's certificate is for it, too.
const INSIDE: &str = "kubernetes.default.svc:443";

/// A proxy for HTTPS as companies have them; answers its address. `inside`: the port where it finds
/// the host that has a name only there.
async fn proxy(tasks: &mut JoinSet<()>, inside: u16) -> String {
    let listener = must(TcpListener::bind("127.0.0.1:0").await);
    let address = must(listener.local_addr());
    tasks.spawn(async move {
        let mut tunnels = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            tunnels.spawn(async move {
                let mut client = BufReader::new(client);
                let mut first = String::new();
                client.read_line(&mut first).await.ok()?;
                let target = first.strip_prefix("CONNECT ")?.split(' ').next()?;
                let target = if target == INSIDE { &format!("127.0.0.1:{inside}") } else { target };
                let mut line = String::new();
                while client.read_line(&mut line).await.ok()? > 2 {
                    line.clear();
                }
                let mut server = TcpStream::connect(target).await.ok()?;
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await.ok()
            });
        }
    });
    format!("http://{address}")
}

async fn a_cluster_that_is_not_as_it_should_be(bed: &Bed, verdicts: &mut Verdicts<'_>) {
    let eks = &must(bed.aws()).guard().eks;
    eks.tell(json!({
        "status": "FAILED",
        "version": "1.36",
        "upgradePolicy": { "supportType": "EXTENDED" },
        "computeConfig": { "enabled": true },
        "kubernetesNetworkConfig": { "ipFamily": "ipv6" },
        "outpostConfig": { "outpostArns": ["arn:aws:outposts:::outpost/op-1"], "controlPlaneInstanceType": "m5.large" },
        "resourcesVpcConfig": { "endpointPrivateAccess": false },
    }));
    let isolated = subnet(bed, "10.0.200.0/28", None).await;
    let gateway =
        ec2(bed, "CreateInternetGateway", &[], &["internetGateway", "internetGatewayId"]).await;
    let vpc = must(bed.aws()).seed().vpc_id.clone();
    ec2(bed, "AttachInternetGateway", &[("InternetGatewayId", &gateway), ("VpcId", &vpc)], &[])
        .await;
    let public = subnet(bed, "10.0.201.0/24", Some(&gateway)).await;
    let private = must(bed.aws()).seed().subnet_ids[0].clone();
    let other = ec2(bed, "CreateVpc", &[("CidrBlock", "10.9.0.0/16")], &["vpc", "vpcId"]).await;
    let foreign = security_group(bed, "foreign", &other).await;
    let subnets = [isolated.as_str(), &public, &private].join(",");
    let (_, report) =
        verdicts.preflight(&["--subnets", &subnets, "--security-groups", &foreign], &[]).await;
    verdicts.fails(
        &report,
        &[
            ("CL-01", "it is FAILED"),
            ("CL-03", "end of standard support"),
            ("CL-04", "it is on"),
            ("CL-05", "has no route to the internet, and the private endpoint is off"),
            ("CL-07", "on an Outpost"),
            ("CL-08", "it is IPv6"),
            ("SN-02", &format!("{isolated} has 11 left")),
            ("SN-03", &format!("{public} is public and assigns no public addresses")),
            ("SN-04", &format!("public: {public}; private: {private}")),
            ("SN-05", "no endpoint for ecr.api"),
            ("SN-09", &format!("{isolated} is not one")),
            ("SN-11", &format!("all are in {}a", bed.region())),
            ("SG-02", "none does"),
            ("SG-03", &format!("no rule of {foreign}")),
            ("SG-04", &format!("{foreign} is in {other}")),
        ],
    );
    eks.tell(Value::Null);
    let mut groups = Vec::new();
    for number in 0..6 {
        groups.push(security_group(bed, &format!("group-{number}"), &vpc).await);
    }
    let (_, report) = verdicts.preflight(&["--security-groups", &groups.join(",")], &[]).await;
    verdicts.fails(&report, &[("SG-01", "they get 6")]);
    endpoints(bed).await;
    let flags = ["--subnets", &isolated, "--set", "settings.isolatedVPC=true"];
    let (_, report) = verdicts.preflight(&flags, &[]).await;
    passes(&report, ["SN-05"]);
}

/// The VPC endpoints that make up for a way out.
async fn endpoints(bed: &Bed) {
    let vpc = must(bed.aws()).seed().vpc_id.clone();
    for service in ["ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "s3", "sqs", "ssm", "sts"] {
        let name = format!("com.amazonaws.{}.{service}", bed.region());
        let kind = if service == "s3" { "Gateway" } else { "Interface" };
        let endpoint = [
            ("VpcId", vpc.as_str()),
            ("ServiceName", &name),
            ("VpcEndpointType", kind),
            ("PrivateDnsEnabled", if service == "s3" { "false" } else { "true" }),
        ];
        ec2(bed, "CreateVpcEndpoint", &endpoint, &[]).await;
    }
}

/// What is in the way in Kubernetes.
async fn objects_in_the_way(bed: &Bed) {
    let pods = json!({ "metadata": { "labels": { "app": "node" } }, "spec": {
        "nodeSelector": { "example.com/nowhere": "true" },
        "containers": [{ "name": "main", "image": "registry.example/cni:1" }],
    }});
    let name = |name: &str| json!({ "name": name, "namespace": "kube-system" });
    let scope = json!([{ "operator": "In", "scopeName": "PriorityClass", "values": ["system-cluster-critical"] }]);
    apply(
        bed,
        "daemonsets",
        &json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": name("aws-node"),
            "spec": { "selector": { "matchLabels": { "app": "node" } }, "template": pods },
        }),
    )
    .await;
    apply(
        bed,
        "resourcequotas",
        &json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": name("critical"),
            "spec": { "hard": { "pods": "0" }, "scopeSelector": { "matchExpressions": scope } },
        }),
    )
    .await;
    apply(bed, "customresourcedefinitions", &json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "provisioners.karpenter.sh",
            "annotations": { "meta.helm.sh/release-name": "karpenter-crd" },
            "labels": { "kustomize.toolkit.fluxcd.io/name": "apps" },
        },
        "spec": {
            "group": "karpenter.sh", "scope": "Cluster",
            "names": { "kind": "Provisioner", "plural": "provisioners", "singular": "provisioner", "listKind": "ProvisionerList" },
            "versions": [{ "name": "v1alpha5", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } }],
        },
    })).await;
    apply(bed, "secrets", &json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {
            "name": "sh.helm.release.v1.tenon.v1", "namespace": "kube-system",
            "labels": { "owner": "helm", "name": "tenon", "status": "pending-upgrade", "version": "1" },
        },
    })).await;
    let schema = json!({ "openAPIV3Schema": { "type": "object" } });
    apply(bed, "customresourcedefinitions", &json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "servicemonitors.monitoring.coreos.com" },
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": { "kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor", "listKind": "ServiceMonitorList" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
        },
    })).await;
    apply(
        bed,
        "nodes",
        &json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "kops", "labels": { "kops.k8s.io/instancegroup": "nodes" } },
        }),
    )
    .await;
}

async fn things_in_the_way(bed: &Bed, verdicts: &mut Verdicts<'_>) {
    objects_in_the_way(bed).await;
    let aws = must(bed.aws());
    let caller = aws.caller();
    let trust = json!({ "Version": "2012-10-17", "Statement": [] }).to_string();
    let role = format!("tenon-{}-controller", bed.cluster());
    let role = [("RoleName", role.as_str()), ("AssumeRolePolicyDocument", &trust)];
    must(caller.query("iam", "CreateRole", &role).await);
    let narrow = json!({ "Version": "2012-10-17", "Statement": [{ "Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*" }] });
    let narrow = [("PolicyName", "narrow"), ("PolicyDocument", &*narrow.to_string())];
    let answer = must(caller.query("iam", "CreatePolicy", &narrow).await);
    let boundary = answer
        .at(&["CreatePolicyResult", "Policy", "Arn"])
        .map(|arn| arn.text.clone())
        .expect("an ARN");
    run_instance(bed).await;
    let quotas = &aws.guard().quotas;
    quotas.set("L-1216C47A", 5.0);
    quotas.set("L-7A658B76", 1.0);
    let flags = ["--permissions-boundary", &boundary, "--namespace", "elsewhere"];
    let (_, report) = verdicts.preflight(&flags, &[]).await;
    verdicts.fails(
        &report,
        &[
            ("CL-07", "created by kOps"),
            ("CL-11", "aws-node doesn't tolerate every taint"),
            ("CL-13", "for namespace elsewhere"),
            ("EX-02", "provisioners.karpenter.sh may contain objects in v1alpha5"),
            ("EX-06", "belongs to Helm release karpenter-crd"),
            ("EX-08", "Flux owns provisioners.karpenter.sh"),
            ("EX-09", "-controller"),
            ("EX-11", "is running and has no NodeClaim"),
            ("IA-09", "it blocks ec2:CreateFleet"),
            ("QU-01", "5 vCPUs of on-demand instances"),
            ("QU-02", "1 TiB"),
        ],
    );
    let (_, report) = verdicts.preflight(&[], &[]).await;
    passes(&report, ["CL-15"]);
    verdicts.fails(
        &report,
        &[("CL-12", "quota critical"), ("EX-07", "release tenon is pending-upgrade")],
    );
}

/// Somebody who may look at everything and change nothing, in AWS and in Kubernetes.
async fn a_caller_with_too_few_rights(bed: &Bed, verdicts: &mut Verdicts<'_>) {
    let aws = must(bed.aws());
    let text = json!({ "Version": "2012-10-17", "Statement": [{ "Effect": "Allow", "Resource": "*", "Action": [
        "ec2:Describe*", "eks:Describe*", "eks:List*", "iam:Get*", "iam:List*", "iam:SimulatePrincipalPolicy", "sqs:Get*", "sqs:List*", "events:Describe*",
        "events:List*", "ssm:GetParameter", "servicequotas:GetServiceQuota",
    ]}]});
    let document = Document::parse(&text.to_string()).expect("a policy");
    let looks = Grants::Documents(vec![NamedDocument { name: "looks".to_owned(), document }]);
    let user = aws.guard().identities.add_user("ann", looks);
    let entries = format!("/clusters/{}/access-entries", bed.cluster());
    let arn = "arn:aws:iam::123456789012:user/ann";
    let entry = json!({ "principalArn": arn });
    must(aws.caller().rest("eks", Method::POST, &entries, &entry).await);
    let policies =
        format!("{entries}/{}/access-policies", arn.replace(':', "%3A").replace('/', "%2F"));
    let view = json!({
        "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSAdminViewPolicy",
        "accessScope": { "type": "cluster" },
    });
    must(aws.caller().rest("eks", Method::POST, &policies, &view).await);
    let env = [
        ("AWS_ACCESS_KEY_ID", user.access_key.as_str()),
        ("AWS_SECRET_ACCESS_KEY", user.secret_key.as_str()),
    ];
    let (_, report) = verdicts.preflight(&[], &env).await;
    verdicts.fails(&report, &[("AC-05", "iam:CreateRole")]);
    // The kubeconfig's user may do everything; without it, who calls AWS also calls Kubernetes.
    let (_, report) = verdicts.preflight(&[], &[env[0], env[1], ("KUBECONFIG", "")]).await;
    verdicts.fails(&report, &[("AC-07", "may not create")]);
}

/// A NodePool that somebody deleted while no operator runs.
async fn remains(bed: &Bed, verdicts: &mut Verdicts<'_>) {
    must(definitions(&bed.client()).await);
    let user = User::new(bed.client(), NodeClass::Ec2);
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": { "name": "left", "finalizers": ["karpenter.sh/termination"] },
        "spec": { "template": { "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
            "requirements": [],
        }}},
    });
    must(user.apply(&pool).await);
    must(user.objects("NodePool").delete("left", &DeleteParams::default()).await);
    let (_, report) = verdicts.preflight(&[], &[]).await;
    verdicts.fails(
        &report,
        &[
            ("EX-13", "NodePool left is being deleted"),
            ("NP-01", "references EC2NodeClass default, which does not exist"),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_an_account_a_network_and_a_cluster_fails_its_check() {
    let bed = Bed::start(BedConfig::default()).await.expect("the bed starts");
    let verdicts = &mut Verdicts::on(&bed);
    let (_, report) = verdicts.preflight(&[], &[]).await;
    verdicts.fails(&report, &[("CL-10", "no ready endpoint"), ("IM-02", "named by tag")]);
    // What a cluster's DNS add-on brings.
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": "dns", "namespace": "kube-system", "labels": { "kubernetes.io/service-name": "kube-dns" } },
        "endpoints": [{ "addresses": ["10.0.0.53"], "conditions": { "ready": true } }],
    });
    apply(&bed, "endpointslices", &slice).await;
    let digest = format!("controller.image.digest=sha256:{}", "0".repeat(64));
    let (finished, report) = verdicts.preflight(&["--set", &digest], &[]).await;
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    passes(&report, ["CL-10", "IM-02"]);
    // Nothing is wrong without a Prometheus operator.
    assert_eq!(outcome(&report, "CL-15").0, "skip");

    let mut tasks = JoinSet::new();
    let proxy = proxy(&mut tasks, 0).await;
    let env = [("HTTPS_PROXY", proxy.as_str())];
    let (finished, report) = verdicts.preflight(&["--account-id", "999999999999"], &env).await;
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    verdicts.fails(
        &report,
        &[
            ("AC-01", "cluster.accountId is 999999999999"),
            ("AC-09", "NO_PROXY does not contain 169.254.170.23"),
        ],
    );
    passes(&report, ["AC-03", "CL-02"]);
    drop(tasks);
    // Nobody listens there any more; the cluster's address is asked directly all the same.
    let past = [env[0], ("NO_PROXY", "127.0.0.1,169.254.170.23,169.254.169.254")];
    let (_, report) = verdicts.preflight(&[], &past).await;
    passes(&report, ["AC-03", "AC-09", "CL-02"]);

    answers::of_aws(&bed, verdicts).await;
    answers::of_eks(&bed, verdicts).await;
    answers::of_settings(&bed, verdicts).await;
    answers::of_a_registry(&bed, verdicts).await;
    answers::of_nobody(&bed, verdicts).await;
    answers::of_another_api_server(&bed, verdicts).await;
    a_cluster_that_is_not_as_it_should_be(&bed, verdicts).await;
    a_caller_with_too_few_rights(&bed, verdicts).await;
    things_in_the_way(&bed, verdicts).await;
    remains(&bed, verdicts).await;
    verdicts.are_complete(BROKEN);
    bed.stop().await.expect("the bed stops");
}

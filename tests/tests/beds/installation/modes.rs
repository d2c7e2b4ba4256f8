//! Every way to give the operator its role, to let nodes in, and to encrypt the queue, in all three
//! partitions of AWS. Each setup is installed into and proven by a node that joins; a second run
//! changes nothing, and after the uninstall everything is what it was. The installer has no more
//! rights than `tenon iam caller` prints.

use std::collections::BTreeSet;

use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use tenon_aws_double::calls::Call;
use tenon_aws_double::eks::AuthenticationMode;
use tenon_aws_double::events::Event;
use tenon_aws_double::instance::State;
use tenon_aws_double::instances::StateChange;
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::wait::must;
use tenon_iam_policies::Partition;

use super::calls::{called, grant};
use super::command::tenon;
use super::install::{difference, inventory, settings, write};
use crate::terminal::interrupted;

const SPOT_ROLE: &str = "AWSServiceRoleForEC2Spot";
const AGENT: &str = "eks-pod-identity-agent";

/// The cluster and account that Tenon is installed into.
struct Setup {
    bed: Bed,
    /// Settings beside the cluster's name and region.
    settings: Value,
    /// What stays for good when it is missing: it belongs to the account or to the cluster.
    stays: Vec<(&'static str, &'static str)>,
    /// What there is before, and what becomes of it for good.
    becomes: Vec<(&'static str, String, String)>,
    /// The operator has the sessions of a web identity, not those of Pod Identity.
    web_identity: bool,
    /// Nodes have the one profile that the installer made, not one of the operator's.
    static_profile: bool,
}

async fn bed(region: &str) -> Bed {
    let config = BedConfig { region: region.to_owned(), ..BedConfig::default() };
    Bed::start(config).await.expect("the bed starts")
}

impl Setup {
    /// Installs, looks, installs again, uninstalls, compares.
    async fn comes_and_goes(&self) {
        let bed = &self.bed;
        let before = inventory(bed).await;
        let file = self.file();

        grant(&self.bed, "install", &["-f", &file]).await;
        let install = ["install", "-f", &file, "--yes", "--timeout", "3m"];
        let (installed, calls) =
            called(bed, &[&install[..], &["--canary", "-o", "json"]].concat()).await;
        assert_eq!(installed.code, 0, "{}\n{:?}", installed.stderr, calls.denied());
        assert_eq!(calls.denied(), [""; 0]);
        let proof: Value = serde_json::from_str(&installed.stdout).expect("one document");
        assert!(proof["canary"]["joinedSeconds"].is_u64(), "{proof:#}");
        assert!(proof["canary"]["messageSeconds"].is_u64(), "{proof:#}");
        self.operator_has_its_role();
        self.node_had_its_profile();
        self.events_reach_the_queue().await;
        self.fargate_selects_the_operator().await;

        let (again, calls) = called(bed, &install).await;
        assert_eq!(again.code, 0, "{}", again.stderr);
        let writes: Vec<&Call> = calls.writes().collect();
        assert!(writes.is_empty(), "the second run changed something: {writes:?}");
        let diff = tenon(bed, &["diff"], None).await;
        assert_eq!(diff.code, 0, "{}{}", diff.stdout, diff.stderr);

        grant(bed, "uninstall", &["-f", &file]).await;
        let (removed, calls) = called(bed, &["uninstall", "--yes"]).await;
        assert_eq!(removed.code, 0, "{}\n{:?}", removed.stderr, calls.denied());
        assert_eq!(calls.denied(), [""; 0]);
        let mut expected = before;
        for (kind, was, is) in &self.becomes {
            assert!(expected.remove(&((*kind).to_owned(), was.clone())), "{kind} {was}");
            expected.insert(((*kind).to_owned(), is.clone()));
        }
        expected
            .extend(self.stays.iter().map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned())));
        let after = inventory(bed).await;
        assert!(after == expected, "{}", difference(&expected, &after));
    }

    /// The settings file.
    fn file(&self) -> String {
        let mut asked = settings(&self.bed);
        for (key, value) in self.settings.as_object().expect("an object") {
            asked[key] = value.clone();
        }
        let path = write(&self.bed, "tenon.yaml", &format!("{asked:#}\n"));
        path.to_string_lossy().into_owned()
    }

    /// The operator calls as its role, in the way that was asked for, and may make every call that
    /// it makes.
    fn operator_has_its_role(&self) {
        let log = must(self.bed.aws()).gateway().control().calls();
        let partition = Partition::of_region(self.bed.region());
        let session =
            format!("arn:{partition}:sts::123456789012:assumed-role/tenon-bed-controller/");
        let all = log.all();
        let mut sessions = BTreeSet::new();
        for call in all.iter().filter(|call| call.caller.contains("assumed-role/")) {
            let name = call.caller.strip_prefix(&session);
            let name = name.unwrap_or_else(|| panic!("{} by {}", call.action, call.caller));
            sessions.insert(name.to_owned());
            assert!(!call.denied, "{} is denied: {:?}", call.action, call.error);
        }
        assert!(!sessions.is_empty(), "the operator called nothing");
        let web = log.of("sts:AssumeRoleWithWebIdentity");
        assert_eq!(web.iter().any(|call| call.status == 200), self.web_identity, "{web:?}");
        // Sessions of Pod Identity are named after cluster and pod.
        let of_pods = sessions.iter().filter(|name| name.starts_with("eks-bed-karpenter-")).count();
        assert_eq!(of_pods, if self.web_identity { 0 } else { sessions.len() }, "{sessions:?}");
    }

    fn node_had_its_profile(&self) {
        let instances = must(self.bed.aws()).gateway().state().instances().all();
        let profiles: Vec<_> =
            instances.values().filter_map(|instance| instance.profile.clone()).collect();
        assert!(!profiles.is_empty(), "no instance had a profile");
        for profile in profiles {
            assert_eq!(profile.name == "tenon-bed-node", self.static_profile, "{profile:?}");
            assert!(profile.role_arn.ends_with("/tenon-bed-node"), "{profile:?}");
        }
    }

    /// EKS schedules a pod onto Fargate if its namespace and labels are those of a profile: what
    /// the bed shows of Fargate.
    async fn fargate_selects_the_operator(&self) {
        let caller = must(self.bed.aws()).caller();
        let profiles = format!("/clusters/{}/fargate-profiles", self.bed.cluster());
        let listed = must(caller.rest("eks", Method::GET, &profiles, &Value::Null).await);
        if self.settings.pointer("/deploy/host").is_none() {
            assert_eq!(listed["fargateProfileNames"], json!([]));
            return;
        }
        let path = format!("{profiles}/tenon-{}", self.bed.cluster());
        let found = must(caller.rest("eks", Method::GET, &path, &Value::Null).await);
        let selector = &found["fargateProfile"]["selectors"][0];
        assert_eq!(selector["namespace"], "kube-system");
        let labels = selector["labels"].as_object().expect("labels").iter();
        let labels: Vec<_> = labels
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        let pods: Api<Pod> = Api::namespaced(self.bed.client(), "kube-system");
        let selected = must(pods.list(&ListParams::default().labels(&labels.join(","))).await);
        let names = selected.items.iter().filter_map(|pod| pod.metadata.name.as_deref());
        let operators = names.filter(|name| name.starts_with("karpenter-")).count();
        assert_eq!((operators, selected.items.len()), (2, 2), "{labels:?}");
    }

    /// One event of each kind is sent, and each comes through its rule.
    async fn events_reach_the_queue(&self) {
        let gateway = must(self.bed.aws()).gateway();
        let setup = gateway.state();
        let id = "i-00000000000000abc";
        let stopping = StateChange { id: id.to_owned(), state: State::Stopping };
        let events = [
            Event::spot_interruption(setup, id),
            Event::rebalance(setup, id),
            Event::capacity_reservation_interruption(setup, id),
            Event::state_change(setup, &stopping),
            Event::scheduled_change(setup, &[id.to_owned()], "AWS_EC2_INSTANCE_STOP_SCHEDULED"),
        ];
        let deliveries = gateway.control().send(&events).await.expect("they are sent");
        assert_eq!(deliveries.len(), events.len(), "{deliveries:?}");
        for delivery in deliveries {
            assert_eq!(delivery.failure, None, "{delivery:?}");
        }
    }
}

fn maps(bed: &Bed) -> Api<ConfigMap> {
    Api::namespaced(bed.client(), "kube-system")
}

/// As somebody wrote it by hand, in every way that YAML allows.
const THEIRS: &str = "# who may join\n- rolearn: arn:aws:iam::123456789012:role/bed-system-nodes   # the managed node group\n  username: system:node:{{EC2PrivateDNSName}}\n  groups: [system:bootstrappers, 'system:nodes']\n\n- groups:\n    - ops\n  username: \"ops:{{SessionName}}\"\n  rolearn: arn:aws:iam::123456789012:role/ops\n";
const PEOPLE: &str =
    "- userarn: arn:aws:iam::123456789012:user/ann\n  username: ann\n  groups: []\n";

/// A cluster from before access entries, whose operator runs on Fargate; an account without a way
/// to IAM for nodes, and without EC2 Spot so far.
#[tokio::test(flavor = "multi_thread")]
async fn fargate_with_irsa_aws_auth_and_a_static_profile() {
    let bed = bed("eu-central-1").await;
    let aws = must(bed.aws());
    aws.guard().eks.set_authentication_mode(AuthenticationMode::ConfigMap);
    must(aws.caller().query("iam", "DeleteRole", &[("RoleName", SPOT_ROLE)]).await);
    let map = json!({
        "metadata": { "name": "aws-auth", "annotations": { "owner": "platform" } },
        "data": { "mapRoles": THEIRS, "mapUsers": PEOPLE },
    });
    let map = serde_json::from_value(map).expect("a ConfigMap");
    must(maps(&bed).create(&PostParams::default(), &map).await);
    let setup = Setup {
        bed,
        settings: json!({
            "identity": { "mode": "irsa" },
            "deploy": { "host": "fargate" },
            "nodes": { "instanceProfile": "static" },
        }),
        stays: vec![("role", SPOT_ROLE)],
        becomes: vec![],
        web_identity: true,
        static_profile: true,
    };
    let before = must(maps(&setup.bed).get("aws-auth").await);
    setup.comes_and_goes().await;
    let after = must(maps(&setup.bed).get("aws-auth").await);
    assert_eq!(
        (after.data, after.metadata.annotations),
        (before.data, before.metadata.annotations)
    );
    setup.bed.stop().await.expect("the bed stops");
}

/// In China, in a cluster that knows access entries only. Somebody else uses the cluster's identity
/// provider already, for another audience.
#[tokio::test(flavor = "multi_thread")]
async fn irsa_by_somebody_elses_provider_and_an_access_entry_in_china() {
    let bed = bed("cn-northwest-1").await;
    let aws = must(bed.aws());
    aws.guard().eks.set_authentication_mode(AuthenticationMode::Api);
    let issuer = aws.gateway().state().cluster().expect("a cluster").issuer;
    assert!(issuer.contains(".amazonaws.com.cn/"), "{issuer}");
    let provider = [("Url", issuer.as_str()), ("ClientIDList.member.1", "somebody.example")];
    must(aws.caller().query("iam", "CreateOpenIDConnectProvider", &provider).await);
    let provider = inventory(&bed).await.into_iter().find(|(kind, _)| kind == "identity provider");
    let (_, were) = provider.expect("the one that was made");
    let setup = Setup {
        bed,
        settings: json!({ "identity": { "mode": "irsa" } }),
        stays: vec![],
        becomes: vec![("identity provider", were.clone(), format!("{were}, sts.amazonaws.com"))],
        web_identity: true,
        static_profile: false,
    };
    setup.comes_and_goes().await;
    setup.bed.stop().await.expect("the bed stops");
}

/// In GovCloud, with a key of the customer's for the queue; the Pod Identity agent is missing, and
/// so is the ConfigMap that is to let nodes in.
#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_queue_the_agent_and_a_new_aws_auth_in_govcloud() {
    let bed = bed("us-gov-west-1").await;
    let aws = must(bed.aws());
    aws.guard().eks.remove_addon(AGENT);
    let moto = aws.gateway().state().moto();
    let key = must(moto.json("kms", "TrentService.CreateKey", &json!({})).await);
    let key = key["KeyMetadata"]["Arn"].as_str().expect("an ARN").to_owned();
    assert!(key.starts_with("arn:aws-us-gov:kms:us-gov-west-1:"), "{key}");
    let setup = Setup {
        bed,
        settings: json!({
            "identity": { "mode": "pod-identity", "installAgent": true },
            "interruption": { "kmsKey": key },
            "nodes": { "authorization": "aws-auth" },
        }),
        stays: vec![("add-on", AGENT)],
        becomes: vec![],
        web_identity: false,
        static_profile: false,
    };

    let before = inventory(&setup.bed).await;
    // Whether to install the agent is asked; Ctrl-C there changes nothing.
    let question = format!("The add-on {AGENT}");
    let answers = [
        ("Which cluster?", "\n"),
        ("is that right?", "\n"),
        ("Use these settings?", "no\n"),
        ("Where should the operator run?", "\n"),
        ("How should the operator get its permissions?", "\n"),
    ];
    interrupted(&setup.bed, "install", &answers, &question);
    // Nothing is made while EventBridge may not use the key: its messages would vanish.
    let refused = tenon(&setup.bed, &["install", "-f", &setup.file(), "--yes"], None).await;
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    for part in ["QS-01", "events.amazonaws.com", &key] {
        assert!(refused.stderr.contains(part), "{part} is not named in:\n{}", refused.stderr);
    }
    assert!(inventory(&setup.bed).await == before);
    let policy = json!({
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "Account", "Effect": "Allow", "Action": "kms:*", "Resource": "*",
                "Principal": { "AWS": "arn:aws-us-gov:iam::123456789012:root" },
            },
            {
                "Sid": "EventBridge", "Effect": "Allow", "Resource": "*",
                "Action": ["kms:GenerateDataKey", "kms:Decrypt"],
                "Principal": { "Service": "events.amazonaws.com" },
                "Condition": { "StringEquals": { "aws:SourceAccount": "123456789012" } },
            },
        ],
    });
    let put = json!({ "KeyId": key, "PolicyName": "default", "Policy": policy.to_string() });
    let moto = must(setup.bed.aws()).gateway().state().moto();
    must(moto.json("kms", "TrentService.PutKeyPolicy", &put).await);

    setup.comes_and_goes().await;
    let map = must(maps(&setup.bed).get_opt("aws-auth").await);
    assert!(map.is_none(), "{map:?}");
    setup.bed.stop().await.expect("the bed stops");
}

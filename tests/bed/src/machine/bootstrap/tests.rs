use std::fmt::Write as _;

use base64::Engine as _;

use super::{Bootstrap, BootstrapError, Family, WindowsServer};

fn read(family: Family, text: &str) -> Result<Bootstrap, BootstrapError> {
    Bootstrap::read(family, &base64::engine::general_purpose::STANDARD.encode(text))
}

const NODE_CONFIG: &str = r#"apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
metadata: {}
spec:
  cluster:
    apiServerEndpoint: https://127.0.0.1:6443
    certificateAuthority: Y2E=
    cidr: 10.100.0.0/16
    name: harbour
  kubelet:
    config:
      clusterDNS: [10.100.0.10]
      maxPods: 58
      kubeReserved: {memory: 893Mi}
      registerWithTaints:
        - effect: NoExecute
          key: karpenter.sh/unregistered
    flags:
      - --node-labels="karpenter.sh/capacity-type=spot,team=red"
"#;

fn archive(parts: &[(&str, &str)]) -> String {
    let mut text =
        String::from("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n");
    for (content_type, body) in parts {
        write!(text, "--//\nContent-Type: {content_type}\n\n{body}\n").unwrap();
    }
    text + "--//--"
}

#[test]
fn nodeadm_reads_labels_taints_and_kubelet_settings_from_an_archive() {
    let bootstrap =
        read(Family::Al2023, &archive(&[("application/node.eks.aws", NODE_CONFIG)])).unwrap();
    assert_eq!(bootstrap.cluster_name, "harbour");
    assert_eq!(bootstrap.labels["karpenter.sh/capacity-type"], "spot");
    assert_eq!(bootstrap.labels["team"], "red");
    assert_eq!(bootstrap.max_pods, Some(58));
    assert_eq!(bootstrap.kube_reserved["memory"], "893Mi");
    assert_eq!(
        (bootstrap.taints[0].key.as_str(), bootstrap.taints[0].effect.as_str()),
        ("karpenter.sh/unregistered", "NoExecute")
    );
}

#[test]
fn nodeadm_merges_later_documents_over_earlier_ones() {
    let user = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config: {maxPods: 10, evictionHard: {memory.available: 5%}}\n";
    let both =
        archive(&[("application/node.eks.aws", user), ("application/node.eks.aws", NODE_CONFIG)]);
    let bootstrap = read(Family::Al2023, &both).unwrap();
    assert_eq!(bootstrap.max_pods, Some(58), "the later document wins");
    assert_eq!(
        bootstrap.eviction_hard["memory.available"], "5%",
        "what only the earlier one says stays"
    );
}

#[test]
fn nodeadm_refuses_what_is_not_a_node_config() {
    assert!(matches!(
        read(Family::Al2023, "kind: Pod\napiVersion: v1\n"),
        Err(BootstrapError::Syntax { program: "nodeadm", .. })
    ));
    assert!(matches!(
        read(Family::Al2023, &archive(&[("text/x-shellscript", "echo hi")])),
        Err(BootstrapError::Missing("a NodeConfig"))
    ));
    let without_cidr = NODE_CONFIG.replace("    cidr: 10.100.0.0/16\n", "");
    assert!(matches!(
        read(Family::Al2023, &without_cidr),
        Err(BootstrapError::Missing("the cluster's service CIDR"))
    ));
}

#[test]
fn an_archive_without_its_closing_boundary_is_refused() {
    let cut = archive(&[("application/node.eks.aws", NODE_CONFIG)]).replace("--//--", "");
    assert!(matches!(read(Family::Al2023, &cut), Err(BootstrapError::Mime(_))));
}

#[test]
fn bootstrap_sh_is_read_through_quotes_and_continuations() {
    let script = "#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log) 2>&1\n/etc/eks/bootstrap.sh 'harbour' --apiserver-endpoint 'https://127.0.0.1:6443' --b64-cluster-ca 'Y2E=' \\\n--dns-cluster-ip '10.100.0.10' \\\n--use-max-pods false \\\n--kubelet-extra-args '--node-labels=\"team=red,tier=web\" --register-with-taints=\"gpu=yes:NoSchedule,karpenter.sh/unregistered:NoExecute\" --max-pods=29 --eviction-hard=\"memory.available<100Mi\"'";
    let bootstrap =
        read(Family::Al2, &archive(&[("text/x-shellscript; charset=\"us-ascii\"", script)]))
            .unwrap();
    assert_eq!(
        (bootstrap.cluster_name.as_str(), bootstrap.endpoint.as_str()),
        ("harbour", "https://127.0.0.1:6443")
    );
    assert_eq!(bootstrap.labels["tier"], "web");
    assert_eq!(bootstrap.max_pods, Some(29));
    assert_eq!(bootstrap.eviction_hard["memory.available"], "100Mi");
    assert_eq!(bootstrap.taints.len(), 2);
    assert_eq!(bootstrap.taints[0].value.as_deref(), Some("yes"));
    assert_eq!(bootstrap.taints[1].value, None);
}

#[test]
fn bootstrap_sh_without_a_call_never_joins() {
    assert!(matches!(
        read(Family::Al2, "#!/bin/bash\necho hello\n"),
        Err(BootstrapError::Missing(_))
    ));
}

#[test]
fn bottlerocket_reads_settings_and_refuses_wrong_types() {
    let settings = "[settings.kubernetes]\napi-server = \"https://127.0.0.1:6443\"\ncluster-certificate = \"Y2E=\"\ncluster-name = \"harbour\"\nmax-pods = 29\n\n[settings.kubernetes.node-labels]\nteam = \"red\"\n\n[settings.kubernetes.node-taints]\n\"karpenter.sh/unregistered\" = [\":NoExecute\"]\n";
    let bootstrap = read(Family::Bottlerocket, settings).unwrap();
    assert_eq!(bootstrap.max_pods, Some(29));
    assert_eq!(bootstrap.labels["team"], "red");
    assert_eq!(
        (bootstrap.taints[0].value.clone(), bootstrap.taints[0].effect.as_str()),
        (None, "NoExecute")
    );
    let wrong = settings.replace("max-pods = 29", "max-pods = \"29\"");
    assert!(matches!(
        read(Family::Bottlerocket, &wrong),
        Err(BootstrapError::Syntax { program: "Bottlerocket", .. })
    ));
}

#[test]
fn user_data_that_names_no_cluster_is_incomplete() {
    assert_eq!(
        read(Family::Bottlerocket, "[settings.motd]\n"),
        Err(BootstrapError::Missing("the cluster's name"))
    );
}

const WINDOWS: Family = Family::Windows(WindowsServer { year: 2022, build: "10.0.20348" });

const POWERSHELL: &str = r#"<powershell>
Write-Host 'hello'
[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"
& $EKSBootstrapScriptFile -EKSClusterName 'the harbour''s' -APIServerEndpoint 'https://127.0.0.1:6443' -Base64ClusterCA 'Y2E=' -KubeletExtraArgs '--node-labels="team=red" --register-with-taints="karpenter.sh/unregistered:NoExecute" --max-pods=110' -DNSClusterIP '10.100.0.10'
</powershell>"#;

#[test]
fn windows_reads_the_call_of_its_bootstrap_script() {
    let bootstrap = read(WINDOWS, POWERSHELL).unwrap();
    assert_eq!(bootstrap.cluster_name, "the harbour's");
    assert_eq!(bootstrap.endpoint, "https://127.0.0.1:6443");
    assert_eq!(bootstrap.labels["team"], "red");
    assert_eq!(bootstrap.taints[0].key, "karpenter.sh/unregistered");
    assert_eq!(bootstrap.max_pods, Some(110));
    assert_eq!(bootstrap.cluster_dns, ["10.100.0.10"]);
}

#[test]
fn windows_does_not_join_with_a_script_that_it_does_not_run() {
    let refused = |text: &str| read(WINDOWS, text).unwrap_err();
    let no_tag = refused("#!/bin/bash\n/etc/eks/bootstrap.sh harbour");
    assert!(matches!(no_tag, BootstrapError::Missing(_)));
    let nested = POWERSHELL.replace("Write-Host 'hello'", "<powershell>");
    assert!(matches!(refused(&nested), BootstrapError::Syntax { program: "EC2Launch", .. }));
    let other = POWERSHELL.replace("& $EKS", "& $Other");
    assert!(matches!(refused(&other), BootstrapError::Missing(_)));
    let unknown = POWERSHELL.replace("-DNSClusterIP", "-Dns");
    assert!(refused(&unknown).to_string().contains("-Dns"));
}

use super::*;

fn mk_bootstrap() -> Bootstrap {
    let claim = [
        ("karpenter.sh/nodepool", "default"),
        ("team", "blue"),
        ("kubernetes.io/arch", "amd64"),
        ("node-role.kubernetes.io/x", "y"),
        ("topology.k8s.aws/zone-id", "use1-az1"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    Bootstrap {
        cluster: ClusterFacts {
            name: "demo".to_owned(),
            endpoint: "https://demo.example.com".to_owned(),
            ca_bundle: Some("Y2E=".to_owned()),
            service_cidr: Some("10.100.0.0/16".to_owned()),
            dns_ip: None,
        },
        labels: kubelet_labels(AmiFamily::Al2023, &claim, "spot"),
        taints: kubelet_taints(
            &[Taint {
                value: Some("gpu".to_owned()),
                ..Taint::new("dedicated", TaintEffect::NoSchedule)
            }],
            &[Taint::new("cni", TaintEffect::NoExecute)],
        ),
        kubelet: KubeletConfiguration {
            cluster_dns: Some(vec!["10.100.0.10".to_owned()]),
            max_pods: Some(29),
            ..KubeletConfiguration::default()
        },
        ..Bootstrap::default()
    }
}

fn full_kubelet() -> KubeletConfiguration {
    let map = |entries: &[(&str, &str)]| {
        Some(entries.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect())
    };
    KubeletConfiguration {
        cluster_dns: Some(vec!["10.100.0.10".to_owned()]),
        cpu_cfs_quota: Some(false),
        eviction_hard: map(&[("memory.available", "5%")]),
        eviction_max_pod_grace_period: Some(60),
        eviction_soft: map(&[("memory.available", "10%")]),
        eviction_soft_grace_period: map(&[("memory.available", "60s")]),
        image_gc_high_threshold_percent: Some(80),
        image_gc_low_threshold_percent: Some(70),
        kube_reserved: map(&[("cpu", "100m"), ("memory", "200Mi")]),
        max_pods: Some(20),
        pods_per_core: Some(10),
        system_reserved: map(&[("cpu", "50m")]),
    }
}

#[test]
fn labels_that_the_kubelet_may_not_set_are_left_out() {
    let keys: Vec<String> = mk_bootstrap().labels.into_keys().collect();
    assert_eq!(
        keys,
        [
            "karpenter.sh/capacity-type",
            "karpenter.sh/do-not-sync-taints",
            "karpenter.sh/nodepool",
            "team",
            "topology.k8s.aws/zone-id",
        ]
    );
    assert_eq!(kubelet_labels(AmiFamily::Custom, &BTreeMap::new(), "spot"), BTreeMap::new());
}

#[test]
fn al2023() {
    insta::assert_snapshot!("al2023", plain(AmiFamily::Al2023, &mk_bootstrap()).unwrap());
    let mut full = mk_bootstrap();
    full.kubelet = full_kubelet();
    full.raid0 = true;
    full.custom = Some("#!/bin/bash\necho \"hello: world\"\n".to_owned());
    insta::assert_snapshot!("al2023_full", plain(AmiFamily::Al2023, &full).unwrap());
}

#[test]
fn al2023_output_is_yaml_that_says_the_same() {
    let mut full = mk_bootstrap();
    full.kubelet = full_kubelet();
    full.labels.insert("quote".to_owned(), "it's".to_owned());
    let text = plain(AmiFamily::Al2023, &full).unwrap();
    let body = text.split("\n\n").nth(2).unwrap().split("\n--//").next().unwrap();
    let config: serde_json::Value = serde_saphyr::from_str(body).unwrap();
    assert_eq!(config["spec"]["kubelet"]["config"]["maxPods"], 20);
    assert_eq!(
        config["spec"]["kubelet"]["config"]["evictionSoftGracePeriod"]["memory.available"],
        "1m0s"
    );
    assert_eq!(config["spec"]["kubelet"]["config"]["kubeReserved"]["memory"], "200Mi");
    assert_eq!(config["spec"]["kubelet"]["config"]["registerWithTaints"][0]["value"], "gpu");
    assert_eq!(config["spec"]["cluster"]["cidr"], "10.100.0.0/16");
    assert_eq!(
        config["spec"]["kubelet"]["flags"][0],
        "--node-labels=\"karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=default,quote=it's,team=blue,topology.k8s.aws/zone-id=use1-az1\""
    );
}

#[test]
fn al2023_tells_scripts_from_configuration() {
    let content_types = |custom: &str| -> Vec<String> {
        let mut bootstrap = mk_bootstrap();
        bootstrap.custom = Some(custom.to_owned());
        plain(AmiFamily::Al2023, &bootstrap)
            .unwrap()
            .lines()
            .filter(|line| line.starts_with("Content-Type:") && !line.contains("multipart"))
            .map(|line| line["Content-Type: ".len()..].to_owned())
            .collect()
    };
    let (config, shell) = ("application/node.eks.aws", mime::SHELL);
    assert_eq!(content_types("#!/bin/bash\nset -e\necho hi\n"), [shell, config]);
    assert_eq!(content_types("#!/bin/bash\necho \"hello: world\"\n"), [shell, config]);
    assert_eq!(content_types("echo one\necho two\n"), [shell, config]);
    assert_eq!(
        content_types("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"),
        [config, config]
    );
    assert_eq!(content_types("# only a comment\n"), [config, config]);
}

#[test]
fn archives_of_the_user_are_merged() {
    let custom = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"BOUNDARY\"\r\n\r\n\
        --BOUNDARY\r\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\r\nX-Other: kept on AL2\r\n\r\n#!/bin/bash\necho one\r\n\
        --BOUNDARY\r\nContent-Type: application/node.eks.aws\r\n\r\nkind: NodeConfig\r\n--BOUNDARY--\r\n";
    let mut bootstrap = mk_bootstrap();
    bootstrap.custom = Some(custom.to_owned());
    insta::assert_snapshot!("al2023_archive", plain(AmiFamily::Al2023, &bootstrap).unwrap());
    let al2 = plain(AmiFamily::Al2, &bootstrap).unwrap();
    assert!(al2.contains("X-Other: kept on AL2\n"));
    assert!(!al2.contains('\r'));

    for bad in [
        "Content-Type: text/plain\n\nhello",
        "MIME-Version: 1.0\n\nhello",
        "Content-Type: multipart/mixed\n\nhello",
        "Content-Type: multipart/mixed; boundary=\"x\"\n\n--x\n\nhello",
    ] {
        bootstrap.custom = Some(bad.to_owned());
        assert!(
            matches!(plain(AmiFamily::Al2023, &bootstrap), Err(UserDataError::Mime(_))),
            "{bad}"
        );
    }
}

#[test]
fn al2() {
    insta::assert_snapshot!("al2", plain(AmiFamily::Al2, &mk_bootstrap()).unwrap());
    let mut full = mk_bootstrap();
    full.kubelet = full_kubelet();
    full.kubelet.cluster_dns = Some(vec!["fd00::a".to_owned()]);
    full.raid0 = true;
    full.custom = Some("echo hi".to_owned());
    insta::assert_snapshot!("al2_full", plain(AmiFamily::Al2, &full).unwrap());
}

#[test]
fn bottlerocket() {
    insta::assert_snapshot!(
        "bottlerocket",
        plain(AmiFamily::Bottlerocket, &mk_bootstrap()).unwrap()
    );
    let mut full = mk_bootstrap();
    full.kubelet = full_kubelet();
    full.raid0 = true;
    full.names_local_storage_dirs = true;
    full.custom = Some(
        r#"
        unknown = 1
        [settings.host-containers.admin]
        enabled = true
        [settings.kubernetes]
        log-level = 3
        not-known = true
        max-pods = 7
        [settings.kubernetes.node-labels]
        mine = "yes"
        team = "red"
        [settings.kubernetes.node-taints]
        gone = ["a:NoSchedule"]
        [settings.bootstrap-commands.other]
        commands = [["true"]]
        essential = false
        mode = "once"
        "#
        .to_owned(),
    );
    insta::assert_snapshot!("bottlerocket_full", plain(AmiFamily::Bottlerocket, &full).unwrap());
    full.custom = Some("not toml".to_owned());
    assert!(matches!(plain(AmiFamily::Bottlerocket, &full), Err(UserDataError::Toml(_))));
}

#[test]
fn custom_is_passed_as_it_is() {
    let mut bootstrap = mk_bootstrap();
    assert_eq!(render(AmiFamily::Custom, &bootstrap).unwrap(), "");
    bootstrap.custom = Some("#!/bin/sh\n".to_owned());
    assert_eq!(render(AmiFamily::Custom, &bootstrap).unwrap(), "IyEvYmluL3NoCg==");
}

#[test]
fn al2023_waits_for_the_service_cidr() {
    let mut bootstrap = mk_bootstrap();
    bootstrap.cluster.service_cidr = None;
    assert!(matches!(plain(AmiFamily::Al2023, &bootstrap), Err(UserDataError::NoServiceCidr)));
}

#[test]
fn windows_runs_what_the_user_wrote_and_then_the_bootstrap_of_eks() {
    let mut bootstrap = mk_bootstrap();
    let plain = |bootstrap: &Bootstrap| plain(AmiFamily::Windows2022, bootstrap).unwrap();
    insta::assert_snapshot!("windows", plain(&bootstrap));
    bootstrap.custom = Some("Write-Host 'hello'\r\n".to_owned());
    let merged = plain(&bootstrap);
    insta::assert_snapshot!("windows_merged", merged);
    bootstrap.custom = Some("<powershell>\nWrite-Host 'hello'\n</powershell>\n".to_owned());
    assert_eq!(plain(&bootstrap), merged, "tags within tags would keep EC2Launch from running it");
    bootstrap.cluster.name = "it's".to_owned();
    assert!(plain(&bootstrap).contains("-EKSClusterName 'it''s' "));
    assert_eq!(
        render(AmiFamily::Windows2019, &bootstrap).unwrap(),
        render(AmiFamily::Windows2025, &bootstrap).unwrap(),
    );
}

use super::*;

const NOW: &str = "2026-11-20T00:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn names(family: AmiFamily, version: &str, kubernetes: &str) -> Vec<String> {
    let alias = Alias { family, version: version.to_owned() };
    alias_parameters(&alias, kubernetes).unwrap().into_iter().map(|found| found.name).collect()
}

#[test]
fn aliases_name_the_parameters_of_aws() {
    insta::assert_yaml_snapshot!(
        "alias_parameters",
        [
            names(AmiFamily::Al2, "latest", "1.32"),
            names(AmiFamily::Al2, "v20250116", "1.32"),
            names(AmiFamily::Al2023, "latest", "1.33"),
            names(AmiFamily::Al2023, "v20250116", "1.33"),
            names(AmiFamily::Bottlerocket, "latest", "1.33"),
            names(AmiFamily::Bottlerocket, "v1.20.4", "1.33"),
        ]
    );
}

#[test]
fn al2_has_ended_with_kubernetes_1_33() {
    let alias = Alias { family: AmiFamily::Al2, version: "latest".to_owned() };
    assert!(alias_parameters(&alias, "1.32").is_ok());
    assert!(matches!(alias_parameters(&alias, "1.33"), Err(AmiError::UnsupportedAlias(_))));
}

fn image(id: &str, arch: &str, created: &str, deprecated_at: Option<&str>) -> Image {
    Image {
        id: id.to_owned(),
        name: format!("name-{id}"),
        architecture: arch.to_owned(),
        root_device: None,
        created: created.to_owned(),
        deprecated_at: deprecated_at.map(str::to_owned),
    }
}

fn ids(images: Vec<Image>, uses: &Uses) -> Vec<String> {
    best(images, uses, now()).into_iter().map(|ami| ami.id).collect()
}

#[test]
fn the_best_image_per_architecture_is_kept_newest_first() {
    let images = vec![
        image("ami-1", "x86_64", "2026-01-01T00:00:00.000Z", None),
        image("ami-2", "x86_64", "2026-02-01T00:00:00.000Z", None),
        image("ami-3", "x86_64", "2026-03-01T00:00:00.000Z", Some("2026-11-19T00:00:00.000Z")),
        image("ami-4", "arm64", "2026-01-15T00:00:00.000Z", Some("2030-01-01T00:00:00.000Z")),
        image("ami-5", "i386", "2026-04-01T00:00:00.000Z", None),
    ];
    assert_eq!(ids(images, &Uses::new()), ["ami-2", "ami-4"]);
    let only_deprecated = vec![image(
        "ami-3",
        "x86_64",
        "2026-03-01T00:00:00.000Z",
        Some("2026-11-19T00:00:00.000Z"),
    )];
    assert!(best(only_deprecated, &Uses::new(), now())[0].deprecated);
}

#[test]
fn one_image_can_be_for_several_kinds_of_machines() {
    let uses = Uses::from([(
        "ami-1".to_owned(),
        vec![Variant::Standard.requirements(), Variant::Neuron.requirements()],
    )]);
    let amis = best(vec![image("ami-1", "x86_64", "2026-01-01T00:00:00.000Z", None)], &uses, now());
    let keys: Vec<Vec<&str>> = amis
        .iter()
        .map(|ami| ami.requirements.iter().map(|requirement| requirement.key.as_str()).collect())
        .collect();
    assert_eq!(
        keys,
        [
            vec!["kubernetes.io/arch", "karpenter.k8s.aws/instance-accelerator-count"],
            vec![
                "kubernetes.io/arch",
                "karpenter.k8s.aws/instance-gpu-count",
                "karpenter.k8s.aws/instance-accelerator-count",
            ],
        ]
    );
}

#[test]
fn names_without_owner_are_looked_for_in_this_account_and_amazons() {
    let term = |owner: Option<&str>, name: Option<&str>| AmiSelectorTerm {
        owner: owner.map(str::to_owned),
        name: name.map(str::to_owned),
        tags: [("team".to_owned(), "*".to_owned())].into(),
        ..AmiSelectorTerm::default()
    };
    let query = term_query(&term(None, Some("my-*")));
    assert_eq!(query.owners, ["self", "amazon"]);
    assert_eq!(query.filters, [filter("tag-key", ["team"]), filter("name", ["my-*"])]);
    assert_eq!(term_query(&term(Some("1234"), Some("x"))).owners, ["1234"]);
    assert_eq!(term_query(&term(None, None)).owners, Vec::<String>::new());
}

#[test]
fn the_order_of_images_is_always_the_same() {
    let same_second = "2026-01-01T00:00:00.000Z";
    let mut images = vec![
        image("ami-b", "x86_64", same_second, None),
        image("ami-a", "arm64", same_second, None),
        image("ami-c", "x86_64", "2026-02-01T00:00:00.000Z", None),
    ];
    // As AL2's image for GPUs, and Bottlerocket's standard one: one image for two kinds of
    // machines.
    let uses: Uses = [
        ("ami-b", vec![Variant::Neuron, Variant::Nvidia]),
        ("ami-a", vec![Variant::Standard]),
        ("ami-c", vec![Variant::Standard]),
    ]
    .map(|(id, variants)| {
        (id.to_owned(), variants.into_iter().map(Variant::requirements).collect())
    })
    .into();
    let order = best(images.clone(), &uses, now());
    let shown: Vec<&str> = order.iter().map(|ami| ami.id.as_str()).collect();
    assert_eq!(shown, ["ami-c", "ami-a", "ami-b", "ami-b"]);
    for _ in 0..images.len() {
        images.rotate_left(1);
        assert_eq!(best(images.clone(), &uses, now()), order);
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttled_parameter_does_not_take_an_image_away() {
    use aws_sdk_ssm::operation::get_parameter::{GetParameterError, GetParameterOutput};
    use aws_smithy_mocks::mock;
    let throttled = mock!(aws_sdk_ssm::Client::get_parameter)
        .match_requests(|input| input.name().is_some_and(|name| name.contains("nvidia")))
        .then_error(|| {
            GetParameterError::generic(crate::aws::tests::coded("ThrottlingException", "slow down"))
        });
    let found = mock!(aws_sdk_ssm::Client::get_parameter).then_output(|| {
        let parameter = aws_sdk_ssm::types::Parameter::builder().value("ami-1").build();
        GetParameterOutput::builder().parameter(parameter).build()
    });
    let parameters = Parameters::new(crate::aws::tests::mock_ssm(&[&throttled, &found]));
    let alias = Alias { family: AmiFamily::Al2023, version: "latest".to_owned() };
    let resolved = resolve_alias(&parameters, &alias, "1.33").await;
    assert!(matches!(resolved, Err(AmiError::Aws(_))), "{resolved:?}");
}

#[test]
fn an_alias_of_windows_is_one_image_for_its_build() {
    let cases = [
        (AmiFamily::Windows2019, "2019", "10.0.17763"),
        (AmiFamily::Windows2022, "2022", "10.0.20348"),
        (AmiFamily::Windows2025, "2025", "10.0.26100"),
    ];
    for (family, year, build) in cases {
        let alias = Alias { family, version: "latest".to_owned() };
        let parameters = alias_parameters(&alias, "1.35").unwrap();
        let [AliasParameter { name, variants }] = &parameters[..] else { panic!("{parameters:?}") };
        let folder = "/aws/service/ami-windows-latest";
        let expected =
            format!("{folder}/Windows_Server-{year}-English-Core-EKS_Optimized-1.35/image_id");
        assert_eq!(*name, expected);
        assert_eq!(variants[..], [Variant::Windows(build)]);
        let wanted: Vec<(String, Vec<String>)> = variants[0]
            .requirements()
            .into_iter()
            .map(|requirement| (requirement.key, requirement.values))
            .collect();
        let wants = |key: &str, value: &str| (key.to_owned(), vec![value.to_owned()]);
        assert_eq!(
            wanted,
            [
                wants("kubernetes.io/os", "windows"),
                wants("node.kubernetes.io/windows-build", build)
            ]
        );
    }
}

#[test]
fn windows_2025_has_images_from_1_35_on() {
    let alias = Alias { family: AmiFamily::Windows2025, version: "latest".to_owned() };
    let error = alias_parameters(&alias, "1.34").unwrap_err();
    assert!(matches!(error, AmiError::UnsupportedAlias(_)));
    assert!(error.to_string().contains("windows2022"), "says what to do: {error}");
}

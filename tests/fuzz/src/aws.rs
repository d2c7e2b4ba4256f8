//! The formats that crates with the AWS SDK read.

use std::path::Path;

use tenon_crds::ec2nodeclass::AmiFamily;
use tenon_installer_core::settings::{Inferred, Settings, Source};
use tenon_operator::aws::interruption::message;
use tenon_operator::aws::user_data::{Bootstrap, ClusterFacts, plain};

use crate::text;

/// A message that is about nothing names no instances.
pub fn messages(data: &[u8]) {
    let Some(Ok(message)) = text(data).map(message::parse) else { return };
    if message.kind == message::Kind::NoOp {
        assert_eq!(message.instances, [""; 0]);
    }
}

/// User data of Amazon Linux is an archive that can be read: where it is itself given as the user's
/// part, all of it is in the result.
pub fn user_data(data: &[u8]) {
    const OWN: &str = "# Karpenter Generated NodeConfig\n";
    let Some(custom) = text(data) else { return };
    let render = |family, custom: &str| {
        let cluster = ClusterFacts {
            name: "demo".to_owned(),
            endpoint: "https://demo.example.com".to_owned(),
            ca_bundle: Some("Y2E=".to_owned()),
            service_cidr: Some("10.100.0.0/16".to_owned()),
            dns_ip: None,
        };
        let custom = Some(custom.to_owned());
        plain(family, &Bootstrap { cluster, custom, ..Bootstrap::default() })
    };
    let _ = (render(AmiFamily::Al2, custom), render(AmiFamily::Bottlerocket, custom));
    assert!(render(AmiFamily::Custom, custom).is_ok_and(|same| same == custom));
    let Ok(once) = render(AmiFamily::Al2023, custom) else { return };
    let twice = render(AmiFamily::Al2023, &once).expect("what we write is an archive");
    assert_eq!(twice.matches(OWN).count(), once.matches(OWN).count() + 1, "{once}\n---\n{twice}");
}

/// Settings either have problems, which are reported, or can be written and read again.
pub fn settings(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let file = Path::new("/nowhere/tenon.yaml");
    let source = Source::parse(file, text);
    let has_problems = !source.problems.is_empty();
    if !has_problems {
        let written = source.config.to_yaml();
        let again = Source::parse(file, &written);
        let problems = again.problems.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(problems, [""; 0], "{written}");
        assert_eq!(again.config.to_yaml(), written);
    }
    let resolved = Settings::resolve(source, &Inferred::default());
    assert!(!(has_problems && resolved.is_ok()), "problems were lost");
}

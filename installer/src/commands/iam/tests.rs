use std::collections::BTreeSet;

use clap::Parser;
use serde_json::Value;
use tenon_iam_policies::caller::{Purpose, caller_document, caller_document_for};
use tenon_iam_policies::cover::gaps;
use tenon_installer_core::desired::Identity;
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::observe::state::AgentState;
use tenon_installer_core::plan::diff;

use super::*;
use crate::cli::iam::IamCommand;
use crate::cli::{Cli, Command};

fn tenon(arguments: &[&str]) -> IamCommand {
    let base = ["tenon", "--cluster", "prod", "--region", "eu-central-1", "iam"];
    let cli = Cli::try_parse_from(base.iter().chain(arguments)).expect("a command");
    match cli.command {
        Command::Iam(args) => args.command,
        other => panic!("{other:?}"),
    }
}

fn sheets(arguments: &[&str]) -> Vec<(String, Value)> {
    let IamCommand::Print(args) = tenon(arguments) else { panic!("print") };
    let (settings, desired) = example();
    print::contents(&args, &settings, &desired).expect("they fit")
}

#[test]
fn what_is_printed_is_what_install_makes() {
    let sheets = sheets(&["print"]);
    let (_, desired) = example();
    let role = desired.controller_role.spec.expect("ours");
    for (name, document) in &role.inline {
        let printed = sheets.iter().find(|(sheet, _)| sheet == name).expect("printed");
        assert_eq!(printed.1, serde_json::json!(document), "{name}");
    }
    let trust = sheets.iter().find(|(name, _)| name == "controller-role-trust-pod-identity");
    assert_eq!(trust.expect("printed").1, serde_json::json!(role.trust));
}

#[test]
fn features_change_the_documents() {
    let names = |arguments: &[&str]| {
        sheets(arguments).into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>()
    };
    assert!(!names(&["print", "--no-zonal-shift"]).contains("KarpenterControllerZonalShiftPolicy"));
    assert!(
        names(&["print", "--volume-key", "arn:k"])
            .contains("KarpenterControllerVolumeEncryptionPolicy")
    );
    assert!(
        names(&["print", "--oidc-issuer", "https://issuer"]).contains("controller-role-trust-irsa")
    );
    assert!(!names(&["print"]).contains("controller-role-trust-irsa"));
    let text = |arguments: &[&str]| format!("{:?}", sheets(arguments));
    assert!(
        !text(&["print", "--instance-profiles", "static"]).contains("iam:CreateInstanceProfile")
    );
    assert!(text(&["print", "--layout", "upstream"]).contains("instance-profile/*"));
}

#[test]
fn many_keys_are_split_into_policies_that_iam_stores() {
    let keys = (0..150)
        .map(|n| {
            format!("--volume-key=arn:aws:kms:eu-central-1:111122223333:key/00000000-0000-{n:04}")
        })
        .collect::<Vec<_>>();
    let with = |form: &str| {
        let mut arguments = vec!["print", "--split", form];
        arguments.extend(keys.iter().map(String::as_str));
        let IamCommand::Print(args) = tenon(&arguments) else { panic!("print") };
        let (settings, desired) = example();
        print::contents(&args, &settings, &desired)
    };
    let pieces = with("managed").expect("they fit");
    assert!(pieces.iter().any(|(name, _)| name == "KarpenterControllerVolumeEncryptionPolicy-2"));
    assert!(with("inline").is_err(), "inline policies have one limit together");
}

/// A cluster as it is before anything is installed.
fn untouched(desired: &Desired) -> Actual {
    Actual {
        agent: AgentState::Missing,
        network: desired
            .discovery
            .iter()
            .map(|id| (id.clone(), tenon_installer_core::ownership::Tags::new()))
            .collect(),
        ..Actual::default()
    }
}

#[test]
fn the_callers_policy_covers_every_call_of_a_plan_and_is_part_of_the_whole() {
    let (settings, mut desired) = example();
    if let Identity::PodIdentity { install_agent, .. } = &mut desired.identity {
        *install_agent = true;
    }
    let plan = diff(&desired, &untouched(&desired)).expect("no quota blocks them");
    let needed = plan.caller_actions();
    let actions = needed.iter().map(|one| one.action.as_str()).filter(|one| one.contains(':'));
    let scope = caller_scope(&settings, &desired);
    let (document, unknown) = caller_document_for(&scope, actions.clone());
    assert_eq!(unknown, [""; 0]);
    let whole = caller_document(Purpose::Install, &scope);
    assert_eq!(gaps([&whole], &document), []);
    let text = document.to_json();
    for action in actions {
        assert!(text.contains(action), "{action}");
    }
    assert!(!text.contains("eks:DeleteAccessEntry"), "the plan replaces no entry");
}

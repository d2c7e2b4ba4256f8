use super::fixture::{applies, break_it, healthy};
use super::observed::{NodeView, Observed, RegistryView, Seen, WorkloadView};
use super::report::{Options, judge};
use super::*;

fn installed() -> Options {
    Options { installed: true, ..Options::default() }
}

#[test]
fn every_check_passes_where_all_is_well() {
    for check in table::all() {
        let outcome = (check.run)(&applies(check.id));
        assert!(matches!(outcome, Outcome::Pass(_)), "{}: {outcome:?}", check.id);
    }
}

#[test]
fn every_check_finds_the_fault_that_it_is_for() {
    for check in table::all() {
        let mut seen = applies(check.id);
        break_it(check.id, &mut seen);
        let outcome = (check.run)(&seen);
        // The one check that nothing can be wrong about.
        let found = match check.id {
            "CL-15" => matches!(outcome, Outcome::Skip(_)),
            _ => matches!(outcome, Outcome::Fail(_)),
        };
        assert!(found, "{}: {outcome:?}", check.id);
    }
}

#[test]
fn what_can_not_be_read_never_passes_and_only_the_credentials_fail_for_it() {
    let mut seen = Observed { asked: healthy().asked, ..Observed::default() };
    seen.asked.unfit = Seen::default();
    seen.caller.https_proxy = Some("http://proxy:3128".into());
    for check in table::all() {
        let outcome = (check.run)(&seen);
        match check.id {
            "AC-01" | "AC-03" => assert!(matches!(outcome, Outcome::Fail(_)), "{}", check.id),
            // These look at nothing but what was asked for.
            "AC-02" | "AC-09" | "CL-13" | "EX-09" | "IA-04" | "IA-05" | "IM-02" => {}
            // It is about IRSA, and this is Pod Identity.
            "IA-01" => assert!(matches!(outcome, Outcome::Skip(_))),
            _ => assert!(matches!(outcome, Outcome::Unknown(_)), "{}: {outcome:?}", check.id),
        }
    }
}

#[test]
fn ids_are_unique_and_every_check_says_what_to_type() {
    let mut ids = table::all().map(|check| check.id).collect::<Vec<_>>();
    let n = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), n);
    for check in table::all() {
        let word = check.fix.split(' ').next().unwrap_or_default();
        assert!(
            ["tenon", "aws", "kubectl", "helm", "eksctl", "sudo"].contains(&word),
            "{}: {} is no command",
            check.id,
            check.fix
        );
        assert!(check.cause.ends_with('.'), "{}", check.id);
    }
}

#[test]
fn a_fatal_check_fails_the_report_and_a_warning_only_strictly() {
    let mut seen = healthy();
    assert!(judge(&seen, &installed()).success);
    break_it("SN-02", &mut seen);
    assert!(judge(&seen, &installed()).success);
    assert!(!judge(&seen, &Options { strict: true, ..installed() }).success);
    break_it("SG-04", &mut seen);
    let report = judge(&seen, &installed());
    assert!(!report.success);
    assert_eq!(report.reasons().len(), 1);
    let skip = ["SG-04".to_owned()].into();
    assert!(judge(&seen, &Options { skip, ..installed() }).success);
}

#[test]
fn before_an_installation_the_operator_is_not_looked_at() {
    let mut seen = healthy();
    seen.operator = observed::OperatorView::default();
    let report = judge(&seen, &Options::default());
    assert!(report.success);
    let ids = report.categories.iter().flat_map(|group| &group.checks).map(|line| line.id);
    assert!(ids.into_iter().all(|id| !id.starts_with("OP-")));
}

#[test]
fn before_an_installation_the_registry_is_asked_for_the_image() {
    let check = table::all().find(|check| check.id == "IM-01").unwrap();
    let outcome = |status: u16, architectures: &[&str]| {
        let mut seen = healthy();
        seen.operator = observed::OperatorView::default();
        let architectures = architectures.iter().map(|one| (*one).to_owned()).collect();
        seen.image = Seen::Known(Some(RegistryView { status, architectures }));
        (check.run)(&seen)
    };
    assert!(matches!(outcome(200, &["amd64"]), Outcome::Pass(_)));
    assert!(matches!(outcome(200, &[]), Outcome::Pass(_)), "one image, of whichever architecture");
    let Outcome::Fail(why) = outcome(200, &["arm64"]) else { panic!("amd64 is missing") };
    assert!(why.contains("does not exist for amd64"), "{why}");
    assert!(matches!(outcome(404, &[]), Outcome::Fail(_)));
    assert!(matches!(outcome(403, &[]), Outcome::Fail(_)));
    assert!(matches!(outcome(401, &[]), Outcome::Unknown(_)), "nodes may have a login");
    let mut seen = healthy();
    seen.operator = observed::OperatorView::default();
    seen.image = Seen::Known(None);
    assert!(matches!((check.run)(&seen), Outcome::Skip(_)));
}

#[test]
fn the_image_of_a_build_that_no_release_made_is_refused_where_no_node_has_it() {
    let check = table::all().find(|check| check.id == "IM-01").unwrap();
    let outcome = |image: &str, on_nodes: &[&str]| {
        let mut seen = healthy();
        seen.operator = observed::OperatorView::default();
        seen.image = Seen::Known(None);
        seen.asked.image = image.into();
        let Seen::Known(nodes) = &mut seen.kubernetes.nodes else { panic!("they are known") };
        nodes[1].images = on_nodes.iter().map(|name| (*name).to_owned()).collect();
        (check.run)(&seen)
    };
    let Outcome::Fail(why) = outcome("tenon-operator", &["r.example/pause:3"]) else {
        panic!("it can't be pulled")
    };
    assert!(why.contains("pass --image"), "{why}");
    for there in ["docker.io/library/tenon-operator:1", "tenon-operator@sha256:0"] {
        assert!(matches!(outcome("tenon-operator", &["x:1", there]), Outcome::Skip(_)), "{there}");
    }
    assert!(matches!(outcome("tenon-operator", &[]), Outcome::Skip(_)), "no node says what it has");
    assert!(matches!(outcome("me/tenon-operator", &["x:1"]), Outcome::Skip(_)));
}

#[test]
fn an_image_that_its_registry_has_not_got_is_not_waited_for() {
    const IMAGE: &str = "example.com/tenon-operator:0.2.0";
    let mut seen = healthy();
    assert_eq!(missing_image(&seen, IMAGE, false), None, "the registry has it");
    let registry = |status| Seen::Known(Some(RegistryView { status, ..RegistryView::default() }));
    seen.image = registry(404);
    let why = missing_image(&seen, IMAGE, false).expect("nothing could pull it");
    assert!(why.contains(IMAGE) && why.contains("--skip IM-01"), "{why}");
    assert_eq!(missing_image(&seen, IMAGE, true), None, "pods have a login, this program has not");
    let node = NodeView { images: vec![IMAGE.to_owned()], ..NodeView::default() };
    seen.kubernetes.nodes = Seen::Known(vec![node]);
    assert_eq!(missing_image(&seen, IMAGE, false), None, "a node has it");
    // Nodes may have a login where this program is refused, and a silent registry says nothing.
    for image in [registry(401), registry(403), Seen::Unknown("no answer".to_owned())] {
        assert_eq!(missing_image(&Observed { image, ..healthy() }, IMAGE, false), None);
    }
}

#[test]
fn a_known_cause_comes_with_what_to_type() {
    let mut seen = healthy();
    seen.operator.log = Seen::Known(vec!["InsufficientInstanceCapacity in eu-west-1a".to_owned()]);
    let report = judge(&seen, &Options { installed: true, ..Options::default() });
    let text = report.text(false);
    let expected = "ER-07: AWS currently has no capacity for the requested instances in that zone → kubectl \
                    get nodepool -o yaml (allow more instance types, zones and capacity types)";
    assert!(text.contains(expected), "{text}");
    seen.operator.log = Seen::Known(vec!["NonExistentQueue".to_owned()]);
    let text = judge(&seen, &Options { installed: true, ..Options::default() }).text(false);
    let expected = "→ tenon install --cluster prod --region eu-central-1";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_misspelt_id_to_skip_is_noticed() {
    let skip = ["CL-09".to_owned(), "CL-99".to_owned()].into();
    assert_eq!(Options { skip, ..Options::default() }.unknown_ids(), ["CL-99"]);
}

#[test]
fn commands_name_the_cluster() {
    let command = healthy().fill("tenon plan --cluster <cluster> --region <region> --x <other>");
    assert_eq!(command, "tenon plan --cluster prod --region eu-central-1 --x <other>");
    assert_eq!(Observed::default().fill("<cluster>"), "<cluster>");
}

#[test]
fn the_report_reads_well() {
    let mut seen = healthy();
    for id in ["CL-09", "SN-02", "NC-01", "QU-01"] {
        break_it(id, &mut seen);
    }
    seen.kubernetes.webhooks = Seen::Unknown("list webhooks: forbidden".into());
    insta::assert_snapshot!(judge(&seen, &installed()).text(false));
}

#[test]
fn the_report_for_programs_has_a_documented_form() {
    let mut seen = healthy();
    break_it("SN-02", &mut seen);
    let report = serde_json::to_value(judge(&seen, &Options::default())).unwrap();
    assert_eq!(report["schema"], "tenon.sh/checks/v1alpha1");
    assert_eq!(report["success"], true);
    assert_eq!(report["counts"]["warnings"], 1);
    let failed = &report["categories"][3]["checks"][1];
    assert_eq!(failed["id"], "SN-02");
    assert_eq!(failed["severity"], "warning");
    assert_eq!(failed["outcome"], "fail");
    assert_eq!(failed["detail"], "subnet-b has 3 left");
    assert!(failed["fix"].as_str().unwrap().contains("--region eu-central-1"));
    let passed = &report["categories"][3]["checks"][0];
    assert_eq!(passed["outcome"], "pass");
    assert_eq!(passed.get("fix"), None);
}

#[test]
fn a_report_ends_with_the_command_to_run_first() {
    assert_eq!(judge(&healthy(), &installed()).first, None);
    let mut seen = healthy();
    break_it("NP-02", &mut seen);
    break_it("SN-02", &mut seen);
    let first = judge(&seen, &installed()).first;
    assert_eq!(first.map(|first| first.id), Some("SN-02"), "warnings in their order");
    break_it("EX-01", &mut seen);
    let report = judge(&seen, &installed());
    let command = "tenon adopt --cluster prod --region eu-central-1";
    let expected = report::First { id: "EX-01", command: command.to_owned() };
    assert_eq!(report.first, Some(expected), "what is fatal comes before warnings");
    assert!(report.text(false).ends_with(&format!("Run first (EX-01):\n    {command}")));
}

#[test]
fn without_credentials_the_checks_of_aws_are_skipped_and_none_fails() {
    let mut seen = healthy();
    let kubernetes = std::mem::take(&mut seen.kubernetes);
    let seen = Observed { asked: seen.asked, kubernetes, ..Observed::default() };
    let options = Options { without_aws: true, ..Options::default() };
    let report = judge(&seen, &options);
    assert_eq!(report.reasons(), [""; 0]);
    let lines = || report.categories.iter().flat_map(|group| &group.checks);
    let line = lines().find(|line| line.id == "AC-01").expect("it is there");
    assert_eq!(line.outcome, Outcome::Skip("skipped: there are no AWS credentials".to_owned()));
    assert!(judge(&seen, &Options::default()).counts.fatal > 0);
}

#[test]
fn a_known_cause_is_mended_rather_than_read_again() {
    for (id, command) in [
        ("OP-04", "aws service-quotas request-service-quota-increase --region eu-central-1"),
        ("OP-05", "kubectl get nodepool -o yaml"),
    ] {
        let mut seen = healthy();
        break_it(id, &mut seen);
        let first = judge(&seen, &installed()).first.expect("a command");
        assert_eq!(first.id, id);
        assert!(first.command.starts_with(command), "{}", first.command);
    }
}

#[test]
fn what_helm_or_a_gitops_tool_installed_is_no_fault_of_theirs() {
    let outcome = |id: &str, managed_by: Option<&str>, manage_operator: bool| {
        let mut seen = healthy();
        break_it(id, &mut seen);
        seen.asked.manage_operator = manage_operator;
        if id == "EX-07" {
            let Seen::Known(releases) = &mut seen.kubernetes.releases else { panic!("known") };
            releases[0].ours = false;
            releases[0].status = "deployed".into();
        }
        let deployment = seen.operator.deployment.as_mut().expect("it is installed");
        deployment.managed_by = managed_by.map(str::to_owned);
        let check = table::all().find(|check| check.id == id).unwrap();
        matches!((check.run)(&seen), Outcome::Fail(_))
    };
    for id in ["EX-06", "EX-07", "EX-08"] {
        assert!(outcome(id, None, true), "{id}");
        assert!(!outcome(id, Some("Flux"), true), "{id}");
        assert!(!outcome(id, None, false), "{id}: another tool is to install it");
    }
}

#[test]
fn an_operator_without_pods_is_not_said_to_have_none_of_zero_ready() {
    let check = table::all().find(|check| check.id == "OP-01").unwrap();
    let mut seen = healthy();
    seen.operator.pods = Seen::Known(Vec::new());
    let why = |seen: &Observed| match (check.run)(seen) {
        Outcome::Fail(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why(&seen), "Deployment kube-system/karpenter has no pods");
    seen.operator.deployment = None;
    assert_eq!(why(&seen), "the cluster has no Deployment of the operator");
}

#[test]
fn a_paused_nodepool_is_called_paused_and_not_at_its_limit() {
    let check = table::all().find(|check| check.id == "NP-02").unwrap();
    let mut seen = healthy();
    break_it("NP-02", &mut seen);
    let Seen::Known(pools) = &mut seen.kubernetes.node_pools else { panic!("they are known") };
    pools[0]["metadata"]["annotations"]["tenon.sh/frozen"] = "{}".into();
    let Outcome::Fail(why) = (check.run)(&seen) else { panic!("it launches nothing") };
    assert!(why.contains("is paused by `tenon freeze`"), "{why}");
    assert!(!why.contains("limit"), "{why}");
}

#[test]
fn an_observation_survives_being_stored() {
    let seen = healthy();
    let text = serde_json::to_string(&seen).unwrap();
    assert_eq!(serde_json::from_str::<Observed>(&text).unwrap(), seen);
}

#[test]
fn the_page_on_troubleshooting_is_up_to_date() {
    tenon_installer_core::testing::assert_written(
        "docs/src/reference/troubleshooting.md",
        &table::page(),
    );
}

#[test]
fn a_node_termination_handler_that_spares_tenons_nodes_is_no_fault() {
    let check = table::all().find(|check| check.id == "EX-04").unwrap();
    let fails = |seen: &Observed| matches!((check.run)(seen), Outcome::Fail(_));
    let mut seen = healthy();
    break_it("EX-04", &mut seen);
    assert!(fails(&seen));
    let handler = |seen: &mut Observed, edit: fn(&mut WorkloadView)| {
        let Seen::Known(all) = &mut seen.kubernetes.deployments else { panic!("known") };
        edit(all.last_mut().expect("the handler"));
    };
    // It asks for a tag that no EC2NodeClass has.
    let tagged = |one: &mut WorkloadView| one.managed_tag = Some("managed".to_owned());
    handler(&mut seen, tagged);
    assert!(!fails(&seen));
    let class = serde_json::json!({"metadata": {"name": "x"}, "spec": {"tags": {"managed": ""}}});
    seen.kubernetes.node_classes = Seen::Known(vec![class]);
    assert!(fails(&seen));
    // Its pods are not on these nodes; of a Deployment that says nothing.
    handler(&mut seen, |one| one.avoids_pools = true);
    assert!(fails(&seen));
    let Seen::Known(all) = &mut seen.kubernetes.deployments else { panic!("known") };
    let moved = all.pop().expect("the handler");
    seen.kubernetes.daemon_sets = Seen::Known(vec![moved]);
    assert!(!fails(&seen));
}

use super::*;
use crate::cover::gaps;
use crate::size::MANAGED_LIMIT;
use crate::split::split;
use crate::{Features, Partition};

fn of(partition: Partition) -> CallerScope {
    let scope = Scope {
        partition,
        region: "eu-central-1".into(),
        account: "123456789012".into(),
        cluster: "c".into(),
        queue: Some("tenon-c".into()),
        node_roles: Vec::new(),
        features: Features::default(),
    };
    CallerScope {
        node_role: scope.role_arn("/tenon/c/", "tenon-c-node"),
        controller_role: scope.role_arn("/tenon/c/", "tenon-c-controller"),
        fargate_role: scope.role_arn("/tenon/c/", "tenon-c-fargate"),
        fargate: false,
        queue: "tenon-c".into(),
        rules: vec!["tenon-c-spot".into(), "tenon-c-state".into()],
        attached: crate::identity::node_managed_policies(partition),
        boundary: None,
        scope,
    }
}

#[test]
fn reading_changes_nothing() {
    let Document { statements, .. } = caller_document(Purpose::Read, &of(Partition::Aws));
    for action in names(&statements) {
        let verb = action.split_once(':').unwrap().1;
        assert!(
            ["Get", "List", "Describe", "Simulate"].iter().any(|read| verb.starts_with(read)),
            "{action}"
        );
    }
}

#[test]
fn every_purpose_includes_reading() {
    let of = of(Partition::AwsCn);
    let read = caller_document(Purpose::Read, &of);
    for purpose in [Purpose::Install, Purpose::Uninstall, Purpose::MigrateCas, Purpose::MigrateNth]
    {
        assert_eq!(gaps([&caller_document(purpose, &of)], &read), []);
    }
}

#[test]
fn a_plan_needs_no_more_than_its_own_actions() {
    let of = of(Partition::Aws);
    let (document, unknown) = caller_document_for(&of, ["sqs:CreateQueue", "iam:MakeCoffee"]);
    assert_eq!(unknown, ["iam:MakeCoffee"]);
    let mut more = names(&document.statements);
    for read in names(&read(&of)) {
        more.remove(&read);
    }
    assert_eq!(more.into_iter().collect::<Vec<_>>(), ["sqs:CreateQueue"]);
    assert_eq!(gaps([&caller_document(Purpose::Install, &of)], &document), []);
}

#[test]
fn nothing_that_writes_reaches_beyond_this_installation() {
    let of = of(Partition::AwsUsGov);
    for statement in install(&of).into_iter().chain(uninstall(&of)) {
        let Some(crate::document::Resources::Only(arns)) = &statement.resources else { panic!() };
        assert!(arns.iter().all(|arn| arn.starts_with("arn:aws-us-gov:")), "{statement:?}");
        for arn in arns.iter().filter(|arn| arn.contains(":iam:")) {
            assert!(!arn.contains(":role/*") && !arn.ends_with(":*"), "{statement:?}");
        }
    }
}

#[test]
fn a_move_stays_in_the_region_and_the_account() {
    let of = of(Partition::Aws);
    for statement in migrate_cas(&of).into_iter().chain(migrate_nth(&of)) {
        let Some(crate::document::Resources::Only(arns)) = &statement.resources else { panic!() };
        if arns == &["*"] {
            let regions = &statement.conditions["StringEquals"]["aws:RequestedRegion"];
            assert_eq!(*regions, ["eu-central-1"], "{statement:?}");
        } else {
            let of_account = |arn: &String| arn.contains(":eu-central-1:123456789012:");
            assert!(arns.iter().all(of_account), "{statement:?}");
        }
    }
}

#[test]
fn with_a_boundary_no_role_can_be_made_without_it() {
    let of = CallerScope { boundary: Some("arn:aws:iam::1:policy/b".into()), ..of(Partition::Aws) };
    let document = caller_document(Purpose::Install, &of);
    let make =
        document.statements.iter().find(|one| one.sid.as_deref() == Some("MakeRoles")).unwrap();
    assert_eq!(
        make.conditions["StringEquals"]["iam:PermissionsBoundary"],
        ["arn:aws:iam::1:policy/b"]
    );
}

#[test]
fn the_callers_policy_can_be_stored() {
    for purpose in [
        Purpose::Read,
        Purpose::Install,
        Purpose::Uninstall,
        Purpose::MigrateCas,
        Purpose::MigrateNth,
    ] {
        let document = caller_document(purpose, &of(Partition::Aws));
        let sids = document.statements.iter().map(|one| one.sid.clone()).collect::<BTreeSet<_>>();
        assert_eq!(sids.len(), document.statements.len());
        for piece in split("TenonCaller", &document, MANAGED_LIMIT).unwrap() {
            assert!(piece.document.size() <= MANAGED_LIMIT);
        }
    }
}

#[test]
fn an_encrypted_queue_takes_its_key_to_look_at_and_to_write_into() {
    let key = "arn:aws-cn:kms:eu-central-1:123456789012:key/queue";
    let mut of = of(Partition::AwsCn);
    of.scope.features.queue_key = Some(key.into());
    let on_key = |purpose| {
        let document = caller_document(purpose, &of);
        let on = |statement: &&Statement| {
            statement.resources == Some(crate::document::Resources::Only(vec![key.into()]))
        };
        names(&document.statements.iter().filter(on).cloned().collect::<Vec<_>>())
    };
    assert_eq!(on_key(Purpose::Read), ["kms:GetKeyPolicy".to_owned()].into());
    let writes = ["kms:Decrypt", "kms:GenerateDataKey", "kms:GetKeyPolicy"].map(str::to_owned);
    assert_eq!(on_key(Purpose::Install), writes.into());
}

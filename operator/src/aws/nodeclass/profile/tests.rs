use aws_sdk_iam::operation::add_role_to_instance_profile::{
    AddRoleToInstanceProfileError, AddRoleToInstanceProfileOutput,
};
use aws_sdk_iam::operation::create_instance_profile::CreateInstanceProfileOutput;
use aws_sdk_iam::operation::delete_instance_profile::DeleteInstanceProfileOutput;
use aws_sdk_iam::operation::get_instance_profile::{
    GetInstanceProfileError, GetInstanceProfileOutput,
};
use aws_sdk_iam::operation::list_instance_profiles::ListInstanceProfilesOutput;
use aws_sdk_iam::operation::remove_role_from_instance_profile::RemoveRoleFromInstanceProfileOutput;
use aws_sdk_iam::types as sdk;
use aws_smithy_mocks::{Rule, mock};
use aws_smithy_types::DateTime;

use super::*;
use crate::aws::catalog::tests::mk_class;
use crate::aws::tests::{coded, mock_iam};

const PATH: &str = "/karpenter/eu-central-1/demo/class-uid/";

fn mk_profiles(rules: &[&Rule]) -> Profiles {
    Profiles::new(mock_iam(rules), Arc::from("demo"), "eu-central-1".to_owned())
}

fn class_with_role(role: &str, current: Option<&str>) -> EC2NodeClass {
    let mut class = mk_class();
    class.spec.role = Some(role.to_owned());
    class.status.as_mut().unwrap().instance_profile = current.map(str::to_owned);
    class
}

fn profile(name: &str, path: &str, role: Option<&str>) -> sdk::InstanceProfile {
    let roles = role
        .map(|role| {
            sdk::Role::builder()
                .path("/")
                .role_name(role)
                .role_id("r")
                .arn("arn")
                .create_date(DateTime::from_secs(0))
                .build()
                .unwrap()
        })
        .into_iter()
        .collect();
    sdk::InstanceProfile::builder()
        .instance_profile_name(name)
        .path(path)
        .instance_profile_id("p")
        .arn("arn")
        .create_date(DateTime::from_secs(0))
        .set_roles(Some(roles))
        .build()
        .unwrap()
}

fn found(path: &'static str, role: Option<&'static str>) -> Rule {
    mock!(Client::get_instance_profile).then_output(move || {
        GetInstanceProfileOutput::builder().instance_profile(profile("p", path, role)).build()
    })
}

fn missing() -> Rule {
    mock!(Client::get_instance_profile)
        .then_error(|| GetInstanceProfileError::generic(coded("NoSuchEntity", "no profile")))
}

fn created() -> Rule {
    mock!(Client::create_instance_profile)
        .match_requests(|input| {
            input.path() == Some(PATH)
                && input.tags().iter().any(|tag| tag.key() == "kubernetes.io/cluster/demo")
        })
        .then_output(|| CreateInstanceProfileOutput::builder().build())
}

fn role_added() -> Rule {
    mock!(Client::add_role_to_instance_profile)
        .match_requests(|input| input.role_name() == Some("NodeRole"))
        .then_output(|| AddRoleToInstanceProfileOutput::builder().build())
}

fn tags() -> Tags {
    crate::aws::tags::profile_tags(&mk_class(), "demo", "eu-central-1")
}

#[tokio::test(start_paused = true)]
async fn a_profile_is_made_for_the_role() {
    let (missing, created, added) = (missing(), created(), role_added());
    let profiles = mk_profiles(&[&missing, &created, &added]);
    let class = class_with_role("path/to/NodeRole", None);
    let name = profiles.ensure(&class, &tags()).await.unwrap();
    assert!(name.starts_with("demo_"), "{name}");
    assert_eq!(profiles.ensure(&class, &tags()).await.unwrap(), name, "always the same");
    assert_eq!((created.num_calls(), added.num_calls()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_profile_in_the_status_is_kept_while_it_carries_the_role() {
    let get = found(PATH, Some("NodeRole"));
    let profiles = mk_profiles(&[&get]);
    let class = class_with_role("NodeRole", Some("demo_made_by_upstream"));
    assert_eq!(profiles.ensure(&class, &tags()).await.unwrap(), "demo_made_by_upstream");
}

#[tokio::test(start_paused = true)]
async fn another_role_gets_another_profile_and_the_old_one_stays() {
    let get_old = mock!(Client::get_instance_profile)
        .match_requests(|input| input.instance_profile_name() == Some("old"))
        .then_output(|| {
            GetInstanceProfileOutput::builder()
                .instance_profile(profile("old", PATH, Some("OldRole")))
                .build()
        });
    let (missing, created, added) = (missing(), created(), role_added());
    let listed = mock!(Client::list_instance_profiles).then_output(|| {
        ListInstanceProfilesOutput::builder()
            .instance_profiles(profile("old", PATH, None))
            .build()
            .unwrap()
    });
    let profiles = mk_profiles(&[&get_old, &missing, &created, &added, &listed]);
    let name = profiles.ensure(&class_with_role("NodeRole", Some("old")), &tags()).await.unwrap();
    assert_ne!(name, "old");
    // Garbage collection leaves it alone: machines that are being launched may use it.
    profiles.collect_garbage(&BTreeSet::new()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_profile_outside_of_our_path_is_not_adopted() {
    let get_static = mock!(Client::get_instance_profile)
        .match_requests(|input| input.instance_profile_name() == Some("static"))
        .then_output(|| {
            GetInstanceProfileOutput::builder()
                .instance_profile(profile("static", "/", Some("NodeRole")))
                .build()
        });
    let (missing, created, added) = (missing(), created(), role_added());
    let profiles = mk_profiles(&[&get_static, &missing, &created, &added]);
    let name =
        profiles.ensure(&class_with_role("NodeRole", Some("static")), &tags()).await.unwrap();
    assert_ne!(name, "static");
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_the_user_names_is_not_looked_at() {
    let profiles = mk_profiles(&[]);
    let mut class = mk_class();
    class.spec.instance_profile = Some("mine".to_owned());
    assert_eq!(profiles.ensure(&class, &tags()).await.unwrap(), "mine");
}

#[tokio::test(start_paused = true)]
async fn a_role_that_does_not_exist_leaves_no_profile_and_is_tried_again_in_seconds() {
    let (missing, created) = (missing(), created());
    let refused = mock!(Client::add_role_to_instance_profile).then_error(|| {
        AddRoleToInstanceProfileError::generic(coded("NoSuchEntity", "The role NodeRole ..."))
    });
    let profiles = mk_profiles(&[&missing, &created, &refused]);
    let class = class_with_role("NodeRole", None);
    for _ in 0..3 {
        let error = profiles.ensure(&class, &tags()).await.unwrap_err();
        assert!(error.is_role_not_found(), "{error}");
    }
    assert_eq!(created.num_calls(), 1);
    assert_eq!(profiles.missing_role(&class), Some(Duration::from_secs(5)));
    let started = tokio::time::Instant::now();
    while started.elapsed() < Duration::from_secs(3600) {
        tokio::time::advance(profiles.missing_role(&class).unwrap()).await;
        profiles.ensure(&class, &tags()).await.unwrap_err();
    }
    assert!((60..=65).contains(&created.num_calls()), "{} in an hour", created.num_calls());
}

#[tokio::test(start_paused = true)]
async fn a_role_that_was_made_meanwhile_is_used() {
    let missing = missing();
    let created = created();
    let added = mock!(Client::add_role_to_instance_profile)
        .sequence()
        .error(|| {
            AddRoleToInstanceProfileError::generic(coded("NoSuchEntity", "The role NodeRole ..."))
        })
        .output(|| AddRoleToInstanceProfileOutput::builder().build())
        .build();
    let profiles = mk_profiles(&[&missing, &created, &added]);
    let class = class_with_role("NodeRole", None);
    profiles.ensure(&class, &tags()).await.unwrap_err();
    tokio::time::advance(Duration::from_secs(5)).await;
    profiles.ensure(&class, &tags()).await.unwrap();
    assert_eq!(profiles.missing_role(&class), None);
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_ec2_does_not_know_is_asked_about_again() {
    let get = mock!(Client::get_instance_profile)
        .sequence()
        .output(|| {
            GetInstanceProfileOutput::builder()
                .instance_profile(profile("mine", PATH, Some("NodeRole")))
                .build()
        })
        .error(|| GetInstanceProfileError::generic(coded("NoSuchEntity", "no profile")))
        .error(|| GetInstanceProfileError::generic(coded("NoSuchEntity", "no profile")))
        .build();
    let (created, added) = (created(), role_added());
    let profiles = mk_profiles(&[&get, &created, &added]);
    let class = class_with_role("NodeRole", Some("mine"));
    assert_eq!(profiles.ensure(&class, &tags()).await.unwrap(), "mine");
    profiles.doubt("mine");
    assert_ne!(profiles.ensure(&class, &tags()).await.unwrap(), "mine", "somebody deleted it");
    assert_eq!((created.num_calls(), added.num_calls()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn only_profiles_under_the_path_that_nobody_uses_are_collected() {
    let listed = mock!(Client::list_instance_profiles).then_output(|| {
        ListInstanceProfilesOutput::builder()
            .instance_profiles(profile("used", PATH, None))
            .instance_profiles(profile("unused", PATH, Some("NodeRole")))
            .instance_profiles(profile("others", "/karpenter/eu-central-1/other/x/", None))
            .build()
            .unwrap()
    });
    let get = found(PATH, Some("NodeRole"));
    let removed = mock!(Client::remove_role_from_instance_profile)
        .match_requests(|input| input.instance_profile_name() == Some("unused"))
        .then_output(|| RemoveRoleFromInstanceProfileOutput::builder().build());
    let deleted = mock!(Client::delete_instance_profile)
        .match_requests(|input| input.instance_profile_name() == Some("unused"))
        .then_output(|| DeleteInstanceProfileOutput::builder().build());
    let profiles = mk_profiles(&[&listed, &get, &removed, &deleted]);
    profiles.collect_garbage(&["used".to_owned()].into()).await.unwrap();
    assert_eq!((removed.num_calls(), deleted.num_calls()), (1, 1));
}

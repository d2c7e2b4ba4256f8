//! Zonal shifts of the cluster, over ARC's own API as its SDK speaks it.

use std::time::Duration;

use aws_sdk_arczonalshift::Client as Arc;
use aws_sdk_arczonalshift::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_arczonalshift::types::{AppliedStatus, AutoshiftAppliedStatus};

use super::*;

fn code<T: std::fmt::Debug, E: ProvideErrorMetadata + std::fmt::Debug>(
    result: Result<T, SdkError<E>>,
) -> (String, u16) {
    let error = result.expect_err("it is refused");
    let status = error.raw_response().expect("an answer").status().as_u16();
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    (code.unwrap_or_default().to_owned(), status)
}

#[test]
fn a_registered_cluster_is_shifted_away_from_one_zone_at_a_time() {
    on_the_gateway(async |bed| {
        let arc = Arc::new(&bed.admin.sdk());
        let cluster = format!("arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}");
        let control = bed.gateway.control();
        let get = async || {
            let asked = arc.get_managed_resource().resource_identifier(&cluster);
            asked.send().await
        };
        assert_eq!(code(get().await), ("ResourceNotFoundException".into(), 404));
        let on = json!({ "zonalShiftConfig": { "enabled": true } });
        let path = format!("/clusters/{CLUSTER}/update-config");
        bed.admin.eks("POST", &path, on).await.expect("registered");
        let resource = get().await.expect("it is managed");
        assert_eq!(resource.arn(), Some(cluster.as_str()));
        let ids: Vec<String> = resource.applied_weights.keys().cloned().collect();
        assert_eq!(ids.len(), 3);
        assert!(resource.zonal_shifts().is_empty() && resource.autoshifts().is_empty());

        // AWS's own shift steps back for a person's.
        let (first, second) = (&ids[0], &ids[1]);
        let auto = control.shift_away(second, None).await.expect("an autoshift");
        let resource = get().await.expect("it is managed");
        let applied = resource.autoshifts().iter().map(|it| it.applied_status().clone());
        assert_eq!(applied.collect::<Vec<_>>(), [AutoshiftAppliedStatus::Applied]);
        let start = |zone: &str, lasts: &str| {
            let shift = arc.start_zonal_shift().resource_identifier(&cluster).away_from(zone);
            shift.expires_in(lasts).comment("power").send()
        };
        assert_eq!(code(start(first, "5d").await), ("ValidationException".into(), 400));
        assert_eq!(code(start("nowhere", "5m").await), ("ValidationException".into(), 400));
        let made = start(first, "5m").await.expect("it begins");
        assert_eq!(code(start(second, "5m").await), ("ConflictException".into(), 409));
        let resource = get().await.expect("it is managed");
        let shift = &resource.zonal_shifts()[0];
        assert_eq!(*shift.applied_status(), AppliedStatus::Applied);
        assert_eq!((shift.away_from(), shift.comment()), (first.as_str(), "power"));
        assert_eq!(shift.expiry_time().secs() - shift.start_time().secs(), 300);
        assert_eq!(*resource.autoshifts()[0].applied_status(), AutoshiftAppliedStatus::NotApplied);
        let weight = |id: &str| resource.applied_weights[id];
        assert!(weight(first) < 0.5 && weight(second) > 0.5, "{:?}", resource.applied_weights);

        let cancel = |id: &str| arc.cancel_zonal_shift().zonal_shift_id(id).send();
        assert_eq!(code(cancel(&auto).await).0, "ResourceNotFoundException", "it is AWS's own");
        cancel(made.zonal_shift_id()).await.expect("it ends");
        assert_eq!(code(cancel(made.zonal_shift_id()).await).0, "ResourceNotFoundException");
        control.cancel_shift(&auto).expect("AWS ends it");
        control.cancel_shift(&auto).expect_err("it has ended");
        // One that is over by its time is as good as none.
        control.shift_away(first, Some(Duration::ZERO)).await.expect("a short one");
        assert!(get().await.expect("it is managed").zonal_shifts().is_empty());
        let unknown = control.shift_away("nowhere", None).await.expect_err("no such zone");
        assert!(unknown.to_string().contains(&format!("{REGION}a")), "{unknown}");
    });
}

#[test]
fn shifts_may_be_asked_for_by_those_whose_policy_names_the_cluster() {
    on_the_gateway(async |bed| {
        let cluster = format!("arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}");
        let statement = format!(
            r#"{{"Effect":"Allow","Action":"arc-zonal-shift:GetManagedResource","Resource":"*","Condition":{{"StringEquals":{{"arc-zonal-shift:ResourceIdentifier":"{cluster}"}}}}}}"#
        );
        let reader = bed.user("shift-reader", &statement);
        let ask = async |arn: &str| {
            let path = format!("/managedresources/{}", encoded(arn));
            let headers = [("content-type", "application/json")];
            let answer =
                reader.send("arc-zonal-shift", "GET", &path, &headers, String::new()).await;
            Aws::read_json(answer)
        };
        let own = ask(&cluster).await;
        assert!(own.is_ok() || refused(own).0 == "ResourceNotFoundException");
        let other = ask(&format!("{cluster}-other")).await;
        assert_eq!(
            missing(other),
            format!("arc-zonal-shift:GetManagedResource on resource: {cluster}-other")
        );
    });
}

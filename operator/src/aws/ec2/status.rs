//! Status checks and scheduled events of instances.

use aws_sdk_ec2::types as sdk;
use jiff::Timestamp;

use super::{Ec2, filter, filters};
use crate::aws::error::Result;

/// Something is wrong with an instance, or will be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstanceStatus {
    /// `InstanceId`, `i-…`.
    pub id: String,
    /// Since when each of its own checks fails.
    pub instance_failures: Vec<Option<Timestamp>>,
    /// Since when each check of its host fails.
    pub system_failures: Vec<Option<Timestamp>>,
    /// Whether AWS has scheduled something for it.
    pub has_event: bool,
}

/// Events after which a machine is not what it was.
const EVENTS: [&str; 5] = [
    "instance-reboot",
    "system-reboot",
    "system-maintenance",
    "instance-retirement",
    "instance-stop",
];

/// All running instances of the account with which something is wrong, by id. One that several
/// questions find is told once.
pub(crate) async fn unhealthy_instances(ec2: &Ec2) -> Result<Vec<InstanceStatus>> {
    // EC2 joins filters by "and".
    let questions = [
        filter("instance-status.status", ["impaired"]),
        filter("system-status.status", ["impaired"]),
        filter("event.code", EVENTS),
    ];
    let mut found = Vec::new();
    for question in questions {
        let mut pages = ec2
            .describe_instance_status()
            .set_filters(filters(&[question]))
            .max_results(1000)
            .into_paginator()
            .send();
        while let Some(page) = ec2.page("DescribeInstanceStatus", pages.next()).await {
            let page = page?;
            found.extend(page.instance_statuses().iter().filter_map(read));
        }
    }
    found.sort_by(|a: &InstanceStatus, b| a.id.cmp(&b.id));
    found.dedup_by(|a, b| a.id == b.id);
    Ok(found)
}

fn read(status: &sdk::InstanceStatus) -> Option<InstanceStatus> {
    Some(InstanceStatus {
        id: status.instance_id.clone()?,
        instance_failures: failures(status.instance_status.as_ref()),
        system_failures: failures(status.system_status.as_ref()),
        // A description of an event that is over begins so.
        has_event: status.events().iter().any(|event| {
            let code = event.code.as_ref().map(sdk::EventCode::as_str);
            let text = event.description.as_deref().unwrap_or_default();
            code.is_some_and(|code| EVENTS.contains(&code))
                && !text.starts_with("[Completed]")
                && !text.starts_with("[Canceled]")
        }),
    })
}

fn failures(summary: Option<&sdk::InstanceStatusSummary>) -> Vec<Option<Timestamp>> {
    let details = summary.map(sdk::InstanceStatusSummary::details).unwrap_or_default();
    details
        .iter()
        .filter(|detail| detail.status == Some(sdk::StatusType::Failed))
        .map(|detail| detail.impaired_since.and_then(|at| Timestamp::from_second(at.secs()).ok()))
        .collect()
}

//! `tenon status`: what is installed, what differs, whether it works, and what the cluster's nodes
//! are at.

mod report;
mod subject;

use std::time::Duration;

use serde_json::Value;
use tenon_installer_core::apply::wait;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::condition::planning_paused;
use tenon_installer_core::kubernetes::freeze::is_frozen;
use tenon_installer_core::kubernetes::object::Key;
use tenon_installer_core::kubernetes::operator_deployment::{self, OperatorDeployment};
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::settings::Source;
use tenon_installer_core::words::count_are;
use tokio::time::Instant;

use self::report::{Line, Operator, READY, Report};
use self::subject::{InKops, Subject};
use super::fleet;
use super::kops_cluster;
use super::session::{Connection, Fallback, observe_failed, source};
use crate::cli::GlobalArgs;
use crate::cli::status::StatusArgs;
use crate::errors::ExpectedError;
use crate::exit_codes::{EXIT_DRIFT, EXIT_FAILURE};
use crate::prices::SpotPrices;
use crate::printer::{Frame, Printer, StatusLine};

/// How often Kubernetes is asked while somebody waits or watches.
const EVERY: Duration = Duration::from_secs(2);

/// How often AWS is asked while somebody watches: its part changes rarely, and each look is some
/// dozens of calls.
const AWS_EVERY: Duration = Duration::from_secs(30);

/// Reading a large cluster takes its API server longer: it is left alone for so many times that
/// long.
const REST: u32 = 5;

/// Shows what is installed and whether it works.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &StatusArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let settings = args.installation.settings();
    let source = source(&settings)?;
    let kops = kops_cluster::find(global, source.config.cluster.name.as_deref()).await;
    let (mut subject, looked) = if let Some(kops) = kops {
        printer.note(&format!("kOps cluster {}, by kubeconfig", kops.name));
        (Subject::Kops(Box::new(InKops::observe(global, kops).await?)), None)
    } else {
        Box::pin(observe(global, args, source, *printer)).await?
    };
    if args.watch {
        return Box::pin(watch(&mut subject, args, *printer)).await;
    }
    if args.wait {
        wait_until_ready(&subject, args.timeout, *printer).await?;
    }
    let looked = match looked {
        Some(looked) => looked,
        None => look(&subject, &mut SpotPrices::new(subject.aws().cloned())).await,
    };
    let report = report(&subject, looked)?;
    printer.json(&report.json(&subject.target_json()));
    for warning in &report.warnings {
        printer.warn(warning);
    }
    printer.lines(&report.rows());
    if let Some(text) = report.fleet_text(printer.width()) {
        printer.text(&format!("\n{text}"));
    }
    for note in &report.notes {
        printer.note(note);
    }
    Ok(match (args.exit_code, report.in_sync, report.healthy()) {
        (true, false, _) => EXIT_DRIFT,
        (true, true, false) => EXIT_FAILURE,
        _ => 0,
    })
}

/// Looks at an installation in EKS. Nodes and pods are read while AWS is, unless all is to be
/// looked at after a wait.
async fn observe(
    global: &GlobalArgs,
    args: &StatusArgs,
    source: Source,
    printer: Printer,
) -> Result<(Subject, Option<Looked>), ExpectedError> {
    let settings = args.installation.settings();
    let connection =
        Box::pin(Connection::open(global, &settings, source, Fallback::Record)).await?;
    let client = connection.cluster().client();
    let mut spot = SpotPrices::new(Some(connection.aws().clone()));
    let installed = async {
        let session = Box::pin(connection.observe()).await?;
        session.introduce(printer);
        Ok::<_, ExpectedError>(Subject::Installed(Box::new(session)))
    };
    if args.wait || args.watch {
        return Ok((installed.await?, None));
    }
    let of_subject = async {
        let subject = installed.await?;
        let working = Box::pin(working(&subject)).await;
        Ok::<_, ExpectedError>((subject, working))
    };
    let (of_subject, fleet) =
        tokio::join!(of_subject, Box::pin(fleet::observe(&client, &mut spot)));
    let (subject, working) = of_subject?;
    Ok((subject, Some(Looked { working, fleet })))
}

/// What was seen besides the installation.
struct Looked {
    working: Result<(Option<Operator>, Vec<Line>), ExpectedError>,
    fleet: Result<fleet::Seen, ExpectedError>,
}

async fn look(subject: &Subject, spot: &mut SpotPrices) -> Looked {
    let client = subject.cluster().client();
    let (working, fleet) =
        tokio::join!(Box::pin(working(subject)), Box::pin(fleet::observe(&client, spot)));
    Looked { working, fleet }
}

/// Waits until the operator serves and every EC2NodeClass and NodePool is ready. On a terminal the
/// reason takes one line, which is written again and again.
async fn wait_until_ready(
    subject: &Subject,
    at_most: Duration,
    printer: Printer,
) -> Result<(), ExpectedError> {
    let began = Instant::now();
    let mut status = StatusLine::new(printer);
    loop {
        let (_, lines) = working(subject).await?;
        let missing = missing(subject, &lines);
        let Some(missing) = missing else {
            status.end();
            printer.done("operator, EC2NodeClasses and NodePools", "ready", began.elapsed());
            return Ok(());
        };
        status.show(&missing, began.elapsed());
        if began.elapsed() >= at_most {
            status.end();
            return Err(ExpectedError::Timeout {
                what: "the installation to be ready".to_owned(),
                seconds: began.elapsed().as_secs(),
                last: missing,
            });
        }
        tokio::time::sleep(EVERY.min(at_most.saturating_sub(began.elapsed()))).await;
    }
}

/// What is not ready yet, in one line; what should be there and is not counts, too.
fn missing(subject: &Subject, lines: &[Line]) -> Option<String> {
    let of = |id: &str| lines.iter().any(|line| line.id == id);
    let absent = subject.node_objects().into_iter();
    let absent = absent.filter(|id| !of(id)).map(|id| format!("{id}: it does not exist"));
    let lacking = lines.iter().filter(|line| !line.ok);
    let mut all = lacking.map(|line| format!("{}: {}", line.id, line.detail)).chain(absent);
    let first = all.next()?;
    Some(match all.count() {
        0 => first,
        more => format!("{first} (and {more} more)"),
    })
}

/// Shows the status whenever it changes, until the command is interrupted: on a terminal in place,
/// elsewhere below what was shown before.
async fn watch(
    subject: &mut Subject,
    args: &StatusArgs,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    let target = subject.target_json();
    let mut spot = SpotPrices::new(subject.aws().cloned());
    let mut frame = Frame::new(printer, args.term.as_deref());
    let mut looked = Instant::now();
    let mut before = None;
    loop {
        let began = Instant::now();
        if looked.elapsed() >= AWS_EVERY {
            Box::pin(subject.observe_again()).await?;
            looked = Instant::now();
        }
        let now = report(subject, look(subject, &mut spot).await)?;
        let json = now.json(&target);
        let is_new = before.as_ref() != Some(&json);
        if is_new {
            printer.json(&json);
        }
        // In place, ages are kept up to date, too.
        if is_new || frame.is_in_place() {
            let time = tenon_installer_core::clock::now().strftime("%H:%M:%SZ").to_string();
            frame.show(&time, &now.rows(), now.fleet_text(printer.width()).as_deref());
        }
        before = Some(json);
        tokio::time::sleep(EVERY.max(began.elapsed() * REST)).await;
    }
}

fn report(subject: &Subject, looked: Looked) -> Result<Report, ExpectedError> {
    let Looked { working, fleet } = looked;
    let (operator, working) = working?;
    let mut warnings = Vec::new();
    let (fleet, notes) = match fleet {
        Ok(seen) => {
            warnings.extend(seen.warnings);
            (Some(seen.fleet), seen.notes)
        }
        Err(error) => {
            warnings.push(format!("{}; nodes and pods are not shown", error.message()));
            (None, Vec::new())
        }
    };
    let compared = subject.compared(operator.as_ref())?;
    let (mut lines, in_sync) = (compared.lines, compared.in_sync);
    warnings.extend(compared.warnings);
    lines.extend(subject.interruption().map(|how| Line {
        id: "last-run".to_owned(),
        ok: false,
        detail: format!(
            "{how}: run `tenon install` with the same settings to resume, or `tenon uninstall` to \
             revert the completed steps"
        ),
    }));
    lines.extend(working);
    if let Some((all, ready)) = fleet.as_ref().map(tenon_simulate::Fleet::node_claims) {
        let detail = format!("{ready} of {all} ready");
        lines.push(Line { id: "nodeclaims".to_owned(), ok: true, detail });
    }
    Ok(Report { operator, queue: subject.queue(), lines, fleet, in_sync, warnings, notes })
}

/// Whether the operator, the EC2NodeClasses and the NodePools work.
async fn working(subject: &Subject) -> Result<(Option<Operator>, Vec<Line>), ExpectedError> {
    let cluster = subject.cluster();
    let (classes, pools) = (resources::node_classes(), resources::node_pools());
    let (operator, in_classes, in_pools) = tokio::join!(
        operator(cluster, subject.operator()),
        cluster.list(&classes),
        cluster.list(&pools)
    );
    let (operator, line) = operator?;
    let mut lines: Vec<Line> = line.into_iter().collect();
    for (resource, objects) in [(classes, in_classes), (pools, in_pools)] {
        for object in objects.map_err(observe_failed)? {
            let name = object.metadata.name.clone().unwrap_or_default();
            let live = serde_json::to_value(object).unwrap_or_default();
            let lacks = wait::readiness_lacks(Some(&live));
            let detail = lacks.clone().unwrap_or_else(|| ready(&live));
            lines.push(Line {
                id: format!("{}/{name}", resource.kind),
                ok: lacks.is_none(),
                detail,
            });
        }
    }
    Ok((operator, lines))
}

/// The operator, if it is to be there.
async fn operator(
    cluster: &Cluster,
    expected: Option<Key>,
) -> Result<(Option<Operator>, Option<Line>), ExpectedError> {
    let Some(expected) = expected else { return Ok((None, None)) };
    let found = operator_deployment::find(cluster, &expected).await.map_err(observe_failed)?;
    let lacks = wait::deployment_lacks(found.as_ref().map(|found| &found.live));
    let available = found
        .as_ref()
        .and_then(|found| found.live.pointer("/status/availableReplicas"))
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let available = usize::try_from(available).unwrap_or_default();
    let detail = format!("{} available", count_are(available, "pod"));
    let ok = lacks.is_none();
    let line = Line { id: "operator".to_owned(), ok, detail: lacks.unwrap_or(detail) };
    let operator = match &found {
        Some(found) => Some(facts(cluster, found).await?),
        None => None,
    };
    Ok((operator, Some(line)))
}

async fn facts(cluster: &Cluster, found: &OperatorDeployment) -> Result<Operator, ExpectedError> {
    let leader = found.leader(cluster).await.map_err(observe_failed)?;
    Ok(Operator {
        namespace: found.namespace().to_owned(),
        deployment: found.name().to_owned(),
        version: found.version().map(str::to_owned),
        managed_by: found.managed_by(),
        leader_since: leader.as_ref().and_then(|leader| leader.since),
        leader: leader.map(|leader| leader.pod),
    })
}

/// What is told of an object that is ready.
fn ready(live: &Value) -> String {
    if is_frozen(live) {
        return "paused by `tenon freeze`; `tenon unfreeze` resumes it".to_owned();
    }
    // A pause is no reason to wait for the NodePool: it ends with what it is due to, such as a
    // launch.
    planning_paused(live).map_or_else(
        || READY.to_owned(),
        |paused| {
            let since = paused.since.map(|since| format!(" since {since}")).unwrap_or_default();
            format!("Ready, but planning is paused{since}: {}", paused.said)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_nodepool_that_is_ready_tells_that_planning_is_paused() {
        let pool = |status: &str, ready: &str| {
            json!({"status": {"conditions": [
                {"type": "PlanningActive", "status": status, "reason": "AwaitingLaunches", "message": "waiting for a",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": ready},
            ]}})
        };
        assert_eq!(
            ready(&pool("False", "True")),
            "Ready, but planning is paused since 2026-01-01T00:00:00Z: AwaitingLaunches waiting for a"
        );
        assert_eq!(ready(&pool("True", "True")), READY);
        let mut paused = pool("True", "True");
        paused["metadata"] = json!({"annotations": {"tenon.sh/frozen": "{}"}});
        assert!(ready(&paused).starts_with("paused by `tenon freeze`"));
    }
}

//! `tenon upgrade`: another version of the operator, without replacing a node.

use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::kubernetes::crds::compatibility;
use tenon_installer_core::settings::config::ValuesError;
use tenon_installer_core::settings::problem::Problem;
use tenon_installer_core::settings::{Settings, SettingsError};

use super::owner;
use super::session::{Connection, Fallback, Session, source};
use super::version_change::{self, Journey};
use crate::cli::GlobalArgs;
use crate::cli::upgrade::UpgradeArgs;
use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::upgrade::version::{self, Version};

/// Upgrades.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &UpgradeArgs,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let to = target(args)?;
    let given = source(&args.settings)?;
    let connection =
        Box::pin(Connection::open(global, &args.settings, given, Fallback::Record)).await?;
    let settings = at_version(connection.settings().clone(), &to)?;
    let connection = connection.with(settings).await?;
    let at_once = args.how.execution.is_unattended();
    let lock =
        if at_once { Some(connection.lock(global, "upgrade", cleanup).await?) } else { None };
    let session = Box::pin(connection.observe()).await?;
    session.introduce(*printer);
    owner::refuse(&session, "upgrade")?;
    let from = running(&session)?;
    let mut reasons = version::refusals(from.as_ref(), &to, &Version::own());
    reasons.extend(compatibility::refusals(&session.desired.crds, &session.actual.objects));
    if !reasons.is_empty() {
        return Err(ExpectedError::Unfit { what: format!("upgrade to {to}"), reasons });
    }
    if from.is_none() {
        printer.warn(
            "the running version can't be determined, so tenon can't tell whether this \
             one is newer",
        );
    }
    let journey = Journey {
        operation: "upgrade",
        from: from.map(|version| version.to_string()),
        to: to.to_string(),
        revision: came_from(&session),
    };
    Box::pin(version_change::run(global, &args.how, &journey, session, lock, printer, cleanup))
        .await
}

fn target(args: &UpgradeArgs) -> Result<Version, ExpectedError> {
    let problem = |flag: &str, message: String| {
        Err(ExpectedError::Settings(SettingsError {
            problems: vec![Problem::of_flag(flag, message)],
        }))
    };
    match (&args.to, &args.settings.deploy.image_tag) {
        (Some(_), Some(_)) => {
            problem("--image-tag", "--to sets the same value: omit one of them".into())
        }
        (Some(text), None) | (None, Some(text)) => match text.parse() {
            Ok(version) => Ok(version),
            Err(error) => problem("--to", version::NotAVersion::to_string(&error)),
        },
        (None, None) => Ok(Version::own()),
    }
}

/// The same settings with this version of the operator. This program's own is left out where
/// nothing else says another, as an installation does.
fn at_version(mut settings: Settings, to: &Version) -> Result<Settings, ExpectedError> {
    let refuse = |message: String| {
        ExpectedError::Settings(SettingsError {
            problems: vec![Problem::of_value("deploy.values", message)],
        })
    };
    if !settings.values.controller.image.digest.is_empty() {
        return Err(refuse(
            "controller.image.digest pins the image: remove it, or set the digest of \
             the new version with `tenon install --set`"
                .to_owned(),
        ));
    }
    settings.config.deploy.version = None;
    let unlike = |error: ValuesError| refuse(error.to_string());
    let plain = settings.config.values().map_err(&unlike)?.controller.image.tag;
    if *to != Version::own() || !plain.is_empty() {
        settings.config.deploy.version = Some(to.to_string());
    }
    settings.values = settings.config.values().map_err(unlike)?;
    Ok(settings)
}

/// The version that runs, if something runs at all.
pub(super) fn running(session: &Session) -> Result<Option<Version>, ExpectedError> {
    let live = session
        .desired
        .deployment()
        .and_then(|deployment| session.actual.objects.get(&deployment.key()));
    live.map(version::running).ok_or_else(|| ExpectedError::Preflight {
        reasons: vec![format!(
            "there is no Tenon operator in namespace {}: run `tenon install`",
            session.settings.namespace
        )],
    })
}

/// The revision that a rollback goes back to: what was deployed before this upgrade began, also if
/// it began in an earlier run.
fn came_from(session: &Session) -> Option<u32> {
    let earlier = session.unfinished().filter(|record| record.operation == "upgrade");
    earlier.and_then(|record| record.back_to).or_else(|| {
        let deployed = session.actual.releases.iter().filter(|one| one.status == "deployed");
        deployed.map(|one| one.number).max()
    })
}

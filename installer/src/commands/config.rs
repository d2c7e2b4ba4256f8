//! `tenon config`: begin a settings file, check one, and explain its fields. Only `show` calls
//! anything.

use std::path::Path;

use serde_json::{Value, json};
use tenon_installer_core::files::FileError;
use tenon_installer_core::settings::config::Config;
use tenon_installer_core::settings::problem::Problem;
use tenon_installer_core::settings::{SettingsError, Source};
use tenon_installer_core::target;

use crate::cli::config::{ConfigArgs, ConfigCommand};
use crate::cli::overlay::{overlay, resolve};
use crate::cli::{GlobalArgs, SettingArgs};
use crate::commands::session::{Connection, Fallback};
use crate::errors::ExpectedError;
use crate::printer::Printer;

mod explain;

/// Runs a subcommand.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &ConfigArgs,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    match &args.command {
        ConfigCommand::Init { settings, write } => {
            init(global, settings, write.as_deref(), printer)?;
        }
        ConfigCommand::Show { write } => {
            Box::pin(show(global, write.as_deref(), printer)).await?;
        }
        ConfigCommand::Validate { file } => validate(global, file, printer)?,
        ConfigCommand::Schema => {
            let schema =
                serde_json::to_string_pretty(&Config::json_schema()).expect("a schema is JSON");
            printer.raw(&schema);
        }
        ConfigCommand::Explain { field } => explain(field, printer)?,
    }
    Ok(0)
}

fn validate(global: &GlobalArgs, file: &Path, printer: Printer) -> Result<(), ExpectedError> {
    let source = Source::read(file)?;
    let settings =
        resolve(source, global, &SettingArgs::default(), &target::infer(&global.kubeconfig()))?;
    printer.json(&json!({"valid": true, "config": settings.config}));
    printer.text(&format!(
        "{} is valid: cluster {} in {}",
        file.display(),
        settings.cluster,
        settings.region
    ));
    Ok(())
}

fn init(
    global: &GlobalArgs,
    args: &SettingArgs,
    file: Option<&Path>,
    printer: Printer,
) -> Result<(), ExpectedError> {
    let (mut config, problems) = overlay(Config::default(), global, args);
    if !problems.is_empty() {
        return Err(ExpectedError::Settings(SettingsError { problems }));
    }
    let inferred = target::infer(&global.kubeconfig());
    config.cluster.name = config.cluster.name.or(inferred.cluster);
    config.cluster.region =
        config.cluster.region.or(inferred.region).or_else(|| global.default_region.clone());
    let text = format!(
        "# Settings of Tenon. `tenon config explain` lists all fields, `tenon plan -f FILE` shows \
         their effect.\n\
         {}",
        config.to_yaml()
    );
    print(&text, file, printer)
}

/// What the installation records: also what `tenon adopt` found, and what flags said.
async fn show(
    global: &GlobalArgs,
    file: Option<&Path>,
    printer: Printer,
) -> Result<(), ExpectedError> {
    let args = SettingArgs::default();
    let connection = Connection::open(global, &args, Source::default(), Fallback::Defaults);
    let connection = Box::pin(connection).await?;
    let Some(record) = connection.record().await? else {
        return Err(ExpectedError::Unfit {
            what: "tenon config show".to_owned(),
            reasons: vec![format!(
                "cluster {} has no record of an installation by `tenon`; `tenon config init` \
                 begins a settings file",
                connection.settings().cluster
            )],
        });
    };
    let text = format!(
        "# Settings of the installation in cluster {}.\n{}",
        connection.settings().cluster,
        record.config.to_yaml()
    );
    print(&text, file, printer)
}

/// Prints settings, or writes them to a new file.
fn print(text: &str, file: Option<&Path>, printer: Printer) -> Result<(), ExpectedError> {
    let Some(file) = file else {
        printer.raw(text);
        return Ok(());
    };
    let failed = FileError::writing(file);
    let mut created =
        std::fs::OpenOptions::new().write(true).create_new(true).open(file).map_err(failed)?;
    std::io::Write::write_all(&mut created, text.as_bytes()).map_err(failed)?;
    printer.text(&format!("Written to {}. Next: tenon plan -f {}", file.display(), file.display()));
    Ok(())
}

fn explain(field: &str, printer: Printer) -> Result<(), ExpectedError> {
    let schema = Config::json_schema();
    let fields = explain::fields(&schema);
    let shown = fields.iter().filter(|one| one.is_at(field)).collect::<Vec<_>>();
    if shown.is_empty() {
        let near =
            fields.iter().find(|one| one.path.to_lowercase().ends_with(&field.to_lowercase()));
        let hint = near.map(|near| format!("; did you mean {}?", near.path)).unwrap_or_default();
        let problem = Problem::of_value(field, format!("there is no such field{hint}"));
        return Err(ExpectedError::Settings(SettingsError { problems: vec![problem] }));
    }
    let all = shown.iter().map(|one| one.json()).collect::<Vec<Value>>();
    printer.json(&json!({"schema": "tenon.sh/config-fields/v1alpha1", "fields": all}));
    for one in shown {
        printer.text(&one.text());
    }
    Ok(())
}

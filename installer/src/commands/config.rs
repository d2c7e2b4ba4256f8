//! `tenon config validate` and `tenon config schema`: nothing is called.

use serde_json::json;

use crate::cli::{ConfigArgs, ConfigCommand, GlobalArgs, SettingArgs};
use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::settings::config::Config;
use crate::settings::{Settings, Source};
use crate::target;

/// Checks a file, or prints the schema.
pub fn run(global: &GlobalArgs, args: &ConfigArgs, printer: &Printer) -> Result<u8, ExpectedError> {
    match &args.command {
        ConfigCommand::Validate { file } => {
            let source = Source::read(file)?;
            let settings =
                Settings::resolve(source, global, &SettingArgs::default(), &target::infer(global))?;
            printer.json(&json!({"valid": true, "config": settings.config}));
            printer.text(&format!(
                "{} is valid: cluster {} in {}",
                file.display(),
                settings.cluster,
                settings.region
            ));
        }
        ConfigCommand::Schema => {
            let schema =
                serde_json::to_string_pretty(&Config::json_schema()).expect("a schema is JSON");
            printer.raw(&schema);
        }
    }
    Ok(0)
}

//! `tenon config`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::settings::SettingArgs;

/// `tenon config`
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// The subcommands of `tenon config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a settings file with the known values of the target, or write it
    Init {
        /// What is asked for.
        #[command(flatten)]
        settings: Box<SettingArgs>,
        /// Write it to this file; an existing file is not overwritten
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
    },
    /// Print the settings of the installation in the cluster as a settings file, or write them
    Show {
        /// Write them to this file; an existing file is not overwritten
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
    },
    /// Validate a settings file, and print all problems
    Validate {
        /// Settings file
        #[arg(
            short = 'f',
            long = "file",
            env = "TENON_CONFIG",
            hide_env_values = true,
            value_name = "FILE"
        )]
        file: PathBuf,
    },
    /// Print the JSON schema of settings files
    Schema,
    /// Explain a field of settings files, such as `interruption.queueName`; without a field, list
    /// all
    Explain {
        /// Path of the field
        #[arg(default_value = "", value_name = "FIELD")]
        field: String,
    },
}

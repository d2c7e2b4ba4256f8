//! The one place where the double reads environment variables: each is declared here once, with its
//! meaning.

use std::path::PathBuf;

use clap::{Args, FromArgMatches as _};

/// What the double takes from the environment of the process it runs in.
#[derive(Args, Clone, Debug)]
// A group is known by the name of its struct, and those who read these variables with others of
// their own may call theirs the same.
#[group(skip)]
pub struct Environment {
    /// Where built programs and downloads are kept between runs. Default: `$XDG_CACHE_HOME/tenon`,
    /// else `~/.cache/tenon`.
    #[arg(long, env = "TENON_CACHE")]
    pub tenon_cache: Option<PathBuf>,
    /// The user's cache directory (XDG base directory specification).
    #[arg(long, env = "XDG_CACHE_HOME")]
    pub xdg_cache_home: Option<PathBuf>,
    /// The user's home directory.
    #[arg(long, env = "HOME")]
    pub home: Option<PathBuf>,
    /// The search path of programs; a bed's exports put its own programs before it.
    #[arg(long, env = "PATH", default_value = "/usr/local/bin:/usr/bin:/bin")]
    pub path: String,
}

impl Environment {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// When a variable has a value that it can't have; the message names it and what is allowed.
    pub fn read() -> Result<Self, clap::Error> {
        let command =
            clap::Command::new("environment").no_binary_name(true).disable_help_flag(true);
        let matches =
            Self::augment_args(command).try_get_matches_from(std::iter::empty::<&str>())?;
        Self::from_arg_matches(&matches)
    }
}

//! The profiles of the AWS configuration, by name. The SDK takes a profile that does not exist for
//! one without credentials.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::words::nearest;

/// The files of the AWS configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfileFiles {
    /// `~/.aws/config`, or what `AWS_CONFIG_FILE` names.
    pub config: Option<PathBuf>,
    /// `~/.aws/credentials`, or what `AWS_SHARED_CREDENTIALS_FILE` names.
    pub credentials: Option<PathBuf>,
}

/// The AWS configuration has no such profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the AWS configuration has no profile {name:?}")]
pub struct UnknownProfile {
    /// The profile.
    pub name: String,
    /// Those that there are.
    pub known: Vec<String>,
}

impl UnknownProfile {
    /// The profile that was probably meant.
    pub fn meant(&self) -> Option<&str> {
        nearest(&self.name, self.known.iter().map(String::as_str))
    }
}

impl ProfileFiles {
    /// Whether there is such a profile.
    pub fn check(&self, name: &str) -> Result<(), UnknownProfile> {
        let read = |file: &Option<PathBuf>| {
            file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default()
        };
        let (config, credentials) = (read(&self.config), read(&self.credentials));
        let mut known = sections(&config)
            .filter_map(|section| match section.strip_prefix("profile ") {
                Some(name) => Some(name.trim()),
                None => (section == "default").then_some(section),
            })
            .collect::<BTreeSet<_>>();
        known.extend(sections(&credentials));
        if known.contains(name) {
            return Ok(());
        }
        let known = known.into_iter().map(str::to_owned).collect();
        Err(UnknownProfile { name: name.to_owned(), known })
    }
}

fn sections(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (section, _) = line.trim().strip_prefix('[')?.split_once(']')?;
        Some(section.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_of_both_files_are_known_and_others_are_compared_with_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let file = directory.path().join(name);
            std::fs::write(&file, text).expect("written");
            Some(file)
        };
        let files = ProfileFiles {
            config: write("config", "[default]\n[profile prod] # ours\n[sso-session x]\n[y]\n"),
            credentials: write("credentials", "[ci]\naws_access_key_id = x\n"),
        };
        for name in ["default", "prod", "ci"] {
            assert_eq!(files.check(name), Ok(()));
        }
        let unknown = files.check("prd").expect_err("there is none");
        assert_eq!(unknown.known, ["ci", "default", "prod"]);
        assert_eq!(unknown.meant(), Some("prod"));
        assert_eq!(ProfileFiles::default().check("x").expect_err("no files").known, [""; 0]);
    }
}

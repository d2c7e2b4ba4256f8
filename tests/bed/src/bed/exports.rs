//! What a shell, a program or a test needs in its environment to use a bed.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Variables and search path of a bed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exports {
    /// All variables but `PATH`.
    pub variables: BTreeMap<String, String>,
    /// Directories to be searched before the caller's own.
    pub path: Vec<PathBuf>,
}

impl Exports {
    /// The variables with a whole `PATH`, which ends with `caller_path`: for a child process.
    pub fn environment(&self, caller_path: &str) -> BTreeMap<String, String> {
        let mut all = self.variables.clone();
        let own = self.path.iter().map(|dir| dir.display().to_string());
        let path: Vec<String> = own.chain([caller_path.to_owned()]).collect();
        all.insert("PATH".to_owned(), path.join(":"));
        all
    }

    /// `export` lines for any POSIX shell; the shell's own `PATH` stays behind ours.
    pub fn shell(&self) -> String {
        let export =
            |(name, value): (&String, &String)| format!("export {name}={}\n", quoted(value));
        let mut text: String = self.variables.iter().map(export).collect();
        if !self.path.is_empty() {
            let dirs: Vec<String> =
                self.path.iter().map(|dir| quoted(&dir.display().to_string())).collect();
            text = text + "export PATH=" + &dirs.join(":") + ":\"$PATH\"\n";
        }
        text
    }
}

fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@%+".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_exported() {
        let nasty = "it's $HOME \"and\" `more`\nlines";
        let exports = Exports {
            variables: BTreeMap::from([("NASTY".to_owned(), nasty.to_owned())]),
            path: vec!["/a dir/bin".into(), "/b".into()],
        };
        let script = format!("{}printf '%s|%s' \"$NASTY\" \"$PATH\"", exports.shell());
        let shell = std::process::Command::new("/bin/sh")
            .args(["-c", &script])
            .env("PATH", "/own")
            .output();
        let output = String::from_utf8(shell.expect("a shell").stdout).expect("text");
        assert_eq!(output, format!("{nasty}|/a dir/bin:/b:/own"));
    }
}

//! Archives of programs, checksums of all that is published, and the script that installs from
//! them.

use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};

use crate::error::{Error, read, write};
use crate::tree::{Tree, gzip};

/// The file with the checksums.
pub const CHECKSUMS: &str = "SHA256SUMS";

/// Packs a program with its license; answers the archive's name, `tenon-<version>-<target>.tar.gz`.
///
/// # Errors
/// When one of the files can't be read or written.
pub fn archive(
    program: &Path,
    license: &Path,
    version: &str,
    target: &str,
    epoch: u64,
    out: &Path,
) -> Result<String, Error> {
    let name = program.file_name().and_then(|it| it.to_str()).unwrap_or_default();
    let stem = format!("{name}-{version}-{target}");
    let mut tree = Tree::default();
    tree.file(&format!("{stem}/{name}"), 0o755, read(program)?);
    tree.file(&format!("{stem}/LICENSE"), 0o644, read(license)?);
    let archive = format!("{stem}.tar.gz");
    write(&out.join(&archive), gzip(&tree.tar(epoch, false)))?;
    Ok(archive)
}

/// A file that is published, and the hexadecimal SHA-256 of it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Published {
    /// File name, as in `SHA256SUMS`.
    pub name: String,
    /// SHA-256 of the content, in hexadecimal.
    pub sha256: String,
}

/// Writes the checksums of all files of a directory, in the form of `sha256sum`; answers them. What
/// checksums are not of: themselves and signatures.
///
/// # Errors
/// When a file can't be read or written.
pub fn checksums(dir: &Path) -> Result<Vec<Published>, Error> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(Error::file("list", dir))? {
        let path = entry.map_err(Error::file("list", dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_signature =
            path.extension().is_some_and(|it| it == "sig" || it == "pem" || it == "bundle");
        if path.is_file() && name != CHECKSUMS && name != "provenance.json" && !is_signature {
            let sha256 = hex::encode(digest(&SHA256, &read(&path)?));
            all.push(Published { name, sha256 });
        }
    }
    all.sort();
    let lines = all.iter().map(|it| format!("{}  {}\n", it.sha256, it.name));
    write(&dir.join(CHECKSUMS), lines.collect::<String>())?;
    Ok(all)
}

/// The line of `install.sh` that a release fills in.
const RELEASES: &str = "releases=\"\"";
const VERSION: &str = "version=\"\"";

/// The script that installs this release: the checkout's, with the address of the releases and the
/// version.
///
/// # Errors
/// When the script has no place for them.
pub fn installer(script: &str, releases: &str, version: &str) -> Result<String, Error> {
    for line in [RELEASES, VERSION] {
        if script.lines().filter(|it| *it == line).count() != 1 {
            return Err(Error::Unsupported(format!("install.sh has not exactly one line {line}")));
        }
    }
    let releases = releases.trim_end_matches('/');
    let script = script.replacen(RELEASES, &format!("releases=\"{releases}\""), 1);
    Ok(script.replacen(VERSION, &format!("version=\"{version}\""), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_of_all_files_but_signatures_and_in_order() {
        let dir = tempfile::tempdir().expect("temp dir");
        for name in ["b.tgz", "a.json", "a.json.sig", "provenance.json"] {
            write(&dir.path().join(name), "content").expect("written");
        }
        let all = checksums(dir.path()).expect("written");
        assert_eq!(all.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["a.json", "b.tgz"]);
        let text = std::fs::read_to_string(dir.path().join(CHECKSUMS)).expect("there");
        let content = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73";
        assert_eq!(text, format!("{content}  a.json\n{content}  b.tgz\n"));
        assert_eq!(checksums(dir.path()).expect("written again"), all);
    }

    #[test]
    fn the_script_is_filled_in_where_it_has_a_place_for_it() {
        let script =
            installer("a\nversion=\"\"\nreleases=\"\"\nb\n", "https://r.example/", "1.2.3");
        assert_eq!(
            script.expect("filled in"),
            "a\nversion=\"1.2.3\"\nreleases=\"https://r.example\"\nb\n"
        );
        assert!(installer("nothing", "https://r.example", "1.2.3").is_err());
    }
}

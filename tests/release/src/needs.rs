//! What a program needs to be started: its dynamic loader and, all the way down, its shared
//! libraries. Read from the files, so that it works for other architectures, too, and runs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use elf::ElfBytes;
use elf::abi::{DT_NEEDED, EM_AARCH64, EM_X86_64, PT_INTERP};
use elf::endian::AnyEndian;

use crate::error::{Error, read};

/// An architecture for which images are made.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// As OCI and Kubernetes name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The directory below `lib` where Debian keeps its libraries.
    const fn multiarch(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu",
            Self::Arm64 => "aarch64-linux-gnu",
        }
    }
}

/// What one ELF file says.
#[derive(Debug)]
struct Facts {
    architecture: Architecture,
    loader: Option<String>,
    needed: Vec<String>,
}

/// What a program needs beside itself.
#[derive(Debug)]
pub(crate) struct Needs {
    /// For which machines it is.
    pub architecture: Architecture,
    /// Files by the absolute paths under which the loader finds them.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Follows a program's needs. Libraries are looked for below `root` in the directories that the
/// loader searches by default, and before that in `more`.
///
/// # Errors
/// When a file is not ELF, or a library is nowhere.
pub(crate) fn needs(program: &Path, root: &Path, more: &[PathBuf]) -> Result<Needs, Error> {
    let facts = facts(program, &read(program)?)?;
    let architecture = facts.architecture;
    let mut found = Needs { architecture, files: BTreeMap::new() };
    if let Some(loader) = &facts.loader {
        let path = root.join(loader.trim_start_matches('/'));
        found.files.insert(loader.clone(), read(&path)?);
    }
    let directories = directories(architecture, more);
    let mut open: Vec<(String, PathBuf)> =
        facts.needed.into_iter().map(|name| (name, program.to_path_buf())).collect();
    // The loader is a library, too, and it is where it must be.
    let mut seen: BTreeSet<String> =
        facts.loader.iter().filter_map(|path| path.rsplit('/').next()).map(Into::into).collect();
    while let Some((name, by)) = open.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let inside = directories
            .iter()
            .map(|directory| format!("{directory}/{name}"))
            .find(|path| root.join(path.trim_start_matches('/')).is_file());
        let inside = inside.ok_or_else(|| Error::Library {
            needed: name,
            by,
            searched: directories.clone(),
        })?;
        let path = root.join(inside.trim_start_matches('/'));
        let content = read(&path)?;
        let facts = self::facts(&path, &content)?;
        open.extend(facts.needed.into_iter().map(|name| (name, path.clone())));
        found.files.insert(inside, content);
    }
    Ok(found)
}

fn directories(architecture: Architecture, more: &[PathBuf]) -> Vec<String> {
    let triple = architecture.multiarch();
    let more = more.iter().map(|path| path.display().to_string());
    let usual = [
        &format!("/lib/{triple}"),
        &format!("/usr/lib/{triple}"),
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    ]
    .map(str::to_owned);
    more.chain(usual).collect()
}

fn facts(path: &Path, content: &[u8]) -> Result<Facts, Error> {
    let wrong = |why: String| Error::Program { path: path.to_path_buf(), why };
    let parse =
        |error: elf::ParseError| wrong(format!("it is no ELF file that can be read: {error}"));
    let file = ElfBytes::<AnyEndian>::minimal_parse(content).map_err(parse)?;
    let architecture = match file.ehdr.e_machine {
        EM_X86_64 => Architecture::Amd64,
        EM_AARCH64 => Architecture::Arm64,
        other => {
            return Err(wrong(format!("its architecture ({other}) is neither amd64 nor arm64")));
        }
    };
    let loader = file
        .segments()
        .into_iter()
        .flat_map(|segments| segments.iter())
        .find(|segment| segment.p_type == PT_INTERP)
        .map(|segment| file.segment_data(&segment).map_err(parse))
        .transpose()?
        .map(|name| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
    let common = file.find_common_data().map_err(parse)?;
    let mut needed = Vec::new();
    if let (Some(dynamic), Some(strings)) = (common.dynamic, common.dynsyms_strs) {
        for entry in dynamic.iter().filter(|entry| entry.d_tag == DT_NEEDED) {
            let at = usize::try_from(entry.d_val()).unwrap_or(usize::MAX);
            needed.push(strings.get(at).map_err(parse)?.to_owned());
        }
    }
    Ok(Facts { architecture, loader, needed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_needs_its_loader_and_the_libraries_of_its_libraries() {
        let own = std::env::current_exe().expect("this test is a program");
        let needs = needs(&own, Path::new("/"), &[]).expect("it runs here");
        assert_eq!(
            needs.architecture.name(),
            if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }
        );
        let has = |name: &str| needs.files.keys().any(|path| path.ends_with(name));
        assert!(has("/libc.so.6") && has("/libgcc_s.so.1"), "{:?}", needs.files.keys());
        assert!(
            needs.files.keys().any(|path| path.contains("/ld-linux")),
            "{:?}",
            needs.files.keys()
        );
    }

    #[test]
    fn a_library_that_is_nowhere_is_named_with_what_needs_it() {
        let own = std::env::current_exe().expect("this test is a program");
        let root = tempfile::tempdir().expect("temp dir");
        let loader =
            facts(&own, &read(&own).expect("readable")).expect("ELF").loader.expect("dynamic");
        crate::error::write(&root.path().join(loader.trim_start_matches('/')), "")
            .expect("written");
        let error = needs(&own, root.path(), &[]).expect_err("no library is there").to_string();
        assert!(error.contains(".so") && error.contains(&own.display().to_string()), "{error}");
    }

    #[test]
    fn a_script_is_no_program_for_an_image() {
        let dir = tempfile::tempdir().expect("temp dir");
        let script = dir.path().join("x");
        crate::error::write(&script, "#!/bin/sh\n").expect("written");
        let error = needs(&script, Path::new("/"), &[]).expect_err("it is a script").to_string();
        assert!(error.contains("can't be put into an image"), "{error}");
    }
}

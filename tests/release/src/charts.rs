//! The charts as Helm packages: what `helm package` makes, with the same bytes each time.

use std::path::Path;

use crate::error::{Error, read, write};
use crate::tree::{Tree, gzip};

/// The charts of this workspace.
pub const CHARTS: [&str; 2] = ["tenon", "tenon-crds"];

/// The image that a checkout's chart has: it names no registry.
const PLACEHOLDER: &str = "repository: tenon-operator\n";

/// Packages a chart; answers the file's name, `<chart>-<version>.tgz`. `image`: the repository of
/// the operator's image, without a tag.
///
/// # Errors
/// When the chart can't be read, or has another version than the workspace.
pub fn package(
    chart: &Path,
    version: &str,
    image: Option<&str>,
    epoch: u64,
    out: &Path,
) -> Result<String, Error> {
    let name = chart.file_name().and_then(|it| it.to_str()).unwrap_or_default();
    let mut tree = Tree::default();
    add(&mut tree, name, chart)?;
    has_version(chart, version)?;
    if let Some(image) = image {
        let file = chart.join("values.yaml");
        let text = String::from_utf8_lossy(&read(&file)?).into_owned();
        let with = text.replacen(PLACEHOLDER, &format!("repository: {image}\n"), 1);
        tree.file(&format!("{name}/values.yaml"), 0o644, with);
    }
    let package = format!("{name}-{version}.tgz");
    write(&out.join(&package), gzip(&tree.tar(epoch, false)))?;
    Ok(package)
}

/// Whether a chart and what it installs have this version.
///
/// # Errors
/// When they have another.
pub(crate) fn has_version(chart: &Path, version: &str) -> Result<(), Error> {
    let file = chart.join("Chart.yaml");
    let text = String::from_utf8_lossy(&read(&file)?).into_owned();
    for key in ["version", "appVersion"] {
        if !text.lines().any(|line| line == format!("{key}: {version}")) {
            let why = format!("{} has not {key}: {version}, the workspace's", file.display());
            return Err(Error::Unsupported(why));
        }
    }
    Ok(())
}

/// Adds a directory's files; links are followed, as Helm does.
fn add(tree: &mut Tree, name: &str, dir: &Path) -> Result<(), Error> {
    let entries = std::fs::read_dir(dir).map_err(Error::file("list", dir))?;
    for entry in entries {
        let path = entry.map_err(Error::file("list", dir))?.path();
        let part = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let inside = format!("{name}/{part}");
        if path.is_dir() {
            add(tree, &inside, &path)?;
        } else {
            tree.file(&inside, 0o644, read(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn charts() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts")
    }

    fn content(package: &Path, path: &str) -> Option<String> {
        let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(package).ok()?));
        let mut found = archive
            .entries()
            .ok()?
            .filter_map(Result::ok)
            .find(|entry| entry.path().is_ok_and(|it| it == Path::new(path)))?;
        let mut text = String::new();
        found.read_to_string(&mut text).ok()?;
        Some(text)
    }

    #[test]
    fn charts_have_the_version_of_the_workspace() {
        let dir = tempfile::tempdir().expect("temp dir");
        for chart in CHARTS {
            package(&charts().join(chart), env!("CARGO_PKG_VERSION"), None, 0, dir.path())
                .unwrap_or_else(|error| panic!("{error}"));
        }
        let error = package(&charts().join("tenon"), "9.9.9", None, 0, dir.path());
        assert!(error.expect_err("it has another").to_string().contains("has not version: 9.9.9"));
    }

    #[test]
    fn a_package_has_what_links_point_to_and_the_image_of_the_release() {
        let dir = tempfile::tempdir().expect("temp dir");
        let version = env!("CARGO_PKG_VERSION");
        let make = |chart: &str, image: Option<&str>| {
            dir.path().join(
                package(&charts().join(chart), version, image, 0, dir.path()).expect("packaged"),
            )
        };
        let crds = make("tenon-crds", None);
        let crd = content(&crds, "tenon-crds/manifests/karpenter.sh_nodepools.yaml");
        assert!(crd.expect("the manifests are a link").contains("CustomResourceDefinition"));
        let values =
            |image| content(&make("tenon", image), "tenon/values.yaml").expect("it has values");
        assert!(values(None).contains(PLACEHOLDER), "the placeholder is not what the chart has");
        assert!(
            values(Some("r.example/tenon-operator"))
                .contains("repository: r.example/tenon-operator\n")
        );
        assert!(!values(Some("r.example/tenon-operator")).contains(PLACEHOLDER));
    }

    #[test]
    fn packages_are_the_same_each_time() {
        let bytes = || {
            let dir = tempfile::tempdir().expect("temp dir");
            let version = env!("CARGO_PKG_VERSION");
            let name =
                package(&charts().join("tenon"), version, None, 9, dir.path()).expect("packaged");
            std::fs::read(dir.path().join(name)).expect("there")
        };
        assert_eq!(bytes(), bytes());
    }
}

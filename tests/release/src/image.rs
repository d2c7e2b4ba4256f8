//! The operator's image: its layers and how they are run, in an OCI layout.
//!
//! The lowest layer has what the programs need and changes rarely; each program is a layer above
//! it. There is nothing else: no shell, no package manager.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::json;

use crate::error::{Error, read};
use crate::layout::{
    CONFIG, Descriptor, INDEX, Index, LAYER, LAYER_GZIP, Layout, MANIFEST, Manifest, Platform,
    digest_of,
};
use crate::needs::{Architecture, Needs, needs};
use crate::tree::{Tree, gzip};

/// The image's user and group, as the chart has them.
const USER: u32 = 65532;

/// Where the CA bundle is, in the image and in most distributions.
pub(crate) const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What an image is made from.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// Path of the built `tenon-operator`, which the image runs.
    pub program: &'a Path,
    /// Paths of further programs, each of which becomes a layer.
    pub beside: &'a [PathBuf],
    /// Where libraries are looked for: `/`, or a directory with another architecture's.
    pub root: &'a Path,
    /// Directories below `root` in which libraries are looked for first.
    pub library_path: &'a [PathBuf],
    /// The certificates of the authorities that are trusted.
    pub ca_bundle: &'a Path,
    /// Whether layers are compressed. They need not be where nothing is sent far.
    pub compressed: bool,
    /// The time of all files, in seconds since 1970.
    pub epoch: u64,
    /// Value of the annotation `org.opencontainers.image.version`.
    pub version: &'a str,
    /// Value of the annotation `org.opencontainers.image.revision`.
    pub commit: &'a str,
    /// Where the source is, if that is known.
    pub source: Option<&'a str>,
}

/// Makes an image of one architecture; its layout has an index that names it.
///
/// # Errors
/// When the program or one of its libraries can't be read, or the layout can't be written.
pub fn build(source: &Source<'_>, dir: &Path) -> Result<Layout, Error> {
    let layout = Layout::create(dir)?;
    let of = |program: &Path| needs(program, source.root, source.library_path);
    let Needs { files, architecture } = of(source.program)?;
    let name = program_name(source.program);
    let mut base = Tree::default();
    let mut files = files;
    for program in source.beside {
        files.extend(of(program)?.files);
    }
    for (path, content) in files {
        base.file(&path, 0o755, content);
    }
    base.file(CA_BUNDLE, 0o644, read(source.ca_bundle)?);
    base.file(
        "/etc/passwd",
        0o644,
        format!(
            "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:/:/sbin/nologin\n"
        ),
    );
    base.file("/etc/group", 0o644, format!("root:x:0:\nnonroot:x:{USER}:\n"));
    base.file("/etc/nsswitch.conf", 0o644, "hosts: files dns\n");
    // Mount points, which a runtime can't make in a read-only file system.
    base.directory("/tmp", 0o1777);
    for path in ["/dev", "/proc", "/sys", "/run", "/var/run"] {
        base.directory(path, 0o755);
    }
    let mut trees = vec![base];
    let mut history = vec!["loader, libraries, CA bundle, users".to_owned()];
    for program in source.beside.iter().map(PathBuf::as_path).chain([source.program]) {
        let name = program_name(program);
        let mut tree = Tree::default();
        tree.file(&format!("/usr/bin/{name}"), 0o755, read(program)?);
        trees.push(tree);
        history.push(name.to_owned());
    }
    let history = history.iter().map(|what| {
        json!({ "created": created(source.epoch), "created_by": format!("cargo release image: {what}") })
    });
    let history = history.collect::<Vec<_>>();
    let (layers, diff_ids) = layers(source, &layout, &trees)?;
    let created = created(source.epoch);
    let labels = labels(source, name, &created);
    let config = json!({
        "created": created,
        "architecture": architecture.name(),
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin", format!("SSL_CERT_FILE={CA_BUNDLE}")],
            "Entrypoint": [format!("/usr/bin/{name}")],
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
        "history": history,
    });
    let manifest = Manifest {
        schema_version: 2,
        media_type: MANIFEST.to_owned(),
        config: layout.add_json(CONFIG, &config)?,
        layers,
        annotations: labels,
    };
    let manifest = layout.add_json(MANIFEST, &manifest)?;
    let image = index(&layout, vec![(architecture.name().to_owned(), manifest)], BTreeMap::new())?;
    layout.set_image(&image, source.version)?;
    Ok(layout)
}

fn program_name(program: &Path) -> &str {
    program.file_name().and_then(|name| name.to_str()).unwrap_or("program")
}

fn layers(
    source: &Source<'_>,
    layout: &Layout,
    trees: &[Tree],
) -> Result<(Vec<Descriptor>, Vec<String>), Error> {
    let (mut layers, mut diff_ids) = (Vec::new(), Vec::new());
    for tree in trees {
        let tar = tree.tar(source.epoch, true);
        diff_ids.push(digest_of(&tar));
        layers.push(if source.compressed {
            layout.add(LAYER_GZIP, &gzip(&tar))?
        } else {
            layout.add(LAYER, &tar)?
        });
    }
    Ok((layers, diff_ids))
}

/// What OCI has names for.
fn labels(source: &Source<'_>, name: &str, created: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from(
        [
            ("title", name),
            ("description", "Tenon's operator: a node autoscaler for Kubernetes on AWS"),
            ("version", source.version),
            ("revision", source.commit),
            ("licenses", "Apache-2.0"),
            ("created", created),
        ]
        .map(|(key, value)| (format!("org.opencontainers.image.{key}"), value.to_owned())),
    );
    if let Some(url) = source.source {
        labels.insert("org.opencontainers.image.source".to_owned(), url.to_owned());
    }
    labels
}

/// `2026-11-24T00:00:00Z`
fn created(epoch: u64) -> String {
    let seconds = i64::try_from(epoch).unwrap_or_default();
    Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

fn index(
    layout: &Layout,
    mut images: Vec<(String, Descriptor)>,
    annotations: BTreeMap<String, String>,
) -> Result<Descriptor, Error> {
    images.sort_by(|(a, _), (b, _)| a.cmp(b));
    let manifests = images.into_iter().map(|(architecture, mut manifest)| {
        manifest.platform = Some(Platform { architecture, os: "linux".to_owned() });
        manifest
    });
    let (schema_version, media_type) = (2, INDEX.to_owned());
    let index = Index { schema_version, media_type, manifests: manifests.collect(), annotations };
    layout.add_json(INDEX, &index)
}

/// Joins images of several architectures to one.
///
/// # Errors
/// When one of them is not complete, two are of the same architecture, or the layout can't be
/// written.
pub fn join(layouts: &[PathBuf], dir: &Path) -> Result<Layout, Error> {
    let joined = Layout::create(dir)?;
    let mut images: Vec<(String, Descriptor)> = Vec::new();
    let mut tags = Vec::new();
    for path in layouts {
        let layout = Layout::at(path);
        let (image, tag) = layout.image()?;
        tags.push(tag);
        let of: Index = layout.document(&image)?;
        for manifest in of.manifests {
            let platform = manifest.platform.as_ref().map(|it| it.architecture.clone());
            let architecture = platform.unwrap_or_default();
            if images.iter().any(|(other, _)| *other == architecture) {
                let why = format!("two of the images are for {architecture:?}");
                return Err(Error::Unsupported(why));
            }
            let document: Manifest = layout.document(&manifest)?;
            for blob in document.layers.iter().chain([&document.config, &manifest]) {
                joined.add(&blob.media_type, &layout.blob(blob)?)?;
            }
            images.push((architecture, manifest));
        }
    }
    tags.dedup();
    let [tag] = tags.as_slice() else {
        return Err(Error::Unsupported(format!(
            "the images have different tags: {}",
            tags.join(", ")
        )));
    };
    let image = index(&joined, images, BTreeMap::new())?;
    joined.set_image(&image, tag)?;
    Ok(joined)
}

/// The architecture of the machine that this runs on.
pub const fn own_architecture() -> Architecture {
    if cfg!(target_arch = "aarch64") { Architecture::Arm64 } else { Architecture::Amd64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpack::{Process, unpack};

    /// An image of this test program, made at `epoch`.
    fn image(dir: &Path, epoch: u64) -> Layout {
        let program = std::env::current_exe().expect("this test is a program");
        let named = dir.join("tenon-operator");
        std::fs::copy(&program, &named).expect("copied");
        std::fs::copy(program, dir.join("tenon")).expect("copied");
        let ca = dir.join("ca.crt");
        crate::error::write(&ca, "-----BEGIN CERTIFICATE-----\n").expect("written");
        let source = Source {
            program: &named,
            beside: &[dir.join("tenon")],
            root: Path::new("/"),
            library_path: &[],
            ca_bundle: &ca,
            compressed: false,
            epoch,
            version: "1.2.3",
            commit: "abc",
            source: None,
        };
        build(&source, &dir.join("image")).expect("built")
    }

    #[test]
    fn the_same_input_has_the_same_digest_and_another_time_another() {
        let digest = |epoch| {
            let dir = tempfile::tempdir().expect("temp dir");
            image(dir.path(), epoch).image().expect("one").0.digest
        };
        assert_eq!(digest(100), digest(100));
        assert_ne!(digest(100), digest(101));
    }

    #[test]
    fn an_image_says_how_it_is_run_and_what_it_is() {
        let dir = tempfile::tempdir().expect("temp dir");
        let layout = image(dir.path(), 1_700_000_000);
        let (index, tag) = layout.image().expect("one");
        assert_eq!(tag, "1.2.3");
        let manifest = layout.manifest_for(&index, own_architecture().name()).expect("this one");
        let document: Manifest = layout.document(&manifest).expect("JSON");
        assert_eq!(document.annotations["org.opencontainers.image.revision"], "abc");
        assert_eq!(
            document.annotations["org.opencontainers.image.created"],
            "2023-11-14T22:13:20Z"
        );
        let root = dir.path().join("root");
        let process = unpack(&layout, &manifest, &root).expect("unpacked");
        let Process { entrypoint, user, env } = process;
        assert_eq!(entrypoint, ["/usr/bin/tenon-operator"]);
        assert_eq!(user, "65532:65532");
        assert_eq!(env["SSL_CERT_FILE"], CA_BUNDLE);
        let passwd = std::fs::read_to_string(root.join("etc/passwd")).expect("there");
        assert!(passwd.contains("nonroot:x:65532:65532"), "{passwd}");
        assert!(root.join("usr/bin/tenon").exists(), "`helm test` runs it");
        assert!(!root.join("bin/sh").exists() && !root.join("usr/bin/sh").exists());
        assert!(layout.manifest_for(&index, "riscv64").is_err());
    }

    #[test]
    fn images_of_one_architecture_are_not_joined() {
        let dir = tempfile::tempdir().expect("temp dir");
        image(dir.path(), 5);
        let one = dir.path().join("image");
        let joined = dir.path().join("joined");
        let error = join(&[one.clone(), one.clone()], &joined).expect_err("both are the same");
        assert!(error.to_string().contains("two of the images are for"), "{error}");
        let alone = join(std::slice::from_ref(&one), &joined).expect("joined");
        assert_eq!(alone.image().expect("one"), Layout::at(&one).image().expect("one"));
    }
}

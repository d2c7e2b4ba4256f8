//! An image's layers as a directory, as a container runtime has them.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path};

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::error::{Error, write};
use crate::layout::{Descriptor, LAYER, LAYER_GZIP, Layout, Manifest, digest_of};

/// How an image's process is started.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Process {
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// User and group.
    pub user: String,
    /// Variables.
    pub env: BTreeMap<String, String>,
}

/// Unpacks the layers of a manifest's image into `root`, each checked against its digests, and
/// answers how it is run.
///
/// # Errors
/// When something has another digest, or is what this does not understand: whiteouts, other
/// compressions, paths that lead elsewhere.
pub fn unpack(layout: &Layout, manifest: &Descriptor, root: &Path) -> Result<Process, Error> {
    let manifest: Manifest = layout.document(manifest)?;
    let config: Value = layout.document(&manifest.config)?;
    let diff_ids = config.pointer("/rootfs/diff_ids").and_then(Value::as_array);
    for (at, layer) in manifest.layers.iter().enumerate() {
        let tar = uncompressed(layout, layer)?;
        let found = digest_of(&tar);
        let expected = diff_ids.and_then(|ids| ids.get(at)?.as_str()).unwrap_or_default();
        if found != expected {
            let (what, expected) = (format!("layer {}", layer.digest), expected.to_owned());
            return Err(Error::Digest { what, expected, found });
        }
        extract(&tar, &layer.digest, root)?;
    }
    let strings = |pointer: &str| {
        let values = config.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        values.filter_map(|value| value.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let mut entrypoint = strings("/config/Entrypoint");
    entrypoint.extend(strings("/config/Cmd"));
    let env = strings("/config/Env");
    let pairs = env.iter().filter_map(|pair| pair.split_once('='));
    Ok(Process {
        entrypoint,
        user: config.pointer("/config/User").and_then(Value::as_str).unwrap_or("0:0").to_owned(),
        env: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
    })
}

fn uncompressed(layout: &Layout, layer: &Descriptor) -> Result<Vec<u8>, Error> {
    let content = layout.blob(layer)?;
    match layer.media_type.as_str() {
        LAYER => Ok(content),
        LAYER_GZIP => {
            let mut tar = Vec::new();
            let path = layout.path(&layer.digest)?;
            GzDecoder::new(content.as_slice())
                .read_to_end(&mut tar)
                .map_err(Error::file("decompress", &path))?;
            Ok(tar)
        }
        other => Err(Error::Unsupported(format!("layer {} is a {other}", layer.digest))),
    }
}

fn extract(tar: &[u8], name: &str, root: &Path) -> Result<(), Error> {
    let failed = Error::file("unpack", root);
    let mut archive = tar::Archive::new(tar);
    let entries = archive.entries().map_err(failed)?;
    for entry in entries {
        let mut entry = entry.map_err(Error::file("unpack", root))?;
        let path = entry.path().map_err(Error::file("unpack", root))?.into_owned();
        let is_inside = path.components().all(|it| matches!(it, Component::Normal(_)));
        let is_whiteout =
            path.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(b".wh."));
        let kind = entry.header().entry_type();
        let target = root.join(&path);
        let mode = entry.header().mode().map_err(Error::file("unpack", root))?;
        if is_inside && kind.is_dir() {
            std::fs::create_dir_all(&target).map_err(Error::file("make", &target))?;
        } else if is_inside && kind.is_file() && !is_whiteout {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(Error::file("unpack", &target))?;
            write(&target, content)?;
        } else {
            let why = format!(
                "layer {name} has {} ({kind:?}), which is not understood here",
                path.display()
            );
            return Err(Error::Unsupported(why));
        }
        set_mode(&target, mode)?;
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .map_err(Error::file("set the mode of", path))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::layout::{CONFIG, MANIFEST};
    use crate::tree::{Tree, gzip};

    /// A layout with one layer; its configuration says `diff_id`.
    fn layout(dir: &Path, layer: &[u8], media_type: &str, diff_id: &str) -> (Layout, Descriptor) {
        let layout = Layout::create(&dir.join("image")).expect("made");
        let config = json!({ "rootfs": { "diff_ids": [diff_id] }, "config": { "Cmd": ["/x"] } });
        let manifest = Manifest {
            schema_version: 2,
            media_type: MANIFEST.to_owned(),
            config: layout.add_json(CONFIG, &config).expect("added"),
            layers: vec![layout.add(media_type, layer).expect("added")],
            annotations: BTreeMap::new(),
        };
        let manifest = layout.add_json(MANIFEST, &manifest).expect("added");
        (layout, manifest)
    }

    fn tar() -> Vec<u8> {
        let mut tree = Tree::default();
        tree.file("/bin/x", 0o750, "content");
        tree.tar(0, true)
    }

    #[test]
    fn compressed_and_plain_layers_become_files_with_their_modes() {
        use std::os::unix::fs::PermissionsExt;
        for (layer, media_type) in [(tar(), LAYER), (gzip(&tar()), LAYER_GZIP)] {
            let dir = tempfile::tempdir().expect("temp dir");
            let (layout, manifest) = layout(dir.path(), &layer, media_type, &digest_of(&tar()));
            let root = dir.path().join("root");
            let process = unpack(&layout, &manifest, &root).expect("unpacked");
            assert_eq!(
                (process.entrypoint, process.user),
                (vec!["/x".to_owned()], "0:0".to_owned())
            );
            let file = root.join("bin/x");
            assert_eq!(std::fs::read_to_string(&file).expect("there"), "content");
            assert_eq!(
                std::fs::metadata(&file).expect("there").permissions().mode() & 0o777,
                0o750
            );
        }
    }

    #[test]
    fn a_layer_that_is_not_what_the_image_says_is_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (layout, manifest) = layout(dir.path(), &tar(), LAYER, &digest_of(b"other"));
        let error = unpack(&layout, &manifest, &dir.path().join("root")).expect_err("refused");
        assert!(matches!(error, Error::Digest { .. }), "{error}");
    }

    #[test]
    fn a_layer_can_neither_write_elsewhere_nor_hide_files() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(0);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        let name = b"../escaped";
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.set_cksum();
        builder.append(&header, &[][..]).expect("memory takes it");
        let escaping = builder.into_inner().expect("memory takes it");
        let mut hiding = Tree::default();
        hiding.file("etc/.wh.passwd", 0o644, "");
        for tar in [escaping, hiding.tar(0, true)] {
            let dir = tempfile::tempdir().expect("temp dir");
            let (layout, manifest) = layout(dir.path(), &tar, LAYER, &digest_of(&tar));
            let error = unpack(&layout, &manifest, &dir.path().join("root")).expect_err("refused");
            assert!(matches!(error, Error::Unsupported(_)), "{error}");
            assert!(!dir.path().join("escaped").exists());
        }
    }
}

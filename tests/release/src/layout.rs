//! An image on disk, as the OCI image layout has it: blobs by their digests, and an index that
//! names the first of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Error, read, write};

/// A list of manifests, one per platform.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// One image.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// How an image is run.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Files of an image.
pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Files of an image, compressed.
pub(crate) const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The annotation that tells an image's tag.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Names a blob.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    pub media_type: String,
    /// `sha256:…`
    pub digest: String,
    /// Bytes.
    pub size: u64,
    /// For which machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// What else is known of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// For which machines an image is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Platform {
    /// `amd64`, `arm64`
    pub architecture: String,
    /// `linux`
    pub os: String,
}

/// The list of an image's manifests.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// 2
    pub schema_version: u32,
    /// [`INDEX`]
    #[serde(default)]
    pub media_type: String,
    /// One per platform.
    pub manifests: Vec<Descriptor>,
    /// What is known of all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// One image.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// 2
    pub schema_version: u32,
    /// [`MANIFEST`]
    #[serde(default)]
    pub media_type: String,
    /// How it is run.
    pub config: Descriptor,
    /// Its files, the lowest first.
    pub layers: Vec<Descriptor>,
    /// What is known of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The digest of a content, `sha256:…`.
pub(crate) fn digest_of(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(digest(&SHA256, content)))
}

/// A directory with an image.
#[derive(Clone, Debug)]
pub struct Layout {
    dir: PathBuf,
}

impl Layout {
    /// One that may be there or not.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }

    /// An empty one; what was there is removed.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn create(dir: &Path) -> Result<Self, Error> {
        if dir.exists() {
            if !dir.join("oci-layout").exists() {
                let why = format!(
                    "{} is there and is no image layout: remove it, or choose another",
                    dir.display()
                );
                return Err(Error::Unsupported(why));
            }
            std::fs::remove_dir_all(dir).map_err(Error::file("remove", dir))?;
        }
        write(&dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok(Self::at(dir))
    }

    /// Where a blob is.
    ///
    /// # Errors
    /// When the digest is none that can be a file's name.
    pub fn path(&self, digest: &str) -> Result<PathBuf, Error> {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(self.dir.join("blobs/sha256").join(hex))
        } else {
            Err(Error::Unsupported(format!("{digest:?} is no sha256 digest")))
        }
    }

    /// Adds a blob.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn add(&self, media_type: &str, content: &[u8]) -> Result<Descriptor, Error> {
        let digest = digest_of(content);
        write(&self.path(&digest)?, content)?;
        let (media_type, size) = (media_type.to_owned(), content.len() as u64);
        Ok(Descriptor { media_type, digest, size, platform: None, annotations: BTreeMap::new() })
    }

    /// Adds a document.
    ///
    /// # Errors
    /// When it can't be written.
    ///
    /// # Panics
    /// Never: the documents of images can be written as JSON.
    pub(crate) fn add_json(
        &self,
        media_type: &str,
        document: &impl Serialize,
    ) -> Result<Descriptor, Error> {
        self.add(media_type, &serde_json::to_vec(document).expect("it is JSON"))
    }

    /// A blob, which has the digest that names it.
    ///
    /// # Errors
    /// When it can't be read, or has another digest.
    pub(crate) fn blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
        let path = self.path(&descriptor.digest)?;
        let content = read(&path)?;
        let found = digest_of(&content);
        if found == descriptor.digest {
            return Ok(content);
        }
        let (what, expected) = (path.display().to_string(), descriptor.digest.clone());
        Err(Error::Digest { what, expected, found })
    }

    /// A document.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn document<T: for<'a> Deserialize<'a>>(
        &self,
        descriptor: &Descriptor,
    ) -> Result<T, Error> {
        let what = || self.path(&descriptor.digest).map(|path| path.display().to_string());
        serde_json::from_slice(&self.blob(descriptor)?)
            .map_err(|source| Error::Document { what: what().unwrap_or_default(), source })
    }

    /// Makes `image` the layout's image, with this tag.
    ///
    /// # Errors
    /// When it can't be written.
    pub(crate) fn set_image(&self, image: &Descriptor, tag: &str) -> Result<(), Error> {
        let mut image = image.clone();
        image.annotations.insert(REF_NAME.to_owned(), tag.to_owned());
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [image] });
        write(&self.dir.join("index.json"), index.to_string())
    }

    /// The layout's image and its tag.
    ///
    /// # Errors
    /// When it has none, or several.
    pub fn image(&self) -> Result<(Descriptor, String), Error> {
        let path = self.dir.join("index.json");
        let index: Index = serde_json::from_slice(&read(&path)?)
            .map_err(|source| Error::Document { what: path.display().to_string(), source })?;
        match <[Descriptor; 1]>::try_from(index.manifests) {
            Ok([mut image]) => {
                let tag = image.annotations.remove(REF_NAME).unwrap_or_default();
                Ok((image, tag))
            }
            Err(all) => {
                let why = format!("{} names {} images instead of one", path.display(), all.len());
                Err(Error::Unsupported(why))
            }
        }
    }

    /// The manifest of an image for an architecture; of a list of one, that one.
    ///
    /// # Errors
    /// When there is none.
    pub fn manifest_for(
        &self,
        image: &Descriptor,
        architecture: &str,
    ) -> Result<Descriptor, Error> {
        if image.media_type != INDEX {
            return Ok(image.clone());
        }
        let index: Index = self.document(image)?;
        let fits = |one: &&Descriptor| {
            one.platform
                .as_ref()
                .is_some_and(|it| it.architecture == architecture && it.os == "linux")
        };
        index.manifests.iter().find(fits).cloned().ok_or_else(|| {
            Error::Unsupported(format!(
                "the image {} is not there for linux/{architecture}",
                image.digest
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_that_was_changed_is_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        let layout = Layout::create(&dir.path().join("image")).expect("made");
        let descriptor = layout.add(LAYER, b"as it was").expect("added");
        assert_eq!(layout.blob(&descriptor).expect("intact"), b"as it was");
        write(&layout.path(&descriptor.digest).expect("a path"), "as it is").expect("written");
        assert!(matches!(layout.blob(&descriptor), Err(Error::Digest { .. })));
    }

    #[test]
    fn a_digest_is_never_a_path_elsewhere() {
        let layout = Layout::at(Path::new("/nowhere"));
        for digest in ["sha256:../../x", "md5:00", "", "sha256:"] {
            assert!(layout.path(digest).is_err(), "{digest}");
        }
    }

    #[test]
    fn a_directory_that_is_no_layout_is_not_removed() {
        let dir = tempfile::tempdir().expect("temp dir");
        write(&dir.path().join("precious"), "").expect("written");
        assert!(Layout::create(dir.path()).is_err());
        assert!(dir.path().join("precious").exists());
    }
}

//! A folder of a state store, on this machine or in a bucket.

use std::io::ErrorKind;
use std::path::PathBuf;

use tenon_installer_core::aws::{Aws, AwsError};
use tenon_installer_core::files::FileError;
use tenon_installer_core::observe::bucket::Bucket;
use tenon_kops::read::{Files, Unfit};
use tenon_kops::{Location, Problem};

/// The state store, or what EC2 knows of it, could not be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// A call failed.
    Aws(AwsError),
    /// A file can't be read.
    File(FileError),
    /// What was read can't be used; each with what to do.
    Unfit(Vec<String>),
}

impl From<AwsError> for ReadError {
    fn from(error: AwsError) -> Self {
        Self::Aws(error)
    }
}

impl From<Unfit> for ReadError {
    fn from(Unfit(reasons): Unfit) -> Self {
        Self::Unfit(reasons)
    }
}

impl From<Vec<Problem>> for ReadError {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Unfit(problems.iter().map(ToString::to_string).collect())
    }
}

/// A folder of a state store.
pub(super) enum Store {
    Folder(PathBuf),
    Bucket { bucket: Bucket, prefix: String },
}

impl Store {
    pub(super) async fn open(aws: &Aws, location: &Location) -> Result<Self, ReadError> {
        Ok(match location {
            Location::Folder(path) => Self::Folder(path.clone()),
            Location::Bucket { bucket, prefix } => {
                let opened = Bucket::open(aws, bucket).await?;
                let bucket = opened.ok_or_else(|| {
                    ReadError::Unfit(vec![format!("there is no bucket {bucket}")])
                })?;
                let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
                Self::Bucket { bucket, prefix }
            }
        })
    }
}

impl Files for Store {
    type Error = ReadError;

    async fn read(&self, name: &str) -> Result<Option<String>, ReadError> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(name);
                match std::fs::read_to_string(&path) {
                    Ok(text) => Ok(Some(text)),
                    Err(error) if is_missing(&error) => Ok(None),
                    Err(error) => Err(ReadError::File(FileError::reading(&path)(error))),
                }
            }
            Self::Bucket { bucket, prefix } => Ok(bucket.read(&format!("{prefix}{name}")).await?),
        }
    }

    async fn names(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        let mut names = match self {
            Self::Folder(root) => {
                let path = root.join(folder);
                let failed = |error| ReadError::File(FileError::reading(&path)(error));
                let mut names = Vec::new();
                let entries = match std::fs::read_dir(&path) {
                    Err(error) if is_missing(&error) => return Ok(names),
                    entries => entries.map_err(failed)?,
                };
                for entry in entries {
                    let entry = entry.map_err(failed)?;
                    let is_folder = entry.path().is_dir();
                    let name = entry.file_name().to_string_lossy().into_owned();
                    names.push(if is_folder { format!("{name}/") } else { name });
                }
                names
            }
            Self::Bucket { bucket, prefix } => bucket.names(&format!("{prefix}{folder}")).await?,
        };
        names.sort();
        Ok(names)
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

//! Where built programs and downloads survive between runs, and how beds that start at the same
//! time share them.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::environment::Environment;

/// The cache can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// An environment variable of the bed has an invalid value.
    #[error("the environment is not valid")]
    Environment(#[source] clap::Error),
    /// No variable tells where the cache is.
    #[error(
        "no place for the cache: set TENON_CACHE to a directory (neither XDG_CACHE_HOME nor HOME is set)"
    )]
    NoPlace,
    /// The directory can't be made.
    #[error("can't make the cache directory {}; set TENON_CACHE to one that can be written", .path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A lock file can't be locked.
    #[error("can't lock {}", .path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The cache directory, which exists when this returns: `$TENON_CACHE`, else
/// `$XDG_CACHE_HOME/tenon`, else `~/.cache/tenon`.
///
/// # Errors
/// When no variable names a place, or the directory can't be made.
pub fn dir() -> Result<PathBuf, CacheError> {
    let path =
        place(&Environment::read().map_err(CacheError::Environment)?).ok_or(CacheError::NoPlace)?;
    std::fs::create_dir_all(&path)
        .map_err(|source| CacheError::Create { path: path.clone(), source })?;
    Ok(path)
}

fn place(environment: &Environment) -> Option<PathBuf> {
    let absolute = |path: &&PathBuf| path.is_absolute();
    environment
        .tenon_cache
        .clone()
        .filter(|path| !path.as_os_str().is_empty())
        .or_else(|| {
            environment.xdg_cache_home.as_ref().filter(absolute).map(|path| path.join("tenon"))
        })
        .or_else(|| {
            environment.home.as_ref().filter(absolute).map(|path| path.join(".cache/tenon"))
        })
}

/// A file lock between processes, held until it is dropped or its process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing would leave the lock to a program that another thread is just starting: until its
        // `exec`, it has a copy of every open file. An error means that there is no lock any more.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes the lock on `path` (made when missing), waiting for whoever has it. `waiting` is
    /// called once if there is somebody to wait for.
    ///
    /// # Errors
    /// When the file can't be made or locked.
    pub async fn acquire(path: &Path, waiting: impl FnOnce()) -> Result<Self, CacheError> {
        let mut waiting = Some(waiting);
        loop {
            if let Some(lock) = Self::try_acquire(path)? {
                return Ok(lock);
            }
            if let Some(waiting) = waiting.take() {
                waiting();
            }
            // Polled, because a blocking wait would hold a thread of the runtime, and could not be
            // cancelled.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Takes the lock if it is free; `None` if another holder has it.
    ///
    /// # Errors
    /// When the file can't be made or locked.
    pub fn try_acquire(path: &Path) -> Result<Option<Self>, CacheError> {
        let failed = |source| CacheError::Lock { path: path.to_path_buf(), source };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .map_err(|source| CacheError::Create { path: parent.to_path_buf(), source })?;
        }
        let file =
            File::options().create(true).truncate(false).write(true).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(cache: Option<&str>, xdg: Option<&str>, home: Option<&str>) -> Environment {
        let mut environment = Environment::read().expect("valid");
        environment.tenon_cache = cache.map(Into::into);
        environment.xdg_cache_home = xdg.map(Into::into);
        environment.home = home.map(Into::into);
        environment
    }

    #[test]
    fn takes_the_most_specific_place_that_is_set() {
        let of = |cache, xdg, home| {
            place(&environment(cache, xdg, home)).map(|path| path.display().to_string())
        };
        assert_eq!(of(Some("/c"), Some("/x"), Some("/h")).as_deref(), Some("/c"));
        assert_eq!(of(None, Some("/x"), Some("/h")).as_deref(), Some("/x/tenon"));
        assert_eq!(of(None, Some("relative"), Some("/h")).as_deref(), Some("/h/.cache/tenon"));
        assert_eq!(of(None, None, None), None);
    }

    #[tokio::test]
    async fn a_lock_has_one_holder_at_a_time() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("locks/one");
        let first = Lock::acquire(&path, || panic!("nobody holds it")).await.expect("lock");
        assert!(Lock::try_acquire(&path).expect("no error").is_none());
        drop(first);
        assert!(Lock::try_acquire(&path).expect("no error").is_some());
    }

    #[tokio::test]
    async fn a_copy_of_the_file_in_a_program_that_starts_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("one");
        let first = Lock::acquire(&path, || panic!("nobody holds it")).await.expect("lock");
        let copy = first.file.try_clone().expect("copy");
        drop(first);
        assert!(Lock::try_acquire(&path).expect("no error").is_some());
        drop(copy);
    }
}

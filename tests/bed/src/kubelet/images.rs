//! Images of a registry on loopback: pulled, every part checked against its digest, and unpacked
//! once, as a container runtime does. A container of such an image runs in these files and no
//! others.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tenon_release::image::own_architecture;
use tenon_release::layout::Layout;
use tenon_release::proxy::Proxies;
use tenon_release::registry::{Reference, Registry, RegistryError};
use tenon_release::unpack::{Process, unpack};
use tokio::sync::Mutex;

use super::environment::ConfigError;

/// An image as a runtime has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Pulled {
    /// The directory of its files.
    pub(super) root: PathBuf,
    /// How it is run.
    pub(super) process: Process,
}

/// The images of a machine.
#[derive(Debug)]
pub(super) struct Images {
    dir: PathBuf,
    pulled: Mutex<BTreeMap<String, Arc<Pulled>>>,
}

impl Images {
    /// None yet; they are kept in `dir`.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, pulled: Mutex::default() }
    }

    /// An image by the name that a container has for it; `None` if it is of no registry on
    /// loopback. It is pulled at most once.
    pub(super) async fn get(&self, image: &str) -> Result<Option<Arc<Pulled>>, ConfigError> {
        let Ok(reference) = image.parse::<Reference>() else { return Ok(None) };
        if !reference.is_on_loopback() {
            return Ok(None);
        }
        // Held while pulling: whoever asks for the same image meanwhile waits for it.
        let mut pulled = self.pulled.lock().await;
        if let Some(known) = pulled.get(image) {
            return Ok(Some(Arc::clone(known)));
        }
        let dir = self.dir.join(pulled.len().to_string());
        let failed = |error: RegistryError| {
            ConfigError(format!("failed to pull image {image:?}: {}", crate::wait::chain(&error)))
        };
        let layout = Layout::create(&dir.join("layout")).map_err(|error| failed(error.into()))?;
        let registry = Registry::of(reference, None, Proxies::default());
        let manifest = registry.pull(&layout, own_architecture().name()).await.map_err(failed)?;
        let root = dir.join("root");
        let process = unpack(&layout, &manifest, &root).map_err(|error| failed(error.into()))?;
        let image_of = Arc::new(Pulled { root, process });
        pulled.insert(image.to_owned(), Arc::clone(&image_of));
        Ok(Some(image_of))
    }
}

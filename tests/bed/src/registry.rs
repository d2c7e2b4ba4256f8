//! A real registry (distribution's), for what a release publishes: images and charts are pushed
//! there, and come from there to the bed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tenon_aws_double::cache::{self, CacheError};
use tenon_aws_double::process::{Process, ProcessError, ProcessSpec};
use tenon_aws_double::progress::Progress;
use tokio::net::TcpStream;

use crate::bed::Bed;
use crate::control_plane::credentials::CredentialsError;
use crate::control_plane::programs::{self, ProgramError};
use crate::failure::Failure;
use crate::ports::{PortError, Ports};

/// A server beside the bed's own does not come up.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The cache can't be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Its program can't be built.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// No ports are free.
    #[error("the server got no port")]
    Ports(#[from] PortError),
    /// Its configuration can't be written.
    #[error("can't write {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The API server refuses what belongs to it.
    #[error("can't {doing}")]
    Kubernetes {
        /// What was being done.
        doing: String,
        /// Why not.
        source: Failure,
    },
    /// Its certificate can't be made.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// It does not run: the end of its log says what is wrong with its configuration.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// A certificate and its key, as PEM files.
#[derive(Clone, Copy, Debug)]
pub struct Tls<'a> {
    /// The certificate, with those of its authorities.
    pub certificate: &'a Path,
    /// The private key.
    pub key: &'a Path,
}

/// A running registry; killed when dropped.
#[derive(Debug)]
pub struct Registry {
    port: u16,
    process: Process,
    _ports: Ports,
}

impl Registry {
    /// Starts one that speaks HTTP, or HTTPS with a certificate. The registries of a bed have the
    /// same content, whichever it is that runs.
    ///
    /// # Errors
    /// When it can't be built or does not run.
    pub async fn start(bed: &Bed, tls: Option<Tls<'_>>) -> Result<Self, ServerError> {
        let program = programs::registry(&Progress::hidden()).await?;
        let mut ports = Ports::reserve(&cache::dir()?)?;
        let port = ports.take()?;
        let dir = bed.dir().join(format!("registry-{port}"));
        let mut configuration = json!({
            "version": 0.1,
            "log": { "level": "warn" },
            "storage": { "filesystem": { "rootdirectory": bed.dir().join("registry") } },
            "http": { "addr": format!("127.0.0.1:{port}") },
        });
        if let Some(tls) = tls {
            configuration["http"]["tls"] =
                json!({ "certificate": tls.certificate, "key": tls.key });
        }
        let path = dir.join("registry.yaml");
        // JSON is YAML.
        std::fs::create_dir_all(&dir)
            .and_then(|()| std::fs::write(&path, configuration.to_string()))
            .map_err(|source| ServerError::Write { path: path.clone(), source })?;
        let process = Process::spawn(ProcessSpec {
            name: "registry".to_owned(),
            program,
            args: vec!["serve".into(), path.into()],
            env: BTreeMap::from([("OTEL_TRACES_EXPORTER".to_owned(), "none".to_owned())]),
            log: bed.dir().join(format!("logs/registry-{port}.log")),
            dir,
        })?;
        let listens = async || TcpStream::connect(("127.0.0.1", port)).await.is_ok();
        process.ready("it listens", Duration::from_secs(20), listens).await?;
        Ok(Self { port, process, _ports: ports })
    }

    /// Its port on loopback.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its host, as images and charts name it.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Ends it.
    pub async fn stop(self) {
        self.process.stop(Duration::from_secs(5)).await;
    }
}

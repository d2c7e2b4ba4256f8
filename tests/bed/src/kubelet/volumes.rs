//! The volumes of a pod as directories on this machine: projected sources, ConfigMaps, Secrets, the
//! downward API, empty directories and host paths. Tokens are requested from the API server, bound
//! to the pod, and renewed before they expire.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, KeyToPath, PodSpec, ServiceAccount,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use tokio::time::Instant;

use super::Shared;
use super::environment::{self, ConfigError, Facts};
use super::isolation::Mount;

type Files = BTreeMap<String, Vec<u8>>;

/// The volumes of one pod.
#[derive(Debug)]
pub(super) struct Volumes {
    dir: PathBuf,
    tokens: Vec<Token>,
}

/// A token file that has to be renewed.
#[derive(Debug)]
struct Token {
    file: PathBuf,
    projection: ServiceAccountTokenProjection,
    renew_at: Instant,
}

impl Volumes {
    /// Writes all volumes of the pod below `dir`.
    pub(super) async fn write(
        shared: &Shared,
        facts: Facts<'_>,
        spec: &PodSpec,
        dir: PathBuf,
    ) -> Result<Self, ConfigError> {
        let mut volumes = Self { dir, tokens: Vec::new() };
        for volume in spec.volumes.iter().flatten() {
            volumes.write_one(shared, facts, volume).await?;
        }
        Ok(volumes)
    }

    async fn write_one(
        &mut self,
        shared: &Shared,
        facts: Facts<'_>,
        volume: &Volume,
    ) -> Result<(), ConfigError> {
        let namespace = facts.pod.namespace().unwrap_or_default();
        let dir = self.dir.join(&volume.name);
        let mut files = Files::new();
        if let Some(source) = &volume.projected {
            for source in source.sources.iter().flatten() {
                if let Some(projection) = &source.service_account_token {
                    let (token, renew_at) = token(shared, facts, projection).await?;
                    files.insert(projection.path.clone(), token.into_bytes());
                    let file = inside(&dir, &projection.path)?;
                    self.tokens.push(Token { file, projection: projection.clone(), renew_at });
                } else {
                    files.extend(projected(shared, facts, &namespace, source).await?);
                }
            }
        } else if let Some(source) = &volume.config_map {
            let optional = source.optional.unwrap_or(false);
            let entries =
                environment::config_map(shared, &namespace, &source.name, optional).await?;
            files = chosen(entries, source.items.as_deref(), optional)?;
        } else if let Some(source) = &volume.secret {
            let optional = source.optional.unwrap_or(false);
            let name = source.secret_name.as_deref().unwrap_or_default();
            let entries = environment::secret(shared, &namespace, name, optional).await?;
            files = chosen(entries, source.items.as_deref(), optional)?;
        } else if let Some(source) = &volume.downward_api {
            files = downward(facts, source.items.as_deref().unwrap_or_default())?;
        } else if volume.empty_dir.is_none() && volume.host_path.is_none() {
            let text =
                format!("the bed's kubelet can't mount the kind of volume \"{}\"", volume.name);
            return Err(ConfigError(text));
        }
        std::fs::create_dir_all(&dir).map_err(|error| failed(&dir, &error))?;
        for (path, bytes) in files {
            write_atomically(&inside(&dir, &path)?, &bytes)?;
        }
        Ok(())
    }

    /// Where the container's volumes are and belong.
    pub(super) fn mounts(
        &self,
        spec: &PodSpec,
        container: &Container,
    ) -> Result<Vec<Mount>, ConfigError> {
        let mounts = container.volume_mounts.iter().flatten();
        mounts
            .map(|mount| {
                let host_path = spec
                    .volumes
                    .iter()
                    .flatten()
                    .find(|volume| volume.name == mount.name)
                    .and_then(|volume| volume.host_path.as_ref());
                let volume = host_path
                    .map_or_else(|| self.dir.join(&mount.name), |host| host.path.clone().into());
                let source = match &mount.sub_path {
                    Some(path) if !path.is_empty() => inside(&volume, path)?,
                    _ => volume,
                };
                Ok(Mount { source, path: mount.mount_path.clone().into() })
            })
            .collect()
    }

    /// The file that becomes the message of a container's end, where it asks for another place than
    /// Kubernetes' own.
    pub(super) fn message(&self, container: &Container) -> Result<Option<Mount>, ConfigError> {
        let path = container.termination_message_path.as_deref();
        let Some(path) = path.filter(|path| *path != "/dev/termination-log") else {
            return Ok(None);
        };
        let source = self.dir.join(format!("message of {}", container.name));
        let made = std::fs::create_dir_all(&self.dir).and_then(|()| std::fs::write(&source, ""));
        // Whoever the container runs as writes it.
        let anybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let made = made.and_then(|()| std::fs::set_permissions(&source, anybody));
        made.map_err(|error| ConfigError(format!("can't write {}: {error}", source.display())))?;
        Ok(Some(Mount { source, path: path.into() }))
    }

    /// When the next token has to be renewed.
    pub(super) fn next_renewal(&self) -> Option<Instant> {
        self.tokens.iter().map(|token| token.renew_at).min()
    }

    /// Renews the tokens that are due. What fails is tried again a few seconds later; the old token
    /// lives for a while yet.
    pub(super) async fn renew(&mut self, shared: &Shared, facts: Facts<'_>) {
        for due in self.tokens.iter_mut().filter(|token| token.renew_at <= Instant::now()) {
            let renewed = match token(shared, facts, &due.projection).await {
                Ok((token, renew_at)) => {
                    write_atomically(&due.file, token.as_bytes()).map(|()| renew_at)
                }
                Err(error) => Err(error),
            };
            due.renew_at = renewed.unwrap_or_else(|error| {
                tracing::warn!(pod = facts.pod.name_any(), %error, "a service account token was not renewed");
                Instant::now() + Duration::from_secs(5)
            });
        }
    }

    /// Removes all files.
    pub(super) fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(dir = %self.dir.display(), %error, "a pod's volumes were not removed");
        }
    }
}

async fn projected(
    shared: &Shared,
    facts: Facts<'_>,
    namespace: &str,
    source: &VolumeProjection,
) -> Result<Files, ConfigError> {
    if let Some(map) = &source.config_map {
        let optional = map.optional.unwrap_or(false);
        let entries = environment::config_map(shared, namespace, &map.name, optional).await?;
        chosen(entries, map.items.as_deref(), optional)
    } else if let Some(secret) = &source.secret {
        let optional = secret.optional.unwrap_or(false);
        let entries = environment::secret(shared, namespace, &secret.name, optional).await?;
        chosen(entries, secret.items.as_deref(), optional)
    } else if let Some(fields) = &source.downward_api {
        downward(facts, fields.items.as_deref().unwrap_or_default())
    } else {
        Err(ConfigError("the bed's kubelet does not know this kind of projected source".to_owned()))
    }
}

fn chosen(
    mut entries: Files,
    items: Option<&[KeyToPath]>,
    optional: bool,
) -> Result<Files, ConfigError> {
    let Some(items) = items else { return Ok(entries) };
    let mut files = Files::new();
    for item in items {
        match entries.remove(&item.key) {
            Some(value) => {
                files.insert(item.path.clone(), value);
            }
            None if optional => {}
            None => return Err(ConfigError(format!("references non-existent key: {}", item.key))),
        }
    }
    Ok(files)
}

fn downward(facts: Facts<'_>, items: &[DownwardAPIVolumeFile]) -> Result<Files, ConfigError> {
    let mut files = Files::new();
    for item in items {
        let value = match (&item.field_ref, &item.resource_field_ref) {
            (Some(selector), _) => environment::field(facts, selector)?,
            (None, Some(selector)) => {
                environment::resource(facts, &Container::default(), selector)?
            }
            (None, None) => String::new(),
        };
        files.insert(item.path.clone(), value.into_bytes());
    }
    Ok(files)
}

/// A new token for the pod's service account, and when to ask for the next: at 80 % of its life, as
/// a kubelet does.
async fn token(
    shared: &Shared,
    facts: Facts<'_>,
    projection: &ServiceAccountTokenProjection,
) -> Result<(String, Instant), ConfigError> {
    let pod = facts.pod;
    let account = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.as_deref())
        .unwrap_or("default");
    let accounts: Api<ServiceAccount> =
        Api::namespaced(shared.config.client.clone(), &pod.namespace().unwrap_or_default());
    let seconds = projection.expiration_seconds.unwrap_or(3600);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: projection.audience.clone().map(|audience| vec![audience]),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name_any()),
                uid: pod.uid(),
            }),
            expiration_seconds: Some(seconds),
            ..Default::default()
        }),
        ..Default::default()
    };
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .map_err(|error| ConfigError(format!("no token for service account {account}: {error}")))?;
    let unanswered = || ConfigError("the token request was not answered".to_owned());
    let status = answer.status.ok_or_else(unanswered)?;
    let expires = status.expiration_timestamp.ok_or_else(unanswered)?.0;
    // A token that may be used longer than was asked for (for old clients) is renewed as if it
    // could not.
    let life = shared.config.clock.until(expires).as_secs().min(seconds.unsigned_abs());
    Ok((status.token.ok_or_else(unanswered)?, Instant::now() + Duration::from_secs(life * 8 / 10)))
}

/// `path` below `dir`; a path that leads out of it is an error.
fn inside(dir: &Path, path: &str) -> Result<PathBuf, ConfigError> {
    let path = Path::new(path);
    if path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        Ok(dir.join(path))
    } else {
        Err(ConfigError(format!("the path {} leads out of its volume", path.display())))
    }
}

/// Readers see the old or the new content, never a part of it.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ConfigError> {
    let write = || -> std::io::Result<()> {
        let parent = path.parent().unwrap_or(path);
        std::fs::create_dir_all(parent)?;
        let mut file = tempfile::NamedTempFile::new_in(parent)?;
        file.write_all(bytes)?;
        // As a kubelet has them: the container's user is seldom the kubelet's. The bed's directory
        // is closed to all others.
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.as_file().set_permissions(readable)?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> ConfigError {
    ConfigError(format!("can't write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_in_its_volume() {
        assert_eq!(inside(Path::new("/v"), "a/b"), Ok(PathBuf::from("/v/a/b")));
        assert!(inside(Path::new("/v"), "../b").is_err());
        assert!(inside(Path::new("/v"), "/etc/passwd").is_err());
    }

    #[test]
    fn only_the_chosen_keys_become_files() {
        let entries =
            Files::from([("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"2".to_vec())]);
        let item = |key: &str| KeyToPath {
            key: key.to_owned(),
            path: format!("dir/{key}"),
            ..Default::default()
        };
        let files = chosen(entries.clone(), Some(&[item("b")]), false).expect("b exists");
        assert_eq!(files.keys().collect::<Vec<_>>(), ["dir/b"]);
        assert!(chosen(entries.clone(), Some(&[item("c")]), false).is_err());
        assert!(chosen(entries, Some(&[item("c")]), true).expect("optional").is_empty());
    }

    #[test]
    fn writing_replaces_a_file_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().expect("temp dir");
        let file = dir.path().join("token");
        for content in ["one", "two"] {
            write_atomically(&file, content.as_bytes()).expect("written");
        }
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "two");
        assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 1);
    }
}

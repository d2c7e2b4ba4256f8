//! How a process gets its container's files: a mount namespace of its own where the system allows
//! one, else rewritten paths.
//!
//! In a namespace the container's volumes are bound to their mount paths, so that the program reads
//! its service account from `/var/run/secrets/kubernetes.io/serviceaccount` as everywhere; `/run`
//! is a fresh file system there, and the host name is the pod's. Root may make one, and other users
//! where user namespaces are allowed. Elsewhere a path below a mount path, at the start of an
//! argument or of a variable's value, is replaced by the volume's path on this machine, and
//! `KUBECONFIG` stands for the service account.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

/// `$1` is the host name; then pairs of source and mount path up to `--`; then the program.
const SCRIPT: &str = r#"
set -e
echo "$1" >/proc/sys/kernel/hostname
shift
mount -t tmpfs -o mode=755 tmpfs /run
[ -L /var/run ] || mount -t tmpfs -o mode=755 tmpfs /var/run
while [ "$1" != -- ]; do
  [ -e "$2" ] || {
    if [ -d "$1" ]; then mkdir -p "$2"; else mkdir -p "${2%/*}" && : >"$2"; fi
  } 2>/dev/null || {
    echo "the bed can't make the mount point $2; it can below /run and /var/run, and where the path exists on this machine" >&2
    exit 125
  }
  mount --bind "$1" "$2"
  shift 2
done
shift
exec "$@"
"#;

/// The same for a container with a root of its own: `$1` is the host name, `$2` the root, `$3` user
/// and group; then as above. What a runtime adds to an image is there, and nothing can be written
/// but volumes, `/run` and the devices' own file system.
const ROOTED_SCRIPT: &str = r#"
set -e
path=$PATH PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
chroot=$(command -v chroot)
echo "$1" >/proc/sys/kernel/hostname
root=$2 user=$3
shift 3
mkdir -p "$root/dev" "$root/proc" "$root/sys" "$root/run" "$root/var/run" "$root/etc"
mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
for directory in run var/run dev; do mount -t tmpfs -o mode=755 tmpfs "$root/$directory"; done
for file in dev/null dev/zero dev/full dev/random dev/urandom etc/hosts etc/resolv.conf; do
  [ -e "/$file" ] || continue
  [ -e "$root/$file" ] || : >"$root/$file"
  mount --bind "/$file" "$root/$file"
done
while [ "$1" != -- ]; do
  [ -e "$root$2" ] || {
    if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$root${2%/*}" && : >"$root$2"; fi
  }
  mount --bind "$1" "$root$2"
  shift 2
done
shift
mount -o remount,bind,ro "$root"
PATH=$path
exec "$chroot" --userspec="$user" "$root" "$@"
"#;

/// Where in-cluster clients look for their service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A way to give a process its files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Isolation {
    /// A mount namespace, made by `unshare` with these flags.
    Namespace(Vec<String>),
    /// No namespace can be made here: paths are rewritten.
    Rewrite,
}

/// One volume of a container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mount {
    /// The directory or file on this machine.
    pub source: PathBuf,
    /// Where the container expects it.
    pub path: PathBuf,
}

/// A root file system of a container's own.
#[derive(Clone, Copy, Debug)]
pub struct Root<'a> {
    /// The directory with its files.
    pub dir: &'a Path,
    /// The user and group that run in it (`65532:65532`).
    pub user: &'a str,
}

/// What to run, inside of whatever isolation.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl Isolation {
    /// Finds out what this machine allows.
    pub async fn detect() -> Self {
        for user in [&[][..], &["--map-root-user"]] {
            let flags: Vec<String> = user
                .iter()
                .chain(&["--mount", "--uts", "--propagation", "private"])
                .map(|it| (*it).to_owned())
                .collect();
            let probe = Command::new("unshare")
                .args(&flags)
                .args(["/bin/sh", "-c", SCRIPT, "sh", "probe", "--", "true"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if probe.await.is_ok_and(|status| status.success()) {
                return Self::Namespace(flags);
            }
        }
        Self::Rewrite
    }

    /// The command that runs `program` with its volumes.
    pub fn command(
        &self,
        program: &Path,
        args: &[String],
        mounts: &[Mount],
        hostname: &str,
    ) -> Invocation {
        match self {
            Self::Namespace(flags) => {
                let mut all: Vec<OsString> = flags.iter().map(Into::into).collect();
                all.extend(["/bin/sh", "-c", SCRIPT, "sh", hostname].map(Into::into));
                let mut mounts: Vec<&Mount> = mounts.iter().collect();
                // Outer before inner; and /tmp last of all, because it hides the sources, which are
                // in the temporary directory.
                mounts.sort_by_key(|mount| {
                    (mount.path.starts_with("/tmp"), mount.path.components().count())
                });
                for mount in mounts {
                    all.extend([mount.source.clone().into(), mount.path.clone().into()]);
                }
                all.push("--".into());
                all.push(program.into());
                all.extend(args.iter().map(Into::into));
                Invocation { program: "unshare".into(), args: all }
            }
            Self::Rewrite => Invocation {
                program: program.to_path_buf(),
                args: args.iter().map(|arg| rewrite(arg, mounts).into()).collect(),
            },
        }
    }

    /// The command that runs `program`, a path inside of `root`, with its volumes, and without
    /// anything else of this machine. Where no namespace can be made, the program is run where it
    /// lies.
    pub(crate) fn command_in(
        &self,
        root: Root<'_>,
        program: &Path,
        args: &[String],
        mounts: &[Mount],
        hostname: &str,
    ) -> Invocation {
        let Self::Namespace(flags) = self else {
            let inside = program.strip_prefix("/").unwrap_or(program);
            return self.command(&root.dir.join(inside), args, mounts, hostname);
        };
        let mut all: Vec<OsString> = flags.iter().map(Into::into).collect();
        all.extend(["/bin/sh", "-c", ROOTED_SCRIPT, "sh", hostname].map(Into::into));
        // Whoever is no root may only be themselves, which they are called root for.
        let is_own_user = flags.iter().any(|flag| flag == "--map-root-user");
        let user = if is_own_user { "0:0" } else { root.user };
        all.extend([root.dir.into(), user.into()]);
        let mut mounts: Vec<&Mount> = mounts.iter().collect();
        mounts.sort_by_key(|mount| mount.path.components().count());
        for mount in mounts {
            all.extend([mount.source.clone().into(), mount.path.clone().into()]);
        }
        all.push("--".into());
        all.push(program.into());
        all.extend(args.iter().map(Into::into));
        Invocation { program: "unshare".into(), args: all }
    }

    /// A kubeconfig that stands for the in-cluster configuration where the service account's files
    /// are not at their place; `None` where they are, or if the container has no service account.
    pub fn kubeconfig(&self, mounts: &[Mount], api_server: &str) -> Option<serde_json::Value> {
        let account = mounts.iter().find(|mount| mount.path == Path::new(SERVICE_ACCOUNT))?;
        match self {
            Self::Namespace(_) => None,
            Self::Rewrite => Some(serde_json::json!({
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{ "name": "bed", "cluster": {
                    "server": api_server, "certificate-authority": account.source.join("ca.crt"),
                } }],
                "users": [{ "name": "bed", "user": { "tokenFile": account.source.join("token") } }],
                "contexts": [{ "name": "bed", "context": { "cluster": "bed", "user": "bed" } }],
                "current-context": "bed",
            })),
        }
    }

    /// The value of a variable, as the process must see it.
    pub fn value(&self, value: &str, mounts: &[Mount]) -> String {
        match self {
            Self::Namespace(_) => value.to_owned(),
            Self::Rewrite => rewrite(value, mounts),
        }
    }
}

/// Replaces a mount path at the start of `text`, or after the first `=` (`--config=/etc/x`), by its
/// source.
fn rewrite(text: &str, mounts: &[Mount]) -> String {
    let start = if text.starts_with('-') { text.find('=').map_or(0, |at| at + 1) } else { 0 };
    let (flag, path) = text.split_at(start);
    let best = mounts
        .iter()
        .filter_map(|mount| Some((mount, Path::new(path).strip_prefix(&mount.path).ok()?)))
        .max_by_key(|(mount, _)| mount.path.components().count());
    match best {
        Some((mount, rest)) if rest.as_os_str().is_empty() => {
            format!("{flag}{}", mount.source.display())
        }
        Some((mount, rest)) => format!("{flag}{}", mount.source.join(rest).display()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(source: &str, path: &str) -> Mount {
        Mount { source: source.into(), path: path.into() }
    }

    #[test]
    fn a_path_is_rewritten_to_the_innermost_volume_and_nothing_else_is() {
        let mounts = [mount("/v/a", "/var/run/secrets"), mount("/v/b", "/var/run/secrets/eks")];
        assert_eq!(rewrite("/var/run/secrets/token", &mounts), "/v/a/token");
        assert_eq!(rewrite("--file=/var/run/secrets/eks/token", &mounts), "--file=/v/b/token");
        assert_eq!(rewrite("/var/run/secrets", &mounts), "/v/a");
        assert_eq!(rewrite("/var/run/secretsother", &mounts), "/var/run/secretsother");
        assert_eq!(rewrite("--level=info", &mounts), "--level=info");
    }

    #[test]
    fn without_namespaces_a_kubeconfig_stands_for_the_service_account() {
        let mounts = [mount("/v/token", SERVICE_ACCOUNT)];
        let kubeconfig =
            Isolation::Rewrite.kubeconfig(&mounts, "https://127.0.0.1:1").expect("one");
        assert_eq!(kubeconfig["users"][0]["user"]["tokenFile"], "/v/token/token");
        assert_eq!(Isolation::Rewrite.kubeconfig(&[], ""), None);
        assert_eq!(Isolation::Namespace(vec![]).kubeconfig(&mounts, ""), None);
    }

    #[tokio::test]
    async fn a_process_finds_its_volume_at_the_mount_path() {
        let dir = tempfile::tempdir().expect("temp dir");
        std::fs::write(dir.path().join("token"), "secret").expect("write");
        let mounts =
            [Mount { source: dir.path().into(), path: "/var/run/secrets/of-a-test".into() }];
        let isolation = Isolation::detect().await;
        // Where no namespace can be made, the argument is rewritten, and `cat` finds the file all
        // the same.
        let args = ["/var/run/secrets/of-a-test/token".to_owned()];
        let command = isolation.command(Path::new("/bin/cat"), &args, &mounts, "host-1");
        let output =
            Command::new(command.program).args(command.args).output().await.expect("it runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "secret", "{output:?}");
        assert!(!Path::new("/var/run/secrets/of-a-test").exists(), "this machine is as before");
    }
}

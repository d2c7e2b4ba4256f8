//! A git server on loopback for GitOps tools: git's own HTTP backend, called for each request as a
//! web server calls it (CGI), and a working copy from which files are pushed to it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use http::StatusCode;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;

/// Many times what a test pushes.
const BODY_LIMIT: usize = 64 << 20;

/// Something of git fails.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No port of loopback can be bound.
    #[error("no port of loopback can be bound")]
    Listen(#[source] io::Error),
    /// There is no git.
    #[error("can't run git: install it and put it in PATH")]
    NoGit(#[source] io::Error),
    /// A file can't be written.
    #[error("can't write {}", .path.display())]
    Write {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Git says no.
    #[error("`git {args}` ended with {status}: {said}")]
    Refused {
        /// Its arguments.
        args: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said.
        said: String,
    },
}

/// A server of the repositories in a directory, which anyone may read and write; ends when dropped.
#[derive(Debug)]
pub struct GitServer {
    repositories: PathBuf,
    address: SocketAddr,
    _server: JoinSet<()>,
}

impl GitServer {
    /// Serves what is in this directory on a free port.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(repositories: &Path) -> Result<Self, GitError> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(GitError::Listen)?;
        let address = listener.local_addr().map_err(GitError::Listen)?;
        let root: Arc<Path> = repositories.into();
        let router = Router::new()
            .fallback(answer)
            .layer(DefaultBodyLimit::max(BODY_LIMIT))
            .with_state(root);
        let mut server = JoinSet::new();
        server.spawn(async move {
            // It ends only with its task.
            drop(axum::serve(listener, router).await);
        });
        Ok(Self { repositories: repositories.to_owned(), address, _server: server })
    }

    /// Where a repository is.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}.git", self.address)
    }

    /// Makes an empty repository with the branch `main`, and a working copy of it in a new
    /// directory.
    ///
    /// # Errors
    /// When git is missing or refuses.
    pub async fn create(&self, name: &str, copy: &Path) -> Result<WorkingCopy, GitError> {
        let bare = self.repositories.join(format!("{name}.git"));
        for dir in [&self.repositories, &bare, copy] {
            std::fs::create_dir_all(dir)
                .map_err(|source| GitError::Write { path: dir.to_owned(), source })?;
        }
        git(&bare, &["init", "--quiet", "--bare", "--initial-branch=main"]).await?;
        git(&bare, &["config", "http.receivepack", "true"]).await?;
        git(copy, &["init", "--quiet", "--initial-branch=main"]).await?;
        git(copy, &["remote", "add", "origin", &self.url(name)]).await?;
        Ok(WorkingCopy { dir: copy.to_owned() })
    }
}

/// A directory whose files are pushed.
#[derive(Clone, Debug)]
pub struct WorkingCopy {
    dir: PathBuf,
}

impl WorkingCopy {
    /// Where its files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a file.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, name: &str, text: &str) -> Result<(), GitError> {
        let path = self.dir.join(name);
        let written = std::fs::create_dir_all(path.parent().unwrap_or(&self.dir))
            .and_then(|()| std::fs::write(&path, text));
        written.map_err(|source| GitError::Write { path, source })
    }

    /// Commits all that has changed, and pushes it; answers the commit.
    ///
    /// # Errors
    /// When git refuses, also because nothing has changed.
    pub async fn push(&self, message: &str) -> Result<String, GitError> {
        git(&self.dir, &["add", "--all"]).await?;
        git(&self.dir, &["commit", "--quiet", "--message", message]).await?;
        git(&self.dir, &["push", "--quiet", "origin", "main"]).await?;
        Ok(git(&self.dir, &["rev-parse", "HEAD"]).await?.trim().to_owned())
    }
}

/// Runs git as somebody without settings.
async fn git(dir: &Path, args: &[&str]) -> Result<String, GitError> {
    let mut command = program(dir);
    let output = command.args(args).output().await.map_err(GitError::NoGit)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(GitError::Refused {
        args: args.join(" "),
        status: output.status,
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn program(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(dir).stdin(Stdio::null()).kill_on_drop(true);
    for name in ["GIT_AUTHOR", "GIT_COMMITTER"] {
        command.env(format!("{name}_NAME"), "Bed");
        command.env(format!("{name}_EMAIL"), "bed@tenon.dev");
    }
    let none = [("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")];
    command.envs(none).env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
    command
}

async fn answer(
    State(root): State<Arc<Path>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let failed = |why: String| {
        let response = Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR);
        response.body(why.into()).expect("a status is valid")
    };
    match backend(&root, &method, &uri, &headers, &body).await {
        Ok(output) => response(&output.stdout)
            .unwrap_or_else(|| failed(String::from_utf8_lossy(&output.stderr).into_owned())),
        Err(error) => failed(error.to_string()),
    }
}

/// Runs git's backend on a request, with the variables of CGI.
async fn backend(
    root: &Path,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &Bytes,
) -> io::Result<Output> {
    let mut command = program(root);
    command.arg("http-backend").stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command.env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1");
    command.env("REQUEST_METHOD", method.as_str()).env("REMOTE_ADDR", "127.0.0.1");
    command.env("PATH_INFO", uri.path()).env("QUERY_STRING", uri.query().unwrap_or_default());
    command.env("CONTENT_LENGTH", body.len().to_string());
    let of_header = [
        ("CONTENT_TYPE", "content-type"),
        ("HTTP_CONTENT_ENCODING", "content-encoding"),
        ("GIT_PROTOCOL", "git-protocol"),
    ];
    for (variable, header) in of_header {
        if let Some(value) = headers.get(header).and_then(|value| value.to_str().ok()) {
            command.env(variable, value);
        }
    }
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().expect("it is piped");
    // It may answer before it has read everything.
    let (_, output) = tokio::join!(
        async move {
            let written = stdin.write_all(body).await;
            drop(stdin);
            written
        },
        child.wait_with_output()
    );
    output
}

/// What a program of CGI answers: lines of headers, an empty line, and the body.
fn response(output: &[u8]) -> Option<Response> {
    let end = output.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&output[..end]).ok()?;
    let mut response = Response::builder();
    for line in head.lines() {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        response = if name.eq_ignore_ascii_case("status") {
            response.status(value.split(' ').next()?.parse::<u16>().ok()?)
        } else {
            response.header(name, value)
        };
    }
    response.body(output[end + 4..].to_vec().into()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_pushed_can_be_cloned() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = GitServer::start(&dir.path().join("served")).await.expect("it starts");
        let copy = server.create("fleet", &dir.path().join("copy")).await.expect("git");
        copy.write("a/b.yaml", "one: 1\n").expect("written");
        let commit = copy.push("first").await.expect("pushed");
        copy.write("a/b.yaml", "one: 2\n").expect("written");
        let second = copy.push("second").await.expect("pushed");
        assert_ne!(commit, second);
        let clone = git(dir.path(), &["clone", "--quiet", &server.url("fleet"), "clone"]).await;
        clone.expect("cloned");
        let text = std::fs::read_to_string(dir.path().join("clone/a/b.yaml")).expect("it is there");
        assert_eq!(text, "one: 2\n");
        let log = git(&dir.path().join("clone"), &["log", "--format=%H"]).await.expect("a log");
        assert_eq!(log.lines().collect::<Vec<_>>(), [second, commit]);

        let missing = git(dir.path(), &["clone", "--quiet", &server.url("other"), "other"]).await;
        let error = missing.expect_err("there is none").to_string();
        assert!(error.contains("not found"), "{error}");
        assert!(copy.push("nothing").await.is_err(), "nothing has changed");
    }
}

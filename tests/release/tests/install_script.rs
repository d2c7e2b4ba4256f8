//! `install.sh` as a user runs it, against a server on loopback: what it downloads is installed
//! only if its checksum is right.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use tempfile::TempDir;
use tenon_release::archive::{CHECKSUMS, archive, checksums, installer};
use tenon_release::error::write;

const VERSION: &str = "1.2.3";

/// A release of this platform and a server of it.
struct Release {
    dir: TempDir,
    url: String,
}

impl Release {
    fn publish() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let published = dir.path().join(format!("releases/v{VERSION}"));
        let program = dir.path().join("tenon");
        write(&program, "#!/bin/sh\necho tenon runs\n").expect("written");
        let license = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../LICENSE");
        archive(&program, &license, VERSION, &target(), 0, &published).expect("packed");
        checksums(&published).expect("written");
        let url = serve(dir.path().join("releases"));
        Self { dir, url }
    }

    fn published(&self) -> PathBuf {
        self.dir.path().join(format!("releases/v{VERSION}"))
    }

    fn installed(&self) -> PathBuf {
        self.dir.path().join("bin/tenon")
    }

    /// Runs the script of the release.
    fn install(&self) -> Output {
        let script = installer(&script(), &self.url, VERSION).expect("filled in");
        let path = self.dir.path().join("install.sh");
        write(&path, script).expect("written");
        Command::new("sh")
            .arg(path)
            .env("TENON_INSTALL_DIR", self.dir.path().join("bin"))
            .env("NO_PROXY", "127.0.0.1")
            .output()
            .expect("sh runs")
    }
}

fn script() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../install.sh");
    std::fs::read_to_string(path).expect("the script")
}

fn target() -> String {
    let system = if cfg!(target_os = "macos") { "apple-darwin" } else { "unknown-linux-gnu" };
    format!("{}-{system}", std::env::consts::ARCH)
}

/// Serves the files of a directory until the test's process ends; answers the server's URL.
fn serve(dir: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let dir = Arc::new(dir);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.expect("a connection"), &dir);
        }
    });
    url
}

fn answer(mut stream: TcpStream, dir: &Path) {
    let mut lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
    let path = first.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
    let (status, content) = match std::fs::read(dir.join(path)) {
        Ok(content) => ("200 OK", content),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        content.len()
    );
    // A client that has seen enough may be gone.
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&content)));
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn a_release_is_installed_and_runs() {
    let release = Release::publish();
    let output = release.install();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("tenon 1.2.3 is in"), "{}", said(&output));
    let run = Command::new(release.installed()).output().expect("it is a program");
    assert_eq!(String::from_utf8_lossy(&run.stdout), "tenon runs\n");
}

#[test]
fn an_archive_with_another_checksum_is_not_installed() {
    let release = Release::publish();
    let sums = release.published().join(CHECKSUMS);
    let text = std::fs::read_to_string(&sums).expect("there");
    write(&sums, text.replacen(&text[..8], "00000000", 1)).expect("written");
    let output = release.install();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("nothing was installed"), "{}", said(&output));
    assert!(!release.installed().exists());
}

#[test]
fn an_archive_without_a_checksum_is_not_installed() {
    let release = Release::publish();
    write(&release.published().join(CHECKSUMS), "00  another-file.tar.gz\n").expect("written");
    let output = release.install();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("has no checksum for"), "{}", said(&output));
    assert!(!release.installed().exists());
}

#[test]
fn what_can_not_be_downloaded_is_named_and_what_was_installed_stays() {
    let release = Release::publish();
    assert!(release.install().status.success());
    std::fs::remove_dir_all(release.published()).expect("removed");
    let output = release.install();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains(&format!("can't download {}", release.url)),
        "{}",
        said(&output)
    );
    assert!(release.installed().exists());
}

#[test]
fn the_script_of_a_checkout_says_that_it_names_no_release() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("install.sh");
    write(&path, script()).expect("written");
    let output = Command::new("sh").arg(path).env("HOME", dir.path()).output().expect("sh runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("set TENON_RELEASES and TENON_VERSION"), "{}", said(&output));
}

//! The program `release`. Every verb writes into `--out` and prints what it made.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, Parser, Subcommand};
use jiff::Timestamp;

use crate::archive;
use crate::charts;
use crate::error::{Error, read, write};
use crate::image::{self, CA_BUNDLE};
use crate::layout::{Index, Layout};
use crate::provenance::{self, Build};
use crate::proxy::Proxies;
use crate::registry::{Login, Reference, Registry};
use crate::sbom;
use crate::unpack::unpack;

/// The version of all that is released.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The checkout that this program was built from.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Build and publish releases
#[derive(Debug, Parser)]
#[command(name = "release", max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// Output directory
    #[arg(long, global = true, default_value = "dist", value_name = "DIR")]
    out: PathBuf,
    /// Time of all files, in seconds since 1970 [default: the commit's]
    #[arg(long, global = true, env = "SOURCE_DATE_EPOCH", value_name = "SECONDS")]
    epoch: Option<u64>,
    /// Commit that is released [default: the checkout's]
    #[arg(long, global = true, env = "TENON_COMMIT", value_name = "COMMIT")]
    commit: Option<String>,
    /// URL of the source, such as https://git.example/tenon
    #[arg(long, global = true, env = "TENON_SOURCE", value_name = "URL")]
    source: Option<String>,
    /// Repository of the operator's image, without a tag: the default of `tenon` and of the chart
    #[arg(long, global = true, env = "TENON_IMAGE", value_name = "REPOSITORY")]
    image_repository: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Build the programs for this machine, and everything else that a release publishes
    All(Finish),
    /// Pack `tenon`
    Archive {
        /// Built program
        #[arg(long, value_name = "FILE")]
        program: PathBuf,
        /// Target of the program, such as x86_64-unknown-linux-gnu
        #[arg(long, value_name = "TARGET")]
        target: String,
    },
    /// Build the operator's image for one architecture, as an OCI layout
    Image(ImageArgs),
    /// Join images of several architectures into one
    Join {
        /// OCI layouts
        #[arg(required = true, value_name = "DIR")]
        layouts: Vec<PathBuf>,
        /// Directory of the joined layout
        #[arg(long, default_value = "dist/image", value_name = "DIR")]
        layout: PathBuf,
    },
    /// Package both charts
    Charts,
    /// Write the SBOMs of both programs
    Sbom {
        /// Target for which dependencies are listed
        #[arg(long, value_name = "TARGET")]
        target: Option<String>,
    },
    /// Print the version
    Version {
        /// Also verify that this tag, the charts and CHANGELOG.md have this version
        #[arg(long, value_name = "TAG")]
        tag: Option<String>,
    },
    /// Write install.sh, the checksums and the provenance of the files in --out
    Finish(Finish),
    /// Push an image to a registry
    Push {
        /// OCI layout
        #[arg(long, default_value = "dist/image", value_name = "DIR")]
        layout: PathBuf,
        /// Destination: <host>/<repository>:<tag>
        reference: String,
        #[command(flatten)]
        login: LoginArgs,
        #[command(flatten)]
        proxies: Proxies,
    },
}

#[derive(Debug, Args)]
struct ImageArgs {
    /// Built program
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// Additional built program to include, such as `tenon` (may be repeated)
    #[arg(long = "with", value_name = "FILE")]
    beside: Vec<PathBuf>,
    /// Root directory of the search for shared libraries
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
    /// Additional directories below --root with shared libraries
    #[arg(long, value_name = "DIR")]
    library_path: Vec<PathBuf>,
    /// Certificates of the authorities that the operator trusts
    #[arg(long, default_value = CA_BUNDLE, value_name = "FILE")]
    ca_bundle: PathBuf,
    /// Leave layers uncompressed, for a nearby registry
    #[arg(long)]
    uncompressed: bool,
    /// Directory of the layout
    #[arg(long, default_value = "dist/image", value_name = "DIR")]
    layout: PathBuf,
    /// Also unpack the image's files here
    #[arg(long, value_name = "DIR")]
    unpacked: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Finish {
    /// URL of the releases: install.sh downloads from <URL>/v<version>/ [default: install.sh is not
    /// written]
    #[arg(long, value_name = "URL")]
    releases: Option<String>,
    /// Builder: the URL of a workflow, or a name for this machine
    #[arg(long, default_value = "local", value_name = "NAME")]
    builder: String,
    /// Identifier of this run of the builder
    #[arg(long, value_name = "NAME")]
    invocation: Option<String>,
}

#[derive(Debug, Args)]
struct LoginArgs {
    /// User of the registry [default: the credentials of `docker login` or `helm registry login`]
    #[arg(long, env = "REGISTRY_USERNAME", value_name = "NAME")]
    username: Option<String>,
    /// Password of the user
    #[arg(long, env = "REGISTRY_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    password: Option<String>,
    /// Directory with Docker's config.json
    #[arg(long, env = "DOCKER_CONFIG", value_name = "DIR")]
    docker_config: Option<PathBuf>,
    #[arg(long, env = "HOME", hide = true)]
    home: Option<PathBuf>,
}

impl LoginArgs {
    fn login(self, host: &str) -> Option<Login> {
        let Self { username, password, docker_config, home } = self;
        if let (Some(username), Some(password)) = (username, password) {
            return Some(Login { username, password });
        }
        let dir = docker_config.or_else(|| home.map(|home| home.join(".docker")))?;
        let config = std::fs::read_to_string(dir.join("config.json")).ok()?;
        Login::of_docker_config(&config, host)
    }
}

/// Runs the program; 0 when all was made, 1 when something failed.
pub async fn run(cli: Cli) -> ExitCode {
    match carry_out(cli).await {
        Ok(made) => {
            for line in made {
                anstream::println!("{line}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            let mut cause: Option<&dyn std::error::Error> = Some(error.as_ref());
            let mut text = String::from("error");
            while let Some(one) = cause {
                text = format!("{text}: {one}");
                cause = one.source();
            }
            anstream::eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

async fn carry_out(cli: Cli) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let common = &cli.common;
    let made = match cli.verb {
        Verb::All(finish) => all(common, &finish),
        Verb::Archive { program, target } => archive(common, &program, &target),
        Verb::Image(args) => image(common, &args),
        Verb::Join { layouts, layout } => {
            let (image, tag) = image::join(&layouts, &layout)?.image()?;
            Ok(vec![format!("{} {tag} {}", layout.display(), image.digest)])
        }
        Verb::Charts => charts(common),
        Verb::Sbom { target } => sboms(common, target.as_deref()),
        Verb::Version { tag } => {
            tag.map_or(Ok(()), |tag| check(&tag))?;
            Ok(vec![VERSION.to_owned()])
        }
        Verb::Finish(args) => finish(common, &args),
        Verb::Push { layout, reference, login, proxies } => {
            let reference: Reference = reference.parse().map_err(Error::Unsupported)?;
            let login = login.login(&reference.host);
            let name = format!("{}/{}", reference.host, reference.repository);
            let digest = Registry::of(reference, login, proxies).push(&Layout::at(&layout)).await?;
            Ok(vec![format!("{name}@{digest}")])
        }
    }?;
    Ok(made)
}

fn archive(common: &Common, program: &Path, target: &str) -> Result<Vec<String>, Error> {
    let license = Path::new(WORKSPACE).join("LICENSE");
    let name = archive::archive(program, &license, VERSION, target, common.epoch()?, &common.out)?;
    Ok(vec![common.out.join(name).display().to_string()])
}

fn image(common: &Common, args: &ImageArgs) -> Result<Vec<String>, Error> {
    let source = image::Source {
        program: &args.program,
        beside: &args.beside,
        root: &args.root,
        library_path: &args.library_path,
        ca_bundle: &args.ca_bundle,
        compressed: !args.uncompressed,
        epoch: common.epoch()?,
        version: VERSION,
        commit: &common.commit()?,
        source: common.source.as_deref(),
    };
    let layout = image::build(&source, &args.layout)?;
    let (image, tag) = layout.image()?;
    if let Some(root) = &args.unpacked {
        let index: Index = layout.document(&image)?;
        for manifest in &index.manifests {
            unpack(&layout, manifest, root)?;
        }
    }
    Ok(vec![format!("{} {tag} {}", args.layout.display(), image.digest)])
}

/// Whether all that has a version has the one that a tag is for.
fn check(tag: &str) -> Result<(), Error> {
    if tag.strip_prefix('v') != Some(VERSION) {
        return Err(Error::Unsupported(format!(
            "the tag is {tag}, the workspace's version {VERSION}"
        )));
    }
    for chart in charts::CHARTS {
        charts::has_version(&Path::new(WORKSPACE).join("charts").join(chart), VERSION)?;
    }
    let changelog = read(&Path::new(WORKSPACE).join("CHANGELOG.md"))?;
    let heading = format!("## {VERSION} ");
    if String::from_utf8_lossy(&changelog)
        .lines()
        .any(|line| format!("{line} ").starts_with(&heading))
    {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "CHANGELOG.md has no section {VERSION}: rename Unreleased to it"
    )))
}

fn charts(common: &Common) -> Result<Vec<String>, Error> {
    let (epoch, out) = (common.epoch()?, &common.out);
    let image = common.image_repository.as_deref();
    let mut made = Vec::new();
    for chart in charts::CHARTS {
        let chart = Path::new(WORKSPACE).join("charts").join(chart);
        let name = charts::package(&chart, VERSION, image, epoch, out)?;
        made.push(out.join(name).display().to_string());
    }
    Ok(made)
}

fn sboms(common: &Common, target: Option<&str>) -> Result<Vec<String>, Error> {
    let mut args = vec!["metadata", "--format-version=1", "--locked"];
    args.extend(target.into_iter().flat_map(|target| ["--filter-platform", target]));
    let metadata = output("cargo", &args)?;
    let metadata: sbom::Metadata = serde_json::from_str(&metadata).map_err(|source| {
        Error::Document { what: "what `cargo metadata` says".to_owned(), source }
    })?;
    let path = Path::new(WORKSPACE).join("Cargo.lock");
    let lock: sbom::Lock = toml::from_str(&String::from_utf8_lossy(&read(&path)?))
        .map_err(|error| Error::Unsupported(format!("{}: {error}", path.display())))?;
    let mut made = Vec::new();
    for program in ["tenon", "tenon-operator"] {
        let sbom = sbom::sbom(&metadata, &lock, program, &common.created()?)?;
        let path = common.out.join(format!("{program}-{VERSION}.cdx.json"));
        write(&path, format!("{sbom:#}\n"))?;
        made.push(path.display().to_string());
    }
    Ok(made)
}

fn finish(common: &Common, args: &Finish) -> Result<Vec<String>, Error> {
    let mut made = Vec::new();
    if let Some(releases) = &args.releases {
        let script = read(&Path::new(WORKSPACE).join("install.sh"))?;
        let script = archive::installer(&String::from_utf8_lossy(&script), releases, VERSION)?;
        let path = common.out.join("install.sh");
        write(&path, script)?;
        made.push(path.display().to_string());
    }
    let published = archive::checksums(&common.out)?;
    made.push(common.out.join(archive::CHECKSUMS).display().to_string());
    let build = Build {
        source: common.source.as_deref(),
        commit: &common.commit()?,
        version: VERSION,
        builder: &args.builder,
        invocation: args.invocation.as_deref(),
    };
    let path = common.out.join("provenance.json");
    write(&path, format!("{:#}\n", provenance::statement(&published, &build)))?;
    made.push(path.display().to_string());
    Ok(made)
}

fn all(common: &Common, last: &Finish) -> Result<Vec<String>, Error> {
    let target = output("rustc", &["--print", "host-tuple"])?;
    let target = target.trim();
    let built = built()?;
    let program = |name: &str, profile: &str| -> Result<PathBuf, Error> {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["build", "--profile", profile, "--bin", name, "--locked"])
            .env("TENON_COMMIT", common.commit()?)
            .current_dir(WORKSPACE);
        cargo.envs(common.image_repository.iter().map(|image| ("TENON_IMAGE", image)));
        call(&mut cargo)?;
        Ok(built.join(profile).join(name))
    };
    let tenon = program("tenon", "dist-small")?;
    let operator = program("tenon-operator", "dist")?;
    let mut made = archive(common, &tenon, target)?;
    let args = ImageArgs {
        program: operator,
        beside: vec![tenon],
        root: PathBuf::from("/"),
        library_path: Vec::new(),
        ca_bundle: PathBuf::from(CA_BUNDLE),
        uncompressed: false,
        layout: common.out.join("image"),
        unpacked: None,
    };
    made.extend(image(common, &args)?);
    made.extend(charts(common)?);
    made.extend(sboms(common, Some(target))?);
    made.extend(finish(common, last)?);
    Ok(made)
}

/// The directory of what cargo builds: this program is in `<it>/<profile>/`.
fn built() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(Error::file("find", Path::new("release")))?;
    Ok(own.ancestors().nth(2).unwrap_or(Path::new("target")).to_path_buf())
}

impl Common {
    fn commit(&self) -> Result<String, Error> {
        match &self.commit {
            Some(commit) => Ok(commit.clone()),
            None => Ok(output("git", &["rev-parse", "HEAD"])?.trim().to_owned()),
        }
    }

    fn epoch(&self) -> Result<u64, Error> {
        if let Some(epoch) = self.epoch {
            return Ok(epoch);
        }
        let text = output("git", &["log", "-1", "--format=%ct"])?;
        text.trim().parse().map_err(|_| Error::Unsupported(format!("git tells no time: {text}")))
    }

    fn created(&self) -> Result<String, Error> {
        let seconds = i64::try_from(self.epoch()?).unwrap_or_default();
        Ok(Timestamp::from_second(seconds).unwrap_or_default().to_string())
    }
}

/// What a tool prints, run in the workspace.
fn output(program: &str, args: &[&str]) -> Result<String, Error> {
    let mut command = Command::new(program);
    let command = command.args(args).current_dir(WORKSPACE).stdin(Stdio::null());
    let output =
        command.output().map_err(|source| Error::Run { program: program.to_owned(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Error::Failed { program: program.to_owned(), status: output.status, output: said })
}

/// Runs a tool that says itself what it does.
fn call(command: &mut Command) -> Result<(), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|source| Error::Run { program: program.clone(), source })?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed { program, status, output: String::new() })
}

//! Pictures of the demo, drawn from its report (`cargo sandbox --output json`): what the terminal
//! shows, and how pods became nodes; and the quickstart as a terminal shows it, drawn from what its
//! test has recorded. The same report always gives the same pictures.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Deserialize;

use crate::failure::Failure;

mod nodes;
mod recording;
mod svg;
mod terminal;

/// Draws the pictures of the README from a report of the demo or a recording of the quickstart
#[derive(Debug, clap::Args)]
pub(crate) struct PictureArgs {
    /// Report, as `cargo sandbox --output json` prints it, or recording, as the quickstart's test
    /// writes it
    #[arg(default_value = "docs/src/pictures/demo.json", value_name = "FILE")]
    report: PathBuf,
}

/// A report of the demo as it was written.
#[derive(Debug, Deserialize)]
struct Recorded {
    seconds: f64,
    chapters: Vec<Chapter>,
    statements: Vec<Statement>,
}

#[derive(Debug, Deserialize)]
struct Chapter {
    title: String,
    shows: String,
    seconds: f64,
    notes: Vec<String>,
}

impl Chapter {
    /// The nodes at the end of the chapter.
    fn nodes(&self) -> Vec<Node<'_>> {
        self.notes.iter().filter_map(|note| Node::read(note)).collect()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Node<'a> {
    instance_type: &'a str,
    capacity_type: &'a str,
    zone: &'a str,
    pods: usize,
}

impl<'a> Node<'a> {
    /// Reads a note about a node: `m7a.large spot in eu-central-1a, 3 pods`.
    fn read(note: &'a str) -> Option<Self> {
        let (node, pods) = note.rsplit_once(", ")?;
        let pods = pods.strip_suffix(" pods").or_else(|| pods.strip_suffix(" pod"))?;
        let mut words = node.split(' ');
        let (instance_type, capacity_type) = (words.next()?, words.next()?);
        let (is_in, zone) = (words.next()? == "in", words.next()?);
        let is_all = is_in && words.next().is_none();
        let pods = pods.parse().ok().filter(|_| is_all)?;
        Some(Self { instance_type, capacity_type, zone, pods })
    }
}

#[derive(Debug, Deserialize)]
struct Statement {
    calls: Vec<String>,
}

/// A command that a test has typed.
#[derive(Debug, Deserialize)]
struct Typed {
    command: String,
    output: String,
    /// How long it took.
    seconds: f64,
}

/// What pictures are drawn from.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Report {
    Quickstart { commands: Vec<Typed> },
    Demo(Recorded),
}

/// The pictures of a report, by name of the file.
fn draw(report: &str) -> Result<Vec<(&'static str, String)>, Failure> {
    Ok(match serde_json::from_str(report)? {
        Report::Quickstart { commands } => vec![("quickstart.svg", recording::draw(&commands))],
        Report::Demo(recorded) => {
            vec![("demo.svg", terminal::draw(&recorded)), ("nodes.svg", nodes::draw(&recorded))]
        }
    })
}

/// Writes the pictures beside the report.
pub(crate) fn run(args: &PictureArgs) -> Result<ExitCode, Failure> {
    let read = |error| format!("can't read {}: {error}", args.report.display());
    let report = std::fs::read_to_string(&args.report).map_err(read)?;
    let folder = args.report.parent().unwrap_or(Path::new(""));
    for (name, picture) in draw(&report)? {
        let file = folder.join(name);
        let write = |error| format!("can't write {}: {error}", file.display());
        std::fs::write(&file, picture).map_err(write)?;
        anstream::println!("{}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_from_notes_about_them_and_from_no_others() {
        let node = Node {
            instance_type: "m7a.large",
            capacity_type: "spot",
            zone: "eu-central-1a",
            pods: 1,
        };
        assert_eq!(Node::read("m7a.large spot in eu-central-1a, 1 pod"), Some(node));
        for note in [
            "AWS takes back i-1 (m7a.large spot in eu-central-1a, 3 pods)",
            "2 nodes became 1",
            "all 12 pods run after 8.1 s",
        ] {
            assert_eq!(Node::read(note), None, "{note}");
        }
    }

    #[test]
    fn the_pictures_of_the_readme_are_drawn_from_the_report_beside_them() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/pictures");
        let read = |name| std::fs::read_to_string(folder.join(name)).expect("a file beside it");
        for report in ["demo.json", "quickstart.json"] {
            for (name, picture) in draw(&read(report)).expect("a report") {
                let how = format!("cargo sandbox picture docs/src/pictures/{report}");
                assert!(picture == read(name), "{name} is not up to date: run {how}");
            }
        }
    }
}

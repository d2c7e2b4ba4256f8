//! A reader who types what a guide says: every command of a page runs on a bed, in the order of its
//! sections.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenon_bed::bed::Bed;
use tenon_bed::wait::must;

/// A code block of a guide.
struct Block {
    section: &'static str,
    language: &'static str,
    text: &'static str,
}

/// A page, what stands for the names in it, and the sections that have been followed.
pub(crate) struct Guide {
    text: &'static str,
    substitutes: Vec<(String, String)>,
    read: BTreeSet<&'static str>,
    recorded: Vec<Value>,
}

impl Guide {
    /// A guide in whose commands each of these texts is replaced by the bed's.
    pub(crate) fn new<'a>(
        text: &'static str,
        substitutes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let substitutes =
            substitutes.into_iter().map(|(from, to)| (from.to_owned(), to.to_owned())).collect();
        Self { text, substitutes, read: BTreeSet::new(), recorded: Vec::new() }
    }

    fn blocks(&self) -> Vec<Block> {
        let sections = self.text.split("\n## ").skip(1);
        let of_section = |section: &'static str| {
            let name = section.lines().next().unwrap_or_default();
            let parts = section.split("```").skip(1).step_by(2);
            parts.filter_map(move |part| {
                let (language, text) = part.split_once('\n')?;
                Some(Block { section: name, language, text })
            })
        };
        sections.flat_map(of_section).collect()
    }

    /// A file of the guide, by the comment with which it begins.
    pub(crate) fn file(&self, name: &str) -> &'static str {
        tenon_bed::guide::file(self.text, name)
    }

    /// Runs the commands of a section, one after the other; answers what they printed.
    pub(crate) async fn follow(&mut self, bed: &Bed, section: &'static str) -> String {
        self.read.insert(section);
        let mut printed = String::new();
        for command in self.commands(section, "") {
            let started = Instant::now();
            // As a terminal has it: in the order in which it was printed.
            let said = run(bed, &format!("exec 2>&1; {command}")).await;
            self.record(bed, &command, &said, started.elapsed());
            printed += &said;
        }
        printed
    }

    /// Keeps what was typed and printed, with the names of the page.
    fn record(&mut self, bed: &Bed, command: &str, printed: &str, took: Duration) {
        let substitutes = self.substitutes.iter().rev();
        let as_on_page = |text: &str| {
            let text = substitutes
                .clone()
                .fold(text.to_owned(), |text, (from, to)| text.replace(to.as_str(), from.as_str()));
            text.replace(&bed.dir().display().to_string(), "~")
        };
        let (command, output) = (as_on_page(command), as_on_page(printed));
        // Of a command on several lines the breaks are gone, and their indentation is left.
        let command = command.split_whitespace().collect::<Vec<_>>().join(" ");
        let seconds = took.as_secs_f64();
        self.recorded.push(json!({ "command": command, "output": output, "seconds": seconds }));
    }

    /// Writes what was recorded where `TENON_RECORD` says, if it does.
    pub(crate) fn write_recording(&self) {
        if let Some(path) = std::env::var_os("TENON_RECORD") {
            let recording = json!({ "commands": self.recorded });
            must(std::fs::write(path, format!("{recording:#}\n")));
        }
    }

    /// The commands of those blocks of a section that have this text, as they are run on the bed.
    pub(crate) fn commands(&self, section: &str, text: &str) -> Vec<String> {
        let blocks = self.blocks().into_iter().filter(|block| {
            block.section == section && block.language == "sh" && block.text.contains(text)
        });
        let lines = blocks.flat_map(|block| {
            let text = block.text.replace("\\\n", " ");
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        let commands: Vec<String> = lines.map(|line| self.substituted(line)).collect();
        assert!(!commands.is_empty(), "the guide has no commands in {section}");
        commands
    }

    fn substituted(&self, line: String) -> String {
        let substitutes = self.substitutes.iter();
        let command = substitutes.fold(line, |command, (from, to)| command.replace(from, to));
        let option = if command.contains("oci://") { " --plain-http" } else { "" };
        command + option
    }

    /// Sections with commands that have not been followed are these, and no others.
    pub(crate) fn has_read_all_but(&self, left_out: &[&str]) {
        let blocks = self.blocks().into_iter();
        let with_commands = blocks.filter(|it| it.language == "sh").map(|it| it.section);
        let unread = with_commands.filter(|it| !self.read.contains(it));
        let unread = unread.collect::<BTreeSet<_>>();
        assert_eq!(unread, left_out.iter().copied().collect());
    }
}

/// Runs a command that has to succeed; answers what it printed.
pub(crate) async fn run(bed: &Bed, command: &str) -> String {
    let output = must(bed.command(Path::new("sh")).args(["-c", command]).output().await);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {stdout}{stderr}");
    stdout.into_owned()
}

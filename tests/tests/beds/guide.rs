//! A reader who types what a guide says: every command of a page runs on a bed, in the order of its
//! sections or where a test needs it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenon_bed::bed::{Bed, Finished};
use tenon_bed::wait::must;

/// A code block of a guide.
struct Block {
    section: &'static str,
    language: &'static str,
    text: &'static str,
}

impl Block {
    /// Its commands, as they are on the page.
    fn commands(&self) -> Vec<String> {
        let is_shell = self.language == "sh";
        let text = if is_shell { self.text.replace("\\\n", " ") } else { String::new() };
        text.lines().map(str::to_owned).collect()
    }
}

/// A page, what stands for the names in it, and the commands that have been typed.
pub(crate) struct Guide {
    text: &'static str,
    substitutes: Vec<(String, String)>,
    typed: BTreeSet<String>,
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
        Self { text, substitutes, typed: BTreeSet::new(), recorded: Vec::new() }
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
        self.typed.extend(self.of_section(section, ""));
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
        self.of_section(section, text).into_iter().map(|line| self.substituted(line)).collect()
    }

    /// The same as they are on the page.
    fn of_section(&self, section: &str, text: &str) -> Vec<String> {
        let blocks = self.blocks().into_iter();
        let blocks = blocks.filter(|block| block.section == section && block.text.contains(text));
        let commands: Vec<String> = blocks.flat_map(|block| block.commands()).collect();
        assert!(!commands.is_empty(), "the guide has no commands in {section}");
        commands
    }

    /// The command of a section that begins so, as it is run on the bed.
    pub(crate) fn command(&mut self, section: &str, begin: &str) -> String {
        let mut commands = self.of_section(section, "").into_iter();
        let command = commands.find(|command| command.starts_with(begin));
        let command = command.unwrap_or_else(|| panic!("no command {begin} in {section}"));
        self.typed.insert(command.clone());
        self.substituted(command)
    }

    /// Types it, and after it what only the bed needs.
    pub(crate) async fn enter(
        &mut self,
        bed: &Bed,
        section: &str,
        begin: &str,
        added: &str,
    ) -> Finished {
        enter(bed, &format!("{} {added}", self.command(section, begin))).await
    }

    fn substituted(&self, line: String) -> String {
        let substitutes = self.substitutes.iter();
        let command = substitutes.fold(line, |command, (from, to)| command.replace(from, to));
        let option = if command.contains("oci://") { " --plain-http" } else { "" };
        command + option
    }

    /// Sections with commands that have not been typed are these, and no others.
    pub(crate) fn has_read_all_but(&self, left_out: &[&str]) {
        let blocks = self.blocks().into_iter();
        let is_unread = |block: &Block| block.commands().iter().any(|it| !self.typed.contains(it));
        let unread = blocks.filter(is_unread).map(|it| it.section).collect::<BTreeSet<_>>();
        assert_eq!(unread, left_out.iter().copied().collect());
    }

    /// Commands that have not been typed begin so, and there are no others.
    pub(crate) fn has_typed_all_but(&self, left_out: &[&str]) {
        let commands = self.blocks().into_iter().flat_map(|block| block.commands());
        assert_begin(commands.filter(|it| !self.typed.contains(it)), left_out);
    }

    /// Commands that have been typed begin so, and there are no others.
    pub(crate) fn has_typed_only(&self, typed: &[&str]) {
        assert_begin(self.typed.iter().cloned(), typed);
    }
}

/// Each command has one of these beginnings, and each beginning has a command.
fn assert_begin(commands: impl Iterator<Item = String>, begins: &[&str]) {
    let begin_of = |command: String| {
        let begin = begins.iter().find(|begin| command.starts_with(**begin));
        begin.map_or(command, |begin| (*begin).to_owned())
    };
    let found: BTreeSet<String> = commands.map(begin_of).collect();
    assert_eq!(found, begins.iter().map(|begin| (*begin).to_owned()).collect());
}

/// Runs a command to its end.
async fn enter(bed: &Bed, command: &str) -> Finished {
    let output = must(bed.command(Path::new("sh")).args(["-c", command]).output().await);
    output.into()
}

/// Runs a command that has to succeed; answers what it printed.
pub(crate) async fn run(bed: &Bed, command: &str) -> String {
    let Finished { code, stdout, stderr } = enter(bed, command).await;
    assert_eq!(code, 0, "{command}: {stdout}{stderr}");
    stdout
}

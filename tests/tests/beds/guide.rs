//! A reader who types what a guide says: every command of a page runs on a bed, in the order of its
//! sections.

use std::collections::BTreeSet;
use std::path::Path;

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
}

impl Guide {
    /// A guide in whose commands each of these texts is replaced by the bed's.
    pub(crate) fn new<'a>(
        text: &'static str,
        substitutes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let substitutes =
            substitutes.into_iter().map(|(from, to)| (from.to_owned(), to.to_owned())).collect();
        Self { text, substitutes, read: BTreeSet::new() }
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
        let blocks = self.blocks();
        let block = blocks.iter().find(|block| block.text.starts_with(&format!("# {name}\n")));
        block.unwrap_or_else(|| panic!("the guide has no {name}")).text
    }

    /// Runs the commands of a section, one after the other; answers what they printed.
    pub(crate) async fn follow(&mut self, bed: &Bed, section: &'static str) -> String {
        self.read.insert(section);
        let mut printed = String::new();
        let mut count = 0;
        for block in self.blocks().into_iter().filter(|it| it.section == section) {
            if block.language != "sh" {
                continue;
            }
            for line in block.text.replace("\\\n", " ").lines() {
                let mut command = line.to_owned();
                for (from, to) in &self.substitutes {
                    command = command.replace(from, to);
                }
                if command.contains("oci://") {
                    command += " --plain-http";
                }
                let output =
                    must(bed.command(Path::new("sh")).args(["-c", &command]).output().await);
                let stdout = String::from_utf8_lossy(&output.stdout);
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{section}: {command}: {stdout}{stderr}");
                printed += &stdout;
                count += 1;
            }
        }
        assert!(count > 0, "the guide has no commands in {section}");
        printed
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

//! The examples of guides that no bed runs: every command of `tenon` in them is one that it
//! accepts, every file in YAML can be read, and settings files are complete.

use std::path::Path;

use clap::Parser;
use serde_json::Value;
use tenon::cli::Cli;
use tenon_installer_core::settings::{Inferred, Settings, Source};

const GUIDES: [(&str, &str); 5] = [
    ("ci.md", include_str!("../../docs/src/guides/ci.md")),
    ("cluster-autoscaler.md", include_str!("../../docs/src/guides/cluster-autoscaler.md")),
    (
        "node-termination-handler.md",
        include_str!("../../docs/src/guides/node-termination-handler.md"),
    ),
    ("own-image.md", include_str!("../../docs/src/guides/own-image.md")),
    ("quickstart.md", include_str!("../../docs/src/guides/quickstart.md")),
];

/// The code blocks of a page: language and text.
fn blocks(page: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

/// The commands of `tenon` in a block, whether typed or in a job.
fn commands(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let lines = text.lines().map(|line| line.trim().trim_start_matches("- "));
    let lines = lines.map(|line| line.trim_start_matches("run: "));
    let commands = lines.filter(|line| line.starts_with("tenon "));
    // What follows is the shell's, or a comment.
    let commands = commands.map(|line| line.split(['>', '#', '|']).next().unwrap_or_default());
    commands.map(str::to_owned).collect()
}

#[test]
fn every_command_is_one_that_tenon_accepts() {
    for (name, page) in GUIDES {
        let commands = blocks(page).flat_map(|(_, text)| commands(text)).collect::<Vec<_>>();
        assert!(!commands.is_empty(), "{name} has no command of tenon");
        for command in commands {
            let parsed = Cli::try_parse_from(command.split_whitespace());
            assert!(parsed.is_ok(), "{name}: {command}: {}", parsed.expect_err("an error"));
        }
    }
}

#[test]
fn every_file_can_be_read_and_settings_are_complete() {
    let mut settings = 0;
    for (name, page) in GUIDES {
        for (_, text) in blocks(page).filter(|(language, _)| *language == "yaml") {
            let document: Value = serde_saphyr::from_str(text)
                .unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
            if document["kind"] == "Installation" {
                settings += 1;
                let source = Source::parse(Path::new("tenon.yaml"), text);
                let resolved = Settings::resolve(source, &Inferred::default());
                assert!(resolved.is_ok(), "{name}: {:?}", resolved.err());
            }
        }
    }
    assert!(settings > 0, "no guide has settings");
}

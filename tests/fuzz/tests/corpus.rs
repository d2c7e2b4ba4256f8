//! The bodies of the fuzz targets, with the files of the corpus and what random changes make of
//! them.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;

/// A body with the folder of its corpus.
struct Target {
    name: &'static str,
    body: fn(&[u8]),
    /// Cases per run: snapshots are planned, the others only read.
    cases: u32,
}

const fn target(name: &'static str, body: fn(&[u8])) -> Target {
    Target { name, body, cases: 2_000 }
}

const TARGETS: &[Target] = &[
    target("quantities", tenon_fuzz::quantities),
    target("schedules", tenon_fuzz::schedules),
    target("selectors", tenon_fuzz::selectors),
    Target { cases: 300, ..target("instance_groups", tenon_fuzz::instance_groups) },
    Target { cases: 300, ..target("snapshots", tenon_fuzz::snapshots) },
    #[cfg(feature = "aws")]
    target("messages", tenon_fuzz::messages),
    #[cfg(feature = "aws")]
    target("user_data", tenon_fuzz::user_data),
    #[cfg(feature = "aws")]
    Target { cases: 300, ..target("settings", tenon_fuzz::settings) },
];

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(target)
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = folder("corpus").join(target);
    let entries = std::fs::read_dir(&folder).expect("the corpus of the target");
    let mut paths = entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| std::fs::read(path).expect("a file of the corpus")).collect()
}

/// One change to a text.
#[derive(Clone, Debug)]
enum Change {
    /// A byte becomes another one.
    Set(Index, u8),
    /// A piece is inserted.
    Insert(Index, &'static str),
    /// What lies between two places is deleted.
    Delete(Index, Index),
    /// What lies between two places is copied to a third one.
    Copy(Index, Index, Index),
}

/// What the formats give a meaning to.
const PIECES: &[&str] = &[
    "\n",
    "\r",
    " ",
    "\t",
    "\0",
    "\"",
    "'",
    "\\",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ":",
    ",",
    ".",
    "-",
    "+",
    "*",
    "/",
    "?",
    "=",
    "!",
    "<",
    "--//",
    "--//--",
    "--",
    "null",
    "true",
    "0",
    "-1",
    "1e99",
    "9223372036854775807",
    "18446744073709551616",
    "é",
    "\u{feff}",
    "&a *a",
    "#",
    "%",
    "e",
    "Ki",
    "n",
    "i.all(x, x)",
    "has(",
    "[[",
    "MIME-Version: 1.0\n",
    "Content-Type: multipart/mixed; boundary=//\n\n",
];

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        3 => (any::<Index>(), select(PIECES)).prop_map(|(at, piece)| Change::Insert(at, piece)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Change::Delete(from, to)),
        1 => (any::<Index>(), any::<Index>(), any::<Index>())
            .prop_map(|(from, to, at)| Change::Copy(from, to, at)),
    ]
}

fn between(text: &[u8], from: Index, to: Index) -> std::ops::Range<usize> {
    let (from, to) = (from.index(text.len() + 1), to.index(text.len() + 1));
    from.min(to)..from.max(to)
}

fn apply(text: &mut Vec<u8>, change: &Change) {
    let place = |text: &[u8], at: &Index| at.index(text.len() + 1);
    match change {
        Change::Set(at, byte) if !text.is_empty() => {
            let at = at.index(text.len());
            text[at] = *byte;
        }
        Change::Set(..) => {}
        Change::Insert(at, piece) => {
            let at = place(text, at);
            text.splice(at..at, piece.bytes());
        }
        Change::Delete(from, to) => drop(text.drain(between(text, *from, *to))),
        Change::Copy(from, to, at) => {
            let piece = text[between(text, *from, *to)].to_vec();
            let at = place(text, at);
            text.splice(at..at, piece);
        }
    }
}

fn hold(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let corpus = corpus(name);
    for input in &corpus {
        (target.body)(input);
    }
    let changes = prop::collection::vec(change(), 1..6);
    let config = ProptestConfig { cases: target.cases, ..ProptestConfig::default() };
    let outcome =
        TestRunner::new(config).run(&(select(corpus), changes), |(mut input, changes)| {
            for change in &changes {
                apply(&mut input, change);
            }
            (target.body)(&input);
            Ok(())
        });
    if let Err(error) = outcome {
        panic!("{name}: {error}");
    }
}

#[test]
fn quantities_are_read_as_they_are_written() {
    hold("quantities");
}

#[test]
fn schedules_have_no_time_between_now_and_the_next_one() {
    hold("schedules");
}

#[test]
fn selectors_give_an_answer_or_an_error() {
    hold("selectors");
}

#[test]
fn snapshots_that_are_accepted_can_be_planned() {
    hold("snapshots");
}

#[cfg(feature = "aws")]
#[test]
fn messages_about_nothing_name_no_instances() {
    hold("messages");
}

#[cfg(feature = "aws")]
#[test]
fn user_data_can_be_read_as_an_archive() {
    hold("user_data");
}

#[cfg(feature = "aws")]
#[test]
fn settings_without_problems_survive_writing_and_reading() {
    hold("settings");
}

/// `cargo fuzz` and these tests know the same targets.
#[test]
fn every_fuzz_target_is_tested_here() {
    let entries = std::fs::read_dir(folder("fuzz_targets")).expect("the targets");
    let mut programs = entries
        .map(|entry| entry.expect("an entry").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect::<Vec<_>>();
    programs.sort();
    let mut known = TARGETS.iter().map(|target| target.name.to_owned()).collect::<Vec<_>>();
    known.sort();
    if cfg!(feature = "aws") {
        assert_eq!(programs, known);
    }
}

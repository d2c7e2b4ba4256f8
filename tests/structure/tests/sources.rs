//! Comments and prose wrap at 100 columns: a wider line is cut off in a review and beside other
//! code. Documentation says more than the name of what it documents.

use std::fs;
use std::path::{Path, PathBuf};

const COLUMNS: usize = 100;

/// How pages begin that are written by a program.
const GENERATED: [&str; 2] = ["<!-- Written from", "<!-- Generated from"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The workspace's files with one extension, by their paths below the root, without what is built.
fn files(extension: &str) -> Vec<PathBuf> {
    fn collect(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the workspace") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default();
            let is_left_out =
                [".git", "target", "dist", "node_modules"].iter().any(|it| name == *it);
            if path.is_dir() && !is_left_out {
                collect(&path, extension, found);
            } else if path.extension().is_some_and(|it| it == extension) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect(&root(), extension, &mut found);
    found.sort();
    found
}

/// Whether a line is too wide although it could be broken: it has a second word.
fn is_too_wide(line: &str, text: &str) -> bool {
    line.chars().count() > COLUMNS && text.split_whitespace().nth(1).is_some()
}

/// Lines of comments that are too wide, without code in documentation.
fn wide_comments(source: &str) -> Vec<usize> {
    let mut in_code = false;
    let wide = source.lines().enumerate().filter_map(|(at, line)| {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            in_code = false;
            return None;
        };
        let text = comment.trim_start_matches(['/', '!']);
        if text.trim_start().starts_with("```") {
            in_code = !in_code;
            return None;
        }
        (!in_code && is_too_wide(line, text)).then_some(at + 1)
    });
    wide.collect()
}

/// Lines of comments that are too wide in a settings file or a script. What a test of the charts
/// expects is a line, however long.
fn wide_notes(text: &str) -> Vec<usize> {
    let wide = text.lines().enumerate().filter_map(|(at, line)| {
        let note = line.trim_start().strip_prefix("# ")?;
        (!note.starts_with("expect: ") && is_too_wide(line, note)).then_some(at + 1)
    });
    wide.collect()
}

/// Lines of prose that are too wide, without code, tables and images.
fn wide_prose(page: &str) -> Vec<usize> {
    let mut in_code = false;
    let wide = page.lines().enumerate().filter_map(|(at, line)| {
        let text = line.trim_start();
        let is_fence = text.starts_with("```");
        in_code ^= is_fence;
        let is_prose = !in_code && !is_fence && !text.starts_with(['|', '!', '#', '<']);
        let text = text.trim_start_matches(['-', '*', '>', ' ']);
        (is_prose && is_too_wide(line, text)).then_some(at + 1)
    });
    wide.collect()
}

/// What a line declares: the name of a field, a variant, a function or a type.
fn declared(line: &str) -> Option<&str> {
    let keywords = ["async", "const", "enum", "fn", "mod", "static", "struct", "trait", "type"];
    let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '(' || c == ')'));
    let mut words = words.filter(|word| !word.is_empty());
    words
        .find(|word| {
            !word.starts_with("pub") && !word.starts_with("in") && !keywords.contains(word)
        })
        .map(|word| word.split(['(', ')']).next().unwrap_or_default())
}

/// Lines of comments such as "Its name." above a field `name`: with an article and the last words
/// of the name, and nothing else.
fn repetitions(source: &str) -> Vec<usize> {
    let lines = source.lines().map(str::trim_start).collect::<Vec<_>>();
    let is_doc = |at: usize| lines.get(at).is_some_and(|line| line.starts_with("///"));
    let repeats = |at: &usize| {
        let comment = lines[*at].strip_prefix("/// ").and_then(|line| line.strip_suffix('.'))?;
        let (article, said) = comment.split_once(' ')?;
        let is_alone = (*at == 0 || !is_doc(at - 1)) && !is_doc(at + 1);
        let is_article = ["A", "An", "Its", "The", "Their"].contains(&article);
        let declaration = lines[at + 1..].iter().find(|line| !line.starts_with("#["))?;
        let name = declared(declaration)?;
        let mut plain = String::new();
        for c in name.chars() {
            if c.is_uppercase() && !plain.is_empty() {
                plain.push(' ');
            }
            plain.extend(c.to_lowercase());
        }
        let plain = plain.replace('_', " ");
        let (said, plain) = (said.trim_end_matches('s'), plain.trim_end_matches('s'));
        let is_end = plain.strip_suffix(said).is_some_and(|it| it.is_empty() || it.ends_with(' '));
        (is_alone && is_article && is_end).then_some(())
    };
    (0..lines.len()).filter(|at| repeats(at).is_some()).map(|at| at + 1).collect()
}

fn report(files: &[PathBuf], wide: impl Fn(&str) -> Vec<usize>) -> Vec<String> {
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a text");
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        let lines = wide(&text).into_iter().map(move |line| format!("{name}:{line}"));
        lines.collect::<Vec<_>>()
    };
    files.iter().flat_map(read).collect()
}

#[test]
fn comments_wrap_at_100_columns() {
    let sources = files("rs");
    assert!(sources.len() > 1000, "only {} sources were found", sources.len());
    let wide = report(&sources, wide_comments);
    assert!(wide.is_empty(), "comments are wider than {COLUMNS} columns:\n{}", wide.join("\n"));
}

#[test]
fn comments_of_settings_and_scripts_wrap_at_100_columns() {
    let mut texts =
        ["toml", "yaml", "yml", "sh"].iter().flat_map(|it| files(it)).collect::<Vec<_>>();
    texts.push(root().join(".ci/run"));
    assert!(texts.len() > 60, "only {} files were found", texts.len());
    let wide = report(&texts, wide_notes);
    assert!(wide.is_empty(), "comments are wider than {COLUMNS} columns:\n{}", wide.join("\n"));
}

#[test]
fn prose_wraps_at_100_columns() {
    let mut pages = files("md");
    let written = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a page");
        !text.lines().take(5).any(|line| GENERATED.iter().any(|mark| line.starts_with(mark)))
    };
    pages.retain(written);
    assert!(pages.len() > 40, "only {} pages were found", pages.len());
    let wide = report(&pages, wide_prose);
    assert!(wide.is_empty(), "prose is wider than {COLUMNS} columns:\n{}", wide.join("\n"));
}

#[test]
fn documentation_says_more_than_the_name() {
    let repeated = report(&files("rs"), repetitions);
    assert!(
        repeated.is_empty(),
        "say the origin, the unit or an invariant, or leave the comment out where it may be:\n{}",
        repeated.join("\n")
    );
}

#[test]
fn a_comment_repeats_a_name_with_an_article_only() {
    let source = "/// Its name.\npub name: String,\n/// Its name in IAM.\npub name: String,\n\
                  /// The tags.\n#[serde(skip)]\npub(crate) tags: Tags,\n/// A role.\nRole {\n\
                  /// The client token.\nclient_token: String,\n/// The id.\nfn role_id() {}\n\
                  /// The name.\n/// More of it.\nname: String,\n/// A list.\npub struct Items;";
    assert_eq!(repetitions(source), [1, 5, 8, 10, 12]);
}

#[test]
fn code_tables_and_single_words_may_be_wide() {
    let long = "word ".repeat(21);
    let link = "x".repeat(101);
    let source =
        format!("/// {long}\n//! ```\n//! {long}\n//! ```\nlet a = \"{long}\";\n// {link}\n");
    assert_eq!(wide_comments(&source), [1]);
    let page = format!("{long}\n```sh\n{long}\n```\n| {long} |\n- {link}\n- {long}\n");
    assert_eq!(wide_prose(&page), [1, 7]);
    let settings = format!("# {long}\n  # expect: {long}\nkey: {long}\n  # {link}\n  # {long}\n");
    assert_eq!(wide_notes(&settings), [1, 5]);
}

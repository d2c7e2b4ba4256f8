//! Everything that users read keeps to the terminology of `CONTRIBUTING.md`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The expressions that the table in `CONTRIBUTING.md` replaces: the code spans of its column
/// *Not*.
fn given_up() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("the page");
    let (_, table) = page.split_once("\n| Write | Not |\n").expect("the table");
    let rows = table.lines().take_while(|line| line.starts_with('|')).skip(1);
    let cells = rows.filter_map(|row| row.trim_end_matches(" |").rsplit_once(" | "));
    cells.flat_map(|(_, not)| not.split('`').skip(1).step_by(2)).map(str::to_lowercase).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files below a folder with one of these extensions, in a stable order.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).expect("a folder of the workspace");
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            found.extend(files(&path, extensions));
        } else if extensions.contains(&&*extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A page without code blocks, code spans and the targets of links, line by line.
fn prose(page: &str) -> Vec<String> {
    let mut in_code = false;
    let lines = page.lines().map(|line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        if fence || in_code {
            return String::new();
        }
        let spans = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let mut parts = spans.split("](");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, rest| {
            text + "]" + rest.split_once(')').map_or(rest, |(_, rest)| rest)
        })
    });
    lines.collect()
}

/// The comments of a YAML file, line by line.
fn comments(file: &str) -> Vec<String> {
    let comment = |line: &str| match line.trim_start().strip_prefix('#') {
        Some(comment) => comment.to_owned(),
        None => line.split_once(" #").map_or_else(String::new, |(_, comment)| comment.to_owned()),
    };
    file.lines().map(comment).collect()
}

/// Texts of several words in the string literals of a source, outside its tests, at the lines where
/// they begin. Placeholders are names of the source.
fn literals(source: &str) -> Vec<String> {
    let code = source.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut lines = vec![String::new(); code.lines().count()];
    let (mut begun, mut text, mut placeholder) = (None, String::new(), false);
    for (at, line) in code.lines().enumerate() {
        if begun.is_none() && line.trim_start().starts_with("//") {
            continue;
        }
        let mut characters = line.trim_start().chars();
        while let Some(c) = characters.next() {
            match c {
                '\\' if begun.is_some() => {
                    characters.next();
                }
                // A character, not a string.
                '\'' if begun.is_none() && characters.as_str().starts_with("\"'") => {
                    characters.next();
                    characters.next();
                }
                '"' => match begun.take() {
                    None => begun = Some(at),
                    Some(first) if text.trim().contains(' ') => {
                        lines[first] += &std::mem::take(&mut text);
                        lines[first].push('\n');
                    }
                    Some(_) => text.clear(),
                },
                '{' | '}' => placeholder = c == '{',
                _ if begun.is_some() && !placeholder => text.push(c),
                _ => {}
            }
        }
    }
    lines
}

/// A snapshot of a screen, line by line, without its header.
fn screen(snapshot: &str) -> Vec<String> {
    let mut rules = 0;
    let lines = snapshot.lines().map(|line| {
        let in_header = rules < 2;
        rules += usize::from(line == "---");
        if in_header { String::new() } else { line.to_owned() }
    });
    lines.collect()
}

/// Where one of the phrases occurs, also across the end of a line: line number and phrase.
fn occurrences(lines: &[String], phrases: &[String]) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let parts = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.extend(parts.map(|word| (number + 1, word.to_lowercase())));
    }
    let mut found = Vec::new();
    for phrase in phrases {
        let wanted: Vec<&str> = phrase.split_whitespace().collect();
        let windows = words.windows(wanted.len());
        let hits = windows.filter(|window| window.iter().map(|(_, word)| word).eq(&wanted));
        found.extend(hits.map(|window| (window[0].0, phrase.clone())));
    }
    found.sort();
    found
}

#[test]
fn texts_for_users_avoid_the_expressions_that_were_given_up() {
    let root = root();
    let phrases = given_up();
    assert!(phrases.len() > 40, "only {} expressions were found in the table", phrases.len());
    let mut texts = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
        .map(|name| root.join(name))
        .to_vec();
    texts.extend(files(&root.join(".github"), &["md"]));
    texts.extend(files(&root.join("docs/examples"), &["yaml"]));
    texts.extend(files(&root.join("docs/src"), &["md"]));
    texts.extend(files(&root.join("charts"), &["yaml", "txt"]));
    texts.extend(files(&root.join("crds/manifests"), &["yaml"]));
    texts.extend(files(&root.join("installer"), &["snap"]));
    // Errors, hints, events and what else programs print.
    let of_programs = ["crds", "iam-policies", "installer", "operator"];
    let sources = of_programs.iter().flat_map(|folder| files(&root.join(folder), &["rs"]));
    let is_test = |path: &PathBuf| {
        let part = |name: &str| path.iter().any(|part| part == name);
        path.ends_with("tests.rs") || ["tests", "testing", "benches"].into_iter().any(part)
    };
    texts.extend(sources.filter(|path| !is_test(path)));
    texts.extend(files(&root.join("installer/dashboard/src/page"), &["html", "js"]));
    let mut report = String::new();
    assert!(texts.len() > 30, "only {} texts were found", texts.len());
    for path in texts {
        let name = path.strip_prefix(&root).expect("a file of the workspace").display().to_string();
        let text = std::fs::read_to_string(&path).expect("a text");
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let lines = match &*extension {
            // Descriptions, which `kubectl explain` prints, and messages of rules.
            "yaml" if name.starts_with("crds/") => prose(&text),
            "yaml" => comments(&text),
            "snap" => screen(&text),
            "rs" => literals(&text),
            "html" | "js" => text.lines().map(str::to_owned).collect(),
            _ => prose(&text),
        };
        for (line, phrase) in occurrences(&lines, &phrases) {
            let _ = writeln!(report, "{name}:{line}: \"{phrase}\"");
        }
    }
    assert!(report.is_empty(), "see the terminology in CONTRIBUTING.md:\n{report}");
}

/// What the installer counts. In a text, a number before one of them is wrong where it is 1.
const COUNTED: [&str; 26] = [
    "pods",
    "nodes",
    "Nodes",
    "instances",
    "checks",
    "warnings",
    "messages",
    "groups",
    "endpoints",
    "policies",
    "replicas",
    "elements",
    "addresses",
    "services",
    "times",
    "lines",
    "steps",
    "roles",
    "permissions",
    "objects",
    "subnets",
    "zones",
    "tags",
    "NodePools",
    "NodeClaims",
    "EC2NodeClasses",
];

/// Texts with a placeholder before a plural, by line.
fn unguarded_plurals(source: &str) -> Vec<usize> {
    let code = source.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let is_wrong = |line: &str| {
        line.split("} ").skip(1).any(|rest| {
            let word = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            COUNTED.contains(&word)
        })
    };
    lines.filter(|(_, line)| is_wrong(line)).map(|(at, _)| at + 1).collect()
}

#[test]
fn things_are_counted_by_the_functions_that_know_their_singular() {
    // A kind of instance, and no number.
    let fine = ["installer/checks/src/compute.rs: {kind} instances"];
    let mut wrong = Vec::new();
    let folders = ["src", "core/src", "checks/src", "simulate/src"];
    let sources =
        folders.iter().flat_map(|folder| files(&root().join("installer").join(folder), &["rs"]));
    let sources = sources
        .filter(|path| !path.ends_with("tests.rs") && !path.iter().any(|part| part == "tests"));
    for path in sources {
        let name =
            path.strip_prefix(root()).expect("a file of the workspace").display().to_string();
        let text = std::fs::read_to_string(&path).expect("a source");
        for number in unguarded_plurals(&text) {
            let line = text.lines().nth(number - 1).unwrap_or_default();
            let is_fine = |fine: &&str| {
                let (file, part) = fine.split_once(": ").expect("a file and a part");
                name == file && line.contains(part)
            };
            if !fine.iter().any(is_fine) {
                wrong.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "use words::count or words::counted:\n{}", wrong.join("\n"));
}

#[test]
fn a_number_before_a_plural_is_found() {
    let source = "format!(\"{n} pods wait\")\n// {n} pods\ncount(n, \"pod\")\n#[cfg(test)]\nmod tests { \"{n} pods\" }";
    assert_eq!(unguarded_plurals(source), [1]);
}

#[test]
fn an_expression_is_found_across_lines_and_not_in_code() {
    let phrases = ["stand still".to_owned()];
    let page = "NodePools Stand\nstill. `stand still`\n```\nstand still\n```\n[a](stand-still.md)";
    assert_eq!(occurrences(&prose(page), &phrases), [(1, "stand still".to_owned())]);
    let values = "key: 1 # they stand\n# still\nother: stand still";
    assert_eq!(occurrences(&comments(values), &phrases), [(1, "stand still".to_owned())]);
    let source = "// \"stand still\"\nlet a = \"they stand \\\n    still {stand} still\";\n\
                  \n#[cfg(test)]\nmod tests { \"stand still\" }";
    assert_eq!(occurrences(&literals(source), &phrases), [(2, "stand still".to_owned())]);
    let snapshot = "---\nexpression: stand still\n---\nstand still";
    assert_eq!(occurrences(&screen(snapshot), &phrases), [(4, "stand still".to_owned())]);
}

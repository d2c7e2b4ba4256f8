//! The page `docs/src/reference/cli.md`, written from the definitions of the command line.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

use crate::cli::Cli;

fn page() -> String {
    let mut root = Cli::command();
    root.build();
    let mut page = String::from(
        "# Command line\n\n\
         <!-- Written from the command line's definitions; a test fails when both differ. -->\n\n\
         Results are printed on stdout, messages on stderr. A flag takes precedence over its \
         environment variable, which takes precedence over the settings file. See\n\
         [Exit codes](exit-codes.md) for the outcome of commands and the [settings \
         reference](config.md) for the fields of the file.\n\n\
         ## Global options\n\n",
    );
    options(&mut page, root.get_arguments().filter(|arg| arg.is_global_set()));
    let plan = root.find_subcommand("plan").expect("it accepts all settings");
    page.push_str(
        "\n## Settings options\n\n\
         The commands that plan with the settings accept all of these options. Each takes \
         precedence over the same field of the settings file.\n\n",
    );
    options(&mut page, plan.get_arguments().filter(|arg| is_setting(arg)));
    for command in root.get_subcommands() {
        section(&mut page, command, "tenon");
    }
    page
}

/// An option that only commands with all settings have.
const OF_ALL_SETTINGS: &str = "capacity";

fn is_setting(arg: &Arg) -> bool {
    arg.get_help_heading() == Some("Settings")
}

fn section(page: &mut String, command: &Command, parent: &str) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    let _ = write!(page, "\n## `{name}`\n\n{}\n\n", about.unwrap_or_default());
    let aliases = command.get_visible_aliases().collect::<Vec<_>>();
    if !aliases.is_empty() {
        let _ = write!(page, "Also `{parent} {}`.\n\n", aliases.join("`, `"));
    }
    let own = command.get_arguments().filter(|arg| !arg.is_global_set());
    if command.get_arguments().any(|arg| arg.get_id() == OF_ALL_SETTINGS) {
        page.push_str("Accepts the [settings options](#settings-options).\n\n");
        options(page, own.filter(|arg| !is_setting(arg)));
    } else {
        options(page, own);
    }
    for command in command.get_subcommands() {
        section(page, command, &name);
    }
}

fn options<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    let shown = arguments
        .filter(|arg| !arg.is_hide_set())
        .filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
        .collect::<Vec<_>>();
    if shown.is_empty() {
        return;
    }
    page.push_str("| Option | Variable | Default | Meaning |\n|---|---|---|---|\n");
    for arg in shown {
        let mut names = Vec::new();
        names.extend(arg.get_short().map(|short| format!("-{short}")));
        names.extend(arg.get_long().map(|long| format!("--{long}")));
        let takes_value = arg.get_action().takes_values()
            && arg.get_num_args().is_none_or(|n| n.max_values() > 0);
        let value = match arg.get_value_names() {
            Some(values) if takes_value => format!(" {}", values.join(" ")),
            _ => String::new(),
        };
        let names = if names.is_empty() {
            value.trim().to_owned()
        } else {
            format!("{}{value}", names.join(", "))
        };
        let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy()));
        let default = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy())
            .filter(|value| takes_value && !value.is_empty())
            .map(|value| format!("`{value}`"))
            .collect::<Vec<_>>()
            .join(", ");
        let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let possible = arg
            .get_possible_values()
            .into_iter()
            .filter(|_| takes_value)
            .map(|value| format!("`{}`", value.get_name()))
            .collect::<Vec<_>>();
        if !possible.is_empty() {
            let _ = write!(help, ": {}", possible.join(", "));
        }
        let _ = writeln!(
            page,
            "| `{}` | {} | {default} | {} |",
            names.replace('|', "\\|"),
            variable.unwrap_or_default(),
            help.replace('|', "\\|")
        );
    }
}

#[test]
fn the_page_on_the_command_line_is_up_to_date() {
    // The version changes with each release, and this page need not.
    let page = page().replace(concat!("`", env!("CARGO_PKG_VERSION"), "`"), "this version");
    tenon_installer_core::testing::assert_written("docs/src/reference/cli.md", &page);
}

#[test]
fn every_command_and_option_says_what_it_is_for() {
    fn check(command: &Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
        }
        command.get_subcommands().for_each(check);
    }
    let mut root = Cli::command();
    root.build();
    root.get_subcommands().filter(|one| one.get_name() != "help").for_each(check);
}

/// Command lines of `tenon` in the code blocks of a page.
fn commands_in(page: &str) -> Vec<String> {
    let mut in_block = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            continue;
        }
        let line = line.trim_start().trim_start_matches("- ").trim_start_matches("run: ");
        if in_block && line.starts_with("tenon ") {
            found.push(line.to_owned());
        }
    }
    found
}

/// A command line without comments and redirections, as a shell would hand it over.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().take_while(|word| !["#", ">", "|"].contains(word)).collect()
}

#[test]
fn every_command_in_the_book_is_one_that_tenon_understands() {
    use clap::Parser;
    let book = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src");
    let mut pages = vec![book.join("../../README.md")];
    for folder in ["tutorials", "guides", "reference"] {
        let files = std::fs::read_dir(book.join(folder)).expect("the book has such a folder");
        pages.extend(files.map(|file| file.expect("a file").path()));
    }
    let mut n = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        for line in commands_in(&text) {
            let result = Cli::try_parse_from(words(&line));
            assert!(result.is_ok(), "{}: {line}\n{}", page.display(), result.unwrap_err());
            n += 1;
        }
    }
    assert!(n > 40, "only {n} commands were found");
}

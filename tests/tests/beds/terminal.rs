//! A person at a terminal: `script` makes one, and the test types.

use std::path::Path;

use tenon_bed::bed::Bed;
use tenon_terminal::Terminal;

/// Runs a command, answers its questions, and presses Ctrl-C once the screen shows `at`: it ends
/// with the code for that, and says how to go on.
pub(crate) fn interrupted(bed: &Bed, command: &str, answers: &[(&str, &str)], at: &str) {
    let mut turns = answers.to_vec();
    turns.push((at, "\u{3}"));
    let screen = converse(Terminal { columns: 120, ..Terminal::default() }, bed, command, &turns);
    let parts = [
        "exit code 130",
        "interrupted; completed steps stay",
        "run the same command again to resume",
    ];
    for part in parts {
        assert!(screen.contains(part), "{part} is not on the screen at {at}:\n{screen}");
    }
}

/// Runs `tenon`, and types each text once the screen shows the text before it. Answers all that was
/// written to the screen, with the exit code at its end. Needs a runtime of several threads: this
/// one waits.
pub(crate) fn converse(
    terminal: Terminal,
    bed: &Bed,
    args: &str,
    turns: &[(&str, &str)],
) -> String {
    let tenon = bed.tenon().expect("programs").display().to_string();
    let command = bed.command(Path::new(Terminal::PROGRAM)).into_std();
    let line = format!("{tenon} {args}; echo exit code $?");
    tokio::task::block_in_place(|| terminal.run(command, &line).converse(turns))
}

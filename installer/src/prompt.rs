//! How a person is asked to confirm.
//!
//! Keys are read on a thread of its own, so that Ctrl-C is noticed meanwhile, however it comes.

use std::io;

use dialoguer::console::Term;
use dialoguer::theme::ColorfulTheme;
use tokio::task::spawn_blocking;

/// Asks for yes or no.
pub(crate) async fn confirm(question: &str, default: bool) -> io::Result<bool> {
    let question = question.to_owned();
    on_a_thread(move || {
        let theme = ColorfulTheme::default();
        dialoguer::Confirm::with_theme(&theme).with_prompt(question).default(default).interact()
    })
    .await
}

/// Asks for a text.
pub(crate) async fn input(question: &str, default: Option<&str>) -> io::Result<String> {
    let (question, default) = (question.to_owned(), default.map(str::to_owned));
    on_a_thread(move || {
        let theme = ColorfulTheme::default();
        let mut input = dialoguer::Input::<String>::with_theme(&theme).with_prompt(question);
        if let Some(default) = default {
            input = input.default(default);
        }
        input.interact_text()
    })
    .await
}

async fn on_a_thread<T: Send + 'static>(
    ask: impl FnOnce() -> dialoguer::Result<T> + Send + 'static,
) -> io::Result<T> {
    let asked = spawn_blocking(ask).await.map_err(io::Error::other)?;
    asked.map_err(|dialoguer::Error::IO(error)| error)
}

/// Gives the terminal back as it was when a question was interrupted: the cursor is hidden until
/// there is an answer.
pub(crate) fn give_back_terminal() {
    let terminal = Term::stderr();
    if terminal.is_term() {
        // A terminal that went away needs no cursor.
        let _ = terminal.show_cursor();
    }
}

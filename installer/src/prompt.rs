//! How a person is asked to confirm.

use std::io;

use dialoguer::theme::ColorfulTheme;

/// Asks a person.
pub trait Prompt {
    /// Yes or no.
    fn confirm(&mut self, question: &str, default: bool) -> io::Result<bool>;
    /// A text.
    fn input(&mut self, question: &str, default: Option<&str>) -> io::Result<String>;
}

/// Asks on the terminal.
#[derive(Default)]
pub struct Terminal {
    theme: ColorfulTheme,
}

fn io_error(error: dialoguer::Error) -> io::Error {
    match error {
        dialoguer::Error::IO(error) => error,
    }
}

impl Prompt for Terminal {
    fn confirm(&mut self, question: &str, default: bool) -> io::Result<bool> {
        dialoguer::Confirm::with_theme(&self.theme)
            .with_prompt(question)
            .default(default)
            .interact()
            .map_err(io_error)
    }

    fn input(&mut self, question: &str, default: Option<&str>) -> io::Result<String> {
        let mut input = dialoguer::Input::<String>::with_theme(&self.theme).with_prompt(question);
        if let Some(default) = default {
            input = input.default(default.to_owned());
        }
        input.interact_text().map_err(io_error)
    }
}

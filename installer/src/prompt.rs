//! How a person is asked. A trait, so that the wizard's choices can be tested without a terminal.

use std::io;

use dialoguer::theme::ColorfulTheme;

/// Asks a person.
pub trait Prompt {
    /// Yes or no.
    fn confirm(&mut self, question: &str, default: bool) -> io::Result<bool>;
    /// A text.
    fn input(&mut self, question: &str, default: Option<&str>) -> io::Result<String>;
    /// One of several; the index.
    fn select(&mut self, question: &str, items: &[String], default: usize) -> io::Result<usize>;
    /// Any of several; the indices.
    fn multi_select(
        &mut self,
        question: &str,
        items: &[String],
        chosen: &[bool],
    ) -> io::Result<Vec<usize>>;
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

    fn select(&mut self, question: &str, items: &[String], default: usize) -> io::Result<usize> {
        dialoguer::Select::with_theme(&self.theme)
            .with_prompt(question)
            .items(items)
            .default(default)
            .interact()
            .map_err(io_error)
    }

    fn multi_select(
        &mut self,
        question: &str,
        items: &[String],
        chosen: &[bool],
    ) -> io::Result<Vec<usize>> {
        let items = items.iter().zip(chosen.iter().copied());
        dialoguer::MultiSelect::with_theme(&self.theme)
            .with_prompt(question)
            .items_checked(items)
            .interact()
            .map_err(io_error)
    }
}

//! What a terminal shows, kept by an emulator, for programs that draw on all of it.

use std::num::NonZeroU16;
use std::time::Instant;

use vt100::Parser;

use crate::{PATIENCE, Session};

/// A program that draws on its terminal, and what is on it now.
pub struct Screen {
    session: Session,
    parser: Parser,
}

impl Screen {
    pub(crate) fn new(session: Session, rows: u16, columns: u16) -> Self {
        let [rows, columns] =
            [rows, columns].map(|n| NonZeroU16::new(n).expect("a terminal has rows and columns"));
        Self { session, parser: Parser::new(rows, columns, 0) }
    }

    /// The rows of the screen, without the spaces at their ends.
    #[must_use]
    pub fn text(&self) -> String {
        let screen = self.parser.screen();
        let rows = screen.rows(0, screen.size().1.get());
        rows.map(|row| row.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    /// Whether the program draws: on the other screen, without a cursor.
    #[must_use]
    pub fn is_drawn_on(&self) -> bool {
        self.parser.screen().alternate_screen() && self.parser.screen().hide_cursor()
    }

    /// Whether the terminal is back where it was before the program drew: on the first screen, with
    /// a cursor.
    #[must_use]
    pub fn is_left(&self) -> bool {
        !self.parser.screen().alternate_screen() && !self.parser.screen().hide_cursor()
    }

    /// Waits until the screen has a text.
    ///
    /// # Panics
    ///
    /// As [`Self::wait`].
    pub fn until(&mut self, text: &str) {
        self.wait(text, |screen| screen.contains(text));
    }

    /// Waits until something holds for the text on the screen.
    ///
    /// # Panics
    ///
    /// If it does not within a minute, or the program ends before.
    pub fn wait(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        // A screen may be redrawn for ever without what is waited for.
        let due = Instant::now() + PATIENCE;
        while !holds(&self.text()) {
            let missing = || format!("without {what:?}:\n{}", self.text());
            assert!(Instant::now() < due, "{}", missing());
            let part = self.session.read_until(due, missing);
            let part = part.unwrap_or_else(|| panic!("{}", missing()));
            self.parser.process(&part);
        }
    }

    /// Types a text.
    ///
    /// # Panics
    ///
    /// If the program has ended.
    pub fn press(&mut self, keys: &str) {
        self.session.press(keys);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use crate::Terminal;

    #[test]
    fn the_screen_has_what_is_drawn_last() {
        let line = "printf '\\033[?1049h\\033[?25lfirst\\033[2;3Hpart'; read a; \
                    printf '\\033[Hsecond'; read a; printf '\\033[?1049l\\033[?25h'; echo end";
        let mut screen = Terminal::default().draw(Command::new(Terminal::PROGRAM), line);
        screen.until("first\n  part");
        assert!(screen.is_drawn_on() && !screen.is_left());
        screen.press("\n");
        screen.wait("first is overwritten", |text| {
            text.contains("second") && !text.contains("first")
        });
        screen.press("\n");
        screen.until("end");
        assert!(screen.is_left() && !screen.text().contains("part"));
    }
}

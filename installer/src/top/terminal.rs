//! The terminal: taken over while the view is shown, and given back however it ends.

use std::io::{self, BufWriter, Read as _, Stdout, Write as _};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui_core::terminal::Terminal;
use ratatui_termion::TermionBackend;
use ratatui_termion::termion::event::Key;
use ratatui_termion::termion::raw::{IntoRawMode as _, RawTerminal};
use ratatui_termion::termion::screen::{ToAlternateScreen, ToMainScreen};
use ratatui_termion::termion::{cursor, style};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, channel};

use super::typed::Typed;

/// Keys that may wait to be handled: more than anyone types in a second.
const KEYS: usize = 256;

/// A terminal that is drawn on. It is given back when this is dropped, and before a panic is
/// printed, on whichever thread that happens.
pub(crate) struct Screen {
    terminal: Terminal<TermionBackend<BufWriter<Stdout>>>,
    mode: Arc<Mode>,
}

/// The mode that the terminal was in.
struct Mode {
    raw: RawTerminal<Stdout>,
    is_over: AtomicBool,
    /// Told when a panic has given the terminal back.
    lost: Notify,
}

impl Mode {
    /// Once; what comes later finds it done. A terminal that is gone needs nothing back.
    fn give_back(&self) {
        if self.is_over.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut stdout = io::stdout();
        let _ = write!(stdout, "{}{ToMainScreen}{}", style::Reset, cursor::Show);
        let _ = stdout.flush();
        let _ = self.raw.suspend_raw_mode();
    }
}

impl Screen {
    /// Takes over the terminal that stdout is.
    ///
    /// # Errors
    /// When stdout is no terminal, or can't be written to; it is then as it was.
    pub(crate) fn take() -> io::Result<Self> {
        let raw = io::stdout().into_raw_mode()?;
        let mode = Arc::new(Mode { raw, is_over: AtomicBool::new(false), lost: Notify::new() });
        let screen = |mode: &Arc<Mode>| {
            let mut stdout = io::stdout();
            write!(stdout, "{ToAlternateScreen}{}", cursor::Hide)?;
            stdout.flush()?;
            let terminal = Terminal::new(TermionBackend::new(BufWriter::new(stdout)))?;
            Ok(Self { terminal, mode: Arc::clone(mode) })
        };
        let screen = screen(&mode).inspect_err(|_| mode.give_back());
        // A panic of a task is printed while the screen is still there.
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            mode.give_back();
            print(panic);
            mode.lost.notify_one();
        }));
        screen
    }

    /// Waits until a panic, on whichever thread, has given the terminal back.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + use<> {
        let mode = Arc::clone(&self.mode);
        async move { mode.lost.notified().await }
    }
}

impl Deref for Screen {
    type Target = Terminal<TermionBackend<BufWriter<Stdout>>>;

    fn deref(&self) -> &Self::Target {
        &self.terminal
    }
}

impl DerefMut for Screen {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.terminal
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.mode.give_back();
    }
}

/// The keys that are typed from now on, read on a thread of its own. It ends with the terminal, or
/// with the program: a read can't be interrupted.
pub(crate) fn keys() -> Receiver<Key> {
    let (sender, keys) = channel(KEYS);
    std::thread::spawn(move || {
        let mut typed = Typed::default();
        let mut bytes = [0; 1024];
        while let Ok(n) = io::stdin().read(&mut bytes)
            && n > 0
        {
            for key in typed.keys(&bytes[..n]) {
                if sender.blocking_send(key).is_err() {
                    return;
                }
            }
        }
    });
    keys
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Run by the test below, on a terminal.
    #[test]
    #[ignore = "it panics"]
    fn a_task_panics_while_the_screen_is_drawn() {
        let screen = Screen::take().expect("a terminal");
        std::thread::spawn(|| panic!("this is the message"));
        futures::executor::block_on(screen.lost());
        writeln!(io::stdout(), "it is lost").expect("a terminal");
    }

    #[test]
    fn a_panic_is_printed_on_a_terminal_that_is_as_it_was() {
        let test = "top::terminal::tests::a_task_panics_while_the_screen_is_drawn";
        let this = std::env::current_exe().expect("this program");
        let this = this.display();
        let output = Command::new("script")
            .args(["--quiet", "--return", "--command"])
            .arg(format!(
                "stty -a >&2; {this} --exact {test} --ignored --nocapture; stty -a; echo end"
            ))
            .arg("/dev/null")
            .stdin(Stdio::null())
            .output()
            .expect("script runs");
        let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}:\n{text}"));
        let order =
            ["\u{1b}[?1049h", "\u{1b}[?1049l", "\u{1b}[?25h", "this is the message", "it is lost"];
        let places = order.map(place);
        assert!(places.is_sorted(), "{places:?}:\n{text}");
        assert_eq!(text.matches("\u{1b}[?1049l").count(), 1, "{text}");
        let modes = text.match_indices("icrnl").map(|(at, _)| &text[at - 1..at]);
        assert_eq!(modes.collect::<Vec<_>>(), [" ", " "], "{text}");
    }
}

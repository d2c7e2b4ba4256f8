//! The loop: a key or news, what follows from it, a new screen.

use std::time::Duration;

use jiff::Timestamp;
use ratatui_core::backend::Backend;
use ratatui_core::terminal::Terminal;
use ratatui_termion::termion::event::Key;
use tokio::sync::mpsc::Receiver;

use super::draw::{Palette, draw};
use super::keys::{Action, press};
use super::state::{News, State};
use super::view::View;

/// How often the screen is drawn when nothing happens: ages and the clock are counted in seconds.
const TICK: Duration = Duration::from_secs(1);

/// What the loop waits for. It ends when one of the senders is gone.
pub(crate) struct Inputs {
    /// Keys.
    pub(crate) keys: Receiver<Key>,
    /// What happened elsewhere.
    pub(crate) news: Receiver<News>,
    /// The terminal has another size.
    pub(crate) resized: Receiver<()>,
}

/// Draws until the user quits. `act` begins what has to be done, and must not wait for it; `now` is
/// the time.
///
/// # Errors
/// When the terminal can't be written to, or is gone.
pub(crate) async fn run<B: Backend>(
    terminal: &mut Terminal<B>,
    mut state: State,
    palette: Palette,
    mut inputs: Inputs,
    now: impl Fn() -> Timestamp,
    mut act: impl FnMut(Action),
) -> Result<(), B::Error> {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut view = View::new((0, 0));
    loop {
        state.now = now();
        let size = terminal.size()?;
        view.size = (usize::from(size.width), usize::from(size.height));
        terminal.draw(|frame| draw(frame, &state, &view, palette))?;
        let mut pressed = None;
        tokio::select! {
            // A key is about what is known when it is read.
            biased;
            news = inputs.news.recv() => match news {
                Some(news) => learn(&mut state, &mut view, news),
                None => return Ok(()),
            },
            key = inputs.keys.recv() => match key {
                Some(key) => pressed = Some(key),
                None => return Ok(()),
            },
            resized = inputs.resized.recv() => if resized.is_none() {
                return Ok(());
            },
            _ = ticks.tick() => {}
        }
        // What came meanwhile is drawn at once: a slow line must not lag behind the keys.
        while let Ok(news) = inputs.news.try_recv() {
            learn(&mut state, &mut view, news);
        }
        while let Some(key) = pressed {
            let action;
            (view, action) = press(key, &state, view);
            match action {
                Some(Action::Quit) => return Ok(()),
                Some(action) => act(action),
                None => {}
            }
            pressed = inputs.keys.try_recv().ok();
        }
    }
}

fn learn(state: &mut State, view: &mut View, news: News) {
    view.learn(&news);
    state.learn(news);
}

//! What a key does: a function of the key, of what is known and of what is shown.

use ratatui_termion::termion::event::Key;
use tenon_simulate::Subject;

use super::item::Item;
use super::pane::Pane;
use super::state::{Pause, State};
use super::view::{Popup, Selected, View};
use crate::uninstall::Motion;

/// What has to be done outside of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// End.
    Quit,
    /// Explain an object, in so many columns.
    Explain(Subject, usize),
    /// Pause or resume NodePools; the user has confirmed it.
    Pause(Pause),
}

/// The longest filter.
const FILTER: usize = 100;

/// The view after a key, and what has to be done.
pub(crate) fn press(key: Key, state: &State, mut view: View) -> (View, Option<Action>) {
    let action = if key == Key::Ctrl('c') {
        Some(Action::Quit)
    } else if view.popup.is_some() {
        in_popup(key, state, &mut view)
    } else if view.typing {
        type_filter(key, &mut view);
        None
    } else {
        in_panes(key, state, &mut view)
    };
    (view, action)
}

fn in_popup(key: Key, state: &State, view: &mut View) -> Option<Action> {
    if let Some(Popup::Confirm(pause)) = &view.popup {
        let action = (key == Key::Char('y')).then(|| Action::Pause(pause.clone()));
        if action.is_some() {
            view.said = Some(Ok("writing…".to_owned()));
        }
        view.popup = None;
        return action;
    }
    let (last, page) = (view.furthest(state), view.popup_room().1.saturating_sub(1).max(1));
    // The terminal may be larger than it was.
    let at = view.scroll.min(last);
    view.scroll = match key {
        Key::Esc | Key::Char('q' | '\n' | '?') => {
            view.popup = None;
            0
        }
        _ => moved(key, at, page, last),
    };
    None
}

fn type_filter(key: Key, view: &mut View) {
    match key {
        Key::Esc => {
            view.filter.clear();
            view.typing = false;
        }
        Key::Char('\n') => view.typing = false,
        Key::Backspace => {
            view.filter.pop();
        }
        Key::Ctrl('u') => view.filter.clear(),
        Key::Char(c) if !c.is_control() && view.filter.chars().count() < FILTER => {
            view.filter.push(c);
        }
        _ => {}
    }
}

fn in_panes(key: Key, state: &State, view: &mut View) -> Option<Action> {
    view.said = None;
    match key {
        Key::Char('q') => return Some(Action::Quit),
        Key::Char('?') => open(Popup::Help, view),
        Key::Char('/') => view.typing = true,
        Key::Char('z') => view.zoomed = !view.zoomed,
        Key::Char('s') => view.sort = view.sort.next(),
        Key::Esc if view.filter.is_empty() => view.zoomed = false,
        Key::Esc => view.filter.clear(),
        Key::Char('\t') | Key::Right => view.focus = view.focus.after(1),
        Key::BackTab | Key::Left => view.focus = view.focus.after(Pane::ALL.len() - 1),
        Key::Char(c @ '1'..='5') => view.focus = Pane::ALL[c as usize - '1' as usize],
        Key::Char('\n') => return enter(state, view),
        Key::Char('f') => pause(selected_pool(state, view).as_deref(), state, view),
        Key::Char('F') => pause(None, state, view),
        _ => select(key, state, view),
    }
    None
}

fn open(popup: Popup, view: &mut View) {
    view.popup = Some(popup);
    view.scroll = 0;
}

/// Explains what is selected, or shows it in full.
fn enter(state: &State, view: &mut View) -> Option<Action> {
    let (items, _) = view.items(view.focus, state);
    let item = items.get(view.place(view.focus, &items))?;
    if let Item::Decision(decision) | Item::Interruption(decision) = item {
        open(Popup::Decision(decision.seq), view);
        return None;
    }
    let Some(subject) = item.subject(state, &view.filter) else {
        view.said = Some(Err("there is nothing to explain about this line".to_owned()));
        return None;
    };
    open(Popup::Explanation(subject.clone(), None), view);
    Some(Action::Explain(subject, view.popup_room().0))
}

fn selected_pool(state: &State, view: &View) -> Option<String> {
    let (items, _) = view.items(view.focus, state);
    items.get(view.place(view.focus, &items))?.node_pool().map(str::to_owned)
}

/// Asks whether to pause a NodePool or all of them, or to resume them if they are paused.
fn pause(pool: Option<&str>, state: &State, view: &mut View) {
    let pools = state.fleet.iter().flat_map(|fleet| &fleet.node_pools);
    let pools = pools.filter(|it| pool.is_none_or(|pool| pool == it.name));
    let (paused, running): (Vec<_>, Vec<_>) = pools.partition(|pool| pool.paused);
    let (motion, pools) =
        if running.is_empty() { (Motion::Free, paused) } else { (Motion::Still, running) };
    if pools.is_empty() {
        view.said = Some(Err("there is no NodePool to pause".to_owned()));
        return;
    }
    let pools = pools.into_iter().map(|pool| pool.name.clone()).collect();
    open(Popup::Confirm(Pause { motion, pools }), view);
}

/// Selects another line.
fn select(key: Key, state: &State, view: &mut View) {
    let pane = view.focus;
    let (items, _) = view.items(pane, state);
    let Some(last) = items.len().checked_sub(1) else { return };
    let rows = view.heights(state)[pane.index()].saturating_sub(1);
    let page = (rows / View::rows_each(pane, rows)).max(1);
    let before = view.place(pane, &items);
    let index = moved(key, before, page, last);
    if index == before {
        return;
    }
    if pane == Pane::Decisions && index == last {
        // Follows the log again.
        view.selected.remove(&pane);
    } else {
        view.selected.insert(pane, Selected { id: items[index].id(), index });
    }
}

/// The place that a key leads to, of places up to a last one.
fn moved(key: Key, at: usize, page: usize, last: usize) -> usize {
    match key {
        Key::Up | Key::Char('k') => at.saturating_sub(1),
        Key::Down | Key::Char('j') => (at + 1).min(last),
        Key::PageUp | Key::Ctrl('b') => at.saturating_sub(page),
        Key::PageDown | Key::Ctrl('f') | Key::Char(' ') => (at + page).min(last),
        Key::Home | Key::Char('g') => 0,
        Key::End | Key::Char('G') => last,
        _ => at,
    }
}

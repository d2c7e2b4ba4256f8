//! What of the cluster is shown, and where the user is in it.

use std::collections::BTreeMap;

use tenon_installer_core::words::count;
use tenon_simulate::{Kind, Subject};

use super::item::{Item, items};
use super::pane::{Pane, Sort};
use super::state::{News, Pause, State};
use super::text::wrapped;
use crate::ledger::words;
use crate::uninstall::Motion;

/// The line that is selected in a pane: by what it is, and where it was, in case it is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selected {
    pub(super) id: String,
    pub(super) index: usize,
}

/// What is shown above the panes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Popup {
    /// Keys and marks.
    Help,
    /// What `tenon explain` says of an object, once it has said it.
    Explanation(Subject, Option<Result<String, String>>),
    /// A decision, by its number.
    Decision(u64),
    /// Whether these NodePools are to be paused or resumed.
    Confirm(Pause),
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The pane that keys are for.
    pub(super) focus: Pane,
    /// The focused pane has the screen for itself.
    pub(super) zoomed: bool,
    /// What nodes are sorted by.
    pub(super) sort: Sort,
    /// Only what contains this text is listed.
    pub(super) filter: String,
    /// Keys are for the filter.
    pub(super) typing: bool,
    /// The selected lines. A pane without one shows its first line, and the log its last.
    pub(super) selected: BTreeMap<Pane, Selected>,
    /// What is shown above the panes.
    pub(super) popup: Option<Popup>,
    /// Lines of the popup above its first visible one.
    pub(super) scroll: usize,
    /// What became of the last thing that the user asked for.
    pub(super) said: Option<Result<String, String>>,
    /// Columns and rows of the terminal.
    pub(super) size: (usize, usize),
}

/// Rows beside the panes: two at the top, one at the bottom.
const FRAME: usize = 3;

/// Below so many rows for panes, only the focused one is shown.
const LEAST: usize = 10;

/// The focused pane gets so many rows for each row of another.
const FOCUS: usize = 3;

/// From so many rows on, a decision takes two of them: the second has the reason.
const TWO_ROWS: usize = 2;

/// Columns and rows around the text of a popup: its border and a margin.
const BORDER: (usize, usize) = (6, 2);

/// The widest text of a popup.
const WIDEST: usize = 96;

impl View {
    /// What is shown first, on a terminal of so many columns and rows.
    pub(crate) fn new(size: (usize, usize)) -> Self {
        Self {
            focus: Pane::Nodes,
            zoomed: false,
            sort: Sort::default(),
            filter: String::new(),
            typing: false,
            selected: BTreeMap::new(),
            popup: None,
            scroll: 0,
            said: None,
            size,
        }
    }

    /// Takes in what happened, as far as it answers the user.
    pub(super) fn learn(&mut self, news: &News) {
        match news {
            News::Explained(subject, result) => {
                // Another one may have been asked for, or none.
                if let Some(Popup::Explanation(shown, answer)) = &mut self.popup
                    && shown == subject
                {
                    *answer = Some(result.clone());
                    self.scroll = 0;
                }
            }
            News::Paused(_, result) => self.said = Some(result.clone()),
            _ => {}
        }
    }

    /// What a pane lists, and how many there would be without the filter.
    pub(super) fn items<'a>(&self, pane: Pane, state: &'a State) -> (Vec<Item<'a>>, usize) {
        items(pane, state, &self.filter, self.sort)
    }

    /// The place of the selected line of a pane.
    pub(super) fn place(&self, pane: Pane, items: &[Item<'_>]) -> usize {
        let last = items.len().saturating_sub(1);
        match self.selected.get(&pane) {
            None if pane == Pane::Decisions => last,
            None => 0,
            Some(Selected { id, index }) => {
                let same = |item: &Item<'_>| item.id() == *id;
                // Where it was is where it is most of the time.
                match items.get(*index) {
                    Some(item) if same(item) => *index,
                    _ => items.iter().position(same).unwrap_or((*index).min(last)),
                }
            }
        }
    }

    /// Rows of each pane, its heading included; 0 for one that is not shown.
    pub(super) fn heights(&self, state: &State) -> [usize; 5] {
        let wanted = Pane::ALL.map(|pane| {
            let n = self.items(pane, state).0.len();
            match pane {
                // The reason why there are none, or two rows each.
                Pane::Decisions => (2 * n).max(usize::from(state.log.problem.is_some())),
                _ => n,
            }
        });
        let rows = self.size.1.saturating_sub(FRAME);
        heights(self.focus.index(), self.zoomed, wanted, rows)
    }

    /// Rows of each item of a pane with so many rows below its heading.
    pub(super) fn rows_each(pane: Pane, rows: usize) -> usize {
        if pane == Pane::Decisions && rows >= TWO_ROWS { 2 } else { 1 }
    }

    /// Columns and rows that the text of a popup may take.
    pub(super) fn popup_room(&self) -> (usize, usize) {
        let (columns, rows) = self.size;
        let columns = columns.saturating_sub(BORDER.0).clamp(1, WIDEST);
        (columns, rows.saturating_sub(BORDER.1 + 1).max(1))
    }

    /// Title and lines of the popup.
    pub(super) fn popup_text(&self, state: &State) -> Option<(String, Vec<String>)> {
        let popup = self.popup.as_ref()?;
        let (columns, _) = self.popup_room();
        let (title, text) = match popup {
            Popup::Help => ("help".to_owned(), help(state)),
            Popup::Explanation(subject, answer) => {
                let text = match answer {
                    None => "reading the cluster…".to_owned(),
                    Some(Ok(text)) => text.clone(),
                    Some(Err(why)) => format!("can't explain it: {why}"),
                };
                (title(subject), text)
            }
            Popup::Decision(seq) => {
                let text = match state.log.decisions.get(seq) {
                    None => "the operator remembers it no longer".to_owned(),
                    Some(decision) => {
                        let day = decision.time.strftime("%Y-%m-%d").to_string();
                        let lines = words::lines(decision);
                        let lines = lines.iter().flat_map(|line| line.wrapped(Some(columns)));
                        let lines = lines.map(|line| line.text());
                        std::iter::once(day).chain(lines).collect::<Vec<_>>().join("\n")
                    }
                };
                (format!("decision {seq}"), text)
            }
            Popup::Confirm(pause) => ("confirm".to_owned(), question(pause)),
        };
        let lines = text.lines().flat_map(|line| wrapped(line, columns)).collect();
        Some((title, lines))
    }

    /// The furthest that the popup can be scrolled.
    pub(super) fn furthest(&self, state: &State) -> usize {
        let lines = self.popup_text(state).map_or(0, |(_, lines)| lines.len());
        lines.saturating_sub(self.popup_room().1)
    }
}

/// Rows for panes that would fill so many below their headings, out of so many in all.
fn heights(focus: usize, zoomed: bool, wanted: [usize; 5], rows: usize) -> [usize; 5] {
    let mut heights = [0; 5];
    if zoomed || rows < LEAST {
        heights[focus] = rows;
        return heights;
    }
    heights = [1; 5];
    let mut left = rows - heights.len();
    loop {
        let before = left;
        for (at, height) in heights.iter_mut().enumerate() {
            let share = if at == focus { FOCUS } else { 1 };
            let more = (wanted[at] + 1 - *height).min(share).min(left);
            *height += more;
            left -= more;
        }
        if left == before {
            break;
        }
    }
    // The log is at the bottom, and takes what nothing else needs.
    heights[4] += left;
    heights
}

fn title(subject: &Subject) -> String {
    let Subject { kind, namespace, name } = subject;
    match kind {
        Kind::Pod => format!("explain pod {name} --namespace={namespace}"),
        Kind::Node => format!("explain node {name}"),
        Kind::NodeClaim => format!("explain nodeclaim {name}"),
        Kind::NodePool => format!("explain nodepool {name}"),
    }
}

/// What is written if the user says yes.
fn question(pause: &Pause) -> String {
    let Pause { motion, pools } = pause;
    let (what, them) = match pools.as_slice() {
        [pool] => (format!("NodePool {pool}"), "it"),
        pools => (format!("{}: {}", count(pools.len(), "NodePool"), pools.join(", ")), "each"),
    };
    let written = match motion {
        Motion::Still => format!(
            "Pause {what}?\n\nThe operator launches nothing and disrupts nothing there until you \
             resume {them}; interruptions are still handled.\n\nWritten to {them}:\n  \
             spec.limits.cpu: \"0\"\n  spec.disruption.budgets: [{{nodes: \"0\"}}]\n  \
             metadata.annotations[tenon.sh/frozen]: its limits and budgets"
        ),
        Motion::Free => format!(
            "Resume {what}?\n\nWritten to {them}:\n  spec.limits, spec.disruption.budgets: as in \
             the annotation tenon.sh/frozen\n  metadata.annotations[tenon.sh/frozen]: removed"
        ),
    };
    format!("{written}\n\ny: yes   any other key: no")
}

fn help(state: &State) -> String {
    let mut text = "\
up, down, j, k       select a line; also PgUp, PgDn, Home, End, g, G
Tab, Shift-Tab, 1-5  go to another pane
Enter                explain a node, NodePool or pod; show a decision
/                    list only what contains a text; Esc lists all again
f                    pause the selected NodePool, or that of the node, or
                     resume it if it is paused
F                    pause all NodePools, or resume them if all are paused
s                    sort nodes by name, price, requested cpu or age
z                    enlarge the pane, or shrink it again
q, Ctrl-C            quit

+ launched or starting       - being removed
! needs attention            = has to stay, or is paused

Bars show what pods request of what nodes can allocate. Prices are in USD
per hour, of the nodes whose price is known."
        .to_owned();
    if !state.notes.is_empty() {
        text.push_str("\n\nNotes:");
        for note in &state.notes {
            text.push_str("\n  ");
            text.push_str(note);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pane_has_a_heading_and_the_focused_one_most_of_the_room() {
        assert_eq!(heights(1, false, [4, 1000, 3, 2, 500], 21), [4, 8, 3, 3, 3]);
        assert_eq!(heights(4, false, [4, 1000, 3, 2, 500], 21), [4, 4, 3, 3, 7]);
        assert_eq!(heights(0, false, [4, 1000, 3, 2, 500], 21), [5, 5, 4, 3, 4]);
    }

    #[test]
    fn what_no_pane_needs_is_left_to_the_log() {
        assert_eq!(heights(1, false, [2, 3, 0, 0, 2], 30), [3, 4, 1, 1, 21]);
        for rows in 0..60 {
            for focus in 0..5 {
                for wanted in [[0; 5], [1; 5], [9, 900, 40, 3, 500]] {
                    let all = heights(focus, false, wanted, rows);
                    assert_eq!(all.iter().sum::<usize>(), rows, "{rows} {focus} {wanted:?}");
                }
            }
        }
    }

    #[test]
    fn on_a_terminal_without_room_the_focused_pane_is_alone() {
        assert_eq!(heights(2, false, [9; 5], 9), [0, 0, 9, 0, 0]);
        assert_eq!(heights(3, true, [9; 5], 40), [0, 0, 0, 40, 0]);
    }
}

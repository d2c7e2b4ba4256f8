//! The screen: a function of what is known and of what is shown. Only visible lines are put
//! together.

mod lines;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::terminal::Frame;
use tenon_installer_core::words::count;

use self::lines::{Columns, Shown};
use super::pane::Pane;
use super::state::State;
use super::text::{age, clean, counted, cut, grouped, left, money, sparkline, width};
use super::view::View;

/// What a part of a line means. Nothing is said by color alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ink {
    Plain,
    Strong,
    Dim,
    Good,
    Note,
    Bad,
}

/// Parts of a line, from the left.
type Parts = Vec<(Ink, String)>;

/// How ink looks on this terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Palette {
    /// With the 16 colors that every terminal has.
    Colored,
    /// Without colors: bold, dim and reversed.
    Monochrome,
}

impl Palette {
    fn style(self, ink: Ink) -> Style {
        let plain = Style::new();
        let color = |color| match self {
            Self::Colored => plain.fg(color),
            Self::Monochrome => plain,
        };
        match ink {
            Ink::Plain => plain,
            Ink::Strong => plain.add_modifier(Modifier::BOLD),
            Ink::Dim => plain.add_modifier(Modifier::DIM),
            Ink::Good => color(Color::Green),
            Ink::Note => color(Color::Yellow),
            Ink::Bad => color(Color::Red).add_modifier(Modifier::BOLD),
        }
    }
}

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &State, view: &View, palette: Palette) {
    let area = frame.area();
    let mut canvas = Canvas { buffer: frame.buffer_mut(), area, palette };
    let (columns, rows) = (canvas.columns(), usize::from(area.height));
    canvas.line(0, &header(state, columns));
    canvas.line(1, &history(state, columns));
    let mut row = 2;
    for (pane, height) in Pane::ALL.into_iter().zip(view.heights(state)) {
        if height > 0 {
            draw_pane(&mut canvas, (row, height), pane, (state, view));
        }
        row += height;
    }
    canvas.line(rows.saturating_sub(1), &footer(state, view, columns));
    if let Some((title, text)) = view.popup_text(state) {
        draw_popup(&mut canvas, view, &title, &text);
    }
}

/// Where lines are drawn.
struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    palette: Palette,
}

impl Canvas<'_> {
    fn columns(&self) -> usize {
        usize::from(self.area.width)
    }

    /// A line over the whole width; nothing below the screen.
    fn line(&mut self, row: usize, parts: &[(Ink, String)]) {
        self.line_at((0, row), self.columns(), parts);
    }

    /// A line from a column and row on, in so many columns.
    fn line_at(&mut self, (column, row): (usize, usize), columns: usize, parts: &[(Ink, String)]) {
        let at = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        if row >= usize::from(self.area.height) {
            return;
        }
        let end = (column + columns).min(self.columns());
        let mut column = column;
        for (ink, text) in parts {
            let text = cut(text, end.saturating_sub(column));
            // Nothing is left of what was there, such as the selection below a popup.
            let style = Style::reset().patch(self.palette.style(*ink));
            self.buffer.set_stringn(
                self.area.x + at(column),
                self.area.y + at(row),
                &text,
                end.saturating_sub(column),
                style,
            );
            column += width(&text);
        }
    }

    /// Marks a row as selected.
    fn reverse(&mut self, row: usize) {
        let y = self.area.y.saturating_add(u16::try_from(row).unwrap_or(u16::MAX));
        let line = Rect { y, height: 1, ..self.area };
        self.buffer
            .set_style(line.intersection(self.area), Style::new().add_modifier(Modifier::REVERSED));
    }
}

/// Parts as far as there is room for whole ones, with others up to the right.
fn spread(mut parts: Parts, end: (Ink, String), columns: usize) -> Parts {
    let length = |parts: &Parts| parts.iter().map(|(_, text)| width(text)).sum::<usize>();
    let room = columns.saturating_sub(width(&end.1) + 1);
    while parts.len() > 1 && length(&parts) > room {
        parts.pop();
    }
    let rest = columns.saturating_sub(length(&parts).min(room) + width(&end.1));
    if let [(_, first)] = parts.as_mut_slice() {
        *first = cut(first, room);
    }
    parts.push((Ink::Plain, " ".repeat(rest)));
    parts.push(end);
    parts
}

/// Cluster, nodes, price, what waits and what is removed; the time.
fn header(state: &State, columns: usize) -> Parts {
    let clock = format!("{} ", state.now.strftime("%H:%M:%SZ"));
    let mut parts = vec![(Ink::Strong, format!(" {}", clean(&state.cluster)))];
    if let Some(fleet) = &state.fleet {
        let total = &fleet.total;
        let mut nodes = counted(total.nodes, "node");
        if let Some(share) = (100 * total.spot).checked_div(total.nodes) {
            nodes = format!("{nodes}, {share}% spot");
        }
        parts.push((Ink::Plain, format!("  {nodes}")));
        if total.without_price < total.nodes {
            parts.push((Ink::Strong, format!("  {}/h", money(total.price_per_hour))));
        }
        let pending: usize = fleet.pending_pods.iter().map(|it| it.count).sum();
        let stuck = fleet.pending_pods.iter().any(|it| !it.ok);
        if pending > 0 {
            let ink = if stuck { Ink::Note } else { Ink::Plain };
            parts.push((ink, format!("  {} pending", counted(pending, "pod"))));
        }
        if !fleet.disrupting.is_empty() {
            let removed = grouped(fleet.disrupting.len());
            parts.push((Ink::Plain, format!("  {removed} being removed")));
        }
    } else {
        parts.push((Ink::Plain, "  reading the cluster…".to_owned()));
    }
    spread(parts, (Ink::Dim, clock), columns)
}

/// Prices while this runs; or why the picture is an old one.
fn history(state: &State, columns: usize) -> Parts {
    let silence = state.is_late().then_some("the API server has not answered since");
    if let Some(why) = state.unread.as_deref().or(silence) {
        let old = state.fleet.as_ref().map(|fleet| {
            let since = age(state.now, fleet.now);
            format!(" as of {}, {since} ago:", fleet.now.strftime("%H:%M:%SZ"))
        });
        return vec![(Ink::Bad, format!(" !{} {}", old.unwrap_or_default(), clean(why)))];
    }
    let (values, since) = (state.prices.values(), state.prices.since());
    let Some(since) = since else { return Vec::new() };
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = if money(low) == money(high) {
        format!("{} for {}", money(low), age(state.now, since))
    } else {
        format!("{} to {} in {}", money(low), money(high), age(state.now, since))
    };
    let room = columns.saturating_sub(width(&range) + 10);
    vec![
        (Ink::Dim, " price ".to_owned()),
        (Ink::Good, sparkline(&values, room)),
        (Ink::Dim, format!("  {range}")),
    ]
}

/// Keys and what they do, the most important first.
const KEYS: [(&str, &str); 8] = [
    ("Enter", "explain"),
    ("/", "filter"),
    ("f", "pause"),
    ("Tab", "pane"),
    ("?", "help"),
    ("q", "quit"),
    ("z", "zoom"),
    ("s", "sort"),
];

fn footer(state: &State, view: &View, columns: usize) -> Parts {
    if view.typing {
        return vec![
            (Ink::Strong, format!(" /{}_", clean(&view.filter))),
            (Ink::Dim, "   Enter keeps the filter, Esc removes it".to_owned()),
        ];
    }
    match &view.said {
        Some(Ok(said)) => return vec![(Ink::Good, format!(" {}", clean(said)))],
        Some(Err(said)) => return vec![(Ink::Bad, format!(" ! {}", clean(said)))],
        None => {}
    }
    let mut parts: Parts = Vec::new();
    if !view.filter.is_empty() {
        parts.push((Ink::Note, format!(" /{}", clean(&view.filter))));
        parts.push((Ink::Dim, " (Esc removes it)".to_owned()));
    }
    let notes = match state.notes.len() {
        0 => String::new(),
        n => format!("{} ", count(n, "note")),
    };
    let mut room = columns.saturating_sub(
        parts.iter().map(|(_, text)| width(text)).sum::<usize>() + width(&notes) + 1,
    );
    // What there is no room for is in the help.
    for (key, what) in KEYS {
        let (key, what) = (format!(" {key}"), format!(" {what} "));
        let taken = width(&key) + width(&what);
        if taken > room {
            break;
        }
        room -= taken;
        parts.push((Ink::Strong, key));
        parts.push((Ink::Dim, what));
    }
    spread(parts, (Ink::Dim, notes), columns)
}

fn draw_pane(
    canvas: &mut Canvas<'_>,
    (row, height): (usize, usize),
    pane: Pane,
    (state, view): (&State, &View),
) {
    let columns = Columns::new(canvas.columns());
    let (items, all) = view.items(pane, state);
    let is_focused = view.focus == pane;
    let rows = height - 1;
    let each = View::rows_each(pane, rows);
    let fits = (rows / each).max(usize::from(rows > 0));
    let place = view.place(pane, &items);
    // The selected line stays in the middle as long as there are others around it.
    let first = place.saturating_sub(fits / 2).min(items.len().saturating_sub(fits));
    let visible = items.iter().enumerate().skip(first).take(fits);
    let number = match (items.len(), fits) {
        (n, 1) if n > 1 => format!("{} of {}", grouped(first + 1), grouped(n)),
        (n, fits) if fits > 0 && n > fits => {
            format!("{}-{} of {}", grouped(first + 1), grouped(first + fits), grouped(n))
        }
        (n, _) if n < all => format!("{} of {}", grouped(n), grouped(all)),
        (n, _) => grouped(n),
    };
    let title = lines::title(pane, &number, &items, state, view);
    let rule = if is_focused { "═" } else { "─" };
    let titles = columns.titles(pane);
    let room = canvas.columns().saturating_sub(width(&titles));
    let title = cut(&format!("{rule} {title} "), room);
    let fill = rule.repeat(room.saturating_sub(width(&title)));
    let ink = if is_focused { Ink::Strong } else { Ink::Dim };
    let parts = [(ink, title), (ink, fill), (Ink::Dim, titles)];
    canvas.line(row, &parts);
    if pane == Pane::Decisions && items.is_empty() && rows > 0 {
        canvas.line(row + 1, &lines::no_decisions(state));
        return;
    }
    for (at, item) in visible {
        let Shown { mark, first: line, second } = lines::shown(item, &columns, (state, view));
        let y = row + 1 + (at - first) * each;
        let is_selected = is_focused && at == place;
        let pointer = if is_selected { ">" } else { " " };
        let start = [(Ink::Strong, pointer.to_owned()), (mark.0, format!("{} ", mark.1))];
        let parts = start.into_iter().chain(line).collect::<Vec<_>>();
        canvas.line(y, &parts);
        if is_selected {
            canvas.reverse(y);
        }
        if each > 1 && y + 1 < row + height {
            canvas.line(y + 1, &second);
        }
    }
}

/// A box with a title and lines in the middle of the screen.
fn draw_popup(canvas: &mut Canvas<'_>, view: &View, title: &str, text: &[String]) {
    let (most_columns, most_rows) = view.popup_room();
    let widest = text.iter().map(|line| width(line)).max().unwrap_or(0);
    let columns = widest.max(width(title) + 4).max(24).min(most_columns);
    let rows = text.len().min(most_rows);
    let first = view.scroll.min(text.len() - rows);
    // The border and a space beside it.
    let outer = (columns + 6).min(canvas.columns());
    let x = (canvas.columns() - outer) / 2;
    let y = usize::from(canvas.area.height).saturating_sub(rows + 2) / 2;
    let inner = outer.saturating_sub(4);
    let top = cut(&format!("═ {} ", clean(title)), inner);
    let top = format!(" ╔{top}{}╗ ", "═".repeat(inner.saturating_sub(width(&top))));
    canvas.line_at((x, y), outer, &[(Ink::Strong, top)]);
    for (at, line) in text.iter().skip(first).take(rows).enumerate() {
        let ink = if line.starts_with("can't ") { Ink::Bad } else { Ink::Plain };
        let parts = [
            (Ink::Strong, " ║ ".to_owned()),
            (ink, left(line, columns)),
            (Ink::Strong, " ║ ".to_owned()),
        ];
        canvas.line_at((x, y + 1 + at), outer, &parts);
    }
    let bottom = if text.len() > rows {
        let last = first + rows;
        format!("═ {}-{last} of {}, Esc closes ", first + 1, text.len())
    } else {
        "═ Esc closes ".to_owned()
    };
    let bottom = cut(&bottom, inner);
    let bottom = format!(" ╚{bottom}{}╝ ", "═".repeat(inner.saturating_sub(width(&bottom))));
    canvas.line_at((x, y + 1 + rows), outer, &[(Ink::Strong, bottom)]);
}

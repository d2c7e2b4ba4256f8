//! Names, amounts and reasons as people read them.

use jiff::Timestamp;
use tenon_planner::plan::StayReason;
use tenon_state::explain;

use super::parts::PodName;

/// Why a node stays. Events leave out what is not worth one; somebody who asks gets an answer
/// always.
pub(super) fn stay(reason: &StayReason) -> String {
    match reason {
        StayReason::NotManaged => "its NodePool does not exist".to_owned(),
        StayReason::Deleting => "it is being deleted already".to_owned(),
        StayReason::NotConsolidatable => {
            "consolidateAfter has not elapsed since the last pod was added or removed, or the \
             NodePool's policy excludes it"
                .to_owned()
        }
        StayReason::Later => {
            "it could be removed, but other commands of this plan come first: they move pods that \
             share a topology rule with its pods, or use the room that these need; it comes next"
                .to_owned()
        }
        StayReason::Changed(what) => format!("it changed since it was planned: {what}"),
        other => explain::staying(other)
            .map_or_else(|| format!("{other:?}"), |((_, message), _)| message),
    }
}

/// `$0.1234`
pub(super) fn price(usd: f64) -> String {
    let sign = if usd < 0.0 { "-" } else { "" };
    format!("{sign}${:.4}", usd.abs())
}

/// The first few of a list, and how many more there are.
pub(super) fn some(names: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let mut shown: Vec<String> = names.take(most).collect();
    if more > 0 {
        shown.push(format!("and {} more", grouped(more)));
    }
    shown.join(", ")
}

/// `default/web-0, default/web-1, and 3 more`
pub(super) fn pods(pods: &[PodName], most: usize) -> String {
    some(pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)), most)
}

/// `20,000`
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 node`, `20,000 nodes`
pub fn counted(n: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// A name in so many columns.
pub(super) fn shortened(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    name.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// Rows of cells under each other, two spaces between columns; the last column keeps its length.
pub(super) fn columns(rows: &[Vec<String>], indent: &str) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        format!("{indent}{}", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `40s`, `12m`, `3h`, `2d`, as kubectl writes them.
pub fn age(now: Timestamp, since: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1000, 20_000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "20,000", "1,234,567"]
        );
        assert_eq!(price(0.1), "$0.1000");
        assert_eq!(price(-1.5), "-$1.5000");
    }

    #[test]
    fn long_lists_are_cut_and_say_so() {
        let names = |n: usize| (0..n).map(|i| i.to_string());
        assert_eq!(some(names(2), 2), "0, 1");
        assert_eq!(some(names(1500), 2), "0, 1, and 1,498 more");
    }
}

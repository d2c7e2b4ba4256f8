//! Rules that fire in seconds instead of minutes, and mean the same otherwise.

use serde_json::{Value, json};

/// So many times faster.
const FACTOR: u64 = 120;
/// Seconds that a range needs to have samples in it, at one per second.
const RANGE: u64 = 8;
/// Seconds that nothing has to wait longer than, although it would wait a day.
const PATIENCE: u64 = 10;
/// Seconds that are a day ago.
const YESTERDAY: u64 = 30;

/// Metrics that grow with the time that something lasts: what they are compared with shrinks.
const AGES: [&str; 3] = [
    "condition_current_status_seconds",
    "termination_current_time_seconds",
    "unsynced_time_seconds",
];

/// The rules with shorter ranges, offsets, waiting times and ages.
pub(super) fn faster(rules: &Value) -> Value {
    let mut rules = rules.clone();
    let groups = rules["groups"].as_array_mut().expect("groups").iter_mut();
    for rule in groups.flat_map(|group| group["rules"].as_array_mut().expect("rules")) {
        let expression = rule["expr"].as_str().expect("an expression");
        rule["expr"] = json!(expression_faster(expression));
        if let Some(wait) = rule.get_mut("for") {
            let seconds = seconds(wait.as_str().expect("a duration")) / FACTOR;
            *wait = json!(format!("{}s", seconds.clamp(1, PATIENCE)));
        }
    }
    rules
}

fn expression_faster(expression: &str) -> String {
    let ages = AGES.iter().any(|age| expression.contains(age));
    let words = expression.split_whitespace().collect::<Vec<_>>();
    let mut out: Vec<String> = Vec::new();
    for (index, &word) in words.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| words[index]);
        let fast = match before {
            // `> 600)`; `> 0` counts something.
            Some(">") if ages => {
                let digits = word.trim_end_matches(')');
                let age: u64 = digits.parse().expect("an age in seconds");
                format!("{}{}", age / FACTOR, &word[digits.len()..])
            }
            Some("offset") => {
                let digits = word.trim_end_matches(')');
                format!("{YESTERDAY}s{}", &word[digits.len()..])
            }
            _ => range_faster(word),
        };
        out.push(fast);
    }
    out.join(" ")
}

/// `x[15m]))` with a shorter range.
fn range_faster(word: &str) -> String {
    let Some((metric, rest)) = word.rsplit_once('[') else { return word.to_owned() };
    let (range, rest) = rest.split_once(']').expect("the end of a range");
    format!("{metric}[{}s]{rest}", (seconds(range) / FACTOR).max(RANGE))
}

/// A duration as Prometheus writes it, with one unit.
fn seconds(duration: &str) -> u64 {
    let (number, unit) = duration.split_at(duration.len() - 1);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => panic!("{duration}: an unknown unit"),
    };
    number.parse::<u64>().expect("a number") * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_faster_and_otherwise_the_same() {
        for (slow, fast) in [
            ("sum(increase(x{a=\"b\"}[15m])) > 5", "sum(increase(x{a=\"b\"}[8s])) > 5"),
            ("increase(x[1h]) > 0", "increase(x[30s]) > 0"),
            ("max(x_unsynced_time_seconds) > 300", "max(x_unsynced_time_seconds) > 2"),
            (
                "count by (a) (x_termination_current_time_seconds > 3600) > 0",
                "count by (a) (x_termination_current_time_seconds > 30) > 0",
            ),
            ("sum(x) > 1.5 * sum(x offset 1d)", "sum(x) > 1.5 * sum(x offset 30s)"),
        ] {
            assert_eq!(expression_faster(slow), fast);
        }
    }
}

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn schedule(text: &str) -> Schedule {
    text.parse().unwrap()
}

#[test]
fn finds_the_next_time() {
    for (text, after, next) in [
        ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
        ("* * * * *", "2026-01-01T00:00:59.5Z", "2026-01-01T00:01:00Z"),
        ("* * * * *", "2025-12-31T23:59:59.5Z", "2026-01-01T00:00:00Z"),
        ("0 9 * * 1-5", "2026-11-20T09:00:00Z", "2026-11-23T09:00:00Z"),
        ("0 9 * * mon-FRI", "2026-11-20T08:59:59Z", "2026-11-20T09:00:00Z"),
        ("*/15 * * * *", "2026-01-01T00:14:00Z", "2026-01-01T00:15:00Z"),
        ("5/20 * * * *", "2026-01-01T00:06:00Z", "2026-01-01T00:25:00Z"),
        ("5/20 * * * *", "2026-01-01T00:45:00Z", "2026-01-01T01:05:00Z"),
        ("0-10/5,30 * * * *", "2026-01-01T00:10:00Z", "2026-01-01T00:30:00Z"),
        ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 1 jan,JUL ?", "2026-01-01T00:00:00Z", "2026-07-01T00:00:00Z"),
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
        ("@midnight", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
        ("@weekly", "2026-11-20T00:00:00Z", "2026-11-22T00:00:00Z"),
        ("@monthly", "2026-11-20T00:00:00Z", "2026-12-01T00:00:00Z"),
        ("@yearly", "2026-11-20T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("@annually", "2026-11-20T00:00:00Z", "2027-01-01T00:00:00Z"),
        // Both days restricted: either counts.
        ("0 0 13 * 5", "2026-11-20T00:00:00Z", "2026-11-27T00:00:00Z"),
        ("0 0 30 * 5", "2026-11-27T00:00:00Z", "2026-11-30T00:00:00Z"),
        // A star in one of them: both must match.
        ("0 0 * * 5", "2026-11-20T00:00:00Z", "2026-11-27T00:00:00Z"),
        ("0 0 13 * *", "2026-11-20T00:00:00Z", "2026-12-13T00:00:00Z"),
        // A step of more than one restricts.
        ("0 0 13 * */2", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"),
        ("0 0 13 * */1", "2026-11-20T00:00:00Z", "2026-12-13T00:00:00Z"),
    ] {
        assert_eq!(
            schedule(text).next_after(time(after)),
            Some(time(next)),
            "{text} after {after}"
        );
    }
    assert_eq!(schedule("0 0 30 2 *").next_after(time("2026-01-01T00:00:00Z")), None);
}

#[test]
fn refuses_what_is_no_schedule() {
    for text in [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 0 *",
        "* * * 13 *",
        "* * * * 7",
        "* * * * tue-mon",
        "* * * * someday",
        "*/0 * * * *",
        "*/x * * * *",
        "1/2/3 * * * *",
        "1-2-3 * * * *",
        "-1 * * * *",
        "* * L * *",
        "@every 1h",
        "@never",
        "TZ=Europe/Berlin * * * * *",
    ] {
        assert!(text.parse::<Schedule>().is_err(), "{text}");
    }
    let error = "* * * * tue-mon".parse::<Schedule>().unwrap_err().to_string();
    assert_eq!(error, "day of week `tue-mon` of the schedule begins after it ends");
}

#[test]
fn a_window_includes_its_start_and_not_its_end() {
    let office = schedule("0 9 * * 1-5");
    let length = SignedDuration::from_hours(8);
    for (now, open) in [
        ("2026-11-20T08:59:59Z", false),
        ("2026-11-20T09:00:00Z", true),
        ("2026-11-20T16:59:59Z", true),
        ("2026-11-20T17:00:00Z", false),
        ("2026-11-21T12:00:00Z", false),
    ] {
        assert_eq!(office.is_open(length, time(now)), open, "{now}");
    }
    assert_eq!(
        office.window(length, time("2026-11-20T10:00:00Z")),
        Window::Open { until: Some(time("2026-11-20T17:00:00Z")) }
    );
    assert_eq!(
        office.window(length, time("2026-11-20T17:00:00Z")),
        Window::Closed { until: time("2026-11-23T09:00:00Z") }
    );
}

#[test]
fn windows_that_touch_are_one() {
    assert_eq!(
        schedule("0 9-11 * * *")
            .window(SignedDuration::from_hours(1), time("2026-11-20T09:30:00Z")),
        Window::Open { until: Some(time("2026-11-20T12:00:00Z")) }
    );
    let longer_than_the_period =
        schedule("@daily").window(SignedDuration::from_hours(25), time("2026-11-20T09:30:00Z"));
    assert_eq!(longer_than_the_period, Window::Open { until: None });
}

#[test]
fn a_schedule_that_never_occurs_is_always_open() {
    let never = schedule("0 0 30 2 *");
    let now = time("2026-11-20T09:30:00Z");
    assert!(never.is_open(SignedDuration::from_hours(1), now));
    assert_eq!(never.window(SignedDuration::from_hours(1), now), Window::Open { until: None });
}

fn field(min: u32, max: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        Just("*".to_owned()),
        (min..=max).prop_map(|value| value.to_string()),
        (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        (min..=max, 1_u32..9).prop_map(|(start, step)| format!("{start}/{step}")),
        (1_u32..9).prop_map(|step| format!("*/{step}")),
    ]
}

proptest! {
    #[test]
    fn next_and_last_are_inverse(
        minute in field(0, 59), hour in field(0, 23), day in field(1, 28), month in field(1, 12), week in field(0, 6),
        second in 1_700_000_000_i64..2_000_000_000,
    ) {
        let text = format!("{minute} {hour} {day} {month} {week}");
        let schedule: Schedule = text.parse().unwrap();
        let now = Timestamp::from_second(second).unwrap();
        if let Some(next) = schedule.next_after(now) {
            prop_assert!(next > now);
            prop_assert_eq!(schedule.last_until(next), Some(next));
            // Nothing lies between.
            let before = next.checked_sub(SignedDuration::from_nanos(1)).unwrap();
            prop_assert!(schedule.last_until(before).is_none_or(|last| last <= now));
        }
    }
}

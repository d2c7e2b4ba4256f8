use super::*;

fn now() -> Timestamp {
    "2026-11-20T10:00:00Z".parse().unwrap()
}

fn budget(json: serde_json::Value) -> Budget {
    serde_json::from_value(json).unwrap()
}

#[test]
fn percentages_are_rounded_up_and_counts_are_taken_as_they_are() {
    for (nodes, n_nodes, allowed) in [
        ("10%", 1, 1),
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("5%", 10, 1),
        ("0%", 100, 0),
        ("33%", 4, 2),
        ("50%", 3, 2),
        ("100%", 7, 7),
        ("10%", 0, 0),
        ("5", 3, 5),
        ("0", 3, 0),
    ] {
        assert_eq!(
            Budget::always(nodes).allowed(n_nodes, now()),
            Ok(Some(allowed)),
            "{nodes} of {n_nodes}"
        );
    }
}

#[test]
fn a_budget_limits_nothing_while_its_window_is_closed() {
    let later =
        budget(serde_json::json!({ "nodes": "0", "schedule": "0 20 * * *", "duration": "1h" }));
    assert_eq!(later.allowed(19, now()), Ok(None));
}

#[test]
fn a_budget_that_cannot_be_evaluated_is_an_error() {
    let broken = budget(serde_json::json!({
        "nodes": "3", "reasons": ["Drifted"], "schedule": "0 0 * * tue-mon", "duration": "1h",
    }));
    let result = broken.allowed(19, now());
    assert!(matches!(result, Err(BudgetError::Schedule(_))), "{result:?}");
    assert!(matches!(Budget::always("many").allowed(1, now()), Err(BudgetError::Nodes { .. })));
}

#[test]
fn a_schedule_opens_windows() {
    let office =
        budget(serde_json::json!({ "nodes": "1", "schedule": "0 9 * * 1-5", "duration": "8h" }));
    assert_eq!(office.is_active(now()), Ok(true));
    assert_eq!(
        office.window(now()),
        Ok(Window::Open { until: Some("2026-11-20T17:00:00Z".parse().unwrap()) })
    );
    let saturday = "2026-11-21T10:00:00Z".parse().unwrap();
    assert_eq!(office.allowed(10, saturday), Ok(None));
}

use super::*;

fn now() -> Timestamp {
    "2026-11-20T10:00:00Z".parse().unwrap()
}

fn budget(json: serde_json::Value) -> Budget {
    serde_json::from_value(json).unwrap()
}

#[test]
fn nodes_are_a_count_or_a_percentage() {
    for (nodes, limit) in [
        ("0", BudgetLimit::Count(0)),
        ("5", BudgetLimit::Count(5)),
        ("0%", BudgetLimit::Percent(0)),
        ("33%", BudgetLimit::Percent(33)),
        ("100%", BudgetLimit::Percent(100)),
    ] {
        assert_eq!(Budget::always(nodes).limit(now()), Ok(Some(limit)), "{nodes}");
    }
}

#[test]
fn a_budget_limits_nothing_while_its_window_is_closed() {
    let later =
        budget(serde_json::json!({ "nodes": "0", "schedule": "0 20 * * *", "duration": "1h" }));
    assert_eq!(later.limit(now()), Ok(None));
}

#[test]
fn a_budget_that_cannot_be_evaluated_is_an_error() {
    let broken = budget(serde_json::json!({
        "nodes": "3", "reasons": ["Drifted"], "schedule": "0 0 * * tue-mon", "duration": "1h",
    }));
    let result = broken.limit(now());
    assert!(matches!(result, Err(BudgetError::Schedule(_))), "{result:?}");
    assert!(matches!(Budget::always("many").limit(now()), Err(BudgetError::Nodes { .. })));
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
    assert_eq!(office.limit(saturday), Ok(None));
}

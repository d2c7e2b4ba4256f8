//! What `tenon preflight` and `tenon doctor` say on a bed, and which checks have been seen to fail
//! and to pass there.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenon_bed::bed::{Bed, Finished};

/// Asks about one bed, and remembers how checks came out.
pub(super) struct Verdicts<'a> {
    bed: &'a Bed,
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
}

impl<'a> Verdicts<'a> {
    pub(super) fn on(bed: &'a Bed) -> Self {
        Self { bed, passed: BTreeSet::new(), failed: BTreeSet::new() }
    }

    /// `tenon preflight` with these flags and variables.
    pub(super) async fn preflight(
        &mut self,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> (Finished, Value) {
        let (finished, report) =
            tenon_with(self.bed, &[&["preflight"], flags].concat(), variables).await;
        self.remember(&report);
        (finished, report)
    }

    /// `tenon doctor`, which is given the tags that are active in billing.
    pub(super) async fn doctor(&mut self) -> (Finished, Value) {
        let tags = self.bed.dir().join("cost-allocation-tags.json");
        let active = json!({ "CostAllocationTags": [
            { "TagKey": "team", "Type": "UserDefined", "Status": "Active" },
            { "TagKey": "stage", "Type": "UserDefined", "Status": "Inactive" },
        ]});
        std::fs::write(&tags, active.to_string()).expect("it can be written");
        let tags = tags.to_string_lossy();
        let args = ["doctor", "--cost-allocation-tags", &tags];
        let (finished, report) = tenon_with(self.bed, &args, &[]).await;
        self.remember(&report);
        (finished, report)
    }

    fn remember(&mut self, report: &Value) {
        let passed = lines(report).filter(|line| line["outcome"] == "pass");
        self.passed.extend(passed.filter_map(|line| line["id"].as_str()).map(str::to_owned));
    }

    /// Asserts that each check fails, and says this.
    pub(super) fn fails(&mut self, report: &Value, checks: &[(&str, &str)]) {
        let unnamed: Vec<_> = checks
            .iter()
            .map(|(id, part)| (*id, *part, outcome(report, id)))
            .filter(|(_, part, (outcome, detail))| outcome != "fail" || !detail.contains(part))
            .collect();
        assert!(unnamed.is_empty(), "{unnamed:#?}");
        self.failed.extend(checks.iter().map(|(id, _)| (*id).to_owned()));
    }

    /// Asserts that exactly these checks have been seen to fail, and that each has passed in
    /// another report.
    pub(super) fn are_complete(&self, checks: &[&str]) {
        let expected: BTreeSet<_> = checks.iter().map(|id| (*id).to_owned()).collect();
        assert_eq!(self.failed, expected, "failed, and what the test says of itself");
        let never: Vec<_> = expected.difference(&self.passed).collect();
        assert!(never.is_empty(), "these checks never passed: {never:?}");
    }
}

/// A command about the bed's cluster with these variables, with its result as JSON.
pub(super) async fn tenon_with(
    bed: &Bed,
    args: &[&str],
    variables: &[(&str, &str)],
) -> (Finished, Value) {
    let mut all = args.to_vec();
    let (cluster, region) = (bed.cluster().to_owned(), bed.region().to_owned());
    all.extend(["--cluster", &cluster, "--region", &region, "-o", "json"]);
    let finished = bed.run_tenon_with(&all, variables).await.expect("tenon runs");
    let result = serde_json::from_str(&finished.stdout).unwrap_or_default();
    (finished, result)
}

fn lines(report: &Value) -> impl Iterator<Item = &Value> {
    let groups = report["categories"].as_array().expect("a report");
    groups.iter().flat_map(|group| group["checks"].as_array().expect("checks"))
}

/// How a check came out, and the details.
pub(super) fn outcome(report: &Value, id: &str) -> (String, String) {
    let line = lines(report).find(|line| line["id"] == id);
    let line = line.unwrap_or_else(|| panic!("no check {id}"));
    let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    (text("outcome"), text("detail"))
}

/// Asserts that these checks pass.
pub(super) fn passes<'a>(report: &Value, ids: impl IntoIterator<Item = &'a str>) {
    let left: Vec<_> = ids
        .into_iter()
        .map(|id| (id, outcome(report, id)))
        .filter(|(_, (outcome, _))| outcome != "pass")
        .collect();
    assert!(left.is_empty(), "{left:#?}");
}

/// Checks that failed and are fatal.
pub(super) fn fatal(report: &Value) -> Vec<String> {
    lines(report)
        .filter(|line| line["severity"] == "fatal" && line["outcome"] == "fail")
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap_or_default();
            format!("{} {}", text("id"), text("detail"))
        })
        .collect()
}

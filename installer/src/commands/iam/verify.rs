//! `tenon iam verify`: whether the roles allow what is needed, and no more.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;
use tenon_checks::observe::gap_in_words;
use tenon_iam_policies::cases::cases;
use tenon_iam_policies::controller::controller_policies;
use tenon_iam_policies::cover::gaps;
use tenon_iam_policies::document::Document;
use tenon_installer_core::observe::{granted, iam};
use tenon_installer_core::words::{count, count_are};

use super::simulate::{self, Surprise};
use crate::cli::GlobalArgs;
use crate::cli::iam::VerifyArgs;
use crate::commands::session::{Fallback, Session, observe_failed, source};
use crate::errors::ExpectedError;
use crate::exit_codes::EXIT_DRIFT;
use crate::printer::Printer;

/// What came out.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    /// What is needed and not granted.
    missing: Vec<String>,
    /// What is granted and not needed.
    excess: Vec<String>,
    /// Calls that came out otherwise than they have to.
    surprises: Vec<Surprise>,
    /// How many calls were simulated; none if IAM was not asked or did not answer.
    simulated: Option<usize>,
}

pub(super) async fn run(
    global: &GlobalArgs,
    args: &VerifyArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let settings = args.settings.settings();
    let source = source(&settings)?;
    let session = Session::open(global, &settings, source, Fallback::Record).await?;
    session.introduce(*printer);
    let role = &session.desired.controller_role;
    let names = [role.name.clone()];
    let states = iam::roles(&session.aws, &names).await.map_err(observe_failed)?;
    let Some(state) = states.get(&role.name) else {
        return Err(ExpectedError::Preflight {
            reasons: vec![format!("role {} does not exist: run `tenon install`", role.name)],
        });
    };
    let attached = granted::documents(&session.aws, state).await.map_err(observe_failed)?;
    let needed = needed(&session);
    let mut verdict = compare(&attached, &needed);
    if !args.no_simulation {
        let all = needed.values().flat_map(cases).collect::<Vec<_>>();
        match simulate::run(&session.aws, &state.arn, &all).await {
            Ok((surprises, n)) => (verdict.surprises, verdict.simulated) = (surprises, Some(n)),
            Err(error) => printer.warn(&format!("nothing was simulated: {error}")),
        }
    }
    show(&verdict, &role.name, &attached, *printer);
    let fits = verdict.missing.is_empty() && verdict.surprises.is_empty();
    printer.json(&json!({
        "schema": "tenon.sh/iam-verify/v1alpha1",
        "target": session.target_json(),
        "role": state.arn,
        "sufficient": fits,
        "verdict": verdict,
    }));
    Ok(if fits { 0 } else { EXIT_DRIFT })
}

fn needed(session: &Session) -> BTreeMap<String, Document> {
    controller_policies(&session.desired.scope)
        .into_iter()
        .map(|policy| (policy.part.name().to_owned(), policy.document))
        .collect()
}

fn compare(attached: &BTreeMap<String, Document>, needed: &BTreeMap<String, Document>) -> Verdict {
    let all = |granted: &BTreeMap<String, Document>, wanted: &BTreeMap<String, Document>| {
        wanted
            .iter()
            .flat_map(|(name, document)| {
                let gaps = gaps(granted.values(), document);
                gaps.into_iter().map(move |gap| format!("{name}: {}", gap_in_words(&gap)))
            })
            .collect::<Vec<_>>()
    };
    Verdict { missing: all(attached, needed), excess: all(needed, attached), ..Verdict::default() }
}

fn show(verdict: &Verdict, role: &str, attached: &BTreeMap<String, Document>, printer: Printer) {
    printer.text(&format!("role {role}: {} attached", count_are(attached.len(), "policy")));
    for gap in &verdict.missing {
        printer.text(&format!(" ✘ missing  {gap}"));
    }
    for surprise in &verdict.surprises {
        printer.text(&format!(
            " ✘ simulated  {} on {}: {}",
            surprise.action, surprise.resource, surprise.problem
        ));
    }
    for more in &verdict.excess {
        printer.text(&format!(" ‼ more than is needed  {more}"));
    }
    if verdict.missing.is_empty() && verdict.surprises.is_empty() {
        let simulated = match verdict.simulated {
            Some(n) => format!("; {} had the expected results", count(n, "simulated call")),
            None => String::new(),
        };
        printer.text(&format!(" ✔ all required permissions are granted{simulated}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_iam_policies::Statement;

    fn policies(actions: &[&str]) -> BTreeMap<String, Document> {
        let statement = Statement::allow("S", actions.iter().copied());
        BTreeMap::from([("P".to_owned(), Document::new([statement]))])
    }

    #[test]
    fn what_is_missing_and_what_is_too_much_are_told_apart() {
        let verdict = compare(
            &policies(&["ec2:RunInstances", "s3:*"]),
            &policies(&["ec2:RunInstances", "ec2:CreateFleet"]),
        );
        assert_eq!(verdict.missing, ["P: ec2:CreateFleet on * (statement S)"]);
        assert_eq!(verdict.excess, ["P: s3:* on * (statement S)"]);
        assert_eq!(
            compare(&policies(&["ec2:*"]), &policies(&["ec2:RunInstances"])).missing,
            [""; 0]
        );
    }
}

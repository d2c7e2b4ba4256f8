//! The demo that `cargo sandbox` tells, from `tenon install` to a proven-empty `tenon uninstall`,
//! here in an AWS that is only eventually consistent: what was just made can't be seen by other
//! calls for some seconds.

use tenon_aws_double::consistency::Delays;
use tenon_bed::demo::prove;
use tenon_bed::policy_coverage::problems;
use tenon_bed::wait::must;

#[tokio::test(flavor = "multi_thread")]
async fn the_story_comes_to_its_end_and_leaves_nothing() {
    let report = must(prove(Delays::of_aws()).await);
    report.must_be_ok();
    for statement in &report.statements {
        println!("{} of {}: {:?}", statement.sid, statement.policy, statement.calls);
    }
    let problems = problems(&report.statements);
    assert!(problems.is_empty(), "permissions of the operator: {}", problems.join("; "));
}

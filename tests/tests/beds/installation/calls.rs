//! What a command of the installer calls in AWS: how often, and whose things it writes to.

use std::collections::BTreeMap;

use serde_json::Value;
use tenon_aws_double::calls::Call;
use tenon_aws_double::identity::Grants;
use tenon_aws_double::policy::NamedDocument;
use tenon_bed::bed::{Bed, Finished};
use tenon_bed::wait::must;
use tenon_iam_policies::Document;

use super::command::tenon;

/// The calls of one run of `tenon`, oldest first.
#[derive(Debug)]
pub(super) struct Calls(Vec<Call>);

/// Runs `tenon` to its end and tells what it called. Calls of the operator, which goes on beside
/// it, are not in it.
pub(super) async fn called(bed: &Bed, args: &[&str]) -> (Finished, Calls) {
    let log = must(bed.aws()).gateway().control().calls();
    log.clear();
    let finished = tenon(bed, args, None).await;
    (finished, of_installer(bed))
}

fn of_installer(bed: &Bed) -> Calls {
    let all = must(bed.aws()).gateway().control().calls().all();
    let of_installer = |call: &Call| call.caller.ends_with(":user/administrator");
    Calls(all.into_iter().filter(of_installer).collect())
}

/// What whoever runs `tenon` was denied so far.
pub(super) fn denied(bed: &Bed) -> Vec<String> {
    of_installer(bed).denied()
}

/// Gives whoever runs `tenon` the rights that `tenon iam caller` prints for a purpose, and no
/// others. `settings` say what is installed.
pub(super) async fn grant(bed: &Bed, purpose: &str, settings: &[&str]) {
    unrestrict(bed);
    let args = [&["iam", "caller", "--for", purpose, "-o", "json"][..], settings].concat();
    let printed = tenon(bed, &args, None).await;
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let printed: Value = serde_json::from_str(&printed.stdout).expect("one document");
    let policies = printed["policies"].as_array().expect("a list").iter();
    restrict(bed, policies.map(|policy| policy["document"].clone()));
}

/// Gives whoever runs `tenon` the rights of these policies, and no others.
pub(super) fn restrict(bed: &Bed, policies: impl IntoIterator<Item = Value>) {
    let guard = must(bed.aws()).guard();
    let policies = policies.into_iter().enumerate().map(|(at, policy)| {
        let document: Document = serde_json::from_value(policy).expect("a policy document");
        NamedDocument { name: format!("policy-{at}"), document }
    });
    let grants = Grants::Documents(policies.collect());
    assert!(guard.identities.set_grants(&guard.administrator().access_key, grants));
}

/// Gives whoever runs `tenon` every right again.
pub(super) fn unrestrict(bed: &Bed) {
    let guard = must(bed.aws()).guard();
    let key = &guard.administrator().access_key;
    assert!(guard.identities.set_grants(key, Grants::Everything));
}

/// What a command may call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Calls in all.
    pub(super) calls: usize,
    /// Those of them that change something.
    pub(super) writes: usize,
}

/// Runs `tenon` to its end, which has to be a good one; it keeps to the budget and to what is its
/// own.
pub(super) async fn within(bed: &Bed, args: &[&str], budget: Budget) -> Finished {
    let (finished, calls) = called(bed, args).await;
    assert_eq!(finished.code, 0, "tenon {}:\n{}", args.join(" "), finished.stderr);
    let (all, writes) = (calls.len(), calls.writes().count());
    assert!(
        all <= budget.calls && writes <= budget.writes,
        "`tenon {}` makes {all} calls, {writes} of them writes, and {budget:?} is what it may: {}",
        args.join(" "),
        calls.summary()
    );
    let seed = must(bed.aws()).seed();
    let mut shared = seed.subnet_ids.clone();
    shared.push(seed.cluster_security_group_id.clone());
    calls.touch_only_ours(bed.cluster(), &shared);
    finished
}

impl Calls {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Those that change something.
    pub(super) fn writes(&self) -> impl Iterator<Item = &Call> {
        self.0.iter().filter(|call| {
            let verb = call.action.split_once(':').map_or("", |(_, verb)| verb);
            !["Get", "List", "Describe", "Simulate"].iter().any(|read| verb.starts_with(read))
        })
    }

    /// Those that their caller may not make. That IAM is asked what the caller may do is a
    /// courtesy, which is not in the printed policy: it is not known whose it is.
    pub(super) fn denied(&self) -> Vec<String> {
        let is_courtesy = |call: &&Call| call.action == "iam:SimulatePrincipalPolicy";
        let denied = self.0.iter().filter(|call| call.denied && !is_courtesy(call));
        denied.map(|call| format!("{} on {}", call.action, call.resources.join(", "))).collect()
    }

    /// The most frequent ones, for whoever wonders where the calls come from.
    pub(super) fn summary(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for call in &self.0 {
            *counts.entry(&call.action).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(action, count)| (usize::MAX - count, *action));
        let words = counts.into_iter().map(|(action, count)| format!("{count} {action}"));
        words.collect::<Vec<_>>().join(", ")
    }

    /// No write touches what belongs to nobody of this installation. `shared` are parts of ARNs of
    /// what it may write to beside its own, such as the subnets that get a tag.
    pub(super) fn touch_only_ours(&self, cluster: &str, shared: &[String]) {
        let ours = [
            format!("tenon-{cluster}"),
            format!(":cluster/{cluster}"),
            format!("podidentityassociation/{cluster}/"),
            // What the operator made.
            "instance-profile/karpenter/".to_owned(),
            ":launch-template/".to_owned(),
        ];
        for call in self.writes() {
            let foreign: Vec<_> = call
                .resources
                .iter()
                .filter(|arn| !ours.iter().chain(shared).any(|part| arn.contains(part.as_str())))
                .collect();
            assert!(foreign.is_empty(), "{} writes to {foreign:?}", call.action);
        }
    }
}

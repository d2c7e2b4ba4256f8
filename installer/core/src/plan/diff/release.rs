//! The record by which Helm knows the installation.

use super::Differ;
use super::objects::step_id;
use crate::kubernetes::helm;
use crate::plan::{Action, Op, Step};

const KIND: &str = "Helm release";

impl Differ<'_> {
    pub(super) fn release(&mut self) {
        let revisions = &self.actual.releases;
        let id = &self.desired.installation.id;
        let Some(record) = &self.desired.helm else {
            let secrets = helm::secrets_of(revisions, id);
            if !secrets.is_empty() {
                let namespace = self.desired.service_account.namespace.clone();
                self.add(
                    Step::new(
                        "helm-release",
                        KIND,
                        helm::RELEASE,
                        Op::Delete,
                        Action::DeleteRelease { namespace, secrets },
                    )
                    .because(["disabled in the settings"])
                    .needs(&["delete"], "secrets"),
                );
            }
            return;
        };
        let latest = revisions.iter().max_by_key(|revision| revision.number);
        if latest.is_some_and(|latest| {
            latest.status == "deployed" && latest.hash.as_deref() == Some(record.hash.as_str())
        }) {
            return;
        }
        let revision = latest.map_or(1, |latest| latest.number.saturating_add(1));
        let deployed = revisions.iter().filter(|revision| revision.status == "deployed");
        let mut numbers = revisions.iter().map(|it| (it.number, &it.secret)).collect::<Vec<_>>();
        numbers.sort_unstable();
        let too_many = (numbers.len() + 1).saturating_sub(helm::KEPT);
        let action = Action::WriteRelease {
            record: record.clone(),
            revision,
            deployed: deployed.map(|revision| revision.secret.clone()).collect(),
            old: numbers.into_iter().take(too_many).map(|(_, secret)| secret.clone()).collect(),
        };
        let op = if revision == 1 { Op::Create } else { Op::Update };
        self.add(
            Step::new("helm-release", KIND, helm::RELEASE, op, action)
                .because([format!("revision {revision}")])
                .after(self.desired.operator.iter().map(step_id))
                .needs(&["list", "get", "create", "patch", "delete"], "secrets"),
        );
    }
}

//! Discovery tags of subnets and security groups.

use serde_json::json;

use super::Differ;
use crate::ownership::{DISCOVERY, DISCOVERY_MARK};
use crate::plan::change::changes;
use crate::plan::{Action, Op, Step};

fn step(id: &str, op: Op, action: Action) -> Step {
    let kind = if id.starts_with("sg-") { "security group" } else { "subnet" };
    Step::new(&format!("discovery/{id}"), kind, id, op, action)
}

impl Differ<'_> {
    pub(super) fn network(&mut self) {
        for id in &self.desired.discovery {
            self.discovery_tag(id);
        }
        for id in self.actual.marked.iter().filter(|id| !self.desired.discovery.contains(id)) {
            let tags = self.desired.discovery_tags.clone();
            self.add(
                step(id, Op::Delete, Action::Untag { id: id.clone(), tags })
                    .because([format!("{DISCOVERY} is no longer needed there")])
                    .needs(&["ec2:DeleteTags"], id),
            );
        }
    }

    fn discovery_tag(&mut self, id: &str) {
        let cluster = &self.desired.scope.cluster;
        let Some(tags) = self.actual.network.get(id) else {
            self.conflicts.push(format!(
                "there is no {id} in {}: correct network.subnetIds or network.securityGroupIds",
                self.desired.scope.region
            ));
            return;
        };
        match (tags.get(DISCOVERY), tags.get(DISCOVERY_MARK)) {
            (Some(value), _) if value != cluster => {
                self.conflicts.push(format!(
                    "{id} has the tag {DISCOVERY}={value} for another cluster, and a tag has only \
                     one value: use --discovery ids"
                ));
            }
            // There before us, with the right value: used, never removed.
            (Some(_), _) => {}
            (None, _) => {
                let tags_after = self.desired.discovery_tags.clone();
                let changes = changes(&json!({}), &json!({"tags": tags_after}));
                self.add(
                    step(id, Op::Tag, Action::Tag { id: id.to_owned(), tags: tags_after })
                        .changing(changes)
                        .needs(&["ec2:CreateTags"], id),
                );
            }
        }
    }
}

//! What is attached to which Node: a Node that is drained asks every second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::wire::VolumeAttachment;

/// VolumeAttachments by name, and by Node.
#[derive(Clone, Debug, Default)]
pub(super) struct Attachments {
    all: BTreeMap<String, Arc<VolumeAttachment>>,
    by_node: BTreeMap<String, BTreeSet<String>>,
}

impl Attachments {
    pub(super) fn insert(&mut self, name: String, attachment: Arc<VolumeAttachment>) {
        self.remove(&name);
        let of_node = self.by_node.entry(attachment.spec.node_name.clone()).or_default();
        of_node.insert(name.clone());
        self.all.insert(name, attachment);
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<VolumeAttachment>> {
        let attachment = self.all.remove(name)?;
        let node = &attachment.spec.node_name;
        if let Some(of_node) = self.by_node.get_mut(node) {
            of_node.remove(name);
            if of_node.is_empty() {
                self.by_node.remove(node);
            }
        }
        Some(attachment)
    }

    pub(super) fn all(&self) -> &BTreeMap<String, Arc<VolumeAttachment>> {
        &self.all
    }

    /// Those of a Node, by name.
    pub(super) fn of(&self, node: &str) -> impl Iterator<Item = &Arc<VolumeAttachment>> {
        self.by_node.get(node).into_iter().flatten().filter_map(|name| self.all.get(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(name: &str, node: &str) -> Arc<VolumeAttachment> {
        let json = serde_json::json!({
            "metadata": {"name": name},
            "spec": {"attacher": "ebs", "nodeName": node, "source": {}},
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }

    #[test]
    fn attachments_are_found_by_their_node_as_they_come_and_go() {
        let mut attachments = Attachments::default();
        for (name, node) in [("1", "a"), ("2", "b"), ("3", "a"), ("1", "a")] {
            attachments.insert(name.to_owned(), attachment(name, node));
        }
        let of = |attachments: &Attachments, node: &str| {
            let names = attachments.of(node).map(|it| it.metadata.name.clone().unwrap());
            names.collect::<Vec<_>>()
        };
        assert_eq!(of(&attachments, "a"), ["1", "3"]);
        attachments.insert("3".to_owned(), attachment("3", "b"));
        assert_eq!(of(&attachments, "a"), ["1"]);
        assert_eq!(of(&attachments, "b"), ["2", "3"]);
        assert!(attachments.remove("1").is_some());
        assert!(attachments.remove("1").is_none());
        assert!(attachments.by_node.keys().eq(["b"]));
        assert_eq!(attachments.all().len(), 2);
    }
}

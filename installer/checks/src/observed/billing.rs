//! What AWS's billing groups costs by, as `aws ce list-cost-allocation-tags` prints it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The tags of a payer account that its bill can be split by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CostTags {
    /// Keys of tags that are active.
    pub active: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    cost_allocation_tags: Vec<Tag>,
    #[serde(default)]
    next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Tag {
    tag_key: String,
    status: String,
}

impl CostTags {
    /// Reads the output of `aws ce list-cost-allocation-tags`.
    ///
    /// # Errors
    /// When the text is something else, or only a part of the answer; says which.
    pub fn parse(text: &str) -> Result<Self, String> {
        let answer: Answer = serde_json::from_str(text).map_err(|error| {
            format!("not the output of `aws ce list-cost-allocation-tags`: {error}")
        })?;
        if answer.next_token.is_some_and(|token| !token.is_empty()) {
            return Err(
                "only the first tags are listed: add `--status Active --max-results 1000` \
                        to the command"
                    .to_owned(),
            );
        }
        let active = answer.cost_allocation_tags.into_iter().filter(|tag| tag.status == "Active");
        Ok(Self { active: active.map(|tag| tag.tag_key).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_tags_are_read() {
        let text = r#"{"CostAllocationTags": [
            {"TagKey": "team", "Type": "UserDefined", "Status": "Active"},
            {"TagKey": "stage", "Type": "UserDefined", "Status": "Inactive"},
            {"TagKey": "aws:createdBy", "Type": "AWSGenerated", "Status": "Active"}
        ]}"#;
        let tags = CostTags::parse(text).expect("it is such an answer");
        assert!(tags.active.iter().eq(["aws:createdBy", "team"]), "{tags:?}");
    }

    #[test]
    fn half_an_answer_is_none() {
        let half = r#"{"CostAllocationTags": [], "NextToken": "x"}"#;
        let error = CostTags::parse(half).expect_err("there is more");
        assert!(error.contains("--max-results"), "{error}");
        let error = CostTags::parse(r#"["team"]"#).expect_err("only keys");
        assert!(error.contains("list-cost-allocation-tags"), "{error}");
    }
}

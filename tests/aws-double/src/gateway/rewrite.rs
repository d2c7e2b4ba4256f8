//! Changes to answers: what neither moto nor the gateway can be brought to hold, such as a quota
//! that is used up, a zone of another kind, or a clock that is wrong.

use std::collections::BTreeMap;

use json_patch::merge;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::response::AwsResponse;
use super::xml::Element;

/// What lists call their items. They are changed where they are, and never made up.
const ITEMS: [&str; 3] = ["item", "member", "entry"];

/// How an answer is changed before it is sent: its body, if the call succeeded, and its headers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Rewrite {
    /// The whole body, instead of what it would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Of an XML body: texts by their path below the root, such as `imagesSet/item/name`. Each is
    /// set wherever the path leads, in every item of a list; what is missing is added.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub texts: BTreeMap<String, String>,
    /// Of a JSON body: what is put into it, object by object.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub json: Value,
    /// Headers by their names in lower case.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

impl Rewrite {
    /// Texts of an XML body.
    pub fn texts(texts: &[(&str, &str)]) -> Self {
        let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Self { texts: texts.collect(), ..Self::default() }
    }

    /// Parts of a JSON body.
    pub fn json(json: Value) -> Self {
        Self { json, ..Self::default() }
    }

    /// One header.
    pub fn header(name: &str, value: &str) -> Self {
        let headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        Self { headers, ..Self::default() }
    }

    /// The whole body.
    pub fn body(body: impl Into<String>) -> Self {
        Self { body: Some(body.into()), ..Self::default() }
    }

    pub(super) fn apply(&self, answer: &mut AwsResponse) {
        if answer.is_success() {
            self.change_body(answer);
        }
        // The body may have another length now; who sends it counts.
        let stays = |name: &String| name != "content-length" && !self.headers.contains_key(name);
        answer.headers.retain(|(name, _)| stays(name));
        answer.headers.extend(self.headers.clone());
    }

    fn change_body(&self, answer: &mut AwsResponse) {
        if let Some(body) = &self.body {
            answer.body = body.clone().into();
        }
        if !self.texts.is_empty() {
            match Element::parse(&String::from_utf8_lossy(&answer.body)) {
                Ok(mut root) => {
                    for (path, text) in &self.texts {
                        set(&mut root, &path.split('/').collect::<Vec<_>>(), text);
                    }
                    answer.body = root.to_string().into();
                }
                Err(error) => tracing::error!(%error, "an answer can't be rewritten"),
            }
        }
        if !self.json.is_null() {
            match serde_json::from_slice::<Value>(&answer.body) {
                Ok(mut body) => {
                    merge(&mut body, &self.json);
                    answer.body = body.to_string().into();
                }
                Err(error) => tracing::error!(%error, "an answer can't be rewritten"),
            }
        }
    }
}

fn set(element: &mut Element, path: &[&str], text: &str) {
    let [name, rest @ ..] = path else {
        element.children.clear();
        text.clone_into(&mut element.text);
        return;
    };
    if element.child(name).is_none() && !ITEMS.contains(name) {
        element.children.push(Element::leaf(*name, ""));
    }
    for child in element.children.iter_mut().filter(|child| child.name == *name) {
        set(child, rest, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(body: &str) -> AwsResponse {
        AwsResponse {
            status: 200,
            headers: vec![("content-length".to_owned(), body.len().to_string())],
            body: body.to_owned().into(),
            error_code: None,
            resources: vec![],
        }
    }

    fn rewritten(body: &str, rewrite: &Rewrite) -> String {
        let mut answer = answer(body);
        rewrite.apply(&mut answer);
        assert_eq!(answer.header("content-length"), None, "it is no longer as long");
        String::from_utf8(answer.body.to_vec()).unwrap()
    }

    #[test]
    fn texts_are_set_in_every_item_and_added_where_they_are_missing() {
        let zones = "<r><set><item><name>a</name></item><item><name>b</name><kind>x</kind></item></set></r>";
        assert_eq!(
            rewritten(zones, &Rewrite::texts(&[("set/item/kind", "local-zone")])),
            "<r><set><item><name>a</name><kind>local-zone</kind></item><item><name>b</name><kind>local-zone</kind></item></set></r>"
        );
        let none = "<r><set/></r>";
        assert_eq!(rewritten(none, &Rewrite::texts(&[("set/item/kind", "x")])), none);
        let deep = Rewrite::texts(&[("detail/allowed", "false")]);
        assert_eq!(rewritten("<r/>", &deep), "<r><detail><allowed>false</allowed></detail></r>");
    }

    #[test]
    fn json_is_merged_and_a_body_replaced() {
        let entry = r#"{"accessEntry":{"createdAt":5,"type":"EC2_LINUX"}}"#;
        let older = Rewrite::json(json!({ "accessEntry": { "createdAt": 1 } }));
        let body = rewritten(entry, &older);
        let expected = json!({ "accessEntry": { "createdAt": 1, "type": "EC2_LINUX" } });
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
        assert_eq!(rewritten("<a/>", &Rewrite::body("<b/>")), "<b/>");
    }

    #[test]
    fn a_header_takes_the_place_of_the_one_that_is_there() {
        let mut answer = answer("");
        answer.status = 400;
        Rewrite::header("date", "then").apply(&mut answer);
        Rewrite::header("date", "now").apply(&mut answer);
        assert_eq!(answer.headers, [("date".to_owned(), "now".to_owned())]);
        Rewrite::body("<b/>").apply(&mut answer);
        assert!(answer.body.is_empty(), "an error stays what it is");
    }
}

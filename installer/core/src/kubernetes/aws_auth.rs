//! The ConfigMap `kube-system/aws-auth`, which lets nodes into clusters that know no access
//! entries.
//!
//! It is everybody's: one wrong character locks all nodes out. So an element is appended to the
//! text as it stands, the result is read again and compared before it is written, nothing is
//! written to a map that does not parse, and removal brings back the very text that was there
//! before.

use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::object::{Key, annotation, label};
use crate::ownership::{INSTALL_ID, MANAGED_BY};

/// Annotation: what we added, and what was there before.
const NOTE: &str = "tenon.sh/aws-auth";

/// A role that is let in, as a user with groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mapping {
    /// ARN of the role, without its path: with it EKS would not find it.
    pub role_arn: String,
    /// The user.
    pub username: String,
    /// Groups in Kubernetes, such as `system:nodes`.
    pub groups: Vec<String>,
}

impl Mapping {
    /// What nodes need.
    pub fn of_nodes(role_arn: &str) -> Self {
        Self {
            role_arn: without_path(role_arn),
            username: "system:node:{{EC2PrivateDNSName}}".to_owned(),
            groups: ["system:bootstrappers", "system:nodes"].map(str::to_owned).to_vec(),
        }
    }

    /// The same for nodes that may run Windows, where kube-proxy has the identity of its node.
    #[must_use]
    pub(crate) fn including_windows(mut self) -> Self {
        self.groups.push("eks:kube-proxy-windows".to_owned());
        self
    }

    fn element(&self) -> Value {
        json!({"groups": self.groups, "rolearn": self.role_arn, "username": self.username})
    }

    /// The element as a line block of a list whose dashes are indented so far.
    fn block(&self, indent: usize) -> String {
        let pad = " ".repeat(indent);
        let groups = self.groups.iter();
        let groups = groups.fold(String::new(), |all, group| all + &pad + "  - " + group + "\n");
        format!(
            "{pad}- groups:\n{groups}{pad}  rolearn: {}\n{pad}  username: {}\n",
            self.role_arn, self.username
        )
    }
}

fn without_path(arn: &str) -> String {
    match arn.split_once(":role/") {
        Some((head, rest)) => {
            format!("{head}:role/{}", rest.rsplit('/').next().unwrap_or(rest))
        }
        None => arn.to_owned(),
    }
}

/// What we added, and what was there before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    install_id: String,
    role_arn: String,
    /// The text before; `None` if there was none.
    before: Option<String>,
    /// The ConfigMap itself is ours.
    created: bool,
}

/// Why `mapRoles` is not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AwsAuthError {
    /// Nobody can read it.
    #[error("mapRoles is not YAML: {0}")]
    NotYaml(String),
    /// It is YAML of another kind.
    #[error("mapRoles is not a list of roles")]
    NotRoles,
    /// The role is in it with groups that don't let nodes in, and not by us.
    #[error("{0} is mapped to other groups")]
    OtherGroups(String),
    /// The new text can't be made.
    #[error("mapRoles can't be written: {0}")]
    Unwritable(String),
    /// Read again, the new text says something else than it should.
    #[error("mapRoles does not round-trip, so it is not changed")]
    Lossy,
}

/// How the ConfigMap stands to a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The role is not in it.
    Missing,
    /// It is in it, and this installation added it.
    Ours,
    /// It is in it, and was before us: used, never removed.
    Foreign,
    /// It is in it, and does not let nodes in.
    Useless,
    /// It can't be read, so it must not be written.
    Broken(AwsAuthError),
}

/// Where the ConfigMap is.
pub fn place() -> (ApiResource, Key) {
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
    let key = Key {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: Some("kube-system".to_owned()),
        name: "aws-auth".to_owned(),
    };
    (resource, key)
}

fn text(live: &Value) -> Option<&str> {
    live.pointer("/data/mapRoles").and_then(Value::as_str)
}

fn note(live: &Value) -> Option<Note> {
    serde_json::from_str(annotation(live, NOTE)?).ok()
}

/// The list, which may be empty or absent.
fn parse(text: Option<&str>) -> Result<Vec<Value>, AwsAuthError> {
    let text = text.unwrap_or_default();
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let parsed: Value =
        serde_saphyr::from_str(text).map_err(|error| AwsAuthError::NotYaml(error.to_string()))?;
    match parsed {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) if list.iter().all(Value::is_object) => Ok(list),
        _ => Err(AwsAuthError::NotRoles),
    }
}

/// How a ConfigMap stands to a mapping.
pub fn state(live: Option<&Value>, mapping: &Mapping, install_id: &str) -> State {
    let list = match parse(live.and_then(text)) {
        Ok(list) => list,
        Err(why) => return State::Broken(why),
    };
    let Some(element) = list.iter().find(|element| element["rolearn"] == *mapping.role_arn) else {
        return State::Missing;
    };
    let ours = live
        .and_then(note)
        .is_some_and(|note| note.install_id == install_id && note.role_arn == mapping.role_arn);
    let has = |group: &String| {
        element["groups"].as_array().is_some_and(|groups| groups.iter().any(|of| of == group))
    };
    match (ours, mapping.groups.iter().all(has)) {
        (true, true) => State::Ours,
        (false, true) => State::Foreign,
        (_, false) => State::Useless,
    }
}

/// The role that an installation added, if it is still noted.
pub fn added_by(live: &Value, install_id: &str) -> Option<String> {
    note(live).filter(|note| note.install_id == install_id).map(|note| note.role_arn)
}

/// The ConfigMap with the mapping: a new one, or a merge patch of the live one that the API server
/// refuses if somebody was faster. `None` if it is in it.
pub fn with(
    live: Option<&Value>,
    mapping: &Mapping,
    install_id: &str,
) -> Result<Option<Value>, AwsAuthError> {
    match state(live, mapping, install_id) {
        State::Missing => {}
        State::Ours | State::Foreign => return Ok(None),
        State::Useless => return Err(AwsAuthError::OtherGroups(mapping.role_arn.clone())),
        State::Broken(why) => return Err(why),
    }
    let before = live.and_then(text);
    let note = Note {
        install_id: install_id.to_owned(),
        role_arn: mapping.role_arn.clone(),
        before: before.map(str::to_owned),
        created: live.is_none(),
    };
    let note = serde_json::to_string(&note).expect("strings always serialise");
    let after = appended(before, mapping)?;
    Ok(Some(match live {
        None => {
            let (resource, key) = place();
            json!({
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {
                    "name": key.name,
                    "namespace": key.namespace,
                    "annotations": {NOTE: note},
                    "labels": {INSTALL_ID: install_id, MANAGED_BY: "tenon"},
                },
                "data": {"mapRoles": after},
            })
        }
        Some(live) => patch(live, &json!(note), &json!(after)),
    }))
}

/// What removes an installation's mapping.
#[derive(Debug, Clone, PartialEq)]
pub enum Removal {
    /// There is none.
    Nothing,
    /// This merge patch.
    Patch(Value),
    /// The whole ConfigMap: it was made for the mapping, and nobody added anything.
    Delete,
}

/// What removes the mapping that an installation added.
pub fn without(live: Option<&Value>, install_id: &str) -> Result<Removal, AwsAuthError> {
    let Some((live, note)) = live.and_then(|live| Some((live, note(live)?))) else {
        return Ok(Removal::Nothing);
    };
    if note.install_id != install_id {
        return Ok(Removal::Nothing);
    }
    let mut rest = parse(text(live))?;
    rest.retain(|element| element["rolearn"] != *note.role_arn);
    let nothing_else = live
        .pointer("/data")
        .and_then(Value::as_object)
        .is_none_or(|data| data.keys().all(|key| key == "mapRoles"));
    if note.created && rest.is_empty() && nothing_else && label(live, INSTALL_ID).is_some() {
        return Ok(Removal::Delete);
    }
    let after = if parse(note.before.as_deref())? == rest {
        json!(note.before)
    } else {
        // Others changed it since: their elements stay, in the order in which they are.
        json!(cut(text(live).unwrap_or_default(), &note.role_arn, &rest)?)
    };
    Ok(Removal::Patch(patch(live, &Value::Null, &after)))
}

fn patch(live: &Value, note: &Value, map_roles: &Value) -> Value {
    json!({
        "metadata": {
            "resourceVersion": live.pointer("/metadata/resourceVersion"),
            "annotations": {NOTE: note},
        },
        "data": {"mapRoles": map_roles},
    })
}

fn appended(before: Option<&str>, mapping: &Mapping) -> Result<String, AwsAuthError> {
    let mut wanted = parse(before)?;
    wanted.push(mapping.element());
    let head = before.unwrap_or_default();
    let indent = head
        .lines()
        .find(|line| line.trim_start().starts_with("- "))
        .map_or(0, |line| line.len() - line.trim_start().len());
    let newline = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    let text = format!("{head}{newline}{}", mapping.block(indent));
    checked(text, &wanted)
}

fn cut(text: &str, role_arn: &str, rest: &[Value]) -> Result<String, AwsAuthError> {
    let block = Mapping { role_arn: role_arn.to_owned(), ..Mapping::of_nodes(role_arn) };
    let without = [0, 2, 4].into_iter().find_map(|indent| {
        let block = block.block(indent);
        text.contains(&block).then(|| text.replacen(&block, "", 1))
    });
    checked(without.unwrap_or_default(), rest)
}

/// The text if it says what is wanted, else the list written anew: a flow list can't be appended to
/// by lines. It is read again either way.
fn checked(text: String, wanted: &[Value]) -> Result<String, AwsAuthError> {
    if parse(Some(&text)).is_ok_and(|list| list == wanted) {
        return Ok(text);
    }
    let anew = serde_saphyr::to_string(&wanted)
        .map_err(|error| AwsAuthError::Unwritable(error.to_string()))?;
    match parse(Some(&anew)) {
        Ok(list) if list == wanted => Ok(anew),
        _ => Err(AwsAuthError::Lossy),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kubernetes::merge_patch::merged;

    const NODES: &str = "arn:aws:iam::111122223333:role/tenon/prod/tenon-prod-node";
    const THEIRS: &str = "# who may join\n- rolearn: arn:aws:iam::111122223333:role/nodes  # ours since 2021\n  username: system:node:{{EC2PrivateDNSName}}\n  groups: [system:bootstrappers, system:nodes]\n";

    fn live(map_roles: Option<&str>) -> Value {
        let mut live = json!({"metadata": {"name": "aws-auth", "resourceVersion": "7"}, "data": {"mapUsers": "[]\n"}});
        if let Some(text) = map_roles {
            live["data"]["mapRoles"] = text.into();
        }
        live
    }

    #[test]
    fn a_role_is_named_without_its_path() {
        assert_eq!(
            Mapping::of_nodes(NODES).role_arn,
            "arn:aws:iam::111122223333:role/tenon-prod-node"
        );
    }

    #[test]
    fn an_element_is_appended_and_comments_stay_and_removal_brings_the_text_back() {
        let mapping = Mapping::of_nodes(NODES);
        let before = live(Some(THEIRS));
        let patch = with(Some(&before), &mapping, "id").expect("it parses").expect("a change");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let after = merged(before.clone(), &patch);
        assert!(text(&after).expect("text").starts_with(THEIRS));
        assert_eq!(state(Some(&after), &mapping, "id"), State::Ours);
        assert_eq!(state(Some(&after), &mapping, "other"), State::Foreign);
        assert_eq!(with(Some(&after), &mapping, "id"), Ok(None));
        let Ok(Removal::Patch(patch)) = without(Some(&after), "id") else { panic!("a patch") };
        let restored = merged(after.clone(), &patch);
        assert_eq!(text(&restored), Some(THEIRS));
        assert_eq!(without(Some(&after), "other"), Ok(Removal::Nothing));
    }

    #[test]
    fn what_others_add_meanwhile_stays() {
        let mapping = Mapping::of_nodes(NODES);
        let before = live(Some(THEIRS));
        let patch = with(Some(&before), &mapping, "id").expect("it parses").expect("a change");
        let mut after = merged(before, &patch);
        let more = "- rolearn: arn:aws:iam::111122223333:role/more\n  username: more\n";
        after["data"]["mapRoles"] = format!("{}{more}", text(&after).expect("text")).into();
        let Ok(Removal::Patch(patch)) = without(Some(&after), "id") else { panic!("a patch") };
        assert_eq!(patch["data"]["mapRoles"], format!("{THEIRS}{more}"));
    }

    #[test]
    fn a_map_that_is_made_for_us_goes_with_us_unless_somebody_uses_it() {
        let mapping = Mapping::of_nodes(NODES);
        let made = with(None, &mapping, "id").expect("nothing to parse").expect("a change");
        assert_eq!(state(Some(&made), &mapping, "id"), State::Ours);
        assert_eq!(without(Some(&made), "id"), Ok(Removal::Delete));
        let mut used = made.clone();
        used["data"]["mapUsers"] = "[]".into();
        assert!(matches!(without(Some(&used), "id"), Ok(Removal::Patch(_))));
    }

    #[test]
    fn a_broken_map_is_never_written() {
        let mapping = Mapping::of_nodes(NODES);
        for broken in ["- rolearn: [", "rolearn: x\n", "- a\n- b\n"] {
            let live = live(Some(broken));
            assert!(matches!(state(Some(&live), &mapping, "id"), State::Broken(_)), "{broken}");
            assert!(with(Some(&live), &mapping, "id").is_err());
        }
    }

    #[test]
    fn a_role_that_is_mapped_to_other_groups_is_told() {
        let mapping = Mapping::of_nodes(NODES);
        let text = format!("- rolearn: {}\n  username: x\n  groups: [viewers]\n", mapping.role_arn);
        assert_eq!(state(Some(&live(Some(&text))), &mapping, "id"), State::Useless);
    }

    proptest! {
        #[test]
        fn any_list_keeps_its_elements_and_comes_back(
            names in proptest::collection::vec("[a-z]{1,8}", 0..4),
            indent in 0_usize..3,
            flow in any::<bool>(),
            newline in any::<bool>(),
        ) {
            let pad = " ".repeat(indent);
            let mut text = if flow {
                let all = names.iter().map(|name| format!("{{rolearn: arn:{name}, username: {name}}}"));
                format!("[{}]", all.collect::<Vec<_>>().join(", "))
            } else {
                let each = names.iter().map(|name| format!("{pad}- rolearn: arn:{name}\n{pad}  username: {name}\n"));
                each.collect::<Vec<_>>().concat()
            };
            if !newline {
                text.truncate(text.trim_end().len());
            }
            let mapping = Mapping::of_nodes(NODES);
            let before = live(Some(&text));
            let patch = with(Some(&before), &mapping, "id").expect("it parses").expect("a change");
            let after = merged(before, &patch);
            let list = parse(super::text(&after)).expect("never broken");
            prop_assert_eq!(list.len(), names.len() + 1);
            let Ok(Removal::Patch(patch)) = without(Some(&after), "id") else { panic!("a patch") };
            prop_assert_eq!(&patch["data"]["mapRoles"], &Value::from(text));
        }
    }
}

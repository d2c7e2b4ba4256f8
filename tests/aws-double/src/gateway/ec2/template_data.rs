//! Launch template data, from the request's flat parameters to the answer's XML: names begin in
//! lower case, lists get their own names.

use std::collections::BTreeMap;

use super::super::request::Params;
use super::super::xml::Element;

/// Lists whose name in answers isn't the request's name in lower case with `Set`, and the element
/// that each entry is wrapped in.
const LISTS: [(&str, &str, &str); 4] = [
    ("Tag", "tagSet", "item"),
    ("LicenseSpecification", "licenseSet", "item"),
    ("Ipv6Addresses", "ipv6AddressesSet", "item"),
    ("PrivateIpAddresses", "privateIpAddressesSet", "item"),
];

/// The children of `<launchTemplateData>`.
pub(super) fn elements(data: &Params) -> Vec<Element> {
    children(data, false)
}

fn children(data: &Params, in_interface: bool) -> Vec<Element> {
    let mut heads: BTreeMap<&str, bool> = BTreeMap::new();
    for (name, _) in data.iter() {
        let (head, rest) =
            name.split_once('.').map_or((name, None), |(head, rest)| (head, Some(rest)));
        let is_list = rest.is_some_and(|rest| {
            rest.split('.').next().is_some_and(|index| index.parse::<u32>().is_ok())
        });
        heads.insert(head, is_list);
    }
    heads
        .into_iter()
        .map(|(head, is_list)| match (data.get(head), is_list) {
            (Some(text), _) => Element::leaf(lower(head), text),
            (None, false) => Element::node(lower(head), children(&data.structure(head), false)),
            (None, true) => list(data, head, in_interface),
        })
        .collect()
}

fn list(data: &Params, head: &str, in_interface: bool) -> Element {
    let (name, entry) = match LISTS.iter().find(|(request, ..)| *request == head) {
        Some((_, answer, entry)) => ((*answer).to_owned(), *entry),
        None if head == "SecurityGroupId" && in_interface => ("groupSet".to_owned(), "groupId"),
        None => (format!("{}Set", lower(head)), "item"),
    };
    let texts = data.list(head);
    let entries = if texts.is_empty() {
        let is_interface = head == "NetworkInterface";
        data.structs(head)
            .iter()
            .map(|one| Element::node(entry, children(one, is_interface)))
            .collect()
    } else {
        texts.into_iter().map(|text| Element::leaf(entry, text)).collect()
    };
    Element::node(name, entries)
}

fn lower(name: &str) -> String {
    let mut characters = name.chars();
    characters
        .next()
        .map(|first| first.to_lowercase().chain(characters).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_comes_back_under_the_names_of_answers() {
        let data = Params::of([
            ("ImageId", "ami-1"),
            ("SecurityGroupId.1", "sg-9"),
            ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
            ("BlockDeviceMapping.1.Ebs.VolumeSize", "20"),
            ("IamInstanceProfile.Name", "p"),
            ("NetworkInterface.1.DeviceIndex", "0"),
            ("NetworkInterface.1.SecurityGroupId.1", "sg-1"),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", "k"),
            ("TagSpecification.1.Tag.1.Value", "v"),
        ]);
        let root = Element::node("launchTemplateData", elements(&data));
        assert_eq!(root.get("imageId"), Some("ami-1"));
        assert_eq!(root.items("securityGroupIdSet")[0].text, "sg-9");
        assert_eq!(
            root.at(&["blockDeviceMappingSet", "item", "ebs", "volumeSize"]).unwrap().text,
            "20"
        );
        assert_eq!(root.at(&["iamInstanceProfile", "name"]).unwrap().text, "p");
        assert_eq!(
            root.at(&["networkInterfaceSet", "item", "groupSet", "groupId"]).unwrap().text,
            "sg-1"
        );
        let spec = root.at(&["tagSpecificationSet", "item"]).unwrap();
        assert_eq!(spec.tags().collect::<Vec<_>>(), [("k", "v")]);
    }
}

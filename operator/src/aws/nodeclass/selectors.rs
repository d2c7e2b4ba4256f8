//! Which subnets and security groups an EC2NodeClass selects.

use std::collections::BTreeMap;

use tenon_crds::ec2nodeclass::{SecurityGroupSelectorTerm, SubnetSelectorTerm};

use crate::aws::ec2::{self, Ec2, Filter, SecurityGroup, Subnet, filter, tag_filters};
use crate::aws::error::Result;

/// The subnets of all terms: those with the most free addresses first.
pub(crate) async fn subnets(client: &Ec2, terms: &[SubnetSelectorTerm]) -> Result<Vec<Subnet>> {
    let mut found = BTreeMap::new();
    for query in subnet_queries(terms) {
        for subnet in ec2::subnets(client, &query).await? {
            found.insert(subnet.id.clone(), subnet);
        }
    }
    let mut found: Vec<Subnet> = found.into_values().collect();
    found.sort_by(|a, b| b.free_ips.cmp(&a.free_ips).then_with(|| a.id.cmp(&b.id)));
    Ok(found)
}

/// The security groups of all terms, by id.
pub(crate) async fn security_groups(
    client: &Ec2,
    terms: &[SecurityGroupSelectorTerm],
) -> Result<Vec<SecurityGroup>> {
    let mut found = BTreeMap::new();
    for query in security_group_queries(terms) {
        for group in ec2::security_groups(client, &query).await? {
            found.insert(group.id.clone(), group);
        }
    }
    Ok(found.into_values().collect())
}

fn subnet_queries(terms: &[SubnetSelectorTerm]) -> Vec<Vec<Filter>> {
    let ids: Vec<String> = terms.iter().filter_map(|term| term.id.clone()).collect();
    let mut queries: Vec<Vec<Filter>> = terms
        .iter()
        .filter(|term| term.id.is_none() && !term.tags.is_empty())
        .map(|term| tag_filters(&term.tags))
        .collect();
    if !ids.is_empty() {
        queries.push(vec![filter("subnet-id", ids)]);
    }
    queries
}

fn security_group_queries(terms: &[SecurityGroupSelectorTerm]) -> Vec<Vec<Filter>> {
    let ids: Vec<String> = terms.iter().filter_map(|term| term.id.clone()).collect();
    let names: Vec<String> = terms
        .iter()
        .filter(|term| term.id.is_none())
        .filter_map(|term| term.name.clone())
        .collect();
    let mut queries: Vec<Vec<Filter>> = terms
        .iter()
        .filter(|term| term.id.is_none() && term.name.is_none() && !term.tags.is_empty())
        .map(|term| tag_filters(&term.tags))
        .collect();
    if !ids.is_empty() {
        queries.push(vec![filter("group-id", ids)]);
    }
    if !names.is_empty() {
        queries.push(vec![filter("group-name", names)]);
    }
    queries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    #[test]
    fn ids_are_asked_for_together_and_each_tag_term_alone() {
        let term = |id: Option<&str>, tagged: &[(&str, &str)]| SubnetSelectorTerm {
            id: id.map(str::to_owned),
            tags: tags(tagged),
        };
        let queries = subnet_queries(&[
            term(Some("subnet-1"), &[]),
            term(None, &[("a", "1"), ("b", "*")]),
            term(Some("subnet-2"), &[]),
        ]);
        assert_eq!(
            queries,
            [
                vec![filter("tag:a", ["1"]), filter("tag-key", ["b"])],
                vec![filter("subnet-id", ["subnet-1", "subnet-2"])],
            ]
        );
    }

    #[test]
    fn in_a_security_group_term_the_id_counts_before_the_name_and_the_name_before_tags() {
        let term = |id: Option<&str>, name: Option<&str>, tagged: &[(&str, &str)]| {
            SecurityGroupSelectorTerm {
                id: id.map(str::to_owned),
                name: name.map(str::to_owned),
                tags: tags(tagged),
            }
        };
        let queries = security_group_queries(&[
            term(Some("sg-1"), Some("ignored"), &[("a", "1")]),
            term(None, Some("web"), &[("a", "1")]),
            term(None, None, &[("a", "1")]),
        ]);
        assert_eq!(
            queries,
            [
                vec![filter("tag:a", ["1"])],
                vec![filter("group-id", ["sg-1"])],
                vec![filter("group-name", ["web"])],
            ]
        );
    }
}

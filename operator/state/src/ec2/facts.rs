//! What EC2 says about its instance types, as it was when this version was made: for whoever can't
//! ask EC2.
//!
//! `types.jsonl` has one type per line and is written by `cargo run -p tenon-state --example
//! ec2-types` from the output of `aws ec2 describe-instance-types`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::type_info::TypeInfo;

static BUNDLED: LazyLock<BTreeMap<&'static str, &'static str>> = LazyLock::new(|| {
    let lines = include_str!("types.jsonl").lines();
    lines
        .filter_map(|line| Some((line.strip_prefix("{\"name\":\"")?.split('"').next()?, line)))
        .collect()
});

/// What EC2 says about the type; `None` for a type that is newer than the table, or none of EC2's.
pub fn find(name: &str) -> Option<TypeInfo> {
    BUNDLED.get(name).and_then(|line| serde_json::from_str(line).ok())
}

/// The names of all known types, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUNDLED.keys().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_type_that_is_found_by_its_name() {
        let lines: Vec<&str> = include_str!("types.jsonl").lines().collect();
        assert!(lines.is_sorted(), "the file is sorted");
        assert_eq!(names().count(), lines.len());
        for line in lines {
            let info: TypeInfo = serde_json::from_str(line).unwrap();
            assert_eq!(find(&info.name), Some(info));
        }
        assert_eq!(find("m5.enormous"), None);
    }
}

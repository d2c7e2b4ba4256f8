//! Which NodePools' templates admit which values of labels, so that pods that name a NodePool or a
//! team are not compared with the templates of all the others.

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use crate::id_set::IdSet;
use crate::intern::{Key, Value};
use crate::requirements::Requirements;

/// Templates by the values that they list for a label.
#[derive(Debug, Default)]
pub(crate) struct ByValue {
    templates: usize,
    keys: FxHashMap<Key, Listed>,
}

/// What templates list for one label.
#[derive(Debug, Default)]
struct Listed {
    /// The templates that list some values.
    all: FixedBitSet,
    by_value: FxHashMap<Value, IdSet>,
}

impl ByValue {
    pub(super) fn new<'r>(templates: impl Iterator<Item = &'r Requirements>) -> Self {
        let mut found = Self::default();
        for (template, requirements) in templates.enumerate() {
            found.templates += 1;
            for (key, set) in requirements.iter() {
                let values = set.listed().unwrap_or_default();
                if values.is_empty() {
                    continue;
                }
                let listed = found.keys.entry(key).or_default();
                listed.all.grow_and_insert(template);
                for &value in values {
                    listed.by_value.entry(value).or_default().insert(template);
                }
            }
        }
        found
    }

    /// The templates that may meet `wanted`: all but those that list other values of some label;
    /// none if nothing can meet it.
    pub(crate) fn admitting(&self, wanted: &Requirements) -> FixedBitSet {
        let mut admitting = FixedBitSet::with_capacity(self.templates);
        // A term and the place of a volume may have nothing in common, and pods may have hundreds
        // of both.
        if wanted.iter().any(|(_, set)| set.is_contradiction()) {
            return admitting;
        }
        admitting.insert_range(..);
        for (key, set) in wanted.iter() {
            let values = set.listed().unwrap_or_default();
            let Some(listed) = self.keys.get(&key).filter(|_| !values.is_empty()) else { continue };
            let mut others = listed.all.clone();
            for at in values.iter().filter_map(|value| listed.by_value.get(value)) {
                at.take_from(&mut others);
            }
            admitting.difference_with(&others);
        }
        admitting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intern::Symbols;
    use crate::snapshot::{Operator, Requirement};

    #[test]
    fn leaves_out_the_templates_that_list_other_values() {
        let mut symbols = Symbols::default();
        let mut set = |requirements: &[(&str, Operator, &[&str])]| {
            let api = requirements.iter().map(|&(key, operator, values)| Requirement {
                key: key.to_owned(),
                operator,
                values: values.iter().map(|&value| value.to_owned()).collect(),
                min_values: None,
            });
            Requirements::new(&api.collect::<Vec<_>>(), &mut symbols)
        };
        let (is_in, not_in) = (Operator::In, Operator::NotIn);
        let templates = [
            set(&[("pool", is_in, &["a"]), ("team", is_in, &["red", "blue"])]),
            set(&[("pool", is_in, &["b"])]),
            set(&[("pool", is_in, &["c"]), ("team", not_in, &["red"])]),
            set(&[("pool", is_in, &["d"]), ("team", Operator::DoesNotExist, &[])]),
        ];
        let by_value = ByValue::new(templates.iter());
        let mut admitting = |requirements: &[(&str, Operator, &[&str])]| {
            by_value.admitting(&set(requirements)).ones().collect::<Vec<_>>()
        };
        assert_eq!(admitting(&[]), [0, 1, 2, 3]);
        assert_eq!(admitting(&[("pool", is_in, &["b", "d", "e"])]), [1, 3]);
        assert_eq!(admitting(&[("pool", is_in, &["e"])]), [0_usize; 0]);
        assert_eq!(admitting(&[("zone", is_in, &["e"])]), [0, 1, 2, 3]);
        assert_eq!(admitting(&[("zone", is_in, &["e"]), ("zone", is_in, &["f"])]), [0_usize; 0]);
        assert_eq!(admitting(&[("pool", not_in, &["b"])]), [0, 1, 2, 3]);
        // What a template does not list is for others to judge.
        assert_eq!(admitting(&[("team", is_in, &["red"])]), [0, 1, 2, 3]);
        assert_eq!(admitting(&[("team", is_in, &["green"])]), [1, 2, 3]);
        assert_eq!(admitting(&[("team", is_in, &["blue"]), ("pool", is_in, &["a"])]), [0]);
    }
}

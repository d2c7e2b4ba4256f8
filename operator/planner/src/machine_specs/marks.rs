//! What a spec excludes, in one word each: there may be as many specs as pods, and of nearly all of
//! them a word tells that they do not entail what a pod requires. The words of all specs stand side
//! by side, while each spec has its requirements somewhere else in memory.

use crate::intern::{Key, Value};
use crate::requirements::Requirements;

/// The keys of requirements and the values that they exclude, as bits of Bloom filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    keys: u32,
    /// Keys of sets that are not given by their excluded values alone, and may exclude any.
    listed: u32,
    values: u64,
}

/// What a spec needs to have to entail requirements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    keys: u32,
    listed: u32,
    /// A value that has to be excluded, and its key: of the many that there may be, the first.
    excluded: Option<(u32, u64)>,
}

impl Mark {
    pub(super) fn of(requirements: &Requirements) -> Self {
        let mut mark = Self::default();
        for (key, set) in requirements.iter() {
            mark.keys |= of_key(key);
            match set.only_excludes() {
                Some(values) => mark.values |= values.iter().fold(0, |all, &v| all | of_value(v)),
                None => mark.listed |= of_key(key),
            }
        }
        mark
    }

    /// False if the spec certainly does not entail what is wanted.
    pub(super) fn may_entail(self, wanted: Wanted) -> bool {
        let excludes = |(key, value)| self.listed & key != 0 || self.values & value != 0;
        self.keys & wanted.keys == wanted.keys
            && self.listed & wanted.listed == wanted.listed
            && wanted.excluded.is_none_or(excludes)
    }
}

impl Wanted {
    pub(super) fn of(requirements: &Requirements) -> Self {
        let mut wanted = Self::default();
        for (key, set) in requirements.iter() {
            wanted.keys |= of_key(key);
            match set.only_excludes() {
                Some(values) => {
                    let excluded = values.first().map(|&value| (of_key(key), of_value(value)));
                    wanted.excluded = wanted.excluded.or(excluded);
                }
                None => wanted.listed |= of_key(key),
            }
        }
        wanted
    }
}

fn of_key(key: Key) -> u32 {
    1 << (key.0 % u32::BITS)
}

fn of_value(value: Value) -> u64 {
    /// Spreads ids that follow each other.
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    1 << (u64::from(value.0).wrapping_mul(GOLDEN) >> 58)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::intern::Symbols;
    use crate::requirements::ValueSet;
    use crate::snapshot::{Operator, Requirement};

    fn requirements() -> impl Strategy<Value = Vec<(usize, Operator, Vec<usize>)>> {
        use Operator::{DoesNotExist, Exists, Gt, Gte, In, Lt, Lte, NotIn};
        let operators = [In, NotIn, NotIn, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte];
        let one = (
            0..3_usize,
            prop::sample::select(operators.to_vec()),
            prop::collection::vec(0..6_usize, 1..3),
        );
        prop::collection::vec(one, 0..4)
    }

    fn compile(all: &[(usize, Operator, Vec<usize>)], symbols: &mut Symbols) -> Requirements {
        let mut requirements = Requirements::default();
        for (key, operator, values) in all {
            let key = symbols.key(&format!("key-{key}"));
            let requirement = Requirement {
                key: String::new(),
                operator: *operator,
                values: values.iter().map(ToString::to_string).collect(),
                min_values: None,
            };
            let set = ValueSet::new(&requirement, symbols);
            requirements.add(key, set, symbols);
        }
        requirements
    }

    proptest! {
        #[test]
        fn a_mark_never_hides_what_is_entailed(have in requirements(), want in requirements()) {
            let mut symbols = Symbols::default();
            let (have, want) = (compile(&have, &mut symbols), compile(&want, &mut symbols));
            // What was narrowed for it entails it, unless the two can't be met together.
            let mut narrowed = have.clone();
            narrowed.extend(&want, &symbols);
            for have in [have, narrowed] {
                let entailed = want.iter().all(|(key, set)| {
                    have.get(key).is_some_and(|have| have.entails(set, &symbols))
                });
                let may = Mark::of(&have).may_entail(Wanted::of(&want));
                prop_assert!(may || !entailed, "{have:?} entails {want:?}");
            }
        }
    }

    #[test]
    fn a_value_that_is_not_excluded_is_told_at_a_glance() {
        let mut symbols = Symbols::default();
        let mut excluding =
            |value: usize| compile(&[(0, Operator::NotIn, vec![value])], &mut symbols);
        let spec = Mark::of(&excluding(0));
        let told =
            (1..1000).map(&mut excluding).filter(|wanted| !spec.may_entail(Wanted::of(wanted)));
        assert!(told.count() > 950);
    }
}

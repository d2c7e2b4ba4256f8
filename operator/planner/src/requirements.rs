//! The algebra of scheduling requirements: the values that a label may have, intersections of such
//! sets, and whether a pod's set can be met.
//!
//! The rules are Karpenter's: eight operators, sets that are given by what they exclude, integer
//! bounds, `minValues`, and labels that are not (yet) defined on one side. Everything is over
//! interned ids ([`Symbols`]); integers come from the symbols, too.

use std::fmt::Write as _;

use smallvec::SmallVec;

use crate::intern::{Key, Symbols, Value};
use crate::snapshot::{Operator, Requirement};

/// The admitted values of one label: those listed, or (complement) all but those listed, within
/// inclusive integer bounds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ValueSet {
    complement: bool,
    /// Sorted, unique.
    values: SmallVec<[Value; 2]>,
    gte: Option<i64>,
    lte: Option<i64>,
    min_values: Option<u32>,
    /// The label is required to exist. The excluded values do not imply that: `Exists` and `NotIn
    /// [a]` together have the form of `NotIn [a]` alone, but a machine without the label meets only
    /// the latter.
    present: bool,
}

impl ValueSet {
    /// The label has to be absent.
    pub(crate) fn does_not_exist() -> Self {
        Self {
            complement: false,
            values: SmallVec::new(),
            gte: None,
            lte: None,
            min_values: None,
            present: false,
        }
    }

    /// Any value; the label has to exist.
    pub(crate) fn exists() -> Self {
        Self { complement: true, present: true, ..Self::does_not_exist() }
    }

    /// One of the values.
    pub(crate) fn one_of(values: impl IntoIterator<Item = Value>) -> Self {
        let mut set = Self { present: true, ..Self::does_not_exist() };
        set.values = values.into_iter().collect();
        set.values.sort_unstable();
        set.values.dedup();
        set
    }

    /// The complement, absence of the label included. `None` if that is no such set: with bounds,
    /// with `minValues`, and for a label that has to exist without having some values.
    pub(crate) fn complement(&self) -> Option<Self> {
        let is_bounded = self.gte.is_some() || self.lte.is_some() || self.min_values.is_some();
        let exists_but = self.present && self.complement && !self.values.is_empty();
        (!is_bounded && !exists_but).then(|| Self {
            complement: !self.complement,
            values: self.values.clone(),
            present: self.admits_absence(),
            ..Self::does_not_exist()
        })
    }

    /// The complement among labels that exist: the other side of a single bound, otherwise
    /// [`Self::complement`].
    pub(crate) fn outside(&self) -> Option<Self> {
        match (self.gte, self.lte) {
            (None, None) => self.complement(),
            _ if !self.complement || !self.values.is_empty() || self.min_values.is_some() => None,
            (Some(gte), None) => Some(Self { lte: Some(gte.checked_sub(1)?), ..Self::exists() }),
            (None, Some(lte)) => Some(Self { gte: Some(lte.checked_add(1)?), ..Self::exists() }),
            (Some(_), Some(_)) => None,
        }
    }

    /// Parses the API form. A value of a comparison that is no integer counts as 0; the API server
    /// rejects it.
    pub(crate) fn new(requirement: &Requirement, symbols: &mut Symbols) -> Self {
        let bound =
            || requirement.values.first().and_then(|value| value.parse::<i64>().ok()).unwrap_or(0);
        let mut listed =
            || Self::one_of(requirement.values.iter().map(|value| symbols.value(value)));
        let mut set = match requirement.operator {
            Operator::In => listed(),
            Operator::NotIn => Self { complement: true, present: false, ..listed() },
            Operator::Exists => Self::exists(),
            Operator::DoesNotExist => Self::does_not_exist(),
            Operator::Gt => match bound().checked_add(1) {
                Some(gte) => Self { gte: Some(gte), ..Self::exists() },
                None => return Self::does_not_exist(),
            },
            Operator::Lt => Self { lte: Some(bound().saturating_sub(1)), ..Self::exists() },
            Operator::Gte => Self { gte: Some(bound()), ..Self::exists() },
            Operator::Lte => Self { lte: Some(bound()), ..Self::exists() },
        };
        set.min_values = requirement.min_values;
        set
    }

    /// The excluded values, if the set is given by these alone: without bounds.
    pub(crate) fn only_excludes(&self) -> Option<&[Value]> {
        let is_bounded = self.gte.is_some() || self.lte.is_some();
        (self.complement && !is_bounded).then_some(&self.values)
    }

    /// The equivalent operator: `In`, `NotIn`, `Exists` or `DoesNotExist`; bounded sets count as
    /// `Exists`.
    pub(crate) fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, true) => Operator::Exists,
            (true, false) => Operator::NotIn,
            (false, true) => Operator::DoesNotExist,
            (false, false) => Operator::In,
        }
    }

    /// Whether it admits a value.
    pub(crate) fn has(&self, value: Value, symbols: &Symbols) -> bool {
        self.values.binary_search(&value).is_ok() != self.complement && self.within(value, symbols)
    }

    /// The values of an `In`.
    pub(crate) fn listed(&self) -> Option<&[Value]> {
        (!self.complement).then_some(&*self.values)
    }

    /// `minValues`.
    pub(crate) fn min_values(&self) -> Option<u32> {
        self.min_values
    }

    /// The same set with other `minValues`.
    #[must_use]
    pub(crate) fn with_min_values(mut self, min_values: Option<u32>) -> Self {
        self.min_values = min_values;
        self
    }

    /// The intersection.
    #[must_use]
    pub(crate) fn intersection(&self, other: &Self, symbols: &Symbols) -> Self {
        let min_values = self.min_values.max(other.min_values);
        let present = self.present || other.present;
        let (gte, lte) = (self.gte.max(other.gte), tighter(self.lte, other.lte));
        if crosses(gte, lte) {
            return Self { present, ..Self::does_not_exist() }.with_min_values(min_values);
        }
        let mut values: SmallVec<[Value; 2]> = match (self.complement, other.complement) {
            (true, true) => self.values.iter().chain(&other.values).copied().collect(),
            (true, false) => remaining(&other.values, |v| self.values.binary_search(&v).is_err()),
            (false, true) => remaining(&self.values, |v| other.values.binary_search(&v).is_err()),
            (false, false) => remaining(&self.values, |v| other.values.binary_search(&v).is_ok()),
        };
        values.sort_unstable();
        values.dedup();
        let complement = self.complement && other.complement;
        let mut set = Self { complement, values, gte, lte, min_values, present };
        let all = std::mem::take(&mut set.values);
        set.values = all.into_iter().filter(|&value| set.within(value, symbols)).collect();
        if !complement {
            (set.gte, set.lte) = (None, None);
        }
        set
    }

    /// Whether the intersection admits a value, without computing it.
    pub(crate) fn intersects(&self, other: &Self, symbols: &Symbols) -> bool {
        if crosses(self.gte.max(other.gte), tighter(self.lte, other.lte)) {
            return false;
        }
        match (self.complement, other.complement) {
            (true, true) => true,
            (false, _) => {
                self.values.iter().any(|&v| self.within(v, symbols) && other.has(v, symbols))
            }
            (true, false) => {
                other.values.iter().any(|&v| other.within(v, symbols) && self.has(v, symbols))
            }
        }
    }

    /// Whether everything that `self` admits is admitted by `other`.
    pub(crate) fn is_subset(&self, other: &Self, symbols: &Symbols) -> bool {
        match (self.complement, other.complement) {
            (false, _) if self.values.is_empty() => other.admits_absence(),
            (false, _) => self.values.iter().all(|&value| other.has(value, symbols)),
            (true, false) => false,
            (true, true) => {
                let within = |value: Value| self.has(value, symbols);
                !other.values.iter().any(|&value| within(value))
                    && (other.gte.is_none() || self.gte >= other.gte)
                    && (other.lte.is_none() || self.lte.is_some_and(|lte| Some(lte) <= other.lte))
            }
        }
    }

    /// Whether the intersection with another set would be this one.
    pub(crate) fn entails(&self, other: &Self, symbols: &Symbols) -> bool {
        let (gte, lte) = (self.gte.max(other.gte), tighter(self.lte, other.lte));
        if other.present && !self.present || other.min_values > self.min_values || crosses(gte, lte)
        {
            return false;
        }
        if !self.complement {
            return self.values.iter().all(|&value| other.has(value, symbols));
        }
        let excluded =
            |&v: &Value| self.values.binary_search(&v).is_ok() || !self.within(v, symbols);
        other.complement && (gte, lte) == (self.gte, self.lte) && other.values.iter().all(excluded)
    }

    /// Whether a machine without the label meets the set.
    pub(crate) fn admits_absence(&self) -> bool {
        !self.present && matches!(self.operator(), Operator::NotIn | Operator::DoesNotExist)
    }

    /// Whether nothing can meet it: the label has to exist, and no value is left.
    pub(crate) fn is_contradiction(&self) -> bool {
        self.present && self.operator() == Operator::DoesNotExist
    }

    /// An admitted integer, if there is one: an invented value for an open label.
    pub(crate) fn any_integer(&self, symbols: &Symbols) -> i64 {
        let lowest = self.gte.unwrap_or(0);
        let highest = self.lte.unwrap_or(i64::MAX).max(lowest);
        let mut candidate = lowest;
        let excluded = |n: i64| self.values.iter().any(|&value| symbols.integer(value) == Some(n));
        while excluded(candidate) && candidate < highest {
            candidate += 1;
        }
        candidate
    }

    /// The API form: two requirements if both bounds are set. The excluded values of a bounded set
    /// are lost, as in Karpenter.
    pub(crate) fn to_api(&self, key: Key, symbols: &Symbols) -> Vec<Requirement> {
        let make = |operator, values| Requirement {
            key: symbols.key_name(key).to_owned(),
            operator,
            values,
            min_values: self.min_values,
        };
        let bounds = [(Operator::Gte, self.gte), (Operator::Lte, self.lte)];
        let bounded: Vec<_> = bounds
            .into_iter()
            .filter_map(|(operator, bound)| Some(make(operator, vec![bound?.to_string()])))
            .collect();
        if bounded.is_empty() { vec![make(self.operator(), self.names(symbols))] } else { bounded }
    }

    /// For messages: `In [a b]`, with at most five values.
    pub(crate) fn describe(&self, symbols: &Symbols) -> String {
        let mut text = format!("{:?}", self.operator());
        let names = self.names(symbols);
        if !names.is_empty() {
            let shown = names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(" ");
            let _ = match names.len().checked_sub(6) {
                Some(rest) => write!(text, " [{shown} and {} others]", rest + 1),
                None => write!(text, " [{shown}]"),
            };
        }
        for (sign, bound) in [(">=", self.gte), ("<=", self.lte)] {
            if let Some(bound) = bound {
                let _ = write!(text, " {sign}{bound}");
            }
        }
        if let Some(min_values) = self.min_values {
            let _ = write!(text, " minValues {min_values}");
        }
        text
    }

    /// The listed values by name, sorted.
    pub(crate) fn names(&self, symbols: &Symbols) -> Vec<String> {
        let mut names: Vec<_> =
            self.values.iter().map(|&value| symbols.value_name(value).to_owned()).collect();
        names.sort_unstable();
        names
    }

    fn within(&self, value: Value, symbols: &Symbols) -> bool {
        if self.gte.is_none() && self.lte.is_none() {
            return true;
        }
        symbols.integer(value).is_some_and(|integer| {
            self.gte.is_none_or(|gte| integer >= gte) && self.lte.is_none_or(|lte| integer <= lte)
        })
    }
}

fn remaining(values: &[Value], keep: impl Fn(Value) -> bool) -> SmallVec<[Value; 2]> {
    values.iter().copied().filter(|&value| keep(value)).collect()
}

fn tighter(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

fn crosses(gte: Option<i64>, lte: Option<i64>) -> bool {
    matches!((gte, lte), (Some(gte), Some(lte)) if gte > lte)
}

/// A conjunction of sets by key. An absent key admits everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Requirements {
    /// Sorted by key.
    entries: SmallVec<[(Key, ValueSet); 4]>,
}

impl Requirements {
    /// From the API form. Keys that occur more than once are intersected.
    pub(crate) fn new<'a>(
        requirements: impl IntoIterator<Item = &'a Requirement>,
        symbols: &mut Symbols,
    ) -> Self {
        let mut set = Self::default();
        for requirement in requirements {
            let key = symbols.key(&requirement.key);
            let values = ValueSet::new(requirement, symbols);
            set.add(key, values, symbols);
        }
        set
    }

    /// From labels: each has to have exactly its value.
    pub(crate) fn from_labels<'a>(
        labels: impl IntoIterator<Item = (&'a String, &'a String)>,
        symbols: &mut Symbols,
    ) -> Self {
        let mut set = Self::default();
        for (key, value) in labels {
            let (key, value) = (symbols.key(key), symbols.value(value));
            set.add(key, ValueSet::one_of([value]), symbols);
        }
        set
    }

    /// Narrows one key.
    pub(crate) fn add(&mut self, key: Key, values: ValueSet, symbols: &Symbols) {
        match self.position(key) {
            Ok(at) => self.entries[at].1 = self.entries[at].1.intersection(&values, symbols),
            Err(at) => self.entries.insert(at, (key, values)),
        }
    }

    /// Replaces the set of a key.
    pub(crate) fn replace(&mut self, key: Key, values: ValueSet) {
        match self.position(key) {
            Ok(at) => self.entries[at].1 = values,
            Err(at) => self.entries.insert(at, (key, values)),
        }
    }

    /// Narrows by all of `other`.
    pub(crate) fn extend(&mut self, other: &Self, symbols: &Symbols) {
        for (key, values) in &other.entries {
            self.add(*key, values.clone(), symbols);
        }
    }

    /// The set of a key, if it is constrained.
    pub(crate) fn get(&self, key: Key) -> Option<&ValueSet> {
        self.position(key).ok().map(|at| &self.entries[at].1)
    }

    /// The constrained keys with their sets, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &ValueSet)> {
        self.entries.iter().map(|(key, values)| (*key, values))
    }

    /// The requirements on some keys.
    #[must_use]
    pub(crate) fn only(&self, keep: impl Fn(Key) -> bool) -> Self {
        Self { entries: self.entries.iter().filter(|(key, _)| keep(*key)).cloned().collect() }
    }

    /// Whether nothing is constrained.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of listed values, admitted or excluded.
    pub(crate) fn n_values(&self) -> usize {
        self.entries.iter().map(|(_, set)| set.values.len()).sum()
    }

    /// Whether some key has `minValues`.
    pub(crate) fn has_min_values(&self) -> bool {
        self.entries.iter().any(|(_, values)| values.min_values.is_some())
    }

    /// Whether a pod's set (`incoming`) can be met by this one, a template's or a node's.
    ///
    /// A key that this side does not define is an error unless the pod can do without it, or
    /// `undefined_is_fine` says that a machine to come will define it (well-known labels). The
    /// error is the key.
    pub(crate) fn compatible(
        &self,
        incoming: &Self,
        undefined_is_fine: impl Fn(Key) -> bool,
        symbols: &Symbols,
    ) -> Result<(), Key> {
        for (key, wanted) in &incoming.entries {
            let met = match self.get(*key) {
                None => wanted.admits_absence() || undefined_is_fine(*key),
                Some(have) => overlap(have, wanted, symbols),
            };
            if !met {
                return Err(*key);
            }
        }
        Ok(())
    }

    /// Whether the sets of all common keys intersect; the error is the first key whose sets do not.
    pub(crate) fn intersects(&self, other: &Self, symbols: &Symbols) -> Result<(), Key> {
        let (mut mine, mut theirs) =
            (self.entries.iter().peekable(), other.entries.iter().peekable());
        while let (Some((key, have)), Some((other_key, wanted))) = (mine.peek(), theirs.peek()) {
            match key.cmp(other_key) {
                std::cmp::Ordering::Less => drop(mine.next()),
                std::cmp::Ordering::Greater => drop(theirs.next()),
                std::cmp::Ordering::Equal => {
                    if !overlap(have, wanted, symbols) {
                        return Err(*key);
                    }
                    mine.next();
                    theirs.next();
                }
            }
        }
        Ok(())
    }

    fn position(&self, key: Key) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&key, |(key, _)| *key)
    }
}

/// Two sets that both allow absence are compatible although they have no value in common.
pub(crate) fn overlap(have: &ValueSet, wanted: &ValueSet, symbols: &Symbols) -> bool {
    have.intersects(wanted, symbols) || (have.admits_absence() && wanted.admits_absence())
}

#[cfg(test)]
mod tests;

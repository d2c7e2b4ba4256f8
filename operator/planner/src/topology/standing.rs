//! Which machines to come count for spread that honours node affinity.
//!
//! Such a constraint counts pods only on nodes that the pods which carry it could use. Whether a machine to come is one may depend on the type that it becomes: of
//! eight cores or more, say. What the plan counts is what will be, so a machine that gets pods which the constraint selects, but of others, is narrowed until
//! either all of its types count or none does, whichever is cheaper.

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Rules;
use super::families::Counting;
use crate::cells::{CellId, Cells};
use crate::compile::Problem;
use crate::compile::shapes::{Class, ClassId};
use crate::id_set::IdSet;
use crate::intern::{Key, Symbols};
use crate::requirements::{Requirements, ValueSet, overlap};

/// For so many families a machine is narrowed at most; for others it counts if it certainly does.
const FAMILIES: usize = 16;

/// These are chosen among so many.
const LOOKS: usize = 256;

/// So many requirements of a term are tried to keep a machine from counting.
const KEYS: usize = 4;

/// Whether pods on a machine to come count, as far as node affinity is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Counts,
    DoesNot,
    /// It depends on what the machine becomes.
    Open,
}

/// Where pods of a shape are to be counted: on machines of a cell.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) cell: CellId,
    shape: usize,
    /// The cell's types that hold one, once somebody has asked.
    types: Option<FixedBitSet>,
}

impl Place {
    pub(super) fn new(cell: CellId, shape: usize) -> Self {
        Self { cell, shape, types: None }
    }

    /// The cell's types that hold a pod.
    pub(super) fn types(&mut self, problem: &Problem<'_>, cells: &Cells) -> &FixedBitSet {
        self.types.get_or_insert_with(|| {
            let cell = &cells[self.cell];
            let mut types = cell.types.clone();
            let fitting = &problem.templates[cell.template].fitting;
            fitting.keep(&mut types, &problem.shapes[self.shape].requests);
            types
        })
    }

    /// Whether a machine there is one that pods of a class could use: it meets one of the terms that they require.
    pub(super) fn standing(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        class: ClassId,
    ) -> Standing {
        let mut all = Standing::DoesNot;
        for term in 0..problem.classes[class].required.len() {
            match self.meets(problem, cells, class, term) {
                Standing::Counts => return Standing::Counts,
                Standing::Open => all = Standing::Open,
                Standing::DoesNot => {}
            }
        }
        all
    }

    fn meets(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        class: ClassId,
        term: usize,
    ) -> Standing {
        let symbols = &problem.symbols;
        let required = &problem.classes[class].required[term];
        let cell = &cells[self.cell];
        let template = &problem.templates[cell.template];
        let table = &problem.catalogs[template.catalog];
        let well_known = |key| problem.is_well_known(key);
        if cell.requirements.compatible(required, well_known, symbols).is_err() {
            return Standing::DoesNot;
        }
        let (mut of_types, mut is_open) = (false, false);
        for (key, wanted) in required.iter() {
            let of_type = table.keys.contains(&key);
            of_types |= of_type;
            let told = cell.requirements.get(key);
            if told.is_some_and(|told| told.entails(wanted, symbols)) {
                continue;
            }
            if !of_type {
                // Without the label, or with a value that is still to be chosen.
                is_open |= told.is_some();
                continue;
            }
            let of_market = |market: usize| table.markets[market].requirements.get(key);
            let mut met = cell
                .markets
                .ones()
                .map(|market| of_market(market).is_none_or(|have| overlap(have, wanted, symbols)));
            let first = met.next();
            is_open |= met.any(|met| Some(met) != first);
            if first == Some(false) && !is_open {
                return Standing::DoesNot;
            }
        }
        if of_types {
            let catalog = template.catalog;
            let types = self.types(problem, cells);
            let meeting = cells.meeting(problem, catalog, class, term);
            if meeting.is_disjoint(types) {
                return Standing::DoesNot;
            }
            is_open |= !types.is_subset(meeting);
        }
        if is_open { Standing::Open } else { Standing::Counts }
    }
}

impl Rules {
    /// Notes by shape the families that count its pods on nodes which pods of another class could use, in an order that does not depend on that of shapes.
    pub(super) fn honour(&mut self, classes: &[Class], class_of: &[ClassId], symbols: &Symbols) {
        let anything = |class: ClassId| {
            classes[class].required.iter().any(|required| required.iter().next().is_none())
        };
        let class_of_family = |family: usize| match self.families[family].about.counts {
            Counting::Spread { honor_affinity: true, class, .. } if !anything(class) => Some(class),
            _ => None,
        };
        let honouring = (0..self.families.len())
            .filter_map(|family| Some((family, class_of_family(family)?)))
            .map(|(family, class)| {
                let terms = classes[class].required.iter().map(|term| names(term, symbols));
                (terms.collect::<Vec<_>>(), family, class)
            });
        let mut honouring: Vec<_> = honouring.collect();
        honouring.sort();
        let all: IdSet = {
            let mut ids: Vec<usize> = honouring.iter().map(|it| it.1).collect();
            ids.sort_unstable();
            ids.into_iter().collect()
        };
        let ranked = honouring.iter().enumerate();
        let rank: FxHashMap<usize, (usize, ClassId)> =
            ranked.map(|(rank, &(_, family, class))| (family, (rank, class))).collect();
        let of_shape = |(counting, &own): (&IdSet, &ClassId)| {
            let others = counting.common(&all).filter(|family| rank[family].1 != own);
            let mut others: Vec<usize> = others.take(LOOKS).collect();
            others.sort_unstable_by_key(|family| rank[family].0);
            others.into_iter().take(FAMILIES).collect()
        };
        let of_shape = self.counting.iter().zip(class_of).map(of_shape).collect();
        self.honouring = of_shape;
    }

    /// The families of [`Self::honour`].
    pub(super) fn honouring(&self, shape: usize) -> &[usize] {
        &self.honouring[shape]
    }
}

/// What a term asks for, by name.
fn names(term: &Requirements, symbols: &Symbols) -> Vec<(String, String)> {
    let name = |(key, set): (Key, &ValueSet)| {
        let bounds = set.to_api(key, symbols).into_iter().map(|it| (it.operator, it.values));
        (symbols.key_name(key).to_owned(), format!("{:?}", bounds.collect::<Vec<_>>()))
    };
    let mut names: Vec<_> = term.iter().map(name).collect();
    names.sort_unstable();
    names
}

/// The cells that a machine may be narrowed to so that it's certain whether pods of a shape count there for a family: the one in which the pod costs least first. None
/// when it is certain already or can't be said.
pub(super) fn certain(
    problem: &Problem<'_>,
    cells: &mut Cells,
    shape: usize,
    cell: CellId,
    family: usize,
) -> SmallVec<[CellId; 4]> {
    let about = &problem.rules.families[family].about;
    let mut found: SmallVec<[CellId; 4]> = SmallVec::new();
    let Counting::Spread { class, .. } = about.counts else { return found };
    let standing =
        |cells: &mut Cells, cell| Place::new(cell, shape).standing(problem, cells, class);
    if standing(cells, cell) != Standing::Open {
        return found;
    }
    let mut keep = |cells: &mut Cells, wanted: &Requirements, as_wanted: Standing| {
        if let Ok(narrower) = cells.narrow(problem, cell, wanted)
            && standing(cells, narrower) == as_wanted
            && !found.contains(&narrower)
        {
            found.push(narrower);
        }
    };
    for term in &problem.classes[class].required {
        keep(cells, term, Standing::Counts);
    }
    for term in &problem.classes[class].required {
        let mut parts: SmallVec<[(Key, &ValueSet); 4]> = term.iter().collect();
        parts.sort_by_key(|part| problem.symbols.key_name(part.0));
        for (key, set) in parts.into_iter().take(KEYS) {
            let Some(outside) = set.outside() else { continue };
            let mut wanted = Requirements::default();
            wanted.add(key, outside, &problem.symbols);
            keep(cells, &wanted, Standing::DoesNot);
        }
    }
    found.sort_by_cached_key(|&cell| cells.place_price(problem, cell, shape));
    found.retain(|cell| cells.place_price(problem, *cell, shape) < i64::MAX);
    found
}

//! How many pods that may change places may be in each spec.
//!
//! Each crew has its places, but a limit for every crew in every spec would make the covering
//! problem large. Crews of one class that have places in the same specs are weighed together, as a
//! pool; which of them gets which place is decided when pods are dealt out ([`super::dealing`]).

use std::collections::BTreeMap;

/// Crews, with the limits of the covering problem.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools {
    /// By crew; none where it has no pods.
    of_crew: Vec<Option<usize>>,
    /// By pool and spec: the limit on its pods there.
    limits: Vec<Vec<Option<usize>>>,
    /// The number of limits.
    pub(super) n_limits: usize,
}

impl Pools {
    /// For crews with so many places in each spec. `members` are the crew, class and variant of
    /// pods.
    pub(super) fn new(
        seats: &[Vec<usize>],
        members: impl Iterator<Item = (usize, usize, usize)>,
    ) -> Self {
        let mut known: BTreeMap<(usize, usize, Vec<bool>), usize> = BTreeMap::new();
        let mut pools = Self { of_crew: vec![None; seats.len()], ..Self::default() };
        for (crew, class, variant) in members {
            let specs: Vec<bool> = seats[crew].iter().map(|&seats| seats > 0).collect();
            let Self { of_crew, limits, n_limits } = &mut pools;
            let pool = *known.entry((class, variant, specs)).or_insert_with_key(|(.., specs)| {
                let mut limit = |is_open: &bool| {
                    *n_limits += usize::from(*is_open);
                    is_open.then(|| *n_limits - 1)
                };
                limits.push(specs.iter().map(&mut limit).collect());
                limits.len() - 1
            });
            of_crew[crew] = Some(pool);
        }
        pools
    }

    /// The pool of a crew.
    pub(super) fn of(&self, crew: usize) -> Option<usize> {
        self.of_crew[crew]
    }

    /// The limit on pods of a pool in a spec.
    pub(super) fn limit(&self, pool: usize, place: usize) -> Option<usize> {
        self.limits[pool][place]
    }

    /// By limit: the places of all its crews, of which each has so many in each spec.
    pub(super) fn places(&self, seats: &[Vec<usize>]) -> Vec<usize> {
        let mut places = vec![0; self.n_limits];
        for (pool, seats) in self.of_crew.iter().zip(seats) {
            let Some(pool) = *pool else { continue };
            for (limit, &seats) in self.limits[pool].iter().zip(seats) {
                if let Some(limit) = *limit {
                    places[limit] += seats;
                }
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crews_of_one_class_share_the_limits_of_the_same_specs() {
        let seats = [vec![2, 1, 0], vec![3, 4, 0], vec![0, 5, 6], vec![1, 1, 0], vec![9, 9, 9]];
        let members = [(0, 7, 0), (1, 7, 0), (1, 7, 0), (2, 7, 0), (3, 8, 0)];
        let pools = Pools::new(&seats, members.into_iter());
        assert_eq!(pools.of(0), pools.of(1));
        assert!(pools.of(0) != pools.of(2) && pools.of(0) != pools.of(3), "specs and class");
        assert_eq!(pools.of(4), None, "it has no pods");
        assert_eq!(pools.limit(0, 2), None, "no places, no limit");
        assert_eq!(pools.n_limits, 6);
        assert_eq!(pools.places(&seats), [5, 5, 5, 6, 1, 1]);
    }
}

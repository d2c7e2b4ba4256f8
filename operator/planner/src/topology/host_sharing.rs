//! Which pods may share a host, as far as groups are concerned of which a host holds one pod at
//! most.
//!
//! Such a group limits only hosts with a pod that carries its rule. Spread with a skew of one lets
//! these hosts have one pod that it selects, anti-affinity none but the carrier itself. On all
//! other hosts any number of selected pods may be. The answers hold for any order in which pods
//! come.

use smallvec::SmallVec;

/// What a shape is to a group about hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostGroup {
    /// Index of the group.
    pub(crate) group: usize,
    /// Its rule selects the shape's pods.
    pub(crate) is_selected: bool,
    /// The shape's pods carry the rule.
    pub(crate) is_carrier: bool,
    /// The rule is anti-affinity.
    pub(crate) is_anti: bool,
}

impl HostGroup {
    /// Whether a host has one of the shape's pods at most, because of this group.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_selected && self.is_carrier
    }
}

/// How many pods with some groups may come to a host with others.
pub(crate) fn most_on_host(
    groups: &[HostGroup],
    there: &(impl Iterator<Item = (HostGroup, usize)> + Clone),
) -> usize {
    let of_group = |new: &HostGroup| {
        let same = there.clone().filter(|(other, n)| other.group == new.group && *n > 0);
        let (mut is_carried, mut selected) = (new.is_carrier, 0);
        let mut keeps_all_off = new.is_anti && new.is_carrier && !new.is_selected;
        for (other, n) in same {
            is_carried |= other.is_carrier;
            keeps_all_off |= other.is_anti && other.is_carrier && !other.is_selected;
            selected += if other.is_selected { n } else { 0 };
        }
        if !is_carried {
            return usize::MAX;
        }
        match usize::from(!keeps_all_off).checked_sub(selected) {
            None => 0,
            Some(left) if new.is_selected => left,
            Some(_) => usize::MAX,
        }
    };
    groups.iter().map(of_group).min().unwrap_or(usize::MAX)
}

/// The groups that the pods on a host belong to.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostOccupancy {
    pods: SmallVec<[(HostGroup, usize); 8]>,
}

impl HostOccupancy {
    /// How many more pods with some groups the host may have.
    pub(crate) fn most(&self, groups: &[HostGroup]) -> usize {
        most_on_host(groups, &self.pods.iter().copied())
    }

    pub(crate) fn add(&mut self, groups: &[HostGroup], n: usize) {
        for group in groups {
            match self.pods.iter_mut().find(|(known, _)| known == group) {
                Some((_, pods)) => *pods += n,
                None => self.pods.push((*group, n)),
            }
        }
    }

    /// Takes pods off that were added before.
    pub(crate) fn remove(&mut self, groups: &[HostGroup], n: usize) {
        for group in groups {
            if let Some((_, pods)) = self.pods.iter_mut().find(|(known, _)| known == group) {
                debug_assert!(*pods >= n, "only pods that are there leave");
                *pods -= n;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pods that a spread constraint over hosts selects, that carry it, and that do both.
    const MEMBER: HostGroup =
        HostGroup { group: 3, is_selected: true, is_carrier: false, is_anti: false };
    const CARRIER: HostGroup = HostGroup { is_selected: false, is_carrier: true, ..MEMBER };
    const BOTH: HostGroup = HostGroup { is_carrier: true, ..MEMBER };

    fn anti(group: HostGroup) -> HostGroup {
        HostGroup { is_anti: true, ..group }
    }

    fn room(there: &[(HostGroup, usize)], new: HostGroup) -> usize {
        let mut occupancy = HostOccupancy::default();
        for &(group, n) in there {
            occupancy.add(&[group], n);
        }
        occupancy.most(&[new])
    }

    #[test]
    fn selected_pods_share_a_host_that_has_no_carrier() {
        for member in [MEMBER, anti(MEMBER)] {
            assert_eq!(room(&[(member, 5)], member), usize::MAX);
        }
    }

    #[test]
    fn one_selected_pod_shares_a_host_with_carriers_of_spread() {
        let (member, carrier, both) = (MEMBER, CARRIER, BOTH);
        assert_eq!(room(&[(carrier, 2)], member), 1);
        assert_eq!(room(&[(carrier, 2), (member, 1)], member), 0);
        assert_eq!(room(&[(member, 1)], carrier), usize::MAX);
        assert_eq!(room(&[(member, 2)], carrier), 0);
        assert_eq!(room(&[], both), 1);
        assert_eq!(room(&[(both, 1)], member), 0);
        assert_eq!(room(&[(both, 1)], carrier), usize::MAX);
        assert_eq!(room(&[(member, 1)], both), 0);
    }

    #[test]
    fn anti_affinity_keeps_selected_pods_off_the_hosts_of_carriers() {
        let (member, carrier, both) = (anti(MEMBER), anti(CARRIER), anti(BOTH));
        assert_eq!(room(&[(carrier, 1)], member), 0);
        assert_eq!(room(&[(carrier, 1)], carrier), usize::MAX);
        assert_eq!(room(&[(member, 1)], carrier), 0);
        assert_eq!(room(&[], both), 1);
        assert_eq!(room(&[(both, 1)], both), 0);
        assert_eq!(room(&[(both, 1)], carrier), 0);
        assert_eq!(room(&[(carrier, 1)], both), 0);
    }

    #[test]
    fn who_has_left_does_not_count() {
        let (member, both) = (MEMBER, BOTH);
        let mut occupancy = HostOccupancy::default();
        occupancy.add(&[both], 1);
        assert_eq!(occupancy.most(&[member]), 0);
        occupancy.remove(&[both], 1);
        assert_eq!(occupancy.most(&[member]), usize::MAX);
        let other = HostGroup { group: 4, ..both };
        occupancy.add(&[other], 1);
        assert_eq!(occupancy.most(&[member]), usize::MAX, "another group's pods");
    }
}

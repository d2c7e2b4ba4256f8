//! Which subnet of a zone the next machine goes to: the one with the most free addresses, counting
//! machines that are on their way.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tenon_crds::ec2nodeclass::Subnet;
use tokio::time::Instant;

/// Free addresses per subnet as last seen, less what was launched since.
#[derive(Debug)]
pub(crate) struct FreeAddresses {
    ttl: Duration,
    subnets: Mutex<BTreeMap<String, Seen>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    until: Instant,
    free: i64,
    /// `free` less the addresses of machines that were launched since; `None` before the first.
    left: Option<i64>,
}

/// Subnets that were chosen for a launch, to be settled when its result is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Subnet per zone.
    pub by_zone: BTreeMap<String, String>,
    /// Addresses counted off per subnet, and how many were free when they were.
    counted: BTreeMap<String, (i64, i64)>,
}

impl FreeAddresses {
    /// Figures live for five minutes, or so that one missed refresh does no harm.
    pub(crate) fn new(refresh_interval: Duration) -> Self {
        let ttl = Duration::from_secs(300).max(refresh_interval + Duration::from_secs(240));
        Self { ttl, subnets: Mutex::default() }
    }

    /// Takes note of a fresh figure. Launches that were counted off are in it, or will be in the
    /// next.
    pub(crate) fn observe(&self, subnet: &str, free: i64) {
        let seen = Seen { until: Instant::now() + self.ttl, free, left: None };
        self.subnets.lock().insert(subnet.to_owned(), seen);
    }

    /// The subnet has no free addresses.
    pub(crate) fn mark_full(&self, subnet: &str) {
        self.observe(subnet, 0);
    }

    /// Chooses a subnet per zone. `addresses` tells for a zone how many addresses the smallest
    /// machine that may be launched there takes.
    pub(crate) fn choose(
        &self,
        subnets: &[Subnet],
        addresses: impl Fn(&str) -> Option<i64>,
    ) -> Chosen {
        let now = Instant::now();
        let mut known = self.subnets.lock();
        known.retain(|_, seen| seen.until > now);
        let left = |id: &str| known.get(id).map_or(0, |seen| seen.left.unwrap_or(seen.free));
        let mut by_zone: BTreeMap<String, String> = BTreeMap::new();
        for subnet in subnets {
            match by_zone.get_mut(&subnet.zone) {
                Some(best) if left(&subnet.id) > left(best) => best.clone_from(&subnet.id),
                Some(_) => {}
                None => {
                    by_zone.insert(subnet.zone.clone(), subnet.id.clone());
                }
            }
        }
        let mut counted = BTreeMap::new();
        for (zone, id) in &by_zone {
            let (Some(count), Some(seen)) = (addresses(zone), known.get_mut(id)) else { continue };
            seen.left = Some(seen.left.unwrap_or(seen.free) - count);
            counted.insert(id.clone(), (count, seen.free));
        }
        Chosen { by_zone, counted }
    }

    /// Gives back what was counted off for subnets that were not used, unless the figure was
    /// refreshed meanwhile.
    pub(crate) fn settle(&self, chosen: &Chosen, used: Option<&str>) {
        let mut known = self.subnets.lock();
        for (id, &(count, free)) in &chosen.counted {
            if Some(id.as_str()) == used {
                continue;
            }
            if let Some(seen) = known.get_mut(id).filter(|seen| seen.free == free)
                && let Some(left) = &mut seen.left
            {
                *left += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnets() -> Vec<Subnet> {
        [("s-1", "a"), ("s-2", "a"), ("s-3", "b")]
            .map(|(id, zone)| Subnet { id: id.to_owned(), zone: zone.to_owned(), zone_id: None })
            .into()
    }

    fn mk_free() -> FreeAddresses {
        let free = FreeAddresses::new(Duration::from_secs(60));
        for (id, count) in [("s-1", 100), ("s-2", 90), ("s-3", 10)] {
            free.observe(id, count);
        }
        free
    }

    fn zone_a(free: &FreeAddresses) -> Chosen {
        free.choose(&subnets(), |_| Some(29))
    }

    #[tokio::test(start_paused = true)]
    async fn machines_on_their_way_are_counted() {
        let free = mk_free();
        assert_eq!(zone_a(&free).by_zone["a"], "s-1");
        assert_eq!(zone_a(&free).by_zone["a"], "s-2", "100 - 29 < 90");
        assert_eq!(zone_a(&free).by_zone["a"], "s-1", "71 > 61");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_used_is_given_back() {
        let free = mk_free();
        let chosen = zone_a(&free);
        free.settle(&chosen, Some("s-3"));
        assert_eq!(zone_a(&free).by_zone["a"], "s-1");
        let chosen = zone_a(&free);
        assert_eq!(chosen.by_zone["a"], "s-2");
        free.observe("s-2", 95);
        free.settle(&chosen, None);
        assert_eq!(zone_a(&free).by_zone["a"], "s-2", "refreshed meanwhile: 95, not 124");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_subnet_is_avoided_and_ties_keep_the_order() {
        let free = mk_free();
        free.mark_full("s-1");
        assert_eq!(zone_a(&free).by_zone["a"], "s-2");
        let unknown = FreeAddresses::new(Duration::from_secs(60));
        assert_eq!(zone_a(&unknown).by_zone["a"], "s-1");
    }
}

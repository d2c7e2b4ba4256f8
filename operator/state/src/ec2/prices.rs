//! List prices that come with this version.

use tenon_planner::resources::MicroUsd;

/// Instance types and their on-demand prices of one region, as published.
pub fn on_demand() -> impl Iterator<Item = (&'static str, MicroUsd)> {
    let lines = include_str!("prices.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let (name, usd) = line.split_once('\t')?;
        Some((name, MicroUsd::from_usd(usd.parse().ok()?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_a_price() {
        assert_eq!(on_demand().count() + 1, include_str!("prices.tsv").lines().count());
    }
}

//! List prices that come with this version, and what Windows costs on top of a machine's price.

use tenon_planner::resources::MicroUsd;

/// Instance types and their on-demand prices of one region, as published.
pub fn on_demand() -> impl Iterator<Item = (&'static str, MicroUsd)> {
    let lines = include_str!("prices.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let (name, usd) = line.split_once('\t')?;
        Some((name, MicroUsd::from_usd(usd.parse().ok()?)))
    })
}

/// What EC2 bills for each vCPU that runs Windows: the difference between its prices for Windows
/// and for Linux, which is the same in all regions and for spot instances.
const WINDOWS_PER_VCPU: i64 = 46_000;

/// The same for whole machines of burstable types, by size.
const WINDOWS_ON_T2: [(&str, i64); 7] = [
    ("nano", 2_300),
    ("micro", 4_600),
    ("small", 9_000),
    ("medium", 18_000),
    ("large", 28_000),
    ("xlarge", 41_000),
    ("2xlarge", 62_000),
];
const WINDOWS_ON_T3: [(&str, i64); 7] = [
    ("nano", 4_600),
    ("micro", 9_200),
    ("small", 18_400),
    ("medium", 18_400),
    ("large", 27_600),
    ("xlarge", 73_600),
    ("2xlarge", 147_200),
];

/// What Windows costs per hour on a machine, on top of what the machine costs with Linux. Nothing
/// in China, where prices are not in dollars. `region` may be a zone. Source: EC2's price list.
pub fn windows_license(instance_type: &str, vcpus: i64, region: &str) -> MicroUsd {
    if region.starts_with("cn-") {
        return MicroUsd(0);
    }
    let (family, size) = instance_type.split_once('.').unwrap_or((instance_type, ""));
    let by_size: &[(&str, i64)] = match family {
        "t2" => &WINDOWS_ON_T2,
        "t3" | "t3a" => &WINDOWS_ON_T3,
        _ => &[],
    };
    let listed = by_size.iter().find(|(name, _)| *name == size).map(|(_, price)| *price);
    MicroUsd(listed.unwrap_or(vcpus.max(0).saturating_mul(WINDOWS_PER_VCPU)))
}

#[cfg(test)]
mod tests {
    use super::super::facts;
    use super::*;

    /// Prices of us-east-1 as EC2 publishes them, for Linux and for Windows.
    #[test]
    fn the_price_of_windows_is_the_published_one() {
        for (name, linux, windows) in [
            ("m5.large", 0.096, 0.188),
            ("m5.xlarge", 0.192, 0.376),
            ("c5.large", 0.085, 0.177),
            ("r5.2xlarge", 0.504, 0.872),
            ("g4dn.xlarge", 0.526, 0.710),
            ("m5.metal", 4.608, 9.024),
            ("t2.micro", 0.0116, 0.0162),
            ("t3.medium", 0.0416, 0.0600),
            ("t3.large", 0.0832, 0.1108),
            ("t3a.2xlarge", 0.3008, 0.4480),
        ] {
            let vcpus = facts::find(name).expect(name).vcpus;
            let license = windows_license(name, vcpus, "us-east-1");
            let price = MicroUsd(MicroUsd::from_usd(linux).0 + license.0);
            assert_eq!(price, MicroUsd::from_usd(windows), "{name}");
            assert_eq!(windows_license(name, vcpus, "cn-north-1"), MicroUsd(0));
        }
    }

    #[test]
    fn every_line_of_the_list_is_a_price() {
        assert_eq!(on_demand().count() + 1, include_str!("prices.tsv").lines().count());
    }
}

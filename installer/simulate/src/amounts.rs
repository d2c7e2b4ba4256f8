//! Amounts of resources as people write them: `7.8 cpu`, `64Gi memory`.

use tenon_crds::ResourceList;
use tenon_state::resources;

const GI: i64 = 1 << 30;

/// `7.8`, `64Gi`, `2`: a quantity that the API accepts, too. What can't be written in three
/// decimals is rounded down.
pub(super) fn number(resource: &str, amount: i64) -> String {
    if resource == "cpu" {
        return decimal(amount, 1000);
    }
    let in_bytes =
        matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    if !in_bytes {
        return amount.to_string();
    }
    if amount < GI {
        return exact(resource, amount);
    }
    format!("{}Gi", decimal(amount, GI))
}

/// `7.8 cpu`
pub(super) fn amount(resource: &str, amount: i64) -> String {
    match resource.strip_prefix("attachable-volumes-csi-") {
        Some(driver) => {
            format!("{amount} {} of {driver}", if amount == 1 { "volume" } else { "volumes" })
        }
        None if matches!(resource, "nodes" | "pods") && amount == 1 => {
            format!("1 {}", resource.trim_end_matches('s'))
        }
        None => format!("{} {resource}", number(resource, amount)),
    }
}

/// Two amounts to compare: where both read alike although they differ, each as the API writes it.
pub(super) fn pair(resource: &str, a: i64, b: i64) -> (String, String) {
    if a != b && number(resource, a) == number(resource, b) {
        let text = |amount| format!("{} {resource}", exact(resource, amount));
        return (text(a), text(b));
    }
    (amount(resource, a), amount(resource, b))
}

/// `1.5 cpu, 3Gi memory`, the number of pods left out.
pub(super) fn amounts(list: &ResourceList) -> String {
    let all = list.iter().filter(|(name, _)| *name != "pods");
    let all = all.map(|(name, quantity)| amount(name, resources::amount(name, *quantity)));
    all.collect::<Vec<_>>().join(", ")
}

fn exact(resource: &str, amount: i64) -> String {
    resources::quantity(resource, amount).to_string()
}

/// At most three decimals if they say it all, else two, rounded down.
fn decimal(amount: i64, unit: i64) -> String {
    let (whole, rest) = (amount / unit, (amount % unit).abs());
    let thousandths = i128::from(rest) * 1000;
    let is_exact = thousandths % i128::from(unit) == 0;
    let mut digits = format!("{:03}", thousandths / i128::from(unit));
    if !is_exact {
        digits.truncate(2);
    }
    let digits = digits.trim_end_matches('0');
    let sign = if amount < 0 && whole == 0 { "-" } else { "" };
    if digits.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{digits}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_people_write_them() {
        for (resource, value, text) in [
            ("cpu", 191_000, "191 cpu"),
            ("cpu", 7_800, "7.8 cpu"),
            ("cpu", 50, "0.05 cpu"),
            ("cpu", -500, "-0.5 cpu"),
            ("memory", 64 * GI, "64Gi memory"),
            ("memory", 3200 << 20, "3.125Gi memory"),
            ("memory", 32_758 << 20, "31.99Gi memory"),
            ("memory", 128 << 20, "128Mi memory"),
            ("nvidia.com/gpu", 2, "2 nvidia.com/gpu"),
            ("pods", 1, "1 pod"),
            ("nodes", 3, "3 nodes"),
            ("attachable-volumes-csi-ebs.csi.aws.com", 27, "27 volumes of ebs.csi.aws.com"),
        ] {
            assert_eq!(amount(resource, value), text);
        }
    }

    #[test]
    fn amounts_that_differ_never_read_alike() {
        let (a, b) = pair("memory", 32_758 << 20, 32_759 << 20);
        assert_eq!((a.as_str(), b.as_str()), ("32758Mi memory", "32759Mi memory"));
        assert_eq!(pair("cpu", 64_000, 7_800), ("64 cpu".to_owned(), "7.8 cpu".to_owned()));
    }
}

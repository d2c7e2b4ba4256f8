//! A time as an argument.

use std::time::Duration;

/// A time such as `90s`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let explain = || format!("{text:?} is not a time such as 90s, 20m or 1h");
    let number_end = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(explain)?;
    let number: u64 = text[..number_end].parse().map_err(|_| explain())?;
    let unit = match &text[number_end..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(explain()),
    };
    Ok(Duration::from_secs(number.checked_mul(unit).ok_or_else(explain)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("20m"), Ok(Duration::from_mins(20)));
        assert!(parse_duration("20").is_err());
        assert!(parse_duration("m").is_err());
        assert!(parse_duration("1d").is_err());
    }
}

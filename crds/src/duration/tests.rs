use proptest::prelude::*;

use super::*;

#[test]
fn reads_what_go_reads() {
    for (text, nanos) in [
        ("0", 0),
        ("0s", 0),
        ("1ns", 1),
        ("1us", 1_000),
        ("1\u{b5}s", 1_000),
        ("1\u{3bc}s", 1_000),
        ("5ms", 5_000_000),
        ("30s", 30_000_000_000),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1h1h", 7_200_000_000_000),
        ("-1m", -60_000_000_000),
        ("+1m", 60_000_000_000),
        ("720h", 2_592_000_000_000_000),
    ] {
        assert_eq!(text.parse::<Duration>().unwrap().as_nanos(), nanos, "{text}");
    }
}

#[test]
fn refuses_what_is_no_duration() {
    for text in [
        "", "-", "1", "s", "1d", "1h 30m", ".s", "1..5s", "one hour", "never", "1.2.3s", "0.",
        "--1s",
    ] {
        assert!(text.parse::<Duration>().is_err(), "{text}");
    }
    assert_eq!(
        "1d".parse::<Duration>().unwrap_err().to_string(),
        "`1d` is not a duration: the units are h, m, s, ms, us and ns (examples: `30s`, `1h30m`, `720h`)"
    );
}

#[test]
fn keeps_the_text_and_compares_the_length() {
    let hours: Duration = serde_json::from_str("\"720h\"").unwrap();
    assert_eq!(serde_json::to_string(&hours).unwrap(), "\"720h\"");
    assert_eq!(hours, "43200m".parse().unwrap());
    assert!(hours > "719h59m59s".parse().unwrap());
}

#[test]
fn never_is_no_duration() {
    let never: NillableDuration = serde_json::from_str("\"Never\"").unwrap();
    assert_eq!(never, NillableDuration::Never);
    assert_eq!(serde_json::to_string(&never).unwrap(), "\"Never\"");
    assert!(serde_json::from_str::<NillableDuration>("\"never\"").is_err());
    let after: NillableDuration = serde_json::from_str("\"1h30m\"").unwrap();
    assert_eq!(after.as_str(), "1h30m");
}

#[test]
fn what_the_schema_accepts_is_read_however_long_it_is() {
    let endless: Duration = "99999999999999999999999999999999999999999999h".parse().unwrap();
    assert_eq!(endless.as_nanos(), i64::MAX);
}

#[test]
fn writes_lengths_as_go_does() {
    for (nanos, text) in [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1\u{b5}s"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (60_000_000_000, "1m0s"),
        (245_001_000_000, "4m5.001s"),
        (3_600_000_000_000, "1h0m0s"),
        (-5_400_000_000_000, "-1h30m0s"),
        (i64::MAX, "2562047h47m16.854775807s"),
        (i64::MIN, "-2562047h47m16.854775808s"),
    ] {
        assert_eq!(Duration::from_nanos(nanos).as_str(), text);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(nanos in any::<i64>()) {
        prop_assert_eq!(Duration::from_nanos(nanos).as_str().parse::<Duration>().unwrap().as_nanos(), nanos);
    }

    #[test]
    fn reading_never_panics(text in "[-+]?[0-9.hmsnu\u{b5} ]{0,20}") {
        let _ = text.parse::<Duration>();
    }
}

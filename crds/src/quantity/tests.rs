use proptest::prelude::*;

use super::*;

#[test]
fn reads_and_writes_the_canonical_form() {
    for (text, canonical) in [
        ("0", "0"),
        ("0Gi", "0"),
        ("-0", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("1.", "1"),
        (".5", "500m"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("100m", "100m"),
        ("0.1", "100m"),
        ("1u", "1u"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("1.1n", "2n"),
        ("1000", "1k"),
        ("1k", "1k"),
        ("1000k", "1M"),
        ("1500k", "1500k"),
        ("2G", "2G"),
        ("1024", "1024"),
        ("1Ki", "1Ki"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1000Ki", "1000Ki"),
        ("0.1Mi", "104857600m"),
        ("-1Gi", "-1Gi"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("12e3", "12e3"),
        ("1.2e3", "1200"),
        ("1e-3", "1e-3"),
        ("1e-12", "1e-9"),
        ("5E", "5E"),
        ("1Ei", "1Ei"),
        ("8Ei", "9223372036854775807"),
        ("1e30", "9223372036854775807"),
        ("99999999999999999999999", "9223372036854775807"),
        ("-99E", "-9223372036854775807"),
    ] {
        assert_eq!(text.parse::<Quantity>().unwrap().to_string(), canonical, "{text}");
    }
}

#[test]
fn refuses_what_is_no_quantity() {
    for text in [
        "", "-", ".", "Gi", "1.2.3", "1 Gi", "1gi", "1K", "1mi", "1e", "1e1.5", "1ee3", "one",
        "--1", "Ti",
    ] {
        assert!(text.parse::<Quantity>().is_err(), "{text}");
    }
}

#[test]
fn compares_amounts_and_not_texts() {
    let quantity = |text: &str| text.parse::<Quantity>().unwrap();
    assert_eq!(quantity("1000m"), quantity("1"));
    assert_eq!(quantity("1Ki"), quantity("1024"));
    assert!(quantity("1Gi") > quantity("1G"));
    assert_eq!(quantity("1.0001").millis(), 1_001, "rounded away from zero");
    assert_eq!(quantity("1m").units(), 1);
    assert_eq!(quantity("-1m").units(), -1);
}

#[test]
fn a_sum_keeps_the_notation() {
    let quantity = |text: &str| text.parse::<Quantity>().unwrap();
    assert_eq!(quantity("1Gi").plus(quantity("1Gi")).to_string(), "2Gi");
    assert_eq!(Quantity::ZERO.plus(quantity("1Gi")).to_string(), "1Gi");
    assert_eq!(quantity("1500m").minus(quantity("2")).to_string(), "-500m");
}

#[test]
fn reads_numbers_as_well_as_texts() {
    let limits: ResourceList =
        serde_json::from_str(r#"{ "cpu": 4, "memory": "8Gi", "x": 1.5 }"#).unwrap();
    assert_eq!(
        serde_json::to_string(&limits).unwrap(),
        r#"{"cpu":"4","memory":"8Gi","x":"1500m"}"#
    );
}

proptest! {
    #[test]
    fn the_canonical_form_is_a_fixed_point(nanos in -1_000_000_000_000_000_000_000_i128..1_000_000_000_000_000_000_000, binary in any::<bool>()) {
        let notation = if binary { Notation::BinarySi } else { Notation::DecimalSi };
        let quantity = Quantity::from_nanos(nanos, notation);
        let back: Quantity = quantity.to_string().parse().unwrap();
        prop_assert_eq!(back, quantity);
        prop_assert_eq!(back.to_string(), quantity.to_string());
    }

    #[test]
    fn fractions_are_exact(whole in 0_u64..1_000_000, fraction in 0_u32..1_000_000_000) {
        let quantity: Quantity = format!("{whole}.{fraction:09}").parse().unwrap();
        prop_assert_eq!(quantity.nanos(), i128::from(whole) * 1_000_000_000 + i128::from(fraction));
    }

    #[test]
    fn reading_never_panics(text in r"[-+]?[0-9]{0,45}\.?[0-9]{0,45}([eE][-+]?[0-9]{1,12}|[KMGTPE]i|[numkMGTPE])?") {
        let _ = text.parse::<Quantity>();
    }
}

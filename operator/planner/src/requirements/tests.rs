//! The vectors of Karpenter's algebra, and laws over generated sets.

use proptest::prelude::*;

use super::*;

/// Operators of the vectors: ∃ Exists, ∅ DoesNotExist, {..} In, ¬{..} NotIn, and the four
/// comparisons.
fn parse(text: &str, symbols: &mut Symbols) -> ValueSet {
    let list = |text: &str| -> Vec<String> {
        let inner = text.trim_start_matches('{').trim_end_matches('}');
        inner.split(',').filter(|value| !value.is_empty()).map(str::to_owned).collect()
    };
    let make = |operator, values| Requirement {
        key: "key".to_owned(),
        operator,
        values,
        min_values: None,
    };
    let requirement = match text {
        "∃" => make(Operator::Exists, Vec::new()),
        "∅" => make(Operator::DoesNotExist, Vec::new()),
        _ if text.starts_with('{') => make(Operator::In, list(text)),
        _ if text.starts_with('¬') => make(Operator::NotIn, list(text.trim_start_matches('¬'))),
        _ => {
            let digits = text.find(|c: char| c.is_ascii_digit()).expect("a comparison has a bound");
            let operator = match &text[..digits] {
                "Gt" => Operator::Gt,
                "Lt" => Operator::Lt,
                "Gte" => Operator::Gte,
                "Lte" => Operator::Lte,
                other => panic!("operator {other}"),
            };
            make(operator, vec![text[digits..].to_owned()])
        }
    };
    ValueSet::new(&requirement, symbols)
}

/// The notation of the vectors' results.
fn show(set: &ValueSet, symbols: &Symbols) -> String {
    let names = set.names(symbols).join(",");
    let mut text = match (set.complement, names.is_empty()) {
        (false, true) => return "∅".to_owned(),
        (false, false) => return format!("{{{names}}}"),
        (true, true) => String::new(),
        (true, false) => format!("¬{{{names}}}"),
    };
    for (sign, bound) in [('≥', set.gte), ('≤', set.lte)] {
        if let Some(bound) = bound {
            let _ = write!(text, "{sign}{bound}");
        }
    }
    if text.is_empty() { "∃".to_owned() } else { text }
}

/// Appendix A.1.
const INTERSECTIONS: &str = "
∩      | ∃      | ∅ | {A} | {A,B} | ¬{A}     | {1} | {9} | {1,9} | ¬{1,2}   | Gt1    | Gt9 | Lt1 | Lt9      | Gte1     | Lte9
∃      | ∃      | ∅ | {A} | {A,B} | ¬{A}     | {1} | {9} | {1,9} | ¬{1,2}   | ≥2     | ≥10 | ≤0  | ≤8       | ≥1       | ≤9
∅      | ∅      | ∅ | ∅   | ∅     | ∅        | ∅   | ∅   | ∅     | ∅        | ∅      | ∅   | ∅   | ∅        | ∅        | ∅
{A}    | {A}    | ∅ | {A} | {A}   | ∅        | ∅   | ∅   | ∅     | {A}      | ∅      | ∅   | ∅   | ∅        | ∅        | ∅
{A,B}  | {A,B}  | ∅ | {A} | {A,B} | {B}      | ∅   | ∅   | ∅     | {A,B}    | ∅      | ∅   | ∅   | ∅        | ∅        | ∅
¬{A}   | ¬{A}   | ∅ | ∅   | {B}   | ¬{A}     | {1} | {9} | {1,9} | ¬{1,2,A} | ≥2     | ≥10 | ≤0  | ≤8       | ≥1       | ≤9
{1}    | {1}    | ∅ | ∅   | ∅     | {1}      | {1} | ∅   | {1}   | ∅        | ∅      | ∅   | ∅   | {1}      | {1}      | {1}
{9}    | {9}    | ∅ | ∅   | ∅     | {9}      | ∅   | {9} | {9}   | {9}      | {9}    | ∅   | ∅   | ∅        | {9}      | {9}
{1,9}  | {1,9}  | ∅ | ∅   | ∅     | {1,9}    | {1} | {9} | {1,9} | {9}      | {9}    | ∅   | ∅   | {1}      | {1,9}    | {1,9}
¬{1,2} | ¬{1,2} | ∅ | {A} | {A,B} | ¬{1,2,A} | ∅   | {9} | {9}   | ¬{1,2}   | ¬{2}≥2 | ≥10 | ≤0  | ¬{1,2}≤8 | ¬{1,2}≥1 | ¬{1,2}≤9
Gt1    | ≥2     | ∅ | ∅   | ∅     | ≥2       | ∅   | {9} | {9}   | ¬{2}≥2   | ≥2     | ≥10 | ∅   | ≥2≤8     | ≥2       | ≥2≤9
Gt9    | ≥10    | ∅ | ∅   | ∅     | ≥10      | ∅   | ∅   | ∅     | ≥10      | ≥10    | ≥10 | ∅   | ∅        | ≥10      | ∅
Lt1    | ≤0     | ∅ | ∅   | ∅     | ≤0       | ∅   | ∅   | ∅     | ≤0       | ∅      | ∅   | ≤0  | ≤0       | ∅        | ≤0
Lt9    | ≤8     | ∅ | ∅   | ∅     | ≤8       | {1} | ∅   | {1}   | ¬{1,2}≤8 | ≥2≤8   | ∅   | ≤0  | ≤8       | ≥1≤8     | ≤8
Gte1   | ≥1     | ∅ | ∅   | ∅     | ≥1       | {1} | {9} | {1,9} | ¬{1,2}≥1 | ≥2     | ≥10 | ∅   | ≥1≤8     | ≥1       | ≥1≤9
Lte9   | ≤9     | ∅ | ∅   | ∅     | ≤9       | {1} | {9} | {1,9} | ¬{1,2}≤9 | ≥2≤9   | ∅   | ≤0  | ≤8       | ≥1≤9     | ≤9
";

#[test]
fn intersections_follow_the_vectors() {
    let mut symbols = Symbols::default();
    let rows: Vec<Vec<&str>> =
        INTERSECTIONS.trim().lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    assert_eq!((rows.len(), rows[0].len()), (16, 16));
    for row in &rows[1..] {
        for (column, expected) in row.iter().enumerate().skip(1) {
            let (left, right) = (row[0], rows[0][column]);
            let (a, b) = (parse(left, &mut symbols), parse(right, &mut symbols));
            let both = a.intersection(&b, &symbols);
            assert_eq!(show(&both, &symbols), *expected, "{left} ∩ {right}");
            let some = *expected != "∅";
            assert_eq!(a.intersects(&b, &symbols), some, "{left} has something of {right}");
        }
    }
}

/// Appendix A.2: self side, incoming side, compatible for a custom key, for a well-known one.
const COMPATIBLE: &[(Option<&str>, &str, bool, bool)] = &[
    (None, "{A}", false, true),
    (None, "∃", false, true),
    (None, "Gt1", false, true),
    (None, "Lt1", false, true),
    (None, "Gte1", false, true),
    (None, "Lte1", false, true),
    (None, "¬{A}", true, true),
    (None, "∅", true, true),
    (Some("{A}"), "{A,B}", true, true),
    (Some("{A}"), "{B}", false, false),
    (Some("{A}"), "¬{A}", false, false),
    (Some("{A}"), "∅", false, false),
    (Some("¬{A}"), "∅", true, true),
    (Some("∅"), "¬{A}", true, true),
    (Some("∅"), "∅", true, true),
    (Some("∅"), "∃", false, false),
    (Some("∅"), "{A}", false, false),
    (Some("∃"), "∅", false, false),
    (Some("∃"), "{A}", true, true),
    (Some("∃"), "¬{A}", true, true),
    (Some("∃"), "Gt1", true, true),
    (Some("Gt9"), "Lt9", false, false),
];

#[test]
fn compatibility_follows_the_vectors() {
    for &(have, wanted, custom, well_known) in COMPATIBLE {
        let mut symbols = Symbols::default();
        let key = symbols.key("key");
        let mut existing = Requirements::default();
        if let Some(have) = have {
            let set = parse(have, &mut symbols);
            existing.add(key, set, &symbols);
        }
        let mut incoming = Requirements::default();
        let set = parse(wanted, &mut symbols);
        incoming.add(key, set, &symbols);
        let met = |fine: bool| existing.compatible(&incoming, |_| fine, &symbols).is_ok();
        assert_eq!(met(false), custom, "custom: {have:?} against {wanted}");
        assert_eq!(met(true), well_known, "well-known: {have:?} against {wanted}");
    }
}

#[test]
fn gt_is_emitted_as_gte_and_two_bounds_as_two_requirements() {
    let mut symbols = Symbols::default();
    let key = symbols.key("cpu");
    let (above, below) = (parse("Gt4", &mut symbols), parse("Lt9", &mut symbols));
    let show = |set: &ValueSet| -> Vec<(Operator, Vec<String>)> {
        set.to_api(key, &symbols).into_iter().map(|need| (need.operator, need.values)).collect()
    };
    assert_eq!(show(&above), [(Operator::Gte, vec!["5".to_owned()])]);
    let both = above.intersection(&below, &symbols);
    assert_eq!(
        show(&both),
        [(Operator::Gte, vec!["5".to_owned()]), (Operator::Lte, vec!["8".to_owned()])]
    );
}

#[test]
fn greater_than_the_largest_integer_is_nothing() {
    let mut symbols = Symbols::default();
    let requirement = Requirement {
        key: "key".to_owned(),
        operator: Operator::Gt,
        values: vec![i64::MAX.to_string()],
        min_values: Some(3),
    };
    assert_eq!(ValueSet::new(&requirement, &mut symbols), ValueSet::does_not_exist());
}

#[test]
fn the_larger_min_values_survive_an_intersection() {
    let mut symbols = Symbols::default();
    let a = parse("{A,B}", &mut symbols).with_min_values(Some(2));
    let b = parse("∃", &mut symbols).with_min_values(Some(5));
    assert_eq!(a.intersection(&b, &symbols).min_values(), Some(5));
    assert_eq!(a.intersection(&parse("∃", &mut symbols), &symbols).min_values(), Some(2));
}

#[test]
fn descriptions_show_at_most_five_values() {
    let mut symbols = Symbols::default();
    let set = parse("{g,a,b,c,d,e,f}", &mut symbols);
    assert_eq!(set.describe(&symbols), "In [a b c d e and 2 others]");
    assert_eq!(parse("Gt4", &mut symbols).describe(&symbols), "Exists >=5");
}

fn any_set() -> impl Strategy<Value = String> {
    let values =
        prop::collection::btree_set(prop::sample::select(vec!["A", "B", "1", "5", "9"]), 1..4)
            .prop_map(|set| set.into_iter().collect::<Vec<_>>().join(","));
    prop_oneof![
        Just("∃".to_owned()),
        Just("∅".to_owned()),
        values.clone().prop_map(|list| format!("{{{list}}}")),
        values.prop_map(|list| format!("¬{{{list}}}")),
        (prop::sample::select(vec!["Gt", "Lt", "Gte", "Lte"]), 0..10_i64)
            .prop_map(|(operator, bound)| format!("{operator}{bound}")),
    ]
}

proptest! {
    #[test]
    fn an_intersection_admits_what_both_admit(a in any_set(), b in any_set(), c in any_set()) {
        let mut symbols = Symbols::default();
        let probes: Vec<Value> =
            ["A", "B", "C", "0", "1", "2", "5", "8", "9", "10"].map(|probe| symbols.value(probe)).to_vec();
        let [a, b, c] = [a, b, c].map(|text| parse(&text, &mut symbols));
        let (ab, bc) = (a.intersection(&b, &symbols), b.intersection(&c, &symbols));
        for &probe in &probes {
            let both = a.has(probe, &symbols) && b.has(probe, &symbols);
            prop_assert_eq!(ab.has(probe, &symbols), both);
            if both {
                prop_assert!(a.intersects(&b, &symbols));
            }
            prop_assert_eq!(
                ab.intersection(&c, &symbols).has(probe, &symbols),
                a.intersection(&bc, &symbols).has(probe, &symbols)
            );
            if let Some(outside) = a.outside() {
                let compared = a.gte.is_none() && a.lte.is_none() || symbols.integer(probe).is_some();
                let [inside, outside] = [&a, &outside].map(|set| set.has(probe, &symbols));
                prop_assert!(!(inside && outside) && (inside || outside || !compared));
            }
            if a.is_subset(&b, &symbols) && a.has(probe, &symbols) {
                prop_assert!(b.has(probe, &symbols));
            }
        }
        prop_assert_eq!(&b.intersection(&a, &symbols), &ab);
        prop_assert_eq!(ab.entails(&c, &symbols), ab.intersection(&c, &symbols) == ab);
        prop_assert_eq!(a.intersects(&b, &symbols), b.intersects(&a, &symbols));
        prop_assert!(ab.operator() == Operator::DoesNotExist || ab.is_subset(&a, &symbols) || ab.admits_absence());
    }
}

use proptest::prelude::*;

use super::*;

fn gpu() -> DeviceView {
    let attributes = [
        ("productName", Value::text("NVIDIA A100-SXM4-40GB")),
        ("driverVersion", Value::Version(value::Version::parse("550.54.15").unwrap())),
        ("index", Value::Int(3)),
        ("mig", Value::Bool(false)),
        ("example.com/rack", Value::text("r7")),
    ];
    let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value));
    let capacity = [("memory".to_owned(), "40Gi".parse().unwrap())];
    DeviceView::new("gpu.nvidia.com", attributes, capacity.into_iter(), false)
}

fn ask(text: &str) -> Result<bool, EvalError> {
    Program::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).matches(&gpu())
}

#[test]
fn selectors_as_people_write_them() {
    for (text, expected) in [
        ("device.driver == 'gpu.nvidia.com'", true),
        (
            r#"device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].mig == false"#,
            true,
        ),
        (
            r#"device.attributes["gpu.nvidia.com"].productName.lowerAscii().matches('^.*a100.*$')"#,
            true,
        ),
        (r#"device.attributes["gpu.nvidia.com"].productName.startsWith("NVIDIA H")"#, false),
        (r#"device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("39Gi"))"#, true),
        (r#"device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0"#, true),
        (r#"device.capacity["gpu.nvidia.com"].memory == quantity("40960Mi")"#, true),
        (
            r#"device.attributes["gpu.nvidia.com"].driverVersion.isGreaterThan(semver("550.54.2"))"#,
            true,
        ),
        (
            r#"device.attributes["gpu.nvidia.com"].driverVersion.compareTo(semver("550.54.15-rc.1")) == 1"#,
            true,
        ),
        (r#"device.attributes["gpu.nvidia.com"].index in [1, 3, 5]"#, true),
        (r#"device.attributes["example.com"].rack == "r7" ? true : false"#, true),
        (
            r#"cel.bind(gpu, device.attributes["gpu.nvidia.com"], gpu.index % 2 == 1 && gpu.index + 1 == 4)"#,
            true,
        ),
        (
            r#"["A100", "H100"].exists(model, device.attributes["gpu.nvidia.com"].productName.contains(model))"#,
            true,
        ),
        (r#"has(device.attributes["gpu.nvidia.com"].uuid)"#, false),
        (r#""index" in device.attributes["gpu.nvidia.com"]"#, true),
        (r#"size(device.attributes["nobody.example.com"]) == 0"#, true),
        ("!device.allowMultipleAllocations // and a comment", true),
        ("-3 < -2 && 2.5 > 2 && 1 == 1.0 && 'a' + 'b' == 'ab'", true),
        (r"'\x41\u0042\n' == 'AB' + '\n' && r'\d' != '\\D'", true),
    ] {
        assert_eq!(ask(text), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_missing_is_an_error_unless_the_other_side_decides() {
    let missing = r#"device.attributes["gpu.nvidia.com"].uuid == "x""#;
    assert!(matches!(ask(missing), Err(EvalError::Value(_))));
    assert_eq!(ask(&format!("{missing} && false")), Ok(false));
    assert_eq!(ask(&format!("true || {missing}")), Ok(true));
    assert!(ask(&format!("{missing} || false")).is_err());
    assert!(ask("1 + 'a' == 2").is_err());
    assert!(ask("9223372036854775807 + 1 > 0").is_err());
    assert!(ask("1 / 0 == 1").is_err());
    assert!(ask("device").is_err());
}

#[test]
fn what_is_not_known_is_refused_when_it_is_parsed() {
    let refused = |text: &str| Program::parse(text).map(|_| ()).unwrap_err().to_string();
    assert_eq!(refused("device.driver =="), "unexpected end at byte 16");
    assert_eq!(refused("device.driver = 'a'"), "unexpected '=' at byte 14");
    assert_eq!(refused("driver == 'a'"), "variable driver is not known");
    assert_eq!(refused("device.driver.reverse() == 'a'"), "function reverse is not known");
    assert_eq!(refused("now() == 1"), "function now is not known");
    assert_eq!(refused("'abc"), "a string has no end at byte 0");
    assert_eq!(refused("1u == 1"), "a number is not valid at byte 0");
    assert_eq!(refused(&"(".repeat(5000)), "the expression is nested more than 64 deep");
    assert_eq!(refused(&"1+".repeat(5000)), "the expression is nested more than 64 deep");
    assert_eq!(refused(&" ".repeat(20_000)), "the expression is longer than 10240 bytes");
}

#[test]
fn an_evaluation_has_a_budget() {
    let list = (0..50).map(|it| it.to_string()).collect::<Vec<_>>().join(",");
    let nested = ["a", "b", "c", "d", "e", "f"]
        .iter()
        .fold("true".to_owned(), |body, variable| format!("[{list}].all({variable}, {body})"));
    assert_eq!(ask(&nested), Err(EvalError::Budget));
    let doubling = (0..20).fold("x0 == ''".to_owned(), |body, at| {
        format!("cel.bind(x{at}, x{next} + x{next}, {body})", next = at + 1)
    });
    let doubling = format!("cel.bind(x20, 'sixteen letters.', {doubling})");
    assert_eq!(ask(&doubling), Err(EvalError::Budget));
}

#[test]
fn what_is_read_of_a_device_is_known() {
    let reads = |text: &str| Program::parse(text).unwrap().reads().clone();
    let one = reads(r#"device.attributes["gpu.nvidia.com"].index == 1"#);
    assert!(one.names.contains("index") && !one.all);
    assert!(!reads(r#"has(device.capacity["a"].memory)"#).all);
    assert!(reads(r#"size(device.attributes["a"]) == 1"#).all);
    assert!(reads(r#"cel.bind(it, device.attributes["a"], it.index == 1)"#).all);
    assert!(reads(r#"device.attributes["a"].exists(it, it == "index")"#).all);
    assert!(reads(r#"device.attributes["a"]["in" + "dex"] == 1"#).all);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    /// Whatever the text, there is an answer or an error, soon.
    #[test]
    fn any_text_gives_an_answer_or_an_error(
        parts in prop::collection::vec(prop::sample::select(vec![
            "device", ".", "attributes", "[", "]", "(", ")", "'a'", "\"", "1", "9223372036854775807", "-", "+", "*", "/", "%", "==", "<",
            "&&", "||", "!", "?", ":", ",", "{", "}", "in", "has", "size", "all", "map", "x", "matches", "'(a*)*'", "quantity", "semver",
            "'1.2.3'", "split", "replace", "cel", "bind", "true", "1.5e3", "0x1F", "r'\\", "é", "\\", "substring", "[1,2,3].map(x, x)",
        ]), 0..24),
    ) {
        let text = parts.concat();
        if let Ok(program) = Program::parse(&text) {
            let _ = program.matches(&gpu());
        }
    }
}

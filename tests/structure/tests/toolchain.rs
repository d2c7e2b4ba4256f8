//! One version of Rust is tested: the pin, the image's build and the documents name it. What is
//! released is stripped.

use std::path::Path;

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    std::fs::read_to_string(path).expect("a file of the repository")
}

/// What stands in quotes after `key = ` at the beginning of a line.
fn quoted(text: &str, key: &str) -> String {
    let start = format!("{key} = \"");
    let value = text.lines().find_map(|line| line.strip_prefix(&start)?.split('"').next());
    value.unwrap_or_else(|| panic!("no line begins with {start}")).to_owned()
}

#[test]
fn the_pinned_toolchain_is_the_one_that_is_documented_and_built_with() {
    let pinned = quoted(&read("rust-toolchain.toml"), "channel");
    let least = quoted(&read("Cargo.toml"), "rust-version");
    let parts = pinned.split('.').map(str::parse::<u32>).collect::<Result<Vec<_>, _>>();
    assert_eq!(parts.map(|parts| parts.len()), Ok(3), "{pinned} is no exact version");
    assert!(pinned.starts_with(&format!("{least}.")), "{pinned} is no release of {least}");
    assert!(read("Containerfile").contains(&format!("\nFROM rust:{pinned}-")), "Containerfile");
    assert!(read("README.md").contains(&format!("Rust ({least} or later)")), "README.md");
}

/// Cargo forgets a profile's `strip` for a program whose package has settings of its own there or
/// in the profile that it inherits: the program is then several times as large, and nothing says
/// so.
#[test]
fn no_profile_has_settings_for_the_package_of_a_released_program() {
    let manifest: toml::Table = read("Cargo.toml").parse().expect("a manifest");
    let profiles = manifest["profile"].as_table().expect("profiles");
    for (name, profile) in profiles {
        let packages = profile.get("package").and_then(toml::Value::as_table);
        for program in ["tenon", "tenon-operator"] {
            let has_own = packages.is_some_and(|packages| packages.contains_key(program));
            assert!(!has_own, "profile.{name}.package.{program}");
        }
    }
    for (profile, strip) in [("dist", "debuginfo"), ("dist-small", "symbols")] {
        assert_eq!(profiles[profile]["strip"].as_str(), Some(strip), "{profile}");
    }
}

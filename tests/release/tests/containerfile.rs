//! The `Containerfile` runs the program as the image of `cargo release image` does.

use std::path::Path;

use serde_json::Value;
use tenon_release::image::{Source, build, own_architecture};
use tenon_release::layout::Manifest;

#[test]
fn both_images_are_run_in_the_same_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = std::fs::read_to_string(root.join("Containerfile")).expect("the file");
    let (_, last) = file.rsplit_once("FROM scratch\n").expect("the image is made from nothing");
    let says = |word: &str| {
        let line = last.lines().find_map(|line| line.strip_prefix(&format!("{word} ")));
        line.unwrap_or_else(|| panic!("{word} is missing"))
    };

    let dir = tempfile::tempdir().expect("temp dir");
    let program = dir.path().join("tenon-operator");
    std::fs::copy(std::env::current_exe().expect("a program"), &program).expect("copied");
    let source = Source {
        program: &program,
        beside: &[],
        root: Path::new("/"),
        library_path: &[],
        ca_bundle: &root.join("LICENSE"),
        compressed: false,
        epoch: 0,
        version: "1",
        commit: "x",
        source: None,
    };
    let layout = build(&source, &dir.path().join("image")).expect("built");
    let (image, _) = layout.image().expect("one");
    let manifest = layout.manifest_for(&image, own_architecture().name()).expect("this one");
    let manifest: Manifest = layout.document(&manifest).expect("JSON");
    let config: Value = layout.document(&manifest.config).expect("JSON");
    let config = &config["config"];
    assert_eq!(says("USER"), config["User"].as_str().expect("a user"));
    assert_eq!(says("ENTRYPOINT"), config["Entrypoint"].to_string());
    let env: Vec<&str> =
        config["Env"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(says("ENV"), env.join(" "));
}

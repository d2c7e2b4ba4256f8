//! `crds/manifests/*.yaml` are the definitions as files. They are made from the types; this test
//! fails when they are not in step. To write them anew: `TENON_WRITE_MANIFESTS=1 cargo test -p
//! tenon-crds --test manifests`.

use std::fs;
use std::path::{Path, PathBuf};

use tenon_crds::manifests;

fn files() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    manifests::all()
        .into_iter()
        .map(|crd| {
            let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
            (folder.join(name), serde_saphyr::to_string(&crd).expect("a definition is YAML"))
        })
        .collect()
}

#[test]
fn manifests_are_in_step_with_the_types() {
    let write = option_env!("TENON_WRITE_MANIFESTS").is_some()
        || std::env::vars().any(|(name, _)| name == "TENON_WRITE_MANIFESTS");
    for (path, expected) in files() {
        if write {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, expected).unwrap();
        } else {
            let found = fs::read_to_string(&path).unwrap_or_default();
            assert!(
                found == expected,
                "{} is not what the types say; write it anew: TENON_WRITE_MANIFESTS=1 cargo test -p tenon-crds --test manifests",
                path.display()
            );
        }
    }
}

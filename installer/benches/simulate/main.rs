//! `tenon simulate` on 20,000 pods in a file of 60 MB, from the start of the program to its end.
//!
//! `cargo bench -p tenon --bench simulate`

use std::hint::black_box;
use std::process::Command;

use criterion::{Criterion, criterion_group, criterion_main};

use self::manifests::Form;

mod manifests;

const PODS: usize = 20_000;

fn simulate(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("pool.yaml"), manifests::node_pool()).expect("written");
    let mut group = criterion.benchmark_group("simulate");
    group.sample_size(10);
    for (name, form) in [
        ("list.yaml", Form::YamlList),
        ("documents.yaml", Form::YamlDocuments),
        ("list.json", Form::JsonList),
    ] {
        std::fs::write(directory.path().join(name), manifests::pods(PODS, form)).expect("written");
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let output = Command::new(env!("CARGO_BIN_EXE_tenon"))
                    .args(["simulate", "-o", "json", "-f", "pool.yaml", "-f", name])
                    .current_dir(directory.path())
                    .output()
                    .expect("the program runs");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                black_box(output.stdout)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, simulate);
criterion_main!(benches);

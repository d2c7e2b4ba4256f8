//! Pages of the book that are written from the code. A test of each fails when they differ, and
//! `TENON_REWRITE=1` writes them.

use std::fs;
use std::path::Path;

/// Compares a page, by its path in the repository, with what it should be.
pub fn assert_written(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("TENON_REWRITE").is_some() {
        fs::write(&file, text).expect("the page can be written");
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        stored == text,
        "{path} is out of date: run this test with TENON_REWRITE=1 and review the difference"
    );
}

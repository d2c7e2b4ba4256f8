//! `tenon version`

use serde_json::json;

use crate::printer::Printer;

/// Prints the version.
pub fn run(printer: &Printer) -> u8 {
    printer.json(&json!({"version": env!("CARGO_PKG_VERSION")}));
    printer.text(concat!("tenon ", env!("CARGO_PKG_VERSION")));
    0
}

//! `tenon version`

use serde_json::json;

use crate::printer::Printer;

/// Prints the version, the commit and the target that this program was built from and for.
pub(crate) fn run(printer: Printer) -> u8 {
    let version = env!("CARGO_PKG_VERSION");
    let commit = option_env!("TENON_COMMIT").unwrap_or("unknown");
    let target = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    printer.json(&json!({ "version": version, "commit": commit, "target": target }));
    printer.text(&format!("tenon {version} (commit {commit}, {target})"));
    0
}

//! `tenon bundle`: what somebody else needs to see to help. Secrets are never read; account ids can
//! be left out.

use serde_json::{Value, json};
use tenon_checks::report::{Options, judge};
use tenon_installer_core::files::FileError;
use tenon_installer_core::plan::Plan;

use super::observation::{Asking, observe_session};
use super::session::{Fallback, Session, source};
use crate::cli::GlobalArgs;
use crate::cli::bundle::BundleArgs;
use crate::errors::ExpectedError;
use crate::printer::Printer;

/// Writes the bundle.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &BundleArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let settings = args.installation.settings();
    let source = source(&settings)?;
    let session = Box::pin(Session::open(global, &settings, source, Fallback::Record)).await?;
    session.introduce(*printer);
    let plan = session.plan().ok();
    let seen = Box::pin(observe_session(
        &session,
        plan.as_ref(),
        Asking { installed: true, ..Asking::default() },
    ))
    .await;
    let report = judge(&seen, &Options { installed: true, ..Options::default() });
    let files = [
        ("target.json", session.target_json()),
        ("settings.json", json!(session.settings.config)),
        ("observed.json", json!(seen)),
        ("checks.json", json!(report)),
        ("plan.json", plan.as_ref().map_or(Value::Null, |plan: &Plan| json!(plan))),
    ];
    std::fs::create_dir(&args.directory).map_err(FileError::writing(&args.directory))?;
    for (name, content) in files {
        let path = args.directory.join(name);
        let mut text = format!("{content:#}\n");
        if !args.keep_account_ids {
            text = without_account_ids(&text);
        }
        std::fs::write(&path, text).map_err(FileError::writing(&path))?;
        printer.text(&path.display().to_string());
    }
    printer.note(&format!(
        "Review it before you share it. To pack it: tar czf tenon-bundle.tar.gz {}",
        args.directory.display()
    ));
    printer.note(&format!(
        "To evaluate it on another machine: tenon doctor --from {}",
        args.directory.join("observed.json").display()
    ));
    Ok(0)
}

/// Replaces every run of exactly twelve digits: that is what account ids look like.
fn without_account_ids(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut digits = String::new();
    let flush = |digits: &mut String, clean: &mut String| {
        clean.push_str(if digits.len() == 12 { "000000000000" } else { digits });
        digits.clear();
    };
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
        } else {
            flush(&mut digits, &mut clean);
            clean.push(c);
        }
    }
    flush(&mut digits, &mut clean);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_ids_are_replaced_wherever_they_stand() {
        let text = r#"{"arn": "arn:aws:iam::111122223333:role/x", "at": 1760000000, "i": "i-0123456789ab"}"#;
        let clean = without_account_ids(text);
        assert!(clean.contains("arn:aws:iam::000000000000:role/x"));
        assert!(clean.contains("1760000000") && clean.contains("i-0123456789ab"));
        assert_eq!(without_account_ids("111122223333"), "000000000000");
    }
}

//! Taints as kOps writes them.

use std::str::FromStr;

use tenon_crds::labels::UNREGISTERED_TAINT;
use tenon_crds::{Taint, TaintEffect};

/// Reads `KEY[=VALUE]:EFFECT`; none without a key, or with an effect that Kubernetes does not know.
pub(crate) fn parse(text: &str) -> Option<Taint> {
    let (what, effect) = text.trim().split_once(':')?;
    let (key, value) = what.split_once('=').unwrap_or((what, ""));
    if key.is_empty() || value.contains('=') {
        return None;
    }
    let mut taint = Taint::new(key, TaintEffect::from_str(effect).ok()?);
    taint.value = Some(value.to_owned()).filter(|value| !value.is_empty());
    Some(taint)
}

/// The operator removes it as soon as it knows the node.
pub(crate) fn is_unregistered(taint: &Taint) -> bool {
    taint.key == UNREGISTERED_TAINT
}

//! What many objects have in common, such as the name of the Node of ten pods, is one value in
//! memory.

use std::collections::BTreeSet;
use std::sync::Arc;

/// With fewer values nothing is dropped.
const SWEEP_AT: usize = 1024;

/// Values of which equal ones are shared. Those that nobody uses any more are dropped when there
/// are twice as many as after the last time.
#[derive(Debug)]
pub(crate) struct Shared<T: ?Sized> {
    known: BTreeSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { known: self.known.clone(), sweep_at: self.sweep_at }
    }
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self { known: BTreeSet::new(), sweep_at: SWEEP_AT }
    }
}

impl<T: Ord + ?Sized> Shared<T> {
    /// Replaces a value by the one that equals it, if there was one before.
    pub(crate) fn share(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.known.get(value) {
            *value = Arc::clone(known);
            return;
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.sweep_at = (self.known.len() * 2).max(SWEEP_AT);
        }
        self.known.insert(Arc::clone(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(texts: &mut Shared<str>, text: &str) -> Arc<str> {
        let mut text = text.into();
        texts.share(&mut text);
        text
    }

    #[test]
    fn equal_values_are_one() {
        let mut texts = Shared::default();
        let first = share(&mut texts, "a");
        assert!(Arc::ptr_eq(&first, &share(&mut texts, "a")));
        assert!(!Arc::ptr_eq(&first, &share(&mut texts, "b")));
    }

    #[test]
    fn what_nobody_uses_is_dropped() {
        let mut texts = Shared::default();
        let used = share(&mut texts, "used");
        for number in 0..10 * SWEEP_AT {
            share(&mut texts, &number.to_string());
        }
        assert!(texts.known.len() <= SWEEP_AT, "{} are left", texts.known.len());
        assert!(Arc::ptr_eq(&used, &share(&mut texts, "used")));
    }
}

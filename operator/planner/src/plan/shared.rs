//! Values that many launches of a plan have in common.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A value that is held once for all that say the same. It reads and serialises like the value; who
/// changes it gets a copy of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shared<T>(Arc<T>);

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Shared<T> {
    /// Where the value is held: the same for all that share it.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T, U, const N: usize> PartialEq<[U; N]> for Shared<Vec<T>>
where
    T: PartialEq<U>,
{
    fn eq(&self, other: &[U; N]) -> bool {
        **self == *other
    }
}

#[expect(clippy::into_iter_without_iter, reason = "`iter` is found by way of `Deref`")]
impl<'a, T> IntoIterator for &'a Shared<T>
where
    &'a T: IntoIterator,
{
    type Item = <&'a T as IntoIterator>::Item;
    type IntoIter = <&'a T as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        (**self).into_iter()
    }
}

#[expect(clippy::into_iter_without_iter, reason = "`iter_mut` is found by way of `DerefMut`")]
impl<'a, T: Clone> IntoIterator for &'a mut Shared<T>
where
    &'a mut T: IntoIterator,
{
    type Item = <&'a mut T as IntoIterator>::Item;
    type IntoIter = <&'a mut T as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        (**self).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_nobody_else() {
        let first = Shared::from(vec![1, 2]);
        let mut second = first.clone();
        second.push(3);
        assert_eq!((&*first, &*second), (&vec![1, 2], &vec![1, 2, 3]));
        assert_eq!(serde_json::to_string(&second).unwrap(), "[1,2,3]");
        assert_eq!(serde_json::from_str::<Shared<Vec<i32>>>("[1,2,3]").unwrap(), second);
    }
}

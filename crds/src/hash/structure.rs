//! The hash of a structure from the hashes of its parts.

use std::collections::BTreeMap;

/// FNV-1, 64 bits: multiply, then xor.
fn fnv(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(byte)
    })
}

fn ordered(first: u64, second: u64) -> u64 {
    fnv(first.to_le_bytes().into_iter().chain(second.to_le_bytes()))
}

fn finish(hash: u64) -> u64 {
    fnv(hash.to_le_bytes())
}

/// A value that can be hashed. An absent value (`None`) is left out by [`Structure::field`]; an
/// empty one is not.
pub(super) trait Hash {
    fn hash(&self) -> u64;
}

impl Hash for str {
    fn hash(&self) -> u64 {
        fnv(self.bytes())
    }
}

impl Hash for String {
    fn hash(&self) -> u64 {
        self.as_str().hash()
    }
}

impl Hash for bool {
    fn hash(&self) -> u64 {
        fnv([u8::from(*self)])
    }
}

impl Hash for i32 {
    fn hash(&self) -> u64 {
        fnv(self.to_le_bytes())
    }
}

impl Hash for i64 {
    fn hash(&self) -> u64 {
        fnv(self.to_le_bytes())
    }
}

impl<V: Hash> Hash for BTreeMap<String, V> {
    fn hash(&self) -> u64 {
        finish(self.iter().fold(0, |hash, (key, value)| hash ^ ordered(key.hash(), value.hash())))
    }
}

/// Lists are sets: their order does not matter.
impl<V: Hash> Hash for Vec<V> {
    fn hash(&self) -> u64 {
        set(self.iter().map(Hash::hash))
    }
}

/// Raw bytes, as Go's `MarshalBinary` gives them.
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Hash for Bytes {
    fn hash(&self) -> u64 {
        fnv(self.0.iter().copied())
    }
}

/// The hash of a set of values.
pub(super) fn set(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(0, |hash, value| hash ^ value)
}

/// A structure that is hashed field by field. The order of the fields matters.
#[derive(Clone, Copy)]
pub(super) struct Structure(u64);

impl Structure {
    /// Begins with the name of the Go type.
    pub(super) fn new(type_name: &str) -> Self {
        Self(type_name.hash())
    }

    /// Adds a field unless it is absent.
    #[must_use]
    pub(super) fn field<V: Hash + ?Sized>(self, name: &str, value: Option<&V>) -> Self {
        match value {
            Some(value) => Self(finish(self.0 ^ ordered(name.hash(), value.hash()))),
            None => self,
        }
    }

    /// Adds a text unless it is empty, as Go's plain strings are.
    #[must_use]
    pub(super) fn text(self, name: &str, value: &str) -> Self {
        self.field(name, (!value.is_empty()).then_some(value))
    }
}

impl Hash for Structure {
    fn hash(&self) -> u64 {
        self.0
    }
}

//! What a browser has to know in order to be shown data.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::rand;

/// Bytes of the token.
const BYTES: usize = 16;

/// In hexadecimal digits.
pub(super) struct Token(String);

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub(super) fn new() -> std::io::Result<Self> {
        let mut bytes = [0; BYTES];
        rand::fill(&mut bytes).map_err(|_| std::io::Error::other("there is no randomness"))?;
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bytes))))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether it is this one; how much of it is right shows in no time.
    pub(super) fn is(&self, given: &str) -> bool {
        verify_slices_are_equal(given.as_bytes(), self.0.as_bytes()).is_ok()
    }
}

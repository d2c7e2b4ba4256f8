//! How the program ends. `docs/src/reference/exit-codes.md` tells users.

/// Something failed.
pub(crate) const EXIT_FAILURE: u8 = 1;
/// The command line or the settings are wrong, or a value is missing. Nothing was called.
pub(crate) const EXIT_USAGE: u8 = 2;
/// The cluster or the account is not fit for it. Nothing was changed.
pub(crate) const EXIT_PREFLIGHT: u8 = 3;
/// Some steps were done, then one failed. Running again goes on from there.
pub(crate) const EXIT_PARTIAL: u8 = 4;
/// What is there differs from the settings (only with `--exit-code`).
pub(crate) const EXIT_DRIFT: u8 = 5;
/// Refused, because something would be touched that isn't ours or is protected.
pub(crate) const EXIT_REFUSED: u8 = 6;
/// Interrupted from the keyboard.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

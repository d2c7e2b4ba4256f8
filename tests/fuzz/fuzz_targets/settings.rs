//! Fuzzes [`tenon_fuzz::settings`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenon_fuzz::settings(data));

//! Fuzzes [`tenon_fuzz::quantities`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenon_fuzz::quantities(data));

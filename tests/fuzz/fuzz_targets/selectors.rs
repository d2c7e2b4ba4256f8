//! Fuzzes [`tenon_fuzz::selectors`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenon_fuzz::selectors(data));

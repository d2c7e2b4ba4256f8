//! Fuzzes [`tenon_fuzz::messages`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenon_fuzz::messages(data));

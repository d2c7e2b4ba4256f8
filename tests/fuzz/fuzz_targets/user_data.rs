//! Fuzzes [`tenon_fuzz::user_data`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenon_fuzz::user_data(data));

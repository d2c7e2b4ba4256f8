//! Fuzzes [`tenon_fuzz::schedules`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenon_fuzz::schedules(data));

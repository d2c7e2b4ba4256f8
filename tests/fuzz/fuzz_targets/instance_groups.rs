//! Fuzzes [`tenon_fuzz::instance_groups`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenon_fuzz::instance_groups(data));

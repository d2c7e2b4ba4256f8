//! Fuzzes [`tenon_fuzz::snapshots`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenon_fuzz::snapshots(data));

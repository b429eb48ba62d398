//! Target `conversion` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| drop(flotilla_fuzz::conversion::run(input)));

//! See `inrush_fuzz::journal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inrush_fuzz::journal(data));

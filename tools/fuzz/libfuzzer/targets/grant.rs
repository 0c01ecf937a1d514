//! See `inrush_fuzz::grant`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inrush_fuzz::grant(data));

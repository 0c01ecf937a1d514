//! See `inrush_fuzz::head`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inrush_fuzz::head(data));

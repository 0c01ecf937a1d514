//! See `inrush_fuzz::paths`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inrush_fuzz::paths(data));

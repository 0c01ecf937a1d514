//! See `inrush_fuzz::list`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inrush_fuzz::list(data));

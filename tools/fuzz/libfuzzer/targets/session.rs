//! See `inrush_fuzz::session`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inrush_fuzz::session(data));

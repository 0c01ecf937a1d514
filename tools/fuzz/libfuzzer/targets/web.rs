//! See `inrush_fuzz::web`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inrush_fuzz::web(data));

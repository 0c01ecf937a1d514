//! See `inrush_fuzz::uri`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inrush_fuzz::uri(data));

//! See `inrush_fuzz::error`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inrush_fuzz::error(data));

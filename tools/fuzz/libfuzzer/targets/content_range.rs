//! See `inrush_fuzz::content_range`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inrush_fuzz::content_range(data));

//! See `inrush_fuzz::chunks`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inrush_fuzz::chunks(data));

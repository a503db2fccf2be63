#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kitfox_fuzz::run("config", bytes));

//! Any bytes as a PROXY header: cut anywhere they tell the same, and what is read can be written again.
#![no_main]
#![allow(dead_code, reason = "each target runs a part of the checks")]

#[path = "../../crates/wire/tests/it/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::proxy_header(bytes));

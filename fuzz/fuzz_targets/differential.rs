//! Any bytes, to us, to `httparse` and to hyper's server: what we take, they understand alike.
#![no_main]
#![allow(dead_code, reason = "each target runs a part of the checks")]

#[path = "../../crates/wire/tests/it/checks.rs"]
mod checks;
#[path = "../../crates/wire/tests/it/differential.rs"]
mod differential;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    differential::httparse(bytes);
    differential::hyper(bytes);
});

//! Any bytes as what a TLS peer sends, to a server and to a client.
#![no_main]
#![allow(dead_code, reason = "each target runs a part of the checks")]

#[path = "../../crates/tls/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::bytes(bytes));

//! Any bytes of an HTTP/2 server, to a client.
#![no_main]
#![allow(dead_code, reason = "each target runs a part of the checks")]

#[path = "../../crates/http/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::http2_client(bytes));

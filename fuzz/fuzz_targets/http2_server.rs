//! Any bytes behind the preface of an HTTP/2 client, to a server.
#![no_main]
#![allow(dead_code, reason = "each target runs a part of the checks")]

#[path = "../../crates/http/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::http2_server(bytes));

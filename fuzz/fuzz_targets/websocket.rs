//! Any bytes as WebSocket frames, of either side and with compression or without: what is read depends on no
//! cut.
#![no_main]
#![allow(dead_code, reason = "each target runs a part of the checks")]

#[path = "../../crates/wire/tests/it/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::websocket(bytes));

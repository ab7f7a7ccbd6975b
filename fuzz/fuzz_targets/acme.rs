//! Any bytes as an answer of an ACME authority, and as a file of the state folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringroad_acme::checks::answer(bytes));

//! Tests of the harness from outside: the client against servers that lie, programs that do not want to stop,
//! suites with mistakes, the page in a browser, and whole runs with child processes. Start at `runs`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod browser;
mod client;
mod copies;
mod datasets;
mod gates;
mod longer;
#[path = "../../../http/tests/it/over.rs"]
mod over;
#[path = "../../../serve/tests/it/ports.rs"]
#[allow(dead_code)]
mod ports;
mod programs;
mod results;
mod runs;
mod suites;
mod turns;

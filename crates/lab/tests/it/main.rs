//! Tests of the harness from outside: the client against servers that lie, programs that do not want to stop,
//! suites with mistakes, and whole runs with child processes. Start at `runs`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod client;
mod copies;
mod datasets;
mod gates;
mod programs;
mod runs;
mod suites;

//! Behaviour of the library over real sockets: one body of scenarios for every driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
mod drivers;
mod bodies;
mod client;
mod connections;
mod counts;
mod files;
mod inputs;
mod requests;
mod stopping;
mod support;
mod wrapping;
mod zero_copy;

//! The tool as a library, over real sockets: one body of scenarios for every driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![forbid(unsafe_code)]

#[macro_use]
mod support;
mod answers;
mod configuration;
mod escapes;
mod files;
mod observing;
mod proxying;
mod reloading;
mod tunnels;

//! The tool as a library, over real sockets: one body of scenarios for every driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![forbid(unsafe_code)]

#[path = "../../../http/tests/it/drivers.rs"]
#[macro_use]
mod drivers;
mod answers;
mod configuration;
mod escapes;
mod files;
mod observing;
mod proxying;
mod reloading;
mod support;
mod tunnels;

//! Behaviour of the library over real sockets: one body of scenarios for every driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
mod drivers;
mod bodies;
#[path = "../checks/mod.rs"]
mod checks;
mod client;
mod connections;
mod counts;
mod early;
mod files;
mod following;
mod http2;
mod inputs;
mod kept;
mod lifecycle;
mod listening;
mod local;
mod messages;
mod over;
mod pauses;
mod replacing;
mod requests;
mod spans;
mod stopping;
mod support;
mod tls;
mod websocket;
mod wrapping;
mod zero_copy;

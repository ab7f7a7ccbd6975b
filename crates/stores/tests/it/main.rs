//! The clients against real servers (redis-server, valkey-server, nats-server, where they are installed), and
//! against servers of the tests that are slow, silent or broken.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

#[macro_use]
#[path = "../../../http/tests/it/drivers.rs"]
mod drivers;

mod commands;
mod failing;
mod nats;
mod nats_server;
mod relay;
mod server;
mod subscribing;

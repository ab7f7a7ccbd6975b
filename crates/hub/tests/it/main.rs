//! A hub on every driver, with clients that are nothing but sockets.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
#[path = "../../../http/tests/it/drivers.rs"]
mod drivers;

mod centrifugo;
mod machines;
mod members;
mod mercure;
mod nats;
#[path = "../../../stores/tests/it/nats_server.rs"]
mod nats_server;
mod npm;
mod pusher;
#[path = "../../../stores/tests/it/server.rs"]
mod redis_server;
#[path = "../../../stores/tests/it/relay.rs"]
mod relay;
mod support;

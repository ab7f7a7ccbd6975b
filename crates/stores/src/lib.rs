//! Clients of stores that several machines share, on the engine.
//!
//! [`redis`] has Redis 6 and newer, Valkey, and servers that speak as they do: start at [`redis::Redis`].
//! [`nats`] has the core of NATS, messages at most once: start at [`nats::Nats`].
#![forbid(unsafe_code)]

pub mod nats;
mod pipe;
pub mod redis;
mod tls;

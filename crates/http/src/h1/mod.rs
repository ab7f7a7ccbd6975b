//! HTTP/1 over messages: how a response is written, and how bytes become pieces of a body.
//!
//! What the bytes mean is decided in [`ringroad_wire`]; a connection of a server or a client puts the two
//! together.

pub(crate) mod encode;
mod ready;
mod receive;

pub(crate) use encode::Unsent;
pub(crate) use ready::HeadCache;
pub use receive::gather;

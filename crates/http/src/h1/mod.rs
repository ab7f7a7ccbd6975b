//! HTTP/1 over messages: how a response is written, and how bytes become pieces of a body.
//!
//! [`ringroad_wire`] parses the bytes; a connection of a server or a client uses both.

pub(crate) mod encode;
mod ready;
mod receive;

pub(crate) use encode::Unsent;
pub(crate) use ready::HeadCache;
pub use receive::gather;

//! HTTP/2 over messages: heads of either direction, bodies as frames take them, and what a peer may cost.
//!
//! Frames, HPACK and flow control are the `h2` crate's (docs/adr/0024). What it does not bound is bounded
//! here: a [`Meter`] looks at every frame header on its way in, and a [`Part`] reports every byte on its way
//! out. What a server's frames say beyond that is [`Heard`]. A [`Tunnel`] is a stream that carries another
//! protocol.
//! A connection of a server is in `server/http2`, one of a client in `client/http2`.

mod frames;
pub(crate) mod head;
mod heard;
mod meter;
mod part;
mod pipe;
mod settings;
mod tunnel;

pub(crate) use heard::{Heard, Hearing, Listening};
pub(crate) use meter::{Cost, Meter};
pub(crate) use part::{Part, Progress, Traffic};
pub(crate) use pipe::{Line, Pipe};
pub use settings::{Http2, Misbehaviour};
pub(crate) use tunnel::Tunnel;

/// What a client begins with (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

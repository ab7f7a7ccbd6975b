//! HTTP/2 for messages: heads in both directions, bodies as frames, and the cost limits of a peer.
//!
//! The `h2` crate implements frames, HPACK and flow control (docs/adr/0024). The limits that it lacks are
//! here: a [`Meter`] checks every received frame header, and a [`Part`] reports every sent byte. [`Heard`]
//! records more about a server's frames. A [`Tunnel`] is a stream that carries another protocol. A connection
//! of a server is in `server/http2`, one of a client in `client/http2`.

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

/// The client's connection preface (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

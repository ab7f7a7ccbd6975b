//! TCP: streams, listeners, their options.
//!
//! # What a dropped future means
//! Dropping the future of an operation (a `timeout`, a `select`) cancels it and loses nothing:
//! - *accept*: a connection that came all the same is the next accept's;
//! - *receive*: bytes that came all the same are the next receive's;
//! - *connect*: the socket is closed;
//! - *send*: unless it is known that no byte was sent, nobody can say what the peer has, so the stream's sending
//!   side is broken and the next send says so (EPIPE).
//!
//! # Which bytes are valid
//! A [`Lease`](crate::Lease) holds exactly the received bytes. A receive into memory of the caller's appends to
//! a `Vec`'s spare capacity, and tells how many bytes it appended. Chunk boundaries are the driver's and the
//! network's; only the order of bytes, the end and the class of an error are promised to be the same everywhere.

mod detached;
mod socket;
mod tcp;

pub use crate::option::SocketOption;
pub use detached::Detached;
pub use socket::Canceller;
pub use tcp::{
    Accept, Connect, ListenOptions, ReadHalf, Recv, RecvInto, Send, TcpListener, TcpStream, WriteHalf,
};

//! Sockets: TCP, UDP, and Unix ones; their addresses and options.
//!
//! # What a dropped future means
//! Dropping the future of an operation (a `timeout`, a `select`) cancels it and loses nothing:
//! - *accept*: a connection that came all the same is the next accept's;
//! - *receive*: bytes that came all the same are the next receive's;
//! - *connect*: the socket is closed;
//! - *receive of a datagram*: one that came all the same is the next receive's;
//! - *send of a datagram*: it was sent or it was not, and the next one is none the worse;
//! - *send*: unless it is known that no byte was sent, nobody can say what the peer has, so the stream's sending
//!   side is broken and the next send says so (EPIPE).
//!
//! # Which bytes are valid
//! A [`Lease`](crate::Lease) holds exactly the received bytes. A receive into memory of the caller's appends to
//! a `Vec`'s spare capacity, and tells how many bytes it appended. Chunk boundaries are the driver's and the
//! network's; only the order of bytes, the end and the class of an error are promised to be the same everywhere.

//! # How it is made
//! A *family* ([`Inet`], [`Unix`]) times a kind of socket: [`Stream`], [`Listener`], [`DatagramSocket`]. Users name the
//! six that there are: [`TcpStream`], [`TcpListener`], [`UdpSocket`], [`UnixStream`], [`UnixListener`], [`UnixDatagram`].

mod datagram;
mod detached;
mod direct;
mod family;
mod listener;
mod socket;
mod stream;
mod tcp;
mod udp;
mod unix;

pub use crate::address::{UNIX_NAME_BYTES_MAX, UnixAddr};
pub use crate::option::{Credentials, SocketOption};
pub use datagram::{
    DatagramReceiver, DatagramSender, DatagramSocket, Received, RecvFrom, RecvMessage, SendMessage,
};
pub use detached::Detached;
pub use family::{Family, Inet, Unix};
pub use listener::{Accept, Listener};
pub use socket::Canceller;
pub use stream::{ReadHalf, Recv, RecvInto, Send, Stream, WriteHalf};
pub use tcp::{Connect, ConnectOptions, ListenOptions, TcpListener, TcpStream};
pub use udp::{UdpOptions, UdpSocket};
pub use unix::{UnixDatagram, UnixListenOptions, UnixListener, UnixStream};

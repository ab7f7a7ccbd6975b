//! TCP, UDP and Unix sockets, with their addresses and options.
//!
//! # What a dropped future means
//! Dropping the future of an operation (a `timeout`, a `select`) cancels it and loses nothing:
//! - *accept*: a connection that arrives anyway goes to the next accept;
//! - *receive*: bytes that arrive anyway go to the next receive;
//! - *connect*: the socket is closed;
//! - *receive of a datagram*: one that arrives anyway goes to the next receive;
//! - *send of a datagram*: it was sent whole or not at all, and the next one is not affected;
//! - *send*: unless no byte was sent, it is unknown how much the peer has got. So the sending side of the
//!   stream is broken, and the next send fails with EPIPE.
//!
//! # Which bytes are valid
//! A [`Lease`](crate::Lease) holds exactly the received bytes. A receive into the caller's memory appends to
//! a `Vec`'s spare capacity, and returns the number of appended bytes. Chunk boundaries depend on driver and
//! network; only the order of bytes, the end, and the class of an error are the same everywhere.

//! # Structure
//! A *family* ([`Inet`], [`Unix`]) is combined with a kind of socket: [`Stream`], [`Listener`],
//! [`DatagramSocket`]. Users name the six combinations: [`TcpStream`], [`TcpListener`], [`UdpSocket`],
//! [`UnixStream`], [`UnixListener`], [`UnixDatagram`].

mod by_name;
mod datagram;
mod detached;
mod direct;
mod family;
mod inherited;
mod listener;
mod socket;
mod stream;
mod tcp;
mod udp;
mod unix;
mod zone;

pub use crate::address::{UNIX_NAME_BYTES_MAX, UnixAddr};
pub use crate::option::{Credentials, SocketOption};
pub use by_name::lookup_host;
pub use datagram::{
    DatagramReceiver, DatagramSender, DatagramSocket, Received, RecvFrom, RecvMessage, SendMessage,
};
pub use detached::Detached;
pub use family::{Family, Inet, Unix};
pub use inherited::{InheritedSocket, inherited_sockets};
pub use listener::{Accept, Listener};
pub use socket::Canceller;
pub use stream::{Hangup, PeerGone, ReadHalf, Recv, RecvInto, SendState, Stream, Write, WriteHalf};
pub use tcp::{Connect, ConnectOptions, ListenOptions, TcpListener, TcpStream};
pub use udp::{UdpOptions, UdpSocket};
pub use unix::{UnixDatagram, UnixListenOptions, UnixListener, UnixStream};
pub use zone::{literal, literal_with_port, split_zone};

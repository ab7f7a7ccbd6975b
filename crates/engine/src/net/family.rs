//! Socket families: the differences between IP and Unix sockets. Everything else is shared.

use crate::address::{Address, UnixAddr};
use crate::error::{Error, Result};
use socket2::SockAddr;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net as unix;

pub(super) mod sealed {
    use super::Address;

    /// The part of a family that is private to this crate.
    pub trait Family {
        /// Converts an address into this family's type, if it belongs to the family.
        fn of(address: Address) -> Option<Self::Name>
        where
            Self: Sized;
        /// Address type for users.
        type Name;
        /// Converts from this family's type.
        fn to(name: &Self::Name) -> Address;
        /// Returns the address of a peer without one.
        fn unnamed() -> Self::Name;
        const STREAM: &'static str;
        const LISTENER: &'static str;
        const DATAGRAMS: &'static str;
        /// A datagram waits for room at its receiver; otherwise it is lost if there is none.
        const WAITS_FOR_RECEIVER: bool;
        /// A receive may end before the socket is empty, also in the middle of a stream: after a byte that
        /// carried descriptors, or before urgent data (unix(7)). For IP sockets only urgent data does that,
        /// and epoll reports it.
        const STOPS_SHORT: bool;
    }
}

/// A family of sockets: [`Inet`] or [`Unix`].
pub trait Family: sealed::Family<Name = Self::Address> + 'static {
    /// The address of a socket.
    type Address: Clone + fmt::Debug + fmt::Display + Unpin;
    /// The standard library's connection.
    type StdStream: From<OwnedFd> + Into<OwnedFd>;
    /// The standard library's listening socket.
    type StdListener: From<OwnedFd> + Into<OwnedFd>;
    /// The standard library's datagram socket.
    type StdDatagrams: From<OwnedFd> + Into<OwnedFd>;
}

/// IPv4 and IPv6: TCP and UDP.
#[derive(Debug)]
pub enum Inet {}

/// Sockets between processes of one machine (`unix(7)`).
#[derive(Debug)]
pub enum Unix {}

impl Family for Inet {
    type Address = SocketAddr;
    type StdStream = std::net::TcpStream;
    type StdListener = std::net::TcpListener;
    type StdDatagrams = std::net::UdpSocket;
}

impl sealed::Family for Inet {
    type Name = SocketAddr;
    const STREAM: &'static str = "TcpStream";
    const LISTENER: &'static str = "TcpListener";
    const DATAGRAMS: &'static str = "UdpSocket";
    const WAITS_FOR_RECEIVER: bool = false;
    const STOPS_SHORT: bool = false;

    fn of(address: Address) -> Option<SocketAddr> {
        match address {
            Address::Inet(address) => Some(address),
            Address::Unix(_) => None,
        }
    }

    fn to(name: &SocketAddr) -> Address {
        Address::Inet(*name)
    }

    fn unnamed() -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0], 0))
    }
}

impl Family for Unix {
    type Address = UnixAddr;
    type StdStream = unix::UnixStream;
    type StdListener = unix::UnixListener;
    type StdDatagrams = unix::UnixDatagram;
}

impl sealed::Family for Unix {
    type Name = UnixAddr;
    const STREAM: &'static str = "UnixStream";
    const LISTENER: &'static str = "UnixListener";
    const DATAGRAMS: &'static str = "UnixDatagram";
    const WAITS_FOR_RECEIVER: bool = true;
    const STOPS_SHORT: bool = true;

    fn of(address: Address) -> Option<UnixAddr> {
        match address {
            Address::Unix(address) => Some(address),
            Address::Inet(_) => None,
        }
    }

    fn to(name: &UnixAddr) -> Address {
        Address::Unix(name.clone())
    }

    fn unnamed() -> UnixAddr {
        UnixAddr::UNNAMED
    }
}

/// Converts an address to the kernel's form, or returns an error of `operation`.
pub(super) fn to_kernel<F: Family>(operation: &'static str, address: &F::Address) -> Result<SockAddr> {
    <F as sealed::Family>::to(address).to_kernel().map_err(|errno| {
        let error = Error::errno(operation, errno).on(address);
        match errno {
            libc::ENAMETOOLONG => error.hint(
                "the name of a socket has at most 107 bytes (unix(7)): choose a shorter one, or one relative to the \
                 working directory",
            ),
            _ => error.hint("the path of a socket is not empty and holds no zero byte"),
        }
    })
}

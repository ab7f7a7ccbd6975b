//! Socket options, as a closed list of values.

use std::time::Duration;

/// An option of a TCP socket with its value (`socket(7)`, `tcp(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketOption {
    /// `TCP_NODELAY`: small segments leave at once. Inherited by accepted sockets.
    NoDelay(bool),
    /// `SO_REUSEADDR`: a listener may take an address that old connections still linger on.
    ReuseAddress(bool),
    /// `SO_REUSEPORT`: several listeners share the address, and the kernel spreads connections over them.
    ReusePort(bool),
    /// `SO_KEEPALIVE`.
    KeepAlive(bool),
    /// `SO_RCVBUF` in bytes. The kernel doubles what is set and tells the doubled value.
    ReceiveBuffer(u32),
    /// `SO_SNDBUF` in bytes, doubled likewise.
    SendBuffer(u32),
    /// `SO_LINGER`, whole seconds: zero makes a close reset the connection.
    Linger(Option<Duration>),
    /// `IPV6_V6ONLY`: an IPv6 listener takes no IPv4 connections.
    OnlyV6(bool),
}

impl SocketOption {
    /// The option's kernel name.
    pub const fn name(self) -> &'static str {
        match self {
            SocketOption::NoDelay(_) => "TCP_NODELAY",
            SocketOption::ReuseAddress(_) => "SO_REUSEADDR",
            SocketOption::ReusePort(_) => "SO_REUSEPORT",
            SocketOption::KeepAlive(_) => "SO_KEEPALIVE",
            SocketOption::ReceiveBuffer(_) => "SO_RCVBUF",
            SocketOption::SendBuffer(_) => "SO_SNDBUF",
            SocketOption::Linger(_) => "SO_LINGER",
            SocketOption::OnlyV6(_) => "IPV6_V6ONLY",
        }
    }
}

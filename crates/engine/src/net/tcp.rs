//! TCP: connect and listen. The rest is in `stream` and `listener`.

use super::SocketOption;
use super::family::Inet;
use super::listener::Listener;
use super::socket::Socket;
use super::stream::Stream;
use crate::address::Address;
use crate::error::{Error, Result};
use crate::exec::Core;
use crate::inflight::Memory;
use crate::io::OneShot;
use crate::op::{Call, Carries, Kind};
use socket2::SockAddr;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A TCP connection.
pub type TcpStream = Stream<Inet>;

/// A listening TCP socket.
pub type TcpListener = Listener<Inet>;

impl TcpStream {
    /// Connects to `address`.
    ///
    /// # Errors
    /// ECONNREFUSED: nothing listens there, also where the kernel has connected the socket to itself;
    /// ETIMEDOUT, EHOSTUNREACH, ENETUNREACH; EMFILE.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn connect(address: SocketAddr) -> Connect {
        TcpStream::connect_with(address, ConnectOptions::default())
    }

    /// Connects to `address` with options.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); EADDRNOTAVAIL: the source address does not belong to this machine, or
    /// all its ports to that peer are in use.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn connect_with(address: SocketAddr, options: ConnectOptions) -> Connect {
        Connect { address, options, state: Connecting::Fresh }
    }
}

/// Options for connecting. By default `TCP_NODELAY` is on, and the system chooses everything else.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// The source address. With port 0 the kernel chooses the port when it connects
    /// ([`SocketOption::BindAddressNoPort`]), so that one port serves several peers.
    pub from: Option<SocketAddr>,
    /// `TCP_NODELAY`: on by default, as for accepted connections. Without it the second of two small writes
    /// waits for the acknowledgement of the first, up to 40 ms.
    pub no_delay: bool,
    /// `SO_RCVBUF` in bytes. Set before the connect, because the window scale is negotiated then (`tcp(7)`).
    pub receive_buffer: Option<u32>,
    /// `SO_SNDBUF` in bytes.
    pub send_buffer: Option<u32>,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions { from: None, no_delay: true, receive_buffer: None, send_buffer: None }
    }
}

impl ConnectOptions {
    fn apply(&self, socket: &Socket) -> Result<()> {
        if self.no_delay {
            socket.set(SocketOption::NoDelay(true))?;
        }
        if let Some(bytes) = self.receive_buffer {
            socket.set(SocketOption::ReceiveBuffer(bytes))?;
        }
        if let Some(bytes) = self.send_buffer {
            socket.set(SocketOption::SendBuffer(bytes))?;
        }
        if let Some(from) = self.from {
            if from.port() == 0 {
                socket.set(SocketOption::BindAddressNoPort(true))?;
            }
            bind(socket, from)?;
        }
        Ok(())
    }
}

/// Future of [`TcpStream::connect`] and [`TcpStream::connect_with`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Connect {
    address: SocketAddr,
    options: ConnectOptions,
    state: Connecting,
}

#[derive(Debug)]
enum Connecting {
    Fresh,
    UnderWay { socket: Socket, operation: OneShot },
    Over,
}

impl Future for Connect {
    type Output = Result<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Connecting::Fresh = this.state {
            let name = Address::Inet(this.address);
            let made = Socket::new(Core::current("TcpStream::connect"), &name, Carries::Stream);
            let socket = made.map_err(|why| why.on(this.address))?;
            this.options.apply(&socket)?;
            let operation = OneShot::Fresh(Memory::Address(Box::new(SockAddr::from(this.address))));
            this.state = Connecting::UnderWay { socket, operation };
        }
        let Connecting::UnderWay { socket, operation } = &mut this.state else {
            unreachable!("polled after its end");
        };
        let polled = socket.poll(Kind::Connect, context.waker(), |io, index, caller| {
            io.poll_one_shot(Kind::Connect, index, operation, caller).map(|result| (result, io.driver_name()))
        });
        let (result, driver) = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(told)) => told,
            // The connect is cancelled when this future is dropped.
            Err(why) => return Poll::Ready(Err(why.on(this.address))),
        };
        let Connecting::UnderWay { socket, .. } = std::mem::replace(&mut this.state, Connecting::Over) else {
            unreachable!("it was a moment ago");
        };
        let refused = match result {
            0.. if is_to_itself(&socket, this.address) => {
                // A reset frees the port at once, for the server that is to have it.
                let _ = socket.set(SocketOption::Linger(Some(Duration::ZERO)));
                drop(socket);
                libc::ECONNREFUSED
            }
            0.. => return Poll::Ready(Ok(Stream::new(socket))),
            _ => -result,
        };
        let error = Error::errno("connect", refused).on(this.address).by(driver);
        Poll::Ready(Err(match refused {
            libc::ECONNREFUSED => error.hint("nothing listens there"),
            libc::EINVAL if lacks_zone(this.address) => error.hint(NEEDS_ZONE),
            libc::EADDRNOTAVAIL => {
                error.hint("no local port is free for that peer: use more source addresses")
            }
            _ => error,
        }))
    }
}

/// Returns whether a socket is connected to itself. Where nothing listens at a port of this machine, and that
/// port is chosen for the connecting socket, the connect succeeds (simultaneous open, RFC 9293 §3.5).
fn is_to_itself(socket: &Socket, address: SocketAddr) -> bool {
    let Ok(own) = socket.local_addr::<Inet>() else { return false };
    own.port() == address.port()
        && socket.peer_addr::<Inet>().is_ok_and(|peer| (own.ip(), own.port()) == (peer.ip(), peer.port()))
}

impl Drop for Connect {
    fn drop(&mut self) {
        if let Connecting::UnderWay { socket, operation } = &self.state {
            socket.with_io(|io, index| io.drop_one_shot(index, operation));
        }
    }
}

/// Options for a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Maximum number of connections that wait to be accepted; capped by `net.core.somaxconn` (`listen(2)`).
    pub backlog: i32,
    /// `SO_REUSEPORT`.
    pub reuse_port: bool,
    /// `TCP_NODELAY`. Accepted connections inherit it, so it costs no system call per connection.
    pub no_delay: bool,
    /// `IPV6_V6ONLY`; `None` leaves the system's setting.
    pub only_v6: Option<bool>,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { backlog: 4096, reuse_port: false, no_delay: true, only_v6: None }
    }
}

impl TcpListener {
    /// Binds and listens with default options; with port 0 the kernel chooses a port.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, EACCES. After a program with an io_uring listener was killed, its address
    /// stays in use for some milliseconds, because the kernel destroys the ring after the process has ended.
    /// A program that replaces it immediately must retry, or use [`ListenOptions::reuse_port`].
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind(address: SocketAddr) -> Result<TcpListener> {
        TcpListener::bind_with(address, ListenOptions::default())
    }

    /// Binds and listens.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind_with(address: SocketAddr, options: ListenOptions) -> Result<TcpListener> {
        let name = Address::Inet(address);
        let socket = Socket::new(Core::current("TcpListener::bind"), &name, Carries::Stream)
            .map_err(|why| why.on(address))?;
        socket.set(SocketOption::ReuseAddress(true))?;
        if options.reuse_port {
            socket.set(SocketOption::ReusePort(true))?;
        }
        if options.no_delay {
            socket.set(SocketOption::NoDelay(true))?;
        }
        if let Some(only_v6) = options.only_v6.filter(|_| address.is_ipv6()) {
            socket.set(SocketOption::OnlyV6(only_v6))?;
        }
        bind(&socket, address)?;
        let backlog = options.backlog;
        socket.call(|on| Call::Listen { on, backlog }).map_err(|why| why.on(address))?;
        Ok(Listener::new(socket))
    }
}

/// Binds to `address`; errors have a hint.
pub(super) fn bind(socket: &Socket, address: SocketAddr) -> Result<()> {
    let name = SockAddr::from(address);
    let bound = socket.call(|on| Call::Bind { on, address: &name });
    bound.map(|_| ()).map_err(|why| {
        let errno = why.raw_os_error();
        let why = why.on(address);
        match errno {
            Some(libc::EADDRINUSE) => why.hint(
                "another program has it, or the kernel still closes the sockets of one that ended just now, which takes \
                 some milliseconds after a program on io_uring: try again, or choose another port, or 0 for any",
            ),
            Some(libc::EADDRNOTAVAIL) => why.hint("it is no address of this machine"),
            Some(libc::EACCES) => why.hint("ports below 1024 need CAP_NET_BIND_SERVICE"),
            Some(libc::EINVAL) if lacks_zone(address) => why.hint(NEEDS_ZONE),
            _ => why,
        }
    })
}

const NEEDS_ZONE: &str = "a link-local address needs its interface, as in [fe80::1%eth0]:80";

fn lacks_zone(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(address) if address.ip().is_unicast_link_local() && address.scope_id() == 0)
}

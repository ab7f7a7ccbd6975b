//! The end of a worker's listener: connections that were established and not accepted.
//!
//! Closing a listener resets every connection in its backlog, although their clients have seen the connection
//! established, and may have sent requests.

use super::worker::Worker;
use crate::counters::add;
use crate::transport::{Listener, Transport};
use ringroad_engine::PollFd;
use ringroad_engine::time::timeout;
use socket2::{Domain, SockFilter, Socket};
use std::io;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a listener is kept if another one takes over its clients. A TCP handshake takes one round trip,
/// and the client is connected before the server learns of it. On one machine too, a packet that has found
/// the listener may be in progress on another processor.
const HANDSHAKE: Duration = Duration::from_millis(200);

/// An interface index that no machine has: the kernel numbers interfaces from one.
const NO_INTERFACE: NonZeroU32 = NonZeroU32::new(i32::MAX.unsigned_abs()).unwrap();

/// `BPF_RET | BPF_K` with zero bytes (bpf(4)): a filter that drops every packet.
const DROP_ALL: u16 = 0x06;

impl Worker {
    /// Serves the connections in the backlog, and closes the listener. If this closes the socket itself, it
    /// first stops admitting connections.
    ///
    /// If another worker of this process has the socket now, the backlog is emptied once as well. io_uring
    /// waits on a socket exclusively, so a connection wakes one of the waiting accepts. If that is the one
    /// being cancelled, the wake is lost, and the other accepts notice the connection only with the next one
    /// (seen on Linux 6.18). A connection that arrives after the cancel wakes the others.
    pub(super) async fn empty_backlog(self: &Rc<Worker>, listener: Listener) {
        let goes_on = self.handle.is_leaving();
        if !goes_on && !listener.is_ours() {
            return;
        }
        let Some(listener) = listener.into_backlog() else { return };
        let listener = Socket::from(listener);
        let Ok(domain) = listener.domain() else { return };
        if goes_on {
            return self.take_backlog(&listener, domain);
        }
        let is_hidden = domain != Domain::UNIX && hide(&listener).is_ok();
        if !is_hidden {
            // From here on the listener receives no packets (SO_ATTACH_FILTER, socket(7)). A new client gets
            // no answer until the listener is closed, and is then refused. If the filter is refused, a gap of
            // a few microseconds remains.
            let _ = listener.attach_filter(&[SockFilter::new(DROP_ALL, 0, 0, 0)]);
        }
        self.take_backlog(&listener, domain);
        if is_hidden && self.handle.overlaps.load(Ordering::Relaxed) {
            let listener = PollFd::new(listener);
            let handshakes = async {
                while listener.readable().await.is_ok() {
                    self.take_backlog(listener.get_ref(), domain);
                }
            };
            // The time has passed, or there is no timer.
            let _ = timeout(HANDSHAKE, handshakes).await;
            self.take_backlog(listener.get_ref(), domain);
        }
    }

    fn take_backlog(self: &Rc<Worker>, listener: &Socket, domain: Domain) {
        while let Ok((socket, _)) = listener.accept() {
            // On an error the connection is closed.
            if let Ok(stream) = Transport::from_accepted(socket, domain) {
                add(&self.counts().accepted, 1);
                self.begin_here(stream);
            }
        }
    }
}

/// Hides a TCP listener from further handshakes: they reach another listener at an address that covers this
/// one's, or are refused. A handshake that has begun continues, and its connection comes to this listener.
///
/// The listener is bound to an interface that does not exist (SO_BINDTOIFINDEX, Linux 5.1). The kernel looks
/// for listeners by interface, and for connections by that of their first packet.
///
/// # Errors
/// EPERM before Linux 5.7 without CAP_NET_RAW, and for a listener that is bound to an interface already.
fn hide(listener: &Socket) -> io::Result<()> {
    // The option is the same for both address families.
    listener.bind_device_by_index_v4(Some(NO_INTERFACE))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use socket2::{Protocol, Type};
    use std::io::{ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpStream};

    fn listener(address: SocketAddr) -> Socket {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(16).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    fn address(of: &Socket) -> SocketAddr {
        of.local_addr().unwrap().as_socket().unwrap()
    }

    #[test]
    fn clients_of_a_hidden_listener_go_to_one_that_covers_it_and_those_it_has_stay() {
        let wide = listener(([0, 0, 0, 0], 0).into());
        let own = listener(([127, 0, 0, 1], address(&wide).port()).into());
        let (before, mut after) = {
            let before = TcpStream::connect(address(&own)).unwrap();
            if let Err(why) = hide(&own) {
                // The tests of stopping servers cover the fallback.
                return eprintln!("skipped: a listener cannot be hidden here: {why}");
            }
            (before, TcpStream::connect(address(&own)).unwrap())
        };
        let accepted = own.accept().unwrap().1.as_socket().unwrap();
        assert_eq!(accepted, before.local_addr().unwrap());
        assert_eq!(own.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let (mut stream, peer) = wide.accept().unwrap();
        assert_eq!(peer.as_socket().unwrap(), after.local_addr().unwrap());
        drop(own);
        stream.write_all(b"still there").unwrap();
        drop(stream);
        let mut read = String::new();
        after.read_to_string(&mut read).unwrap();
        assert_eq!(read, "still there");
    }

    #[test]
    fn a_hidden_listener_refuses_at_once_where_no_other_listens() {
        for address_of in [SocketAddr::from(([127, 0, 0, 1], 0)), "[::1]:0".parse().unwrap()] {
            if address_of.is_ipv6() && std::net::TcpListener::bind(address_of).is_err() {
                eprintln!("skipped: no IPv6");
                continue;
            }
            let listener = listener(address_of);
            if let Err(why) = hide(&listener) {
                return eprintln!("skipped: a listener cannot be hidden here: {why}");
            }
            let refused = TcpStream::connect(address(&listener)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        }
    }
}

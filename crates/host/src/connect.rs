//! Connecting by blocking calls, for tools beside a load. A connection to itself is refused.
//!
//! A client that has the port that it connects to, on which nothing listens, is connected to itself
//! (simultaneous open, RFC 9293 §3.5): the kernel may choose that port if it lies in the range of local
//! ports. It would hear what it says, and keep the port from the server that is to have it. The engine's
//! sockets refuse it likewise. Start at [`connect`].

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Connects to `address` within `patience`.
///
/// # Errors
/// As of [`TcpStream::connect_timeout`]; ECONNREFUSED also if it is a connection to itself.
pub fn connect(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    to_another(TcpStream::connect_timeout(&address, patience)?)
}

/// Connects to the first of several addresses of one server that takes the connection, all within `patience`:
/// each has its share of what is left, so that one that is silent leaves time for the next.
///
/// # Errors
/// As [`connect`], of the last address; `NotFound` without an address.
pub fn connect_any(
    addresses: impl IntoIterator<Item = SocketAddr>,
    patience: Duration,
) -> io::Result<TcpStream> {
    let addresses: Vec<_> = addresses.into_iter().collect();
    let begun = Instant::now();
    let mut connected = Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for (address, left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        // A wait of 0 is refused.
        let share = patience.saturating_sub(begun.elapsed()) / left;
        connected = connect(*address, share.max(Duration::from_millis(1)));
        if connected.is_ok() {
            break;
        }
    }
    connected
}

/// Returns the error of a socket that waits for so long and no longer: where its time is over the kernel says
/// EAGAIN, which reads as if something were missing here.
pub fn in_time(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        _ => error,
    }
}

/// A connection with one time for all that is said and heard, however it comes: a limit of the socket is one
/// for each call, and a peer that sends a byte now and then never meets it.
#[derive(Debug)]
pub struct InTime {
    stream: TcpStream,
    until: Instant,
}

impl InTime {
    /// Has everything end at `until`.
    pub fn new(stream: TcpStream, until: Instant) -> InTime {
        InTime { stream, until }
    }

    /// Calls with what is left of the time. With a limit the kernel does not repeat an interrupted call by
    /// itself, and also interrupts it for the work of an io_uring that was closed just before.
    fn call<T>(
        &mut self,
        limit: fn(&TcpStream, Option<Duration>) -> io::Result<()>,
        mut call: impl FnMut(&mut TcpStream) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(in_time(io::ErrorKind::WouldBlock.into()));
            }
            limit(&self.stream, Some(left))?;
            match call(&mut self.stream) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map_err(in_time),
            }
        }
    }
}

impl Read for InTime {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.call(TcpStream::set_read_timeout, |stream| stream.read(bytes))
    }
}

impl Write for InTime {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call(TcpStream::set_write_timeout, |stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Refuses a connection to itself, and resets it, so that its port is free at once.
fn to_another(stream: TcpStream) -> io::Result<TcpStream> {
    let (own, peer) = (stream.local_addr()?, stream.peer_addr()?);
    if own != peer {
        return Ok(stream);
    }
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let bytes = size_of_val(&linger) as libc::socklen_t;
    // SAFETY: the descriptor is that of `stream`, which lives to the end of this function. `linger` is a
    // live value of ours of so many bytes; the call reads it and keeps no pointer to it. Refused, the close
    // is an ordinary one.
    unsafe {
        let value = (&raw const linger).cast();
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, bytes)
    };
    Err(io::Error::from_raw_os_error(libc::ECONNREFUSED))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::{FromRawFd, OwnedFd};

    /// Returns a socket that is bound to a free port and connected to it.
    fn to_itself() -> TcpStream {
        // SAFETY: socket(2) takes numbers; the descriptor that it gives belongs to nothing else.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        };
        let mut name = name_of(0);
        // SAFETY: the descriptor is open, and `name` is a live address of as many bytes; the calls read it,
        // or write the port that the kernel has chosen, and keep no pointer to it.
        unsafe {
            let (socket, mut bytes) = (socket.as_raw_fd(), size_of_val(&name) as libc::socklen_t);
            let name: *mut libc::sockaddr = (&raw mut name).cast();
            assert_eq!(libc::bind(socket, name, bytes), 0);
            assert_eq!(libc::getsockname(socket, name, &raw mut bytes), 0);
            assert_eq!(libc::connect(socket, name, bytes), 0, "it connects to itself");
        }
        TcpStream::from(socket)
    }

    #[test]
    fn a_connection_to_itself_is_refused_and_leaves_its_port() {
        let stream = to_itself();
        let port = stream.local_addr().unwrap().port();
        assert_eq!(to_another(stream).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        // Closed in order it would stay in TIME_WAIT. Another socket may have the port by now, but not so.
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        assert!(!table.contains(&format!("0100007F:{port:04X} 0100007F:{port:04X} ")), "{table}");
    }

    #[test]
    fn a_wait_that_is_over_is_said_to_be_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let late = in_time(std::io::Read::read(&mut stream, &mut [0]).unwrap_err());
        assert_eq!((late.kind(), late.to_string().as_str()), (io::ErrorKind::TimedOut, "no answer in time"));
        let other = in_time(io::ErrorKind::ConnectionReset.into());
        assert_eq!(other.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn one_time_is_for_all_that_is_heard() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let mut stream = InTime::new(stream, Instant::now() + Duration::from_millis(300));
        // A byte for each one that is heard: no call ever waits for long.
        let why = loop {
            peer.write_all(b"x").unwrap();
            match stream.read_exact(&mut [0]) {
                Ok(()) => {}
                Err(why) => break why,
            }
        };
        assert_eq!((why.kind(), why.to_string().as_str()), (io::ErrorKind::TimedOut, "no answer in time"));
        assert_eq!(stream.write(b"x").unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn an_address_that_is_silent_leaves_time_for_the_next() {
        let (silent, _queued) = silent();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let patience = Duration::from_secs(6);
        let connected = connect_any([silent.local_addr().unwrap(), address], patience).unwrap();
        assert_eq!(connected.peer_addr().unwrap(), address);
        let none = connect_any([], patience).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    /// Returns a listener that answers no connect: its queue is full of those that were begun.
    fn silent() -> (TcpListener, Vec<OwnedFd>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: listen(2) takes numbers; the descriptor is that of `listener`.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let name = name_of(listener.local_addr().unwrap().port());
        let begun = (0..8).map(|_| {
            // SAFETY: socket(2) takes numbers; the descriptor that it gives belongs to nothing else. `name`
            // is a live address of as many bytes, which connect(2) reads and keeps no pointer to.
            unsafe {
                let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
                let fd = libc::socket(libc::AF_INET, kind, 0);
                assert!(fd >= 0);
                libc::connect(fd, (&raw const name).cast(), size_of_val(&name) as libc::socklen_t);
                OwnedFd::from_raw_fd(fd)
            }
        });
        let begun = begun.collect();
        (listener, begun)
    }

    /// Returns a port of the loopback.
    fn name_of(port: u16) -> libc::sockaddr_in {
        libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: port.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
            sin_zero: [0; 8],
        }
    }

    #[test]
    fn a_connection_to_a_listener_is_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(connect(address, Duration::from_secs(60)).unwrap().peer_addr().unwrap(), address);
    }
}

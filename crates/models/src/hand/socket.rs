//! The system calls on sockets, each a thin wrapper that counts itself.
//!
//! The count is raised at the call and nowhere else, so `syscalls` is what a tracer would see. Policy (what
//! to do about an error) is the caller's. Start at [`listen`].

use super::Counters;
use crate::{Error, Result};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Connections the kernel may hold that are not accepted yet; `net.core.somaxconn` caps it (`listen(2)`).
const BACKLOG: libc::c_int = 4096;

/// Opens a non-blocking listening socket with the options every model wants: see [`crate::bind`].
pub(crate) fn listen(address: SocketAddr, reuse_port: bool) -> Result<OwnedFd> {
    let failed = |call| move |why| Error::new(call, why).on(address);
    let domain = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes numbers only.
    let fd = check(unsafe { libc::socket(domain, kind, 0) }).map_err(failed("socket"))?;
    // SAFETY: socket(2) succeeded: the number is open, new, and known to no other code.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR).map_err(failed("setsockopt SO_REUSEADDR"))?;
    if reuse_port {
        set(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT).map_err(failed("setsockopt SO_REUSEPORT"))?;
    }
    set(&socket, libc::IPPROTO_TCP, libc::TCP_NODELAY).map_err(failed("setsockopt TCP_NODELAY"))?;
    bind(&socket, address).map_err(|why| {
        let error = Error::new("bind", why).on(address);
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                error.hint("another program listens there; choose another port, or 0 for any")
            }
            io::ErrorKind::PermissionDenied => error.hint("ports below 1024 need CAP_NET_BIND_SERVICE"),
            _ => error,
        }
    })?;
    // SAFETY: listen(2) takes numbers only; the descriptor is open because we own it.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) }).map_err(failed("listen"))?;
    Ok(socket)
}

/// Sets an integer option to 1.
fn set(socket: &OwnedFd, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let bytes = mem::size_of_val(&on) as libc::socklen_t;
    // SAFETY: the pointer is to a live int of the length given, only read, and only during the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), bytes) })?;
    Ok(())
}

fn bind(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(v4) => bind_raw(
            socket,
            &libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            },
        ),
        SocketAddr::V6(v6) => bind_raw(
            socket,
            &libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            },
        ),
    }
}

/// `name` is one of the C library's socket address structs: the kernel judges by its family field.
fn bind_raw<T>(socket: &OwnedFd, name: &T) -> io::Result<()> {
    let bytes = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer is to a live value of `bytes` bytes, only read, and only during the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const *name).cast(), bytes) })?;
    Ok(())
}

/// Turns the C convention (-1 and errno) into a result.
pub(super) fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn check_bytes(answer: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Takes one connection. `flags` as in `accept4(2)`; the socket does not inherit the listener's.
#[inline]
pub(super) fn accept(listener: &OwnedFd, flags: libc::c_int, counters: &mut Counters) -> io::Result<OwnedFd> {
    counters.syscalls += 1;
    let (no_name, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: null name and length are allowed and mean that the peer's address is not wanted.
    let fd = check(unsafe {
        libc::accept4(listener.as_raw_fd(), no_name, no_length, flags | libc::SOCK_CLOEXEC)
    })?;
    // SAFETY: accept4 succeeded: the number is open, new, and known to no other code.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Receives into the front of `buffer`; that many bytes of it are then valid. 0: the peer sends no more.
#[inline]
pub(super) fn recv(socket: &OwnedFd, buffer: &mut [u8], counters: &mut Counters) -> io::Result<usize> {
    counters.syscalls += 1;
    // SAFETY: the kernel writes at most `len` bytes at the pointer, which `buffer` borrows exclusively, and
    // only during the call.
    let bytes =
        check_bytes(unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) })?;
    counters.bytes_in += bytes as u64;
    Ok(bytes)
}

/// Sends from the front of `bytes` and tells how many the kernel took, which may be fewer. A peer that is
/// gone is EPIPE, not SIGPIPE.
#[inline]
pub(super) fn send(socket: &OwnedFd, bytes: &[u8], counters: &mut Counters) -> io::Result<usize> {
    counters.syscalls += 1;
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads at most `len` bytes at the pointer, which `bytes` borrows, only during the
    // call.
    let sent =
        check_bytes(unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })?;
    counters.bytes_out += sent as u64;
    Ok(sent)
}

/// Ends one or both directions. Failure means the connection is gone already, which the next read reports.
pub(super) fn shutdown(socket: BorrowedFd<'_>, how: libc::c_int, counters: &mut Counters) {
    counters.syscalls += 1;
    // SAFETY: shutdown(2) takes numbers only; the borrow proves the descriptor open.
    unsafe { libc::shutdown(socket.as_raw_fd(), how) };
}

/// Closes a descriptor. (`OwnedFd` closes on drop; this is the place where that call is counted.)
pub(super) fn close(descriptor: OwnedFd, counters: &mut Counters) {
    counters.syscalls += 1;
    drop(descriptor);
}

/// Waits until a descriptor of `set` is ready or the time is over; fills in `revents`. `None` waits for ever.
/// A signal counts as nothing ready.
pub(super) fn poll(
    set: &mut [libc::pollfd],
    timeout: Option<std::time::Duration>,
    counters: &mut Counters,
) -> io::Result<usize> {
    counters.syscalls += 1;
    let until = timeout.map(timespec);
    let until = until.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let length = set.len() as libc::nfds_t;
    // SAFETY: the kernel reads and writes `length` pollfds at the pointer, which `set` borrows exclusively,
    // and reads the timespec, alive in this frame; all of it only during the call. A null mask changes no
    // signals.
    let ready = unsafe { libc::ppoll(set.as_mut_ptr(), length, until, std::ptr::null()) };
    if ready < 0 {
        // After a failure `revents` hold what they held before: clear them, so that no caller acts on them.
        set.iter_mut().for_each(|entry| entry.revents = 0);
    }
    or_none_if_interrupted(check(ready))
}

/// EINTR is "nothing ready": the caller's loop looks at its clock and waits again.
pub(super) fn or_none_if_interrupted(answer: io::Result<libc::c_int>) -> io::Result<usize> {
    match answer {
        // `check` lets no negative number through.
        Ok(ready) => Ok(ready as usize),
        Err(why) if why.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(why) => Err(why),
    }
}

/// Returns a duration as the kernel takes it. Nanoseconds, so nothing is rounded; a wait longer than time
/// itself is cut.
pub(super) fn timespec(duration: std::time::Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        // Below 1e9, so it fits every width of the field.
        tv_nsec: duration.subsec_nanos() as _,
    }
}

//! What never waits: making, naming, configuring and closing sockets.

use super::check;
use crate::counters::Counters;
use crate::descriptor::Descriptor;
use crate::op::{Answer, Call, Target};
use crate::option::SocketOption;
use socket2::{SockAddr, SockRef};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

/// How a driver wants its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// io_uring waits by itself, and takes O_NONBLOCK as "do not": an accept would answer EAGAIN.
    Yes,
    No,
}

impl Blocking {
    /// The flags of `socket(2)` and `accept4(2)`.
    pub(crate) fn socket_flags(self) -> libc::c_int {
        match self {
            Blocking::Yes => libc::SOCK_CLOEXEC,
            Blocking::No => libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
        }
    }
}

/// Does `call` on the kernel's own descriptors.
pub(crate) fn perform(call: Call<'_>, blocking: Blocking, counters: &mut Counters) -> io::Result<Answer> {
    counters.system_calls += 1;
    match call {
        Call::Socket { for_address } => {
            let domain = if for_address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
            // SAFETY: socket(2) takes numbers only.
            let fd = check(unsafe { libc::socket(domain, libc::SOCK_STREAM | blocking.socket_flags(), 0) })?;
            // SAFETY: socket(2) succeeded: the number is open, new, and known to nobody else.
            Ok(Answer::Descriptor(Descriptor::Os(unsafe { OwnedFd::from_raw_fd(fd) })))
        }
        Call::Adopt { on } => {
            with(on, |socket| socket.set_nonblocking(blocking == Blocking::No))?;
            // fcntl(2) twice: read the flags, set them.
            counters.system_calls += 1;
            Ok(Answer::Done)
        }
        Call::Bind { on, address } => {
            with(on, |socket| socket.bind(&SockAddr::from(*address))).map(|()| Answer::Done)
        }
        Call::Listen { on, backlog } => with(on, |socket| socket.listen(backlog)).map(|()| Answer::Done),
        Call::SetOption { on, option } => with(on, |socket| set(&socket, option)).map(|()| Answer::Done),
        Call::GetOption { on, option } => with(on, |socket| get(&socket, option)).map(Answer::Option),
        Call::LocalName { on } => with(on, |socket| socket.local_addr()).and_then(name),
        Call::PeerName { on } => with(on, |socket| socket.peer_addr()).and_then(name),
        Call::Shutdown { on, how } => with(on, |socket| socket.shutdown(how)).map(|()| Answer::Done),
        Call::Close { descriptor: Descriptor::Os(fd), .. } => {
            // close(2): the descriptor is gone whatever it answers, and on a socket there is nothing to lose.
            // SAFETY: owned until here, and given up by `into_raw_fd`.
            check(unsafe { libc::close(fd.into_raw_fd()) }).map(|_| Answer::Done)
        }
        Call::Close { descriptor: Descriptor::Sim(number), .. } => {
            unreachable!("simulated descriptor {number} on a real kernel")
        }
    }
}

/// Has the close of this socket tell its peer of a reset. If that fails, it will see an end.
#[cold]
pub(crate) fn reset_at_close(socket: &OwnedFd) {
    let _ = SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO));
}

/// Looks at a socket by its number, for one call.
fn with<R>(on: Target, call: impl FnOnce(SockRef<'_>) -> R) -> R {
    assert!(on.number >= 0, "the engine's table gives numbers of open descriptors");
    // SAFETY: a target's number is that of a descriptor the table owns, which closes it only by `Call::Close`,
    // and nothing is closed during the one call this borrow lasts for.
    let fd = unsafe { BorrowedFd::borrow_raw(on.number) };
    call(SockRef::from(&fd))
}

fn name(address: SockAddr) -> io::Result<Answer> {
    let name: Option<SocketAddr> = address.as_socket();
    name.map(Answer::Name).ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
}

fn set(socket: &SockRef<'_>, option: SocketOption) -> io::Result<()> {
    match option {
        SocketOption::NoDelay(on) => socket.set_tcp_nodelay(on),
        SocketOption::ReuseAddress(on) => socket.set_reuse_address(on),
        SocketOption::ReusePort(on) => socket.set_reuse_port(on),
        SocketOption::KeepAlive(on) => socket.set_keepalive(on),
        SocketOption::ReceiveBuffer(bytes) => socket.set_recv_buffer_size(bytes as usize),
        SocketOption::SendBuffer(bytes) => socket.set_send_buffer_size(bytes as usize),
        SocketOption::Linger(span) => socket.set_linger(span),
        SocketOption::OnlyV6(on) => socket.set_only_v6(on),
    }
}

fn get(socket: &SockRef<'_>, option: SocketOption) -> io::Result<SocketOption> {
    let bytes = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    Ok(match option {
        SocketOption::NoDelay(_) => SocketOption::NoDelay(socket.tcp_nodelay()?),
        SocketOption::ReuseAddress(_) => SocketOption::ReuseAddress(socket.reuse_address()?),
        SocketOption::ReusePort(_) => SocketOption::ReusePort(socket.reuse_port()?),
        SocketOption::KeepAlive(_) => SocketOption::KeepAlive(socket.keepalive()?),
        SocketOption::ReceiveBuffer(_) => SocketOption::ReceiveBuffer(bytes(socket.recv_buffer_size()?)),
        SocketOption::SendBuffer(_) => SocketOption::SendBuffer(bytes(socket.send_buffer_size()?)),
        SocketOption::Linger(_) => SocketOption::Linger(socket.linger()?),
        SocketOption::OnlyV6(_) => SocketOption::OnlyV6(socket.only_v6()?),
    })
}

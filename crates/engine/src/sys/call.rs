//! Calls that never wait: create, bind, configure and close sockets.

use super::attempt::{SOCKET_FLAGS, set_nonblocking};
use super::{check, check_result};
use crate::address::named;
use crate::counters::Counters;
use crate::descriptor::Descriptor;
use crate::op::{Answer, Call, Carries, Domain, Target};
use crate::option::{Credentials, Membership, SocketOption};
use socket2::{InterfaceIndexOrAddress, SockRef};
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Performs `call` on descriptors of the kernel.
pub(crate) fn perform(call: Call<'_>, counters: &mut Counters) -> io::Result<Answer> {
    counters.system_calls += 1;
    match call {
        Call::Socket { domain, carries } => {
            let domain = match domain {
                Domain::V4 => libc::AF_INET,
                Domain::V6 => libc::AF_INET6,
                Domain::Unix => libc::AF_UNIX,
            };
            // SAFETY: socket(2) takes numbers only.
            let fd = check(unsafe { libc::socket(domain, kind_of(carries), 0) })?;
            // SAFETY: socket(2) succeeded: the descriptor is new, and no other code has the number.
            Ok(Answer::Descriptor(Descriptor::Os(unsafe { OwnedFd::from_raw_fd(fd) })))
        }
        Call::Pair { carries } => {
            let mut ends = [-1; 2];
            let (kind, into) = (kind_of(carries), ends.as_mut_ptr());
            // SAFETY: socketpair(2) writes two numbers, during the call only.
            check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, into) })?;
            // SAFETY: socketpair(2) succeeded: both descriptors are new, and no other code has the numbers.
            let [one, other] = ends.map(|fd| Descriptor::Os(unsafe { OwnedFd::from_raw_fd(fd) }));
            Ok(Answer::Pair(one, other))
        }
        Call::Adopt { on } => check_result(set_nonblocking(on.number, true)).map(|_| Answer::Done),
        Call::Bind { on, address } => with(on, |socket| socket.bind(address)).map(|()| Answer::Done),
        Call::Join { on, address } => {
            // A blocking Unix stream would wait here for room in the listener's queue.
            with(on, |socket| socket.connect(address)).map(|()| Answer::Done)
        }
        Call::SendTo { on, bytes, address } => {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            with(on, |socket| socket.send_to_with_flags(bytes, address, flags)).map(|_| Answer::Done)
        }
        Call::Peek { on } => {
            let mut byte = [MaybeUninit::uninit()];
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            with(on, |socket| socket.recv_with_flags(&mut byte, flags)).map(|_| Answer::Done)
        }
        Call::RemoveSocketFile { path } => {
            counters.system_calls += 1;
            remove_socket(path).map(|()| Answer::Done)
        }
        Call::Group { on, membership } => {
            with(on, |socket| change(&socket, membership)).map(|()| Answer::Done)
        }
        Call::PeerCredentials { on } => peer_credentials(on).map(Answer::Credentials),
        Call::Listen { on, backlog } => with(on, |socket| socket.listen(backlog)).map(|()| Answer::Done),
        Call::SetOption { on, option } => with(on, |socket| set(&socket, option)).map(|()| Answer::Done),
        Call::GetOption { on, option } => with(on, |socket| get(&socket, option)).map(Answer::Option),
        Call::LocalName { on } => {
            with(on, |socket| socket.local_addr()).and_then(|name| named(&name)).map(Answer::Name)
        }
        Call::PeerName { on } => {
            with(on, |socket| socket.peer_addr()).and_then(|name| named(&name)).map(Answer::Name)
        }
        Call::Shutdown { on, how } => with(on, |socket| socket.shutdown(how)).map(|()| Answer::Done),
        Call::Reset { on } => {
            with(on, |socket| socket.set_linger(Some(std::time::Duration::ZERO))).map(|()| Answer::Done)
        }
        Call::Close { descriptor: Descriptor::Os(fd), .. } => {
            // close(2) closes the descriptor whatever it returns, and a socket has no buffered writes that
            // could fail. SAFETY: owned until here, and released by `into_raw_fd`.
            check(unsafe { libc::close(fd.into_raw_fd()) }).map(|_| Answer::Done)
        }
        Call::Close { descriptor: other, .. } => {
            unreachable!("{other:?} is closed by its driver, and not by number")
        }
    }
}

/// Makes a socket that leaves the engine blocking, like sockets created by std.
pub(crate) fn make_blocking(on: Target) -> Result<(), i32> {
    match set_nonblocking(on.number, false) {
        errno if errno < 0 => Err(-errno),
        _ => Ok(()),
    }
}

/// Makes the close of this socket reset its peer. If that fails, the peer sees an end of the stream.
#[cold]
pub(crate) fn reset_at_close(socket: &OwnedFd) {
    let _ = SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO));
}

/// Borrows a socket by its number, for one call.
fn with<R>(on: Target, call: impl FnOnce(SockRef<'_>) -> R) -> R {
    assert!(on.number >= 0, "the engine's table gives numbers of open descriptors");
    // SAFETY: a target's number is that of a descriptor the table owns, which closes it only by
    // `Call::Close`, and nothing is closed during the one call this borrow lasts for.
    let fd = unsafe { BorrowedFd::borrow_raw(on.number) };
    call(SockRef::from(&fd))
}

fn kind_of(carries: Carries) -> libc::c_int {
    let kind = match carries {
        Carries::Stream => libc::SOCK_STREAM,
        Carries::Datagrams => libc::SOCK_DGRAM,
    };
    kind | SOCKET_FLAGS
}

/// Removes a socket and no other file: a path in a configuration may be wrong.
fn remove_socket(path: &Path) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::from_raw_os_error(libc::ENOTSOCK));
    }
    std::fs::remove_file(path)
}

fn change(socket: &SockRef<'_>, membership: Membership) -> io::Result<()> {
    let Membership { group, interface, joins } = membership;
    let by_index = InterfaceIndexOrAddress::Index(interface);
    match (group, joins) {
        (IpAddr::V4(group), true) => socket.join_multicast_v4_n(&group, &by_index),
        (IpAddr::V4(group), false) => socket.leave_multicast_v4_n(&group, &by_index),
        (IpAddr::V6(group), true) => socket.join_multicast_v6(&group, interface),
        (IpAddr::V6(group), false) => socket.leave_multicast_v6(&group, interface),
    }
}

fn peer_credentials(on: Target) -> io::Result<Credentials> {
    let mut told = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let (into, length) = ((&raw mut told).cast(), &raw mut bytes);
    // SAFETY: both pointers are to live locals of the lengths given, written during the call only.
    check(unsafe { libc::getsockopt(on.number, libc::SOL_SOCKET, libc::SO_PEERCRED, into, length) })?;
    // For a socket without a peer the kernel returns invalid ids (`unix(7)`: 0 and -1).
    if told.uid == u32::MAX {
        return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
    }
    Ok(Credentials { pid: u32::try_from(told.pid).unwrap_or(0), uid: told.uid, gid: told.gid })
}

/// Returns whether it is an IPv6 socket. Some options have a name per IP version.
fn is_v6(socket: &SockRef<'_>) -> io::Result<bool> {
    socket.domain().map(|domain| domain == socket2::Domain::IPV6)
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
        SocketOption::Broadcast(on) => socket.set_broadcast(on),
        SocketOption::HopLimit(hops) if is_v6(socket)? => socket.set_unicast_hops_v6(hops),
        SocketOption::HopLimit(hops) => socket.set_ttl_v4(hops),
        SocketOption::MulticastHopLimit(hops) if is_v6(socket)? => socket.set_multicast_hops_v6(hops),
        SocketOption::MulticastHopLimit(hops) => socket.set_multicast_ttl_v4(hops),
        SocketOption::MulticastLoop(on) if is_v6(socket)? => socket.set_multicast_loop_v6(on),
        SocketOption::MulticastLoop(on) => socket.set_multicast_loop_v4(on),
        SocketOption::MulticastFrom(interface) => socket.set_multicast_if_v4(&interface),
        SocketOption::BindAddressNoPort(on) => set_bind_address_no_port(socket, on),
    }
}

/// Sets IP_BIND_ADDRESS_NO_PORT. For IPv6 too the level is that of IPv4 (`ip(7)`); `ipv6(7)` has no option of
/// its own.
fn set_bind_address_no_port(socket: &SockRef<'_>, on: bool) -> io::Result<()> {
    let value = libc::c_int::from(on);
    let (level, name) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to a live local of the length given, read during the call only.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) })
        .map(|_| ())
}

fn bind_address_no_port(socket: &SockRef<'_>) -> io::Result<bool> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    let (level, name) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
    let (into, bytes) = ((&raw mut value).cast(), &raw mut length);
    // SAFETY: both pointers are to live locals of the lengths given, written during the call only.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, into, bytes) })?;
    Ok(value != 0)
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
        SocketOption::Broadcast(_) => SocketOption::Broadcast(socket.broadcast()?),
        SocketOption::HopLimit(_) if is_v6(socket)? => SocketOption::HopLimit(socket.unicast_hops_v6()?),
        SocketOption::HopLimit(_) => SocketOption::HopLimit(socket.ttl_v4()?),
        SocketOption::MulticastHopLimit(_) if is_v6(socket)? => {
            SocketOption::MulticastHopLimit(socket.multicast_hops_v6()?)
        }
        SocketOption::MulticastHopLimit(_) => SocketOption::MulticastHopLimit(socket.multicast_ttl_v4()?),
        SocketOption::MulticastLoop(_) if is_v6(socket)? => {
            SocketOption::MulticastLoop(socket.multicast_loop_v6()?)
        }
        SocketOption::MulticastLoop(_) => SocketOption::MulticastLoop(socket.multicast_loop_v4()?),
        SocketOption::MulticastFrom(_) => SocketOption::MulticastFrom(socket.multicast_if_v4()?),
        SocketOption::BindAddressNoPort(_) => SocketOption::BindAddressNoPort(bind_address_no_port(socket)?),
    })
}

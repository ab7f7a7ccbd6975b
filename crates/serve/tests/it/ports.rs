//! Addresses at which nothing listens, and ports to listen on. Tests of other packages use this file as well,
//! by its path.

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns an address, and the socket that keeps it from other processes, which does not listen. A listener
/// may be bound there too (SO_REUSEADDR); when that is closed, nothing listens there. The port of a closed
/// listener alone can be given to another process.
pub(crate) fn held() -> (SocketAddr, OwnedFd) {
    let silent = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_reuseaddr(&silent, true).unwrap();
    bind(&silent, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    (SocketAddr::try_from(getsockname(&silent).unwrap()).unwrap(), silent)
}

/// Returns an address at which nothing listens to the end of this process.
pub(crate) fn nowhere() -> SocketAddr {
    let (address, silent) = held();
    // Numbers below 1024 are all that the select driver has.
    std::mem::forget(rustix::io::fcntl_dupfd_cloexec(&silent, 2048).unwrap_or(silent));
    address
}

/// Returns a port that is free, and that the kernel gives to no socket which asks for any: such ports begin
/// at 32768.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let of_process = std::process::id().wrapping_mul(97);
    let candidates = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(11));
    let mut ports = candidates.map(|next| 20_000 + (of_process.wrapping_add(next) % 12_000) as u16);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

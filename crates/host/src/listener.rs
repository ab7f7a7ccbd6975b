//! Finds the process that listens at an address of this machine, so that a server that was started elsewhere
//! can be measured.
//!
//! The kernel lists listening sockets by inode (`/proc/net/tcp`, `tcp6`), and each process's descriptors
//! refer to inodes. Processes of other users hide theirs. Start at [`process_at`].

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Returns the process that listens at `addr`; if several share one socket, the ancestor of the others.
/// `None` if `addr` belongs to another machine, the process is hidden, or several listen independently of
/// each other.
///
/// # References
/// proc_pid_fd(5), proc_pid_net(5).
pub fn process_at(addr: SocketAddr) -> Option<u32> {
    // An address that can be bound belongs to this machine.
    UdpSocket::bind((addr.ip(), 0)).ok()?;
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let inodes = inodes(&tables, addr);
    if inodes.is_empty() {
        return None;
    }
    let holders: BTreeSet<u32> = processes().filter(|pid| holds(*pid, &inodes)).collect();
    let mut roots =
        holders.iter().filter(|pid| parent(**pid).is_none_or(|parent| !holders.contains(&parent)));
    let root = roots.next().copied();
    root.filter(|_| roots.next().is_none())
}

/// Returns the inodes of the sockets that accept connections to `addr`: bound to it, or to every address.
fn inodes(tables: &[String], addr: SocketAddr) -> BTreeSet<String> {
    /// `TCP_LISTEN` in include/net/tcp_states.h, as the tables have it.
    const LISTEN: &str = "0A";
    let mut exact = BTreeSet::new();
    let mut any = BTreeSet::new();
    for line in tables.iter().flat_map(|table| table.lines().skip(1)) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (Some(local), Some(&LISTEN), Some(inode)) = (fields.get(1), fields.get(3), fields.get(9)) else {
            continue;
        };
        let Some((ip, port)) = place(local) else { continue };
        if port != addr.port() {
            continue;
        }
        if same(ip, addr.ip()) {
            exact.insert((*inode).to_owned());
        } else if ip.is_unspecified() {
            any.insert((*inode).to_owned());
        }
    }
    if exact.is_empty() { any } else { exact }
}

/// Parses an address in the form of the tables: `0100007F:1F90`, each word of four bytes in the byte order of
/// this machine.
fn place(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Option<Vec<[u8; 4]>> = (0..ip.len() / 8)
        .map(|nth| Some(u32::from_str_radix(ip.get(nth * 8..nth * 8 + 8)?, 16).ok()?.to_ne_bytes()))
        .collect();
    let words = words?;
    match words.as_slice() {
        [v4] => Some((IpAddr::V4(Ipv4Addr::from(*v4)), port)),
        [_, _, _, _] => {
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some((IpAddr::V6(Ipv6Addr::from(bytes)), port))
        }
        _ => None,
    }
}

/// Returns whether both are the same address: an IPv4 address may be written as an IPv6 one.
fn same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn holds(pid: u32, inodes: &BTreeSet<String>) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|link| {
        let name = link.to_string_lossy();
        let inode = name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(inode))
    })
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The preceding name may contain blanks and parentheses.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// Closes a listener. A connection of it has its port from here on, so that no other process gets it.
    fn closed(listener: TcpListener) -> (TcpStream, TcpStream) {
        let address = (Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0)
    }

    #[test]
    fn the_process_behind_a_listener_is_found_and_none_where_nothing_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        assert_eq!(process_at(addr), Some(std::process::id()));
        let _connection = closed(listener);
        assert_eq!(process_at(addr), None);
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let everywhere = listener.local_addr().unwrap();
        let _other = closed(listener);
        assert_eq!(process_at(everywhere), None, "it was closed");
        // Documentation's own network (RFC 5737): no machine has an address of it.
        assert_eq!(process_at(SocketAddr::from(([192, 0, 2, 1], 80))), None);
    }

    #[test]
    fn a_listener_at_every_address_takes_connections_to_each() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        assert_eq!(process_at(addr), Some(std::process::id()));
    }

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        if cfg!(target_endian = "little") {
            assert_eq!(place("0100007F:1F90"), Some((IpAddr::from([127, 0, 0, 1]), 8080)));
            let v6 = place("00000000000000000000000001000000:0050");
            assert_eq!(v6, Some((IpAddr::from(Ipv6Addr::LOCALHOST), 80)));
        }
        assert_eq!(place("nonsense"), None);
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        assert!(same(mapped, IpAddr::from([127, 0, 0, 1])));
    }
}

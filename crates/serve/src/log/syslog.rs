//! Lines to syslog: to the local daemon's socket as syslog(3) writes them, to another machine as RFC 5424
//! does.
//!
//! No crate: what is needed is a prefix for each line, and those that there are bring a logger and a
//! calendar.

use crate::config::SyslogTo;
use ringroad_gate::date::{Stamp, rfc3339};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::SystemTime;

/// Most bytes of one message: what rsyslog takes by default.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

/// Severity "informational" (RFC 5424 §6.2.1).
const INFORMATIONAL: u8 = 6;

/// A way to a syslog daemon.
pub(super) struct Syslog {
    to: SyslogTo,
    socket: Socket,
    priority: u8,
    host: String,
}

enum Socket {
    Local(UnixDatagram),
    Remote(UdpSocket),
}

impl Syslog {
    pub(super) fn open(to: &SyslogTo, facility: u8) -> io::Result<Syslog> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = if host.is_empty() { "-".to_owned() } else { host };
        Ok(Syslog { socket: connect(to)?, to: to.clone(), priority: facility * 8 + INFORMATIONAL, host })
    }

    /// Sends each line as a message. A daemon that was restarted has another socket: that is tried once.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let message = self.message(line, SystemTime::now());
            if self.send(&message).is_err() {
                self.socket = connect(&self.to)?;
                self.send(&message)?;
            }
        }
        Ok(())
    }

    fn send(&self, message: &[u8]) -> io::Result<usize> {
        match &self.socket {
            Socket::Local(socket) => socket.send(message),
            Socket::Remote(socket) => socket.send(message),
        }
    }

    fn message(&self, line: &[u8], now: SystemTime) -> Vec<u8> {
        let (priority, process) = (self.priority, std::process::id());
        let head = match self.socket {
            Socket::Local(_) => format!("<{priority}>{} ringroad[{process}]: ", Stamp::at(now).bsd()),
            Socket::Remote(_) => {
                format!("<{priority}>1 {} {} ringroad {process} - - ", rfc3339(now), self.host)
            }
        };
        let mut message = head.into_bytes();
        let room = MESSAGE_BYTES_MAX - message.len().min(MESSAGE_BYTES_MAX);
        message.extend_from_slice(line.get(..room).unwrap_or(line));
        message
    }
}

fn connect(to: &SyslogTo) -> io::Result<Socket> {
    Ok(match to {
        SyslogTo::Socket(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            Socket::Local(socket)
        }
        SyslogTo::Address(address) => {
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any)?;
            socket.connect(address)?;
            Socket::Remote(socket)
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_line_is_a_message_and_a_daemon_that_comes_back_gets_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut syslog = Syslog::open(&SyslogTo::Socket(path.clone()), 16).unwrap();
        syslog.write(b"one\ntwo\n").unwrap();
        let mut buffer = [0; 10_000];
        let mut next = |daemon: &UnixDatagram| {
            let bytes = daemon.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..bytes].to_vec()).unwrap()
        };
        let first = next(&daemon);
        assert!(
            first.starts_with("<134>") && first.ends_with(&format!(" ringroad[{}]: one", std::process::id()))
        );
        assert!(next(&daemon).ends_with(": two"));
        drop(daemon);
        std::fs::remove_file(&path).unwrap();
        let daemon = UnixDatagram::bind(&path).unwrap();
        syslog.write(b"three\n").unwrap();
        assert!(next(&daemon).ends_with(": three"));
        syslog.write(&[vec![b'x'; 20_000], b"\n".to_vec()].concat()).unwrap();
        assert_eq!(next(&daemon).len(), MESSAGE_BYTES_MAX);
    }

    #[test]
    fn another_machine_gets_messages_of_the_rfc() {
        let daemon = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut syslog = Syslog::open(&SyslogTo::Address(daemon.local_addr().unwrap()), 3).unwrap();
        syslog.write(b"line\n").unwrap();
        let mut buffer = [0; 1000];
        let bytes = daemon.recv(&mut buffer).unwrap();
        let text = String::from_utf8(buffer[..bytes].to_vec()).unwrap();
        let parts: Vec<_> = text.splitn(8, ' ').collect();
        assert_eq!(
            (parts[0], parts[3], parts[5], parts[6], parts[7]),
            ("<30>1", "ringroad", "-", "-", "line"),
            "{text}"
        );
        assert!(parts[1].ends_with('Z') && parts[1].len() == 24, "{text}");
    }
}

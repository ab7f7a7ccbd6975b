//! Good traffic beside thousands of connections that send a head a byte at a time, or read a large file a
//! little at a time: its rate over its rate alone. `wrk` is the good traffic.
//!
//! The slow ones say they take segments of an Ethernet's size and have little room, as clients far away do:
//! between loopback's own sockets a whole file would be on its way at once, and the server would never
//! notice.

use crate::peers::Server;
use socket2::{Domain, Socket, Type};
use std::fs;
use std::io::{self, Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often each slow connection does something.
const PACE: Duration = Duration::from_secs(5);

/// Steps of a round over all connections.
const STEPS: usize = 100;

/// Requests per second of good traffic.
pub(super) struct Cost {
    pub(super) alone: f64,
    pub(super) with_senders: f64,
    pub(super) with_readers: f64,
    /// When the last slow sender was turned out, counted from when the last had begun.
    pub(super) evicted_after_s: Option<f64>,
}

/// What slow clients are slow at.
#[derive(Clone, Copy, PartialEq)]
enum Slow {
    Sending,
    Reading,
}

impl Slow {
    fn begin(self) -> &'static [u8] {
        match self {
            Slow::Sending => b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ",
            Slow::Reading => b"GET /files/8m.bin HTTP/1.1\r\nHost: a\r\n\r\n",
        }
    }
}

pub(super) fn measure(server: &Server, connections: usize, seconds: u64, evicts: bool) -> io::Result<Cost> {
    wrk(server, 1)?;
    let alone = wrk(server, seconds)?;
    let (with_senders, evicted_after_s) = beside(server, Slow::Sending, connections, seconds, evicts)?;
    let (with_readers, _) = beside(server, Slow::Reading, connections, seconds, false)?;
    Ok(Cost { alone, with_senders, with_readers, evicted_after_s })
}

/// The rate beside so many slow connections; when all were gone, if that is asked.
fn beside(
    server: &Server,
    slow: Slow,
    connections: usize,
    seconds: u64,
    evicts: bool,
) -> io::Result<(f64, Option<f64>)> {
    let mut held = Vec::with_capacity(connections);
    for _ in 0..connections {
        held.push(open(server, slow)?);
    }
    let begun = Instant::now();
    let over = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        let trickling = scope.spawn(|| trickle(&mut held, slow, &over));
        let rate = wrk(server, seconds);
        let left = descriptors(server)?;
        if evicts && rate.is_ok() {
            while descriptors(server)? > left.saturating_sub(connections) + 1 {
                if begun.elapsed() > Duration::from_secs(60) {
                    return Err(io::Error::other("slow senders are still there after a minute"));
                }
                thread::sleep(Duration::from_millis(100));
            }
        }
        let evicted = evicts.then(|| begun.elapsed().as_secs_f64());
        over.store(true, Ordering::Relaxed);
        let gone = trickling.join().unwrap_or_default();
        if gone > 0 && !evicts {
            return Err(io::Error::other(format!(
                "{gone} slow connections were gone while that was measured"
            )));
        }
        Ok((rate?, evicted))
    })?;
    drop(held);
    // So that what follows is not beside their end.
    let until = Instant::now() + Duration::from_secs(10);
    while descriptors(server)? > 256 && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
    }
    Ok(measured)
}

fn open(server: &Server, slow: Slow) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_tcp_mss(1460)?;
    socket.set_recv_buffer_size(4096)?;
    socket.connect(&server.address.into())?;
    (&socket).write_all(slow.begin())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Keeps them slow until it is over; how many were gone by then.
fn trickle(held: &mut [Socket], slow: Slow, over: &AtomicBool) -> usize {
    let mut gone = vec![false; held.len()];
    let step = held.len().div_ceil(STEPS).max(1);
    loop {
        for (held, gone) in held.chunks_mut(step).zip(gone.chunks_mut(step)) {
            if over.load(Ordering::Relaxed) {
                break;
            }
            for (socket, gone) in held.iter_mut().zip(gone).filter(|(_, gone)| !**gone) {
                let mut piece = [0; 1024];
                let done = match slow {
                    Slow::Sending => (&*socket).write(b"a"),
                    Slow::Reading => (&*socket).read(&mut piece),
                };
                *gone = match done {
                    Ok(bytes) => bytes == 0,
                    Err(why) => why.kind() != io::ErrorKind::WouldBlock,
                };
            }
            thread::sleep(PACE / STEPS as u32);
        }
        if over.load(Ordering::Relaxed) {
            return gone.into_iter().filter(|gone| *gone).count();
        }
    }
}

fn descriptors(server: &Server) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", server.pid()))?.count())
}

/// Good traffic for so long: requests per second.
fn wrk(server: &Server, seconds: u64) -> io::Result<f64> {
    let output = Command::new("wrk")
        .args(["-t1", "-c64", &format!("-d{seconds}s"), &format!("http://{}/", server.address)])
        .output()
        .map_err(|why| io::Error::new(why.kind(), format!("wrk: {why}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("Socket errors") || text.contains("Non-2xx") {
        return Err(io::Error::other(format!("good traffic had errors: {text}")));
    }
    let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
    let rate = rate.and_then(|rate| rate.trim().parse().ok());
    rate.ok_or_else(|| io::Error::other(format!("wrk said nothing of its rate: {text}")))
}

//! All connections of one load over one edge-triggered epoll, from connecting to draining.
//!
//! A closed loop: a connection sends as many requests as it got answers. Of many connections some may be
//! idle: they send one request, so that they are known to be served, and are then held open. Or each request
//! has a connection of its own, from connecting to the server's close. What follows what is the course's
//! (`course.rs`).
//!
//! Why edge-triggered with one registration: an answer smaller than the buffer costs exactly one `recv` and
//! one `send`, and no call to `epoll_ctl`. Start at [`Session::run`].

use super::course::{Course, Look, Next, Waiting};
use super::stream::{Check, Got, PIECE_BYTES, Script};
use super::window::Window;
use super::{ClientReport, Options};
use ringroad_measure::Histogram;
use ringroad_measure::record::Errors;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Connections being made at once: far below the backlog of 4096 that servers ask for, and below 128, the old
/// default of `somaxconn`.
const CONNECTING_MAX: usize = 100;
/// Connections from one source address: below the 28,232 ports Linux hands out by default, with room for the
/// sockets of the run before in TIME_WAIT.
const PER_SOURCE_MAX: usize = 20_000;
/// Events taken per wait.
const EVENTS_MAX: usize = 256;

/// The load in progress.
#[derive(Debug)]
pub struct Session<'a> {
    options: &'a Options,
    epoll: OwnedFd,
    script: Script,
    connections: Vec<Connection>,
    /// Send times, `pipeline` entries per connection, used as a ring by each.
    sent_at: Vec<Batch>,
    piece: Vec<u8>,
    latencies: Histogram,
    epoch: Instant,
    /// New requests follow answers.
    sending: bool,
    /// Latencies are kept.
    recording: bool,
    tally: Tally,
}

/// Counts over the whole run.
#[derive(Debug, Default)]
struct Tally {
    connected: u32,
    served: u32,
    live: u32,
    sent: u64,
    completed: u64,
    answers: u64,
    in_flight: u64,
    bytes_sent: u64,
    bytes_received: u64,
    /// Connections that the server ended between requests, and that were made again.
    closed: u64,
    errors: Errors,
    first_error: Option<String>,
}

/// Requests of one connection that were sent at the same moment.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    at_ns: u64,
    count: u32,
}

#[derive(Debug)]
struct Connection {
    /// `None` once it ended; events that were fetched before are then ignored.
    socket: Option<OwnedFd>,
    check: Check,
    send_place: usize,
    /// Bytes of requests counted as sent that the socket has not taken yet.
    unsent_bytes: usize,
    outstanding: u32,
    /// The ring of batches: index of the oldest, and how many there are.
    oldest: u32,
    batches: u32,
    served: bool,
    /// Sends one request and is then held open.
    idle: bool,
    /// A whole answer that ends with the connection: it is there, the server's close is not.
    answered: Option<Got>,
}

/// How a connection ended.
enum End {
    Connect(String),
    Reset(String),
    Protocol(String),
}

impl<'a> Session<'a> {
    /// Prepares everything that needs memory or descriptors, but connects nothing.
    ///
    /// # Errors
    /// No epoll to be had, or options out of range.
    pub fn new(options: &'a Options) -> io::Result<Session<'a>> {
        options.check()?;
        let script = Script::new(options);
        let connections: Vec<Connection> = (0..options.connections as usize)
            .map(|index| {
                let (send_place, check) = script.start(index);
                Connection {
                    socket: None,
                    check,
                    send_place,
                    unsent_bytes: 0,
                    outstanding: 0,
                    oldest: 0,
                    batches: 0,
                    served: false,
                    idle: !is_active(index, options),
                    answered: None,
                }
            })
            .collect();
        Ok(Session {
            options,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            script,
            sent_at: vec![Batch::default(); connections.len() * options.pipeline as usize],
            connections,
            piece: vec![0; PIECE_BYTES],
            latencies: Histogram::new(),
            epoch: Instant::now(),
            sending: true,
            recording: false,
            tally: Tally::default(),
        })
    }

    /// Returns the whole load: connect, warm up, measure, count, drain, report.
    ///
    /// # Errors
    /// Only epoll itself failing.
    pub fn run(mut self) -> io::Result<ClientReport> {
        let mut course = Course::new(self.options);
        let _ = course.next(&self.look(Waiting(&Vec::new)));
        self.connect_all()?;
        for index in 0..self.connections.len() {
            let requests = if self.connections[index].idle { 1 } else { self.options.pipeline };
            self.request(index, requests, self.now_ns());
        }
        self.follow(&mut course)?;
        Ok(self.report(course.into_window()))
    }

    /// Does what comes next until it is over.
    fn follow(&mut self, course: &mut Course) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let next = course.next(&self.look(Waiting(&|| self.waiting())));
            let time = match next {
                Next::Go(time) => time,
                Next::Measure(time) => {
                    self.latencies.clear();
                    self.recording = true;
                    time
                }
                Next::Drain(time) => {
                    self.sending = false;
                    self.recording = false;
                    time
                }
                Next::Leave => return Ok(()),
            };
            let is_drain = matches!(next, Next::Drain(_));
            let until = Instant::now() + time;
            loop {
                let now = Instant::now();
                if now >= until || self.tally.live == 0 || is_drain && self.tally.in_flight == 0 {
                    break;
                }
                self.turn(&mut events, until - now)?;
            }
            if is_drain && self.tally.in_flight > 0 {
                let missing = self.tally.in_flight;
                self.tally.errors.timeout += missing;
                let what =
                    if self.options.reconnect { "answers, or the close after them," } else { "answers" };
                self.note(format!("{missing} {what} did not come in {} s", self.options.timeout_s));
            }
        }
    }

    fn look<'b>(&'b self, waiting: Waiting<'b>) -> Look<'b> {
        let Tally { live, served, answers, completed, .. } = self.tally;
        Look { live, served, answers, completed, latencies: &self.latencies, waiting }
    }

    /// Returns how long the oldest request of each connection has waited.
    fn waiting(&self) -> Vec<u64> {
        let now_ns = self.now_ns();
        let depth = self.options.pipeline as usize;
        let waits = self.connections.iter().enumerate().filter_map(|(index, connection)| {
            let oldest = self.sent_at.get(index * depth + connection.oldest as usize)?;
            (connection.batches > 0).then(|| now_ns.saturating_sub(oldest.at_ns))
        });
        waits.collect()
    }

    /// One wait, at most `timeout` long, and everything it reported.
    fn turn(&mut self, events: &mut Vec<epoll::Event>, timeout: Duration) -> io::Result<()> {
        self.wait(events, timeout)?;
        for event in events.iter() {
            let index = event.data.u64() as usize;
            if let Err(end) = self.progress(index, event.flags) {
                self.end(index, end);
            }
        }
        Ok(())
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Duration) -> io::Result<()> {
        events.clear();
        // Rounded up to whole milliseconds, which is what the call underneath takes on older kernels: a rest
        // of 0.4 ms must not become a spin.
        let timeout = Duration::from_millis(timeout.as_micros().div_ceil(1000) as u64);
        let timeout = rustix::event::Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) => Ok(()),
            Err(Errno::INTR) => {
                events.clear();
                Ok(())
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads what came to one connection, and answers it with new requests.
    fn progress(&mut self, index: usize, flags: epoll::EventFlags) -> Result<(), End> {
        use epoll::EventFlags as F;
        if flags.intersects(F::IN | F::RDHUP | F::HUP | F::ERR) {
            loop {
                let Some(socket) = &self.connections[index].socket else { return Ok(()) };
                let bytes = match net::recv(socket, self.piece.as_mut_slice(), RecvFlags::empty()) {
                    Ok((0, _)) => return self.closed(index),
                    Ok((bytes, _)) => bytes,
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => continue,
                    Err(errno) => return Err(self.broken("recv", errno)),
                };
                self.answered(index, bytes)?;
                // A short read emptied the socket: the next byte raises a new edge. Unless the end is
                // announced already: then this was its edge.
                if bytes < PIECE_BYTES && !flags.intersects(F::RDHUP | F::HUP | F::ERR) {
                    break;
                }
            }
        }
        if flags.contains(F::OUT) && self.connections[index].unsent_bytes > 0 {
            self.flush(index)?;
        }
        Ok(())
    }

    /// Takes the end of connection `index`, which the server has closed. With nothing owed it may, and a
    /// connection that is to go on sending is made again.
    fn closed(&mut self, index: usize) -> Result<(), End> {
        let connection = &mut self.connections[index];
        if connection.answered.is_none() {
            // An answer without a length ends with its connection.
            connection.answered = self.script.ended(&mut connection.check).map_err(End::Protocol)?;
        }
        match connection.answered.take() {
            Some(got) if got.right + got.refused == connection.outstanding => {
                self.connect_anew(index, Some(got));
                Ok(())
            }
            _ if connection.outstanding > 0 => {
                Err(End::Reset("the server closed a connection with a request unanswered".to_owned()))
            }
            _ if self.sending && !connection.idle => {
                self.connect_anew(index, None);
                Ok(())
            }
            _ => Err(End::Reset("the server closed a connection between requests".to_owned())),
        }
    }

    /// Takes the first `bytes` of the piece as answers to connection `index`.
    fn answered(&mut self, index: usize, bytes: usize) -> Result<(), End> {
        self.tally.bytes_received += bytes as u64;
        let connection = &mut self.connections[index];
        let got = self.script.check(&mut connection.check, &self.piece[..bytes]).map_err(End::Protocol)?;
        let count = got.right + got.refused;
        if count == 0 {
            return Ok(());
        }
        if count > connection.outstanding || connection.answered.is_some() {
            return Err(End::Protocol("an answer without a request".to_owned()));
        }
        if self.options.reconnect {
            connection.answered = Some(got);
            return Ok(());
        }
        // The one clock read of this batch: arrival of the answers and departure of the next requests.
        let now_ns = self.now_ns();
        self.count(index, got, now_ns);
        if got.closes {
            // No request may follow an announced close. (RFC 9112 section 9.6)
            return self.closed(index);
        }
        if self.sending && !self.connections[index].idle {
            self.send_more(index, count, now_ns)?;
        }
        Ok(())
    }

    /// Counts what came to connection `index` and takes the time it took.
    fn count(&mut self, index: usize, got: Got, now_ns: u64) {
        let count = got.right + got.refused;
        self.tally.completed += u64::from(got.right);
        self.tally.answers += u64::from(count);
        self.tally.in_flight -= u64::from(count);
        let connection = &mut self.connections[index];
        connection.outstanding -= count;
        if !connection.served {
            connection.served = true;
            self.tally.served += 1;
        }
        self.record_latencies(index, count, now_ns);
        if got.refused > 0 {
            self.tally.errors.status += u64::from(got.refused);
            self.note("an answer had a status other than 2xx".to_owned());
        }
    }

    /// The server has closed: what it has `got` with that is over here, and the next request begins with its
    /// connecting. The server closed first, so the port in TIME_WAIT is its own and the client's is free at
    /// once.
    fn connect_anew(&mut self, index: usize, got: Option<Got>) {
        let now_ns = self.now_ns();
        if let Some(got) = got {
            self.count(index, got, now_ns);
        }
        if !self.options.reconnect && self.sending {
            self.tally.closed += 1;
        }
        let connection = &mut self.connections[index];
        // Closed by this, and with it gone from the epoll.
        connection.socket = None;
        connection.check = Check::default();
        connection.send_place = 0;
        connection.unsent_bytes = 0;
        if !self.sending {
            self.tally.live -= 1;
            return;
        }
        match self.connect(index) {
            Ok(socket) => {
                self.connections[index].socket = Some(socket);
                self.request(index, self.options.pipeline, now_ns);
            }
            Err(errno) => {
                self.tally.live -= 1;
                self.tally.errors.connect += 1;
                self.note(format!("connect to {}: {}", self.options.addr, io::Error::from(errno)));
            }
        }
    }

    /// Returns what the kernel reports about a connection, as its end. Where connections are made again it
    /// may be about making it.
    fn broken(&self, call: &str, errno: Errno) -> End {
        let how = format!("{call}: {}", io::Error::from(errno));
        match errno {
            Errno::CONNREFUSED | Errno::TIMEDOUT | Errno::NETUNREACH => {
                End::Connect(format!("connect to {}: {}", self.options.addr, io::Error::from(errno)))
            }
            _ => End::Reset(how),
        }
    }

    /// Takes `count` send times off the connection's ring and keeps their latencies.
    fn record_latencies(&mut self, index: usize, mut count: u32, now_ns: u64) {
        let depth = self.options.pipeline;
        let ring = index * depth as usize;
        let connection = &mut self.connections[index];
        while count > 0 && connection.batches > 0 {
            let batch = &mut self.sent_at[ring + connection.oldest as usize];
            let taken = count.min(batch.count);
            if self.recording {
                self.latencies.record_n(now_ns.saturating_sub(batch.at_ns), u64::from(taken));
            }
            batch.count -= taken;
            count -= taken;
            if batch.count == 0 {
                connection.oldest += 1;
                if connection.oldest == depth {
                    connection.oldest = 0;
                }
                connection.batches -= 1;
            }
        }
    }

    /// Sends `count` requests and counts an ended connection.
    fn request(&mut self, index: usize, count: u32, now_ns: u64) {
        if self.connections[index].socket.is_some()
            && let Err(end) = self.send_more(index, count, now_ns)
        {
            self.end(index, end);
        }
    }

    fn send_more(&mut self, index: usize, count: u32, now_ns: u64) -> Result<(), End> {
        let depth = self.options.pipeline;
        let connection = &mut self.connections[index];
        // Never more batches than requests in flight, never more of those than the ring is deep.
        let mut newest = connection.oldest + connection.batches;
        if newest >= depth {
            newest -= depth;
        }
        self.sent_at[index * depth as usize + newest as usize] = Batch { at_ns: now_ns, count };
        connection.batches += 1;
        connection.outstanding += count;
        connection.unsent_bytes += count as usize * self.script.request_bytes;
        self.tally.sent += u64::from(count);
        self.tally.in_flight += u64::from(count);
        self.flush(index)
    }

    /// Sends what the socket takes; the rest goes at the next edge.
    fn flush(&mut self, index: usize) -> Result<(), End> {
        let connection = &mut self.connections[index];
        let Some(socket) = &connection.socket else { return Ok(()) };
        while connection.unsent_bytes > 0 {
            let piece = self.script.outgoing(connection.send_place, connection.unsent_bytes);
            match net::send(socket, piece, SendFlags::NOSIGNAL) {
                Ok(bytes) => {
                    connection.unsent_bytes -= bytes;
                    connection.send_place = self.script.advance(connection.send_place, bytes);
                    self.tally.bytes_sent += bytes as u64;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.broken("send", errno)),
            }
        }
        Ok(())
    }

    /// Connects in small groups, so that no backlog overflows, within `timeout_s` for all.
    fn connect_all(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs_f64(self.options.timeout_s);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut waiting = vec![false; self.connections.len()];
        let mut next = 0;
        let mut pending = 0;
        while next < self.connections.len() || pending > 0 {
            while next < self.connections.len() && pending < CONNECTING_MAX {
                match self.connect(next) {
                    Ok(socket) => {
                        self.connections[next].socket = Some(socket);
                        waiting[next] = true;
                        pending += 1;
                    }
                    Err(error) => {
                        self.tally.errors.connect += 1;
                        self.note(format!("connect to {}: {error}", self.options.addr));
                    }
                }
                next += 1;
            }
            let now = Instant::now();
            if now >= deadline {
                break;
            }
            if pending == 0 {
                continue;
            }
            self.wait(&mut events, deadline - now)?;
            for event in &events {
                let index = event.data.u64() as usize;
                if !std::mem::take(&mut waiting[index]) {
                    // Connected before, and now ended by the server: seen again at the first send or receive.
                    continue;
                }
                pending -= 1;
                let result = match &self.connections[index].socket {
                    Some(socket) => net::sockopt::socket_error(socket)
                        .and_then(|result| result.and_then(|()| to_another(socket))),
                    None => continue,
                };
                match result {
                    Ok(()) => {
                        self.tally.connected += 1;
                        self.tally.live += 1;
                    }
                    Err(errno) => {
                        self.connections[index].socket = None;
                        self.tally.errors.connect += 1;
                        self.note(format!("connect to {}: {}", self.options.addr, io::Error::from(errno)));
                    }
                }
            }
        }
        let mut late = self.connections.len() - next;
        for (index, _) in waiting.iter().enumerate().filter(|(_, waiting)| **waiting) {
            self.connections[index].socket = None;
            late += 1;
        }
        if late > 0 {
            self.tally.errors.connect += late as u64;
            self.note(format!("{late} connections were not made within {} s", self.options.timeout_s));
        }
        Ok(())
    }

    /// Starts one connection and registers it, once and for all it will ever wait for.
    fn connect(&self, index: usize) -> rustix::io::Result<OwnedFd> {
        let addr = self.options.addr;
        let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        net::sockopt::set_tcp_nodelay(&socket, true)?;
        if let Some(source) = source_address(addr, index, self.connections.len()) {
            net::bind(&socket, &source)?;
        }
        use epoll::EventFlags as F;
        let flags = F::IN | F::OUT | F::RDHUP | F::ET;
        match net::connect(&socket, &addr) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(index as u64), flags)?;
        Ok(socket)
    }

    /// Counts the end of a connection, once, and closes it.
    fn end(&mut self, index: usize, end: End) {
        let connection = &mut self.connections[index];
        if connection.socket.take().is_none() {
            return;
        }
        self.tally.live -= 1;
        let outstanding = std::mem::take(&mut connection.outstanding);
        connection.answered = None;
        connection.batches = 0;
        connection.unsent_bytes = 0;
        self.tally.in_flight -= u64::from(outstanding);
        let how = match end {
            // In the drain a server may close a connection to which it owes nothing.
            End::Connect(how) => {
                self.tally.errors.connect += 1;
                how
            }
            End::Reset(_) if outstanding == 0 && !self.sending => return,
            End::Reset(how) => {
                self.tally.errors.reset += 1;
                how
            }
            End::Protocol(how) => {
                self.tally.errors.protocol += 1;
                how
            }
        };
        self.note(how);
    }

    fn note(&mut self, how: String) {
        self.tally.first_error.get_or_insert(how);
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn report(self, window: Option<Window>) -> ClientReport {
        ClientReport {
            client: "small, epoll".to_owned(),
            connected: self.tally.connected,
            served: self.tally.served,
            sent: self.tally.sent,
            completed: self.tally.completed,
            answers: self.tally.answers,
            bytes_sent: self.tally.bytes_sent,
            bytes_received: self.tally.bytes_received,
            closed: self.tally.closed,
            errors: self.tally.errors,
            first_error: self.tally.first_error,
            payload_bytes: self.script.payload_bytes().filter(|_| self.tally.answers > 0),
            window,
        }
    }
}

/// Refuses a connection to itself, which the kernel makes where nothing listens at the port that it chose.
fn to_another(socket: &OwnedFd) -> rustix::io::Result<()> {
    if net::getpeername(socket)? != Some(net::getsockname(socket)?) {
        return Ok(());
    }
    net::sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
    Err(Errno::CONNREFUSED)
}

/// Returns whether connection `index` goes on sending: as many as asked for, spread evenly among all.
fn is_active(index: usize, options: &Options) -> bool {
    let (index, active, all) = (index as u64, u64::from(options.active), u64::from(options.connections));
    index * active / all != (index + 1) * active / all
}

/// Beyond one address's ports, connections to 127.0.0.1 come from further addresses of 127.0.0.0/8, which all
/// belong to the loopback without being configured.
fn source_address(server: SocketAddr, index: usize, connections: usize) -> Option<SocketAddr> {
    let IpAddr::V4(ip) = server.ip() else { return None };
    if connections <= PER_SOURCE_MAX || !ip.is_loopback() {
        return None;
    }
    let nth = u8::try_from(1 + index / PER_SOURCE_MAX).ok()?;
    Some(SocketAddr::from((Ipv4Addr::new(127, 0, 0, nth), 0)))
}

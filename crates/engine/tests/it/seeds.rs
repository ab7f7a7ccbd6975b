//! Random programs on the simulated kernel, thousands of them: a seed decides what the program does and what
//! the kernel does to it.
//!
//! A program is a server and some clients, of TCP or of Unix sockets. Each connection carries, each way, a
//! stream of bytes of which every one is known by its place, so a byte lost, doubled or out of order is seen
//! wherever it happens. Futures of every kind are dropped midway; receives, sends and accepts are cancelled;
//! some ends vanish or reset. Beside them some send each other datagrams ([`datagrams`]). What must hold:
//!
//! - what arrives is what was sent from the beginning on, and all of it unless an end broke the connection;
//! - the program comes to its end (the simulation knows when nothing can happen any more);
//! - no completion is stale, and at the end every descriptor, operation and buffer is back.
//!
//! The calm programs, in which no end breaks anything, also run on the real drivers, and must produce the
//! same transcript there.
//!
//! `RINGROAD_SIM_SEED=N` replays one seed and tells its last events; `RINGROAD_SEEDS=N` or `A..B` says which
//! to run.

mod datagrams;

use crate::support::{Case, abstract_name, run as run_on};
use datagrams::Post;
use fastrand::Rng;
use futures_util::future::{Either, select};
use ringroad_engine::net::{
    Canceller, Family, Inet, Listener, ReadHalf, SocketOption, Stream, TcpListener, TcpStream, Unix,
    UnixAddr, UnixListener, UnixStream, WriteHalf,
};
use ringroad_engine::sim::{Faults, Ledger, SimConfig};
use ringroad_engine::time::{sleep, timeout};
use ringroad_engine::{Counters, DriverName, Error, Runtime, spawn, yield_now};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::Duration;

/// Seeds run unless told otherwise.
const SEEDS: u64 = 6_000;

/// One seed in so many runs twice.
const TWICE: u64 = 40;

// ---- what a seed makes ------------------------------------------------------------------------------------

/// How a connection goes; both its ends know.
#[derive(Clone, Copy, Debug)]
struct Character {
    id: u8,
    /// The server sends back what it gets; otherwise both ends send and receive what they like.
    echo: bool,
    /// Ends may vanish, reset, or be cancelled with their task.
    harsh: bool,
    /// No send is given up.
    calm: bool,
    /// Most bytes each way.
    bytes_max: usize,
    /// What each side means to send, unless it echoes.
    totals: [usize; 2],
}

impl Character {
    fn of(seed: u64, id: u8, bytes_max: usize, calm: bool) -> Character {
        let mut rng = rng(seed, u64::from(id), 7);
        let totals = [1 + rng.usize(..bytes_max), 1 + rng.usize(..bytes_max)];
        Character { id, echo: rng.u8(..3) == 0, harsh: !calm && rng.u8(..3) == 0, calm, bytes_max, totals }
    }

    /// The bytes of `range` of what this side sends. The client's first byte says which connection it is.
    fn content(&self, side: usize, range: Range<usize>) -> Vec<u8> {
        let side = if self.echo { 0 } else { side };
        let mask = self.id.wrapping_mul(31) ^ (side as u8 * 0x55);
        let mut content = stream(mask, range.clone());
        if let (0, 0, Some(first)) = (side, range.start, content.first_mut()) {
            *first = self.id;
        }
        content
    }
}

/// Returns the bytes of `range` of the stream with this mask: noise, each byte with all its bits changed that
/// the mask has. Most programs have the same few streams, so each is computed once.
fn stream(mask: u8, range: Range<usize>) -> Vec<u8> {
    thread_local! {
        static STREAMS: RefCell<HashMap<u8, Vec<u8>>> = RefCell::default();
    }
    STREAMS.with_borrow_mut(|streams| {
        let known = streams.entry(mask).or_default();
        let noise = |at: usize| (at.wrapping_mul(0x9e37_79b1) >> 11) as u8;
        known.extend((known.len()..range.end).map(|at| noise(at) ^ mask));
        known[range].to_vec()
    })
}

fn rng(seed: u64, id: u64, part: u64) -> Rng {
    Rng::with_seed(seed.wrapping_mul(0x1_0000).wrapping_add(id * 16 + part))
}

/// Draws what a part of a program does.
#[derive(Clone)]
struct Dice {
    rng: Rng,
    /// Moments are so many times shorter: where time is real.
    pace: u32,
}

impl Dice {
    fn moment(&mut self) -> Duration {
        let span = match self.u8(..4) {
            0 => Duration::ZERO,
            1 => Duration::from_micros(self.u64(..100)),
            2 => Duration::from_millis(self.u64(..5)),
            _ => Duration::from_millis(self.u64(..2000)),
        };
        span / self.pace
    }

    /// Once in `times`, a moment.
    fn sometimes(&mut self, times: u8) -> Option<Duration> {
        (self.u8(..times) == 0).then(|| self.moment())
    }
}

impl Deref for Dice {
    type Target = Rng;
    fn deref(&self) -> &Rng {
        &self.rng
    }
}

impl DerefMut for Dice {
    fn deref_mut(&mut self) -> &mut Rng {
        &mut self.rng
    }
}

/// What is known of one way of a connection when its ends are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Way {
    /// All that its sender meant to send, if it got that far.
    sent: Option<usize>,
    /// What its receiver got, and whether that ended as it should.
    got: usize,
    ended: bool,
    error: Option<i32>,
}

/// What happened, by connection, and in all.
#[derive(Debug, Default)]
struct World {
    /// The client's bytes, then the server's.
    ways: Vec<[Way; 2]>,
    tally: Tally,
}

/// Counts that show that the programs do what they are for.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    bytes: u64,
    refused: u64,
    dropped_connects: u64,
    dropped_accepts: u64,
    dropped_receives: u64,
    dropped_sends: u64,
    broken: u64,
    cancelled: u64,
    resets: u64,
    whole: u64,
    orphaned: u64,
    ring_empty: u64,
    out_of_credit: u64,
    accept_parked: u64,
    letters: u64,
    letters_cut: u64,
    letters_lost: u64,
    letters_doubled: u64,
    letters_overtaken: u64,
    dropped_letters: u64,
    cancelled_letters: u64,
    unreachable: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        let pairs = [
            (&mut self.bytes, other.bytes),
            (&mut self.refused, other.refused),
            (&mut self.dropped_connects, other.dropped_connects),
            (&mut self.dropped_accepts, other.dropped_accepts),
            (&mut self.dropped_receives, other.dropped_receives),
            (&mut self.dropped_sends, other.dropped_sends),
            (&mut self.broken, other.broken),
            (&mut self.cancelled, other.cancelled),
            (&mut self.resets, other.resets),
            (&mut self.whole, other.whole),
            (&mut self.orphaned, other.orphaned),
            (&mut self.ring_empty, other.ring_empty),
            (&mut self.out_of_credit, other.out_of_credit),
            (&mut self.accept_parked, other.accept_parked),
            (&mut self.letters, other.letters),
            (&mut self.letters_cut, other.letters_cut),
            (&mut self.letters_lost, other.letters_lost),
            (&mut self.letters_doubled, other.letters_doubled),
            (&mut self.letters_overtaken, other.letters_overtaken),
            (&mut self.dropped_letters, other.dropped_letters),
            (&mut self.cancelled_letters, other.cancelled_letters),
            (&mut self.unreachable, other.unreachable),
        ];
        pairs.into_iter().for_each(|(sum, count)| *sum += count);
    }

    fn take(&mut self, counters: &Counters) {
        self.orphaned += counters.orphaned;
        self.ring_empty += counters.ring_empty;
        self.out_of_credit += counters.out_of_credit;
        self.accept_parked += counters.accept_parked;
    }

    /// What never happened.
    fn lacking(&self) -> Vec<String> {
        let text = format!("{self:?}");
        text.split([' ', ',', '{', '}']).collect::<Vec<_>>().windows(2).fold(Vec::new(), |mut none, pair| {
            if pair[1] == "0" {
                none.push(pair[0].to_owned());
            }
            none
        })
    }
}

type Shared = Rc<RefCell<World>>;

// ---- the ends of a connection -----------------------------------------------------------------------------

/// One end of a connection.
#[derive(Clone)]
struct End {
    world: Shared,
    character: Character,
    /// 0: the client.
    side: usize,
    dice: Dice,
}

impl End {
    fn way<R>(&self, side: usize, change: impl FnOnce(&mut Way) -> R) -> R {
        change(&mut self.world.borrow_mut().ways[usize::from(self.character.id)][side])
    }

    fn tally(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.world.borrow_mut().tally);
    }

    /// Bytes that came: they must be the next of the other side's.
    fn got(&mut self, bytes: &[u8]) {
        let other = 1 - self.side;
        let at = self.way(other, |way| {
            way.got += bytes.len();
            way.got - bytes.len()
        });
        self.tally(|tally| tally.bytes += bytes.len() as u64);
        let expected = self.character.content(other, at..at + bytes.len());
        let End { character, side, .. } = self;
        assert!(
            bytes == expected,
            "{character:?}, side {side}: at {at} came {bytes:x?} and not {expected:x?}"
        );
    }

    fn failed(&self, error: &Error) {
        let errno = error.raw_os_error().unwrap_or(0);
        let broken = [libc::ECONNRESET, libc::EPIPE].contains(&errno);
        assert!(broken, "{error}");
        self.tally(|tally| tally.resets += 1);
        self.way(1 - self.side, |way| way.error = Some(errno));
    }

    /// Receives until the end, `most` bytes, or an error.
    async fn receive<F: Family>(mut self, mut from: ReadHalf<F>, most: usize) -> ReadHalf<F> {
        let mut hoard = Vec::new();
        while self.way(1 - self.side, |way| way.got) < most {
            if self.dice.u8(..8) == 0 {
                sleep(self.dice.moment()).await;
            }
            let patience = self.dice.sometimes(4);
            let received = if self.dice.u8(..3) == 0 {
                // Behind bytes that are there already.
                let before = vec![0xee; self.dice.usize(..3)];
                let mut memory = Vec::with_capacity(before.len() + self.dice.usize(1..700));
                memory.extend_from_slice(&before);
                let received = match patience {
                    Some(span) => timeout(span, from.recv_into(memory)).await,
                    None => Ok(from.recv_into(memory).await),
                };
                received.map(|(received, memory)| {
                    received.map(|count| {
                        assert_eq!(memory.len(), before.len() + count);
                        assert_eq!(memory[..before.len()], before);
                        self.got(&memory[before.len()..]);
                        count == 0
                    })
                })
            } else {
                let received = match patience {
                    Some(span) => timeout(span, from.recv()).await,
                    None => Ok(from.recv().await),
                };
                received.map(|received| {
                    received.map(|lease| {
                        self.got(&lease);
                        let over = lease.is_empty();
                        // Some are kept over the next awaits: that may cost memory, but must not block any
                        // end.
                        if self.dice.u8(..4) == 0 {
                            let copy = lease.to_vec();
                            hoard.push((lease, copy));
                        }
                        over
                    })
                })
            };
            if hoard.len() > 5 {
                hoard.drain(..).for_each(|(lease, copy)| assert_eq!(*lease, copy, "a lease changed"));
            }
            match received {
                Err(_) => self.tally(|tally| tally.dropped_receives += 1),
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => {
                    self.way(1 - self.side, |way| way.ended = true);
                    break;
                }
                Ok(Err(error)) if error.is_cancelled() => self.tally(|tally| tally.cancelled += 1),
                Ok(Err(error)) => {
                    self.failed(&error);
                    break;
                }
            }
        }
        from
    }

    /// Sends `total` bytes, in messages of any size and by every means, and then its end.
    async fn send<F: Family>(mut self, mut to: WriteHalf<F>, total: usize) -> WriteHalf<F> {
        let mut at = 0;
        while at < total {
            if self.dice.u8(..8) == 0 {
                sleep(self.dice.moment()).await;
            }
            let most = if self.dice.u8(..3) == 0 { total } else { 50 };
            let end = total.min(at + 1 + self.dice.usize(..most));
            let bytes = self.character.content(self.side, at..end);
            // Sends are rarely given up, since that mostly breaks the connection. The first is never given
            // up: it names the end.
            let gives_up = !self.character.calm && (at > 0 || self.side == 1);
            let patience = if gives_up { self.dice.sometimes(24) } else { None };
            let canceller = (gives_up && self.dice.u8(..24) == 0).then(|| to.canceller());
            if let Some(canceller) = canceller {
                cancel_later(canceller, self.dice.moment());
            }
            let sent = match self.dice.u8(..3) {
                0 => perhaps(patience, async { to.write_all(bytes).await.0 }).await,
                1 => perhaps(patience, async { to.write_all(Rc::<[u8]>::from(bytes)).await.0 }).await,
                _ => {
                    let pieces: Vec<_> =
                        bytes.chunks(1 + self.dice.usize(..200)).map(<[u8]>::to_vec).collect();
                    perhaps(patience, async {
                        let (sent, back) = to.write_vectored_all(pieces).await;
                        assert_eq!(back.concat(), bytes, "the buffers come back");
                        sent
                    })
                    .await
                }
            };
            match sent {
                Some(Ok(())) => at = end,
                // Given up. If a byte of it was sent, the next send says so; if not, it is sent again.
                None => self.tally(|tally| tally.dropped_sends += 1),
                Some(Err(error)) if error.is_cancelled() => {
                    self.tally(|tally| tally.cancelled += 1);
                    break;
                }
                Some(Err(error)) => {
                    let by_peer = self.character.harsh;
                    let by_us = error.to_string().contains("an earlier send was dropped midway");
                    assert!(by_peer || by_us, "{error}");
                    self.tally(|tally| tally.broken += u64::from(by_us));
                    break;
                }
            }
        }
        if at == total {
            self.way(self.side, |way| way.sent = Some(total));
        }
        if let Err(error) = to.shutdown() {
            assert!(self.character.harsh, "{error}");
        }
        to
    }

    /// Sends and receives at the same time.
    async fn talk<F: Family>(mut self, stream: Stream<F>) {
        let total = self.character.totals[self.side];
        let most =
            if self.character.harsh { self.dice.usize(..self.character.bytes_max * 2) } else { usize::MAX };
        let (from, to) = stream.split();
        let dice = Dice { rng: self.dice.fork(), pace: self.dice.pace };
        let receiving = End { dice, ..self.clone() };
        let (end, receiving, sending) = (self.clone(), receiving.receive(from, most), self.send(to, total));
        match select(pin!(receiving), pin!(sending)).await {
            Either::Left((_from, sending)) => {
                let over = end.way(1 - end.side, |way| way.ended || way.error.is_some());
                // An end that has received enough leaves: if it stayed and only sent, both could wait for
                // ever.
                if over {
                    sending.await;
                }
            }
            Either::Right((_to, receiving)) => drop(receiving.await),
        }
    }

    /// Sends back what comes, from the buffers it came in.
    async fn echo<F: Family>(mut self, mut stream: Stream<F>, first: Vec<u8>) {
        let mut done = first.len();
        let mut sent = stream.write_all(first).await.0;
        while sent.is_ok() {
            match stream.recv().await {
                Ok(lease) if lease.is_empty() => {
                    self.way(0, |way| way.ended = true);
                    break;
                }
                Ok(lease) => {
                    self.got(&lease);
                    done += lease.len();
                    let copy = lease.to_vec();
                    let (result, back) = stream.write_all(lease).await;
                    assert!(
                        back.is_empty() || copy.ends_with(&back),
                        "what comes back is the end of what went"
                    );
                    sent = result;
                }
                Err(error) => {
                    self.failed(&error);
                    return;
                }
            }
        }
        match sent {
            Ok(()) => self.way(1, |way| way.sent = Some(done)),
            Err(error) => assert!(self.character.harsh, "{error}"),
        }
    }

    async fn run<F: Family>(mut self, stream: Stream<F>, first: Vec<u8>) {
        let (harsh, side) = (self.character.harsh, self.side);
        if harsh && self.dice.bool() {
            let _ = stream.set_option(SocketOption::Linger(Some(Duration::ZERO)));
        }
        let vanish = if harsh { self.dice.sometimes(3) } else { None };
        let echoes = self.character.echo && side == 1;
        let body =
            async move { if echoes { self.echo(stream, first).await } else { self.talk(stream).await } };
        let task = spawn(body);
        if let Some(span) = vanish {
            sleep(span).await;
            task.cancel();
        }
        match task.await {
            Err(ringroad_engine::JoinError::Panicked(why)) => std::panic::resume_unwind(why),
            Err(why) => assert!(vanish.is_some(), "{why}"),
            Ok(()) => {}
        }
    }
}

fn cancel_later(canceller: Canceller, span: Duration) {
    spawn(async move {
        sleep(span).await;
        canceller.cancel();
    })
    .detach();
}

/// With or without a limit.
async fn perhaps<F: Future>(patience: Option<Duration>, future: F) -> Option<F::Output> {
    match patience {
        Some(span) => timeout(span, future).await.ok(),
        None => Some(future.await),
    }
}

// ---- the program ------------------------------------------------------------------------------------------

/// A family of sockets that a program may use.
trait Used: Family + fmt::Debug + Sized {
    /// A listener at an address of its own.
    fn listen() -> Listener<Self>;
    async fn connect(to: &Self::Address) -> Result<Stream<Self>, Error>;
    /// An address at which nothing listens for as long as what comes with it exists; on a real driver.
    async fn nowhere(listener: &Self::Address) -> (Self::Address, Option<Stream<Self>>);
}

impl Used for Inet {
    fn listen() -> TcpListener {
        TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap()
    }

    async fn connect(to: &Self::Address) -> Result<TcpStream, Error> {
        TcpStream::connect(*to).await
    }

    async fn nowhere(listener: &SocketAddr) -> (SocketAddr, Option<TcpStream>) {
        // The port of a connection: no other process can get it meanwhile, as it can that of a closed
        // listener.
        let holder = TcpStream::connect(*listener).await.expect("its queue has room");
        (holder.local_addr().unwrap(), Some(holder))
    }
}

impl Used for Unix {
    fn listen() -> UnixListener {
        UnixListener::bind(abstract_name()).unwrap()
    }

    async fn connect(to: &UnixAddr) -> Result<UnixStream, Error> {
        UnixStream::connect(to.clone()).await
    }

    async fn nowhere(_: &UnixAddr) -> (UnixAddr, Option<UnixStream>) {
        (abstract_name(), None)
    }
}

/// Where one may connect to.
#[derive(Clone)]
struct Places<A> {
    server: A,
    /// An address with a listener that never accepts.
    silent: A,
    /// An address without a listener.
    nowhere: A,
}

/// The pace of a program in the simulation.
const SIMULATED: u32 = 1;

struct Program {
    seed: u64,
    connections: u8,
    bytes_max: usize,
    /// What a socket holds each way.
    buffer_bytes: usize,
    /// The listener is closed when some may still want to connect.
    closes_early: bool,
    /// No end breaks anything.
    calm: bool,
    pace: u32,
    world: Shared,
}

impl Program {
    /// The program of a seed. In real time it is calm, and faster.
    fn new(seed: u64, is_simulated: bool, calm: bool) -> Rc<Program> {
        let buffer_bytes = Faults::swarm(seed).socket_buffer_bytes;
        let mut rng = rng(seed, 0xff, 5);
        let connections = rng.u8(1..6);
        let world = World { ways: vec![[Way::default(); 2]; usize::from(connections)], ..World::default() };
        Rc::new(Program {
            seed,
            connections,
            // With small buffers every byte is an event.
            bytes_max: (buffer_bytes * 100).clamp(100, 12_000),
            buffer_bytes: if is_simulated { buffer_bytes } else { usize::MAX },
            closes_early: !calm && rng.u8(..10) == 0,
            calm,
            pace: if is_simulated { SIMULATED } else { 500 },
            world: Rc::new(RefCell::new(world)),
        })
    }

    fn dice(&self, id: u8, part: u64) -> Dice {
        Dice { rng: rng(self.seed, u64::from(id), part), pace: self.pace }
    }

    fn end(&self, id: u8, side: usize) -> End {
        let mut character = Character::of(self.seed, id, self.bytes_max, self.calm);
        character.harsh |= self.closes_early;
        End { world: Rc::clone(&self.world), character, side, dice: self.dice(id, side as u64) }
    }

    async fn client<F: Used>(self: Rc<Program>, id: u8, places: Places<F::Address>) {
        let mut end = self.end(id, 0);
        sleep(end.dice.moment()).await;
        if end.dice.u8(..8) == 0 {
            let error = F::connect(&places.nowhere).await.expect_err("nobody listens there");
            assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
            end.tally(|tally| tally.refused += 1);
        }
        if end.dice.u8(..4) == 0 && self.buffer_bytes <= 4096 {
            self.send_without_a_receiver::<F>(&mut end, &places).await;
        }
        loop {
            let patience = end.dice.sometimes(4);
            match perhaps(patience, F::connect(&places.server)).await {
                None => end.tally(|tally| tally.dropped_connects += 1),
                Some(Ok(mut stream)) => {
                    if end.dice.u8(..4) == 0 && !self.receive_nothing(&mut end, &mut stream).await {
                        return;
                    }
                    return end.run(stream, Vec::new()).await;
                }
                Some(Err(error)) => {
                    assert!(self.closes_early, "{error}");
                    end.tally(|tally| tally.refused += 1);
                    return;
                }
            }
        }
    }

    /// A receive that nothing will come for, until it is cancelled: a cancel that is lost hangs here. Whether
    /// the connection is still there.
    async fn receive_nothing<F: Family>(&self, end: &mut End, stream: &mut Stream<F>) -> bool {
        cancel_later(stream.canceller(), end.dice.moment());
        let received = if end.dice.bool() {
            stream.recv().await.map(|lease| lease.len())
        } else {
            stream.recv_into(Vec::with_capacity(10)).await.0
        };
        match received {
            Err(error) if error.is_cancelled() => end.tally(|tally| tally.cancelled += 1),
            other => {
                assert!(self.closes_early, "{other:?}");
                return false;
            }
        }
        true
    }

    /// The same for a send of more than there is room for, to a listener that never accepts.
    async fn send_without_a_receiver<F: Used>(&self, end: &mut End, places: &Places<F::Address>) {
        let mut stream = F::connect(&places.silent).await.expect("its queue has room");
        cancel_later(stream.canceller(), end.dice.moment());
        let bytes = vec![1; self.buffer_bytes * 2 + 1];
        let sent = if end.dice.bool() {
            stream.write_all(bytes).await.0
        } else {
            stream.write_vectored_all(vec![bytes, Vec::new()]).await.0
        };
        let error = sent.expect_err("there is no room for it");
        assert!(error.is_cancelled(), "{error}");
    }

    /// Finds out which connection this is, and goes on from there.
    async fn serve<F: Family>(self: Rc<Program>, mut stream: Stream<F>) {
        // A client that gave its connect up, or vanished, says nothing.
        let Ok(first) = stream.recv().await else { return };
        let Some(&id) = first.first() else { return };
        assert!(id < self.connections, "the first byte is the connection's number");
        let mut end = self.end(id, 1);
        end.got(&first);
        let first = first.to_vec();
        end.run(stream, first).await;
    }

    async fn server<F: Family>(self: Rc<Program>, mut listener: Listener<F>) {
        let mut dice = self.dice(0xff, 3);
        let mut served = Vec::new();
        loop {
            let patience = dice.sometimes(3);
            match perhaps(patience, listener.accept()).await {
                None => self.world.borrow_mut().tally.dropped_accepts += 1,
                Some(Ok(stream)) => served.push(spawn(Rc::clone(&self).serve(stream))),
                Some(Err(error)) => {
                    assert!(error.is_cancelled(), "{error}");
                    break;
                }
            }
            if dice.u8(..4) == 0 {
                yield_now().await;
            }
        }
        drop(listener);
        for task in served {
            task.await.unwrap_or_else(|why| resume(why));
        }
    }

    /// Whether it has come to its end.
    async fn main<F: Used>(self: Rc<Program>) -> bool {
        let mut dice = self.dice(0xff, 4);
        let listener = F::listen();
        let stop = listener.canceller();
        let accepts_no_connection = F::listen();
        let silent = accepts_no_connection.local_addr().unwrap();
        let (nowhere, _holder) = match self.pace {
            // No other process can get the port of the closed listener.
            SIMULATED => (F::listen().local_addr().unwrap(), None),
            _ => F::nowhere(&silent).await,
        };
        let places = Places { server: listener.local_addr().unwrap(), silent, nowhere };
        let server = spawn(Rc::clone(&self).server(listener));
        let clients: Vec<_> =
            (0..self.connections).map(|id| spawn(Rc::clone(&self).client::<F>(id, places.clone()))).collect();
        if self.closes_early {
            sleep(dice.moment()).await;
            stop.cancel();
        }
        if !self.calm && dice.u8(..10) == 0 {
            // Leaves in the middle of everything; the shutdown has to clear up.
            sleep(dice.moment()).await;
            return false;
        }
        for client in clients {
            client.await.unwrap_or_else(|why| resume(why));
        }
        stop.cancel();
        server.await.unwrap_or_else(|why| resume(why));
        self.judge();
        true
    }

    /// All that a seed draws: streams of one family, and mostly datagrams of one beside them.
    async fn everything(self: Rc<Program>, faults: Faults) {
        let mut rng = rng(self.seed, 0xff, 8);
        let post = Post::new(self.seed, &faults, &self.world);
        let post = match rng.u8(..4) {
            0 => None,
            1 => Some(spawn(post.main::<Unix>())),
            _ => Some(spawn(post.main::<Inet>())),
        };
        let over = match rng.u8(..3) {
            0 => self.main::<Unix>().await,
            _ => self.main::<Inet>().await,
        };
        if let Some(post) = post.filter(|_| over) {
            post.await.unwrap_or_else(|why| resume(why));
        }
    }

    /// Whether everything that should have arrived has.
    fn judge(&self) {
        for id in 0..self.connections {
            let character = self.end(id, 0).character;
            let ways = self.world.borrow().ways[usize::from(id)];
            for way in ways {
                let whole = way.sent.is_some_and(|sent| sent == way.got);
                let ok =
                    character.harsh || (way.ended && way.error.is_none() && (whole || way.sent.is_none()));
                assert!(ok, "{character:?}: {ways:?}");
                self.world.borrow_mut().tally.whole += u64::from(whole && way.ended);
            }
        }
    }
}

fn resume(why: ringroad_engine::JoinError) -> ! {
    match why {
        ringroad_engine::JoinError::Panicked(why) => std::panic::resume_unwind(why),
        why => panic!("{why}"),
    }
}

thread_local! {
    /// The seed that runs on this thread.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes every panic print its seed: a panic that ends the process leaves no time to print it later.
fn name_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if let Some(seed) = SEED.get() {
                eprintln!("RINGROAD_SIM_SEED={seed} panics");
            }
            before(info);
        }));
    });
}

/// Runs one seed. The hash of its events and what happened, or what went wrong.
fn run(seed: u64) -> Result<(u64, Tally), String> {
    SEED.set(Some(seed));
    let program = Program::new(seed, true, false);
    let faults = Faults::swarm(seed);
    let config = SimConfig::new(seed, faults.clone());
    let ledger = config.ledger.clone();
    let mut rng = rng(seed, 0xff, 6);
    let (buffers, bytes) = (1 << rng.u32(1..6), rng.usize(16..2048));
    let runtime = Runtime::builder(DriverName::Sim).sim(config).buffers(buffers, bytes).build().unwrap();
    let world = Rc::clone(&program.world);
    let ran = catch_unwind(AssertUnwindSafe(|| runtime.block_on(program.everything(faults))));
    let (dump, counters) = (runtime.dump(), runtime.counters());
    let tell = |why: String| format!("{why}\n{dump}{}", tail(&ledger));
    match ran {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(tell(error.to_string())),
        Err(why) => return Err(tell(message(&*why))),
    }
    let shut = catch_unwind(AssertUnwindSafe(|| runtime.shutdown(Duration::from_secs(30))));
    match shut {
        Ok(Ok(())) => {}
        Ok(Err(stuck)) => return Err(tell(stuck.to_string())),
        Err(why) => return Err(tell(message(&*why))),
    }
    let imbalances = ledger.imbalances();
    if counters.stale > 0 || !imbalances.is_empty() {
        return Err(tell(format!("{} stale; {}", counters.stale, imbalances.join("; "))));
    }
    let mut tally = world.borrow().tally;
    tally.take(&counters);
    Ok((ledger.event_hash(), tally))
}

fn tail(ledger: &Ledger) -> String {
    let all = ledger.recent();
    let lines: Vec<_> = all.lines().collect();
    let shown = if replayed().is_some() { lines.len() } else { 40 };
    lines[lines.len().saturating_sub(shown)..].join("\n")
}

fn message(why: &(dyn std::any::Any + Send)) -> String {
    let text = why.downcast_ref::<String>().cloned();
    text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

fn replayed() -> Option<u64> {
    let seed = std::env::var("RINGROAD_SIM_SEED").ok()?;
    Some(seed.parse().expect("RINGROAD_SIM_SEED is a number"))
}

/// The seeds to run.
fn seeds() -> Range<u64> {
    if let Some(seed) = replayed() {
        return seed..seed + 1;
    }
    let Ok(text) = std::env::var("RINGROAD_SEEDS") else { return 0..SEEDS };
    let number = |text: &str| text.parse::<u64>().expect("RINGROAD_SEEDS is N or A..B");
    match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&text),
    }
}

#[test]
fn every_seed_ends_with_every_byte_in_its_place_and_nothing_left_over() {
    let seeds = seeds();
    name_panics();
    let next = AtomicU64::new(seeds.start);
    let failures = Mutex::new(Vec::new());
    let tally = Mutex::new(Tally::default());
    let work = || {
        let mut mine = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            // A few failures tell as much as all.
            if !seeds.contains(&seed) || failures.lock().unwrap().len() >= 3 {
                break;
            }
            let ran = run(seed).and_then(|(hash, tally)| {
                let same = !seed.is_multiple_of(TWICE) || run(seed).is_ok_and(|(again, _)| again == hash);
                if same { Ok(tally) } else { Err("runs differently when run again".to_owned()) }
            });
            match ran {
                Ok(tally) => mine.add(&tally),
                Err(why) => failures.lock().unwrap().push((seed, why)),
            }
        }
        tally.lock().unwrap().add(&mine);
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    let told: Vec<_> =
        failures.iter().map(|(seed, why)| format!("RINGROAD_SIM_SEED={seed}: {why}")).collect();
    assert!(told.is_empty(), "seeds fail; each replays by its variable\n{}", told.join("\n\n"));
    let tally = tally.into_inner().unwrap();
    if seeds.end - seeds.start >= 1000 {
        assert_eq!(tally.lacking(), [""; 0], "the programs never met this: {tally:?}");
    }
}

/// Seeds with calm programs that run on the real drivers.
const CALM: Range<u64> = 0..40;

/// Calm programs on a real driver end as they do on the simulation: the same bytes each way, and the same
/// ends.
fn has_the_same_transcripts<F: Used>(case: Case) {
    if case.is_refused() {
        return;
    }
    let expected: Vec<_> = CALM
        .map(|seed| {
            let config = SimConfig::new(seed, Faults::swarm(seed));
            let program = Program::new(seed, true, true);
            let runtime = Runtime::builder(DriverName::Sim).sim(config).build().unwrap();
            runtime.block_on(Rc::clone(&program).main::<F>()).unwrap();
            let ways = program.world.borrow().ways.clone();
            assert!(ways.iter().flatten().all(|way| way.ended && way.sent == Some(way.got)), "{ways:?}");
            ways
        })
        .collect();
    run_on(
        case,
        |builder| builder,
        move |_| async move {
            for (seed, expected) in CALM.zip(expected) {
                let program = Program::new(seed, false, true);
                Rc::clone(&program).main::<F>().await;
                assert_eq!(program.world.borrow().ways, expected, "seed {seed}");
            }
        },
    );
}

cases!(calm_programs_have_the_same_transcripts_as_on_the_simulation, real, has_the_same_transcripts::<Inet>);

cases!(
    calm_programs_of_unix_sockets_have_the_same_transcripts_as_on_the_simulation,
    real,
    has_the_same_transcripts::<Unix>
);

//! The datagrams of a random program: some ends write to each other, and know every letter by its bytes.
//!
//! A UDP letter arrives or does not; it arrives twice or behind a later one only where the seed's network
//! does that. A Unix letter arrives once and in order, if it was sent. Either arrives whole, or cut to the
//! room there was, and is marked so. No letter arrives if its send returned an error.

use super::{Dice, Shared, Tally, cancel_later, perhaps, resume, rng};
use futures_util::future::join_all;
use ringroad_engine::net::{
    DatagramReceiver, DatagramSender, DatagramSocket, Family, Inet, Received, SocketOption, UdpSocket, Unix,
    UnixAddr, UnixDatagram,
};
use ringroad_engine::sim::Faults;
use ringroad_engine::time::{sleep, timeout};
use ringroad_engine::{JoinError, Result, spawn};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The beginning of every letter: sender, receiver, and its number, in two bytes.
const HEADER: usize = 4;

/// The longest letter.
const LETTER_MAX: usize = 300;

/// An end that has waited this long since the last send has received everything: no datagram takes longer.
const QUIET: Duration = Duration::from_secs(60);

/// A family of sockets that carries letters.
pub(super) trait Mail: Family + Sized {
    /// A letter may be lost, doubled and overtaken.
    const IS_ROUGH: bool;

    fn bind() -> DatagramSocket<Self>;
    fn connect(socket: &DatagramSocket<Self>, to: &Self::Address) -> Result<()>;
    async fn send_to(
        sender: &mut DatagramSender<Self>,
        bytes: Vec<u8>,
        to: &Self::Address,
    ) -> (Result<()>, Vec<u8>);
}

impl Mail for Inet {
    const IS_ROUGH: bool = true;

    fn bind() -> UdpSocket {
        UdpSocket::bind(([127, 0, 0, 1], 0).into()).unwrap()
    }

    fn connect(socket: &UdpSocket, to: &Self::Address) -> Result<()> {
        socket.connect(*to)
    }

    async fn send_to(
        sender: &mut DatagramSender<Inet>,
        bytes: Vec<u8>,
        to: &Self::Address,
    ) -> (Result<()>, Vec<u8>) {
        sender.send_to(bytes, *to).await
    }
}

impl Mail for Unix {
    const IS_ROUGH: bool = false;

    fn bind() -> UnixDatagram {
        let socket = UnixDatagram::bind(UnixAddr::UNNAMED).unwrap();
        // Room for the longest letter, however little the seed gives.
        socket.set_option(SocketOption::SendBuffer(4096)).unwrap();
        socket
    }

    fn connect(socket: &UnixDatagram, to: &UnixAddr) -> Result<()> {
        socket.connect(to.clone())
    }

    async fn send_to(
        sender: &mut DatagramSender<Unix>,
        bytes: Vec<u8>,
        to: &UnixAddr,
    ) -> (Result<()>, Vec<u8>) {
        sender.send_to(bytes, to.clone()).await
    }
}

/// What its sender knows of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// It was told so.
    No,
    /// The send was given up.
    Perhaps,
    Yes,
}

/// The letters from one to another.
#[derive(Clone, Debug, Default)]
struct Pair {
    /// What became of each, and how often it came.
    letters: Vec<(Option<Sent>, u8)>,
    last: Option<usize>,
}

/// The ends that write to each other, and their books.
pub(super) struct Post {
    seed: u64,
    ends: u8,
    /// How many each of them writes.
    each: u16,
    /// Two ends that are each other's peers; otherwise every end writes to every other.
    connected: bool,
    /// Ends may vanish.
    harsh: bool,
    faults: Faults,
    world: Shared,
    /// By writer, then by reader.
    pairs: RefCell<Vec<Pair>>,
    /// The ends that have gone.
    gone: RefCell<Vec<bool>>,
    /// How many still write.
    writers: Cell<usize>,
}

impl Post {
    pub(super) fn new(seed: u64, faults: &Faults, world: &Shared) -> Rc<Post> {
        let mut rng = rng(seed, 0xfe, 5);
        let connected = rng.u8(..3) == 0;
        let ends = if connected { 2 } else { rng.u8(1..5) };
        let many = usize::from(ends);
        Rc::new(Post {
            seed,
            ends,
            each: rng.u16(1..30),
            connected,
            harsh: rng.u8(..4) == 0,
            faults: faults.clone(),
            world: Rc::clone(world),
            pairs: RefCell::new(vec![Pair::default(); many * many]),
            gone: RefCell::new(vec![false; many]),
            writers: Cell::new(many),
        })
    }

    fn dice(&self, end: u8, part: u64) -> Dice {
        Dice { rng: rng(self.seed, 0x40 + u64::from(end), part), pace: 1 }
    }

    fn pair<R>(&self, from: u8, to: u8, change: impl FnOnce(&mut Pair) -> R) -> R {
        change(&mut self.pairs.borrow_mut()[usize::from(from) * usize::from(self.ends) + usize::from(to)])
    }

    fn tally(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.world.borrow_mut().tally);
    }

    /// Letter `number` from one to another.
    fn letter(&self, from: u8, to: u8, number: usize) -> Vec<u8> {
        let mut rng = rng(self.seed, u64::from(from) * 16 + u64::from(to), 9 + ((number as u64) << 20));
        let [low, high] = (number as u16).to_le_bytes();
        let mut bytes = vec![from, to, low, high];
        bytes.extend((0..rng.usize(..LETTER_MAX - HEADER)).map(|_| rng.u8(..)));
        bytes
    }

    pub(super) async fn main<F: Mail>(self: Rc<Self>) {
        let sockets: Vec<_> = (0..self.ends).map(|_| F::bind()).collect();
        let addresses: Rc<[F::Address]> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        if self.connected {
            for (socket, peer) in sockets.iter().zip(addresses.iter().rev()) {
                F::connect(socket, peer).unwrap();
            }
        }
        let ends = (0..).zip(sockets);
        join_all(ends.map(|(me, socket)| Rc::clone(&self).end(me, socket, Rc::clone(&addresses)))).await;
        self.judge::<F>();
    }

    async fn end<F: Mail>(self: Rc<Self>, me: u8, socket: DatagramSocket<F>, addresses: Rc<[F::Address]>) {
        let (from, to) = socket.split();
        let writing = spawn(Rc::clone(&self).write(me, to, Rc::clone(&addresses)));
        let reading = spawn(Rc::clone(&self).read(me, from, addresses));
        let mut dice = self.dice(me, 2);
        if self.harsh
            && let Some(span) = dice.sometimes(2)
        {
            sleep(span).await;
            self.gone.borrow_mut()[usize::from(me)] = true;
            writing.cancel();
            reading.cancel();
        }
        let ended = |why| {
            if !matches!(why, JoinError::Cancelled) {
                resume(why)
            }
        };
        // The half is kept until the other is over: an end that only listens is there all the same.
        let half = writing.await.map_err(ended);
        self.writers.set(self.writers.get() - 1);
        let _ = reading.await.map_err(ended);
        drop(half);
    }

    async fn write<F: Mail>(
        self: Rc<Self>,
        me: u8,
        mut to: DatagramSender<F>,
        addresses: Rc<[F::Address]>,
    ) -> DatagramSender<F> {
        let mut dice = self.dice(me, 0);
        for _ in 0..self.each {
            if dice.u8(..4) == 0 {
                sleep(dice.moment()).await;
            }
            let other = if self.connected { 1 - me } else { dice.u8(..self.ends) };
            let number = self.pair(me, other, |pair| {
                pair.letters.push((None, 0));
                pair.letters.len() - 1
            });
            let bytes = self.letter(me, other, number);
            let patience = dice.sometimes(16);
            if dice.u8(..16) == 0 {
                cancel_later(to.canceller(), dice.moment());
            }
            let to_whom = &addresses[usize::from(other)];
            let sent = match self.connected {
                true => perhaps(patience, to.send(bytes.clone())).await,
                false => perhaps(patience, F::send_to(&mut to, bytes.clone(), to_whom)).await,
            };
            let knows = match sent {
                None => {
                    self.tally(|tally| tally.dropped_letters += 1);
                    Sent::Perhaps
                }
                Some((result, back)) => {
                    assert_eq!(back, bytes, "the buffer comes back");
                    match result {
                        Ok(()) => Sent::Yes,
                        Err(error) if error.is_cancelled() => {
                            self.tally(|tally| tally.cancelled_letters += 1);
                            Sent::No
                        }
                        Err(error) => {
                            let errno = error.raw_os_error().unwrap_or(0);
                            let nobody = [libc::ECONNREFUSED, libc::EPIPE, libc::ENOTCONN].contains(&errno);
                            assert!(self.harsh && nobody, "{error}");
                            self.tally(|tally| tally.unreachable += 1);
                            Sent::No
                        }
                    }
                }
            };
            self.pair(me, other, |pair| pair.letters[number].0 = Some(knows));
        }
        to
    }

    async fn read<F: Mail>(
        self: Rc<Self>,
        me: u8,
        mut from: DatagramReceiver<F>,
        addresses: Rc<[F::Address]>,
    ) {
        let mut dice = self.dice(me, 1);
        // A receive was given up since: what it was given is the next one's, as much of it as there was room
        // for then.
        let mut kept = false;
        loop {
            if dice.u8(..8) == 0 {
                sleep(dice.moment()).await;
            }
            let given_up = dice.sometimes(4);
            let last = given_up.is_none() && self.writers.get() == 0;
            let before = vec![0xee; dice.usize(..3)];
            let mut memory = Vec::with_capacity(before.len() + HEADER + dice.usize(..LETTER_MAX * 3 / 2));
            memory.extend_from_slice(&before);
            let room = memory.capacity() - memory.len();
            let patience = given_up.unwrap_or(QUIET);
            let received = if self.connected && dice.bool() {
                let received = timeout(patience, from.recv(memory)).await;
                received.map(|(received, memory)| (received.map(|received| (received, None)), memory))
            } else {
                let received = timeout(patience, from.recv_from(memory)).await;
                received
                    .map(|(received, memory)| (received.map(|(received, who)| (received, Some(who))), memory))
            };
            match received {
                Err(_) if last => return,
                Err(_) => {
                    kept = true;
                    self.tally(|tally| tally.dropped_receives += 1);
                }
                Ok((Ok((received, who)), memory)) => {
                    assert_eq!(memory.len(), before.len() + received.bytes);
                    assert_eq!(memory[..before.len()], before);
                    let writer = self.got::<F>(me, received, &memory[before.len()..]);
                    let whole = received.bytes == room.min(received.length);
                    assert!(whole || kept, "{received:?}, with room for {room}");
                    if let Some(who) = who {
                        let (who, writer) = (who.to_string(), addresses[usize::from(writer)].to_string());
                        assert_eq!(who, writer, "it says who sent it");
                    }
                    kept = false;
                }
                Ok((Err(error), _)) if error.is_cancelled() => self.tally(|tally| tally.cancelled += 1),
                Ok((Err(error), _)) => {
                    let nobody = error.raw_os_error() == Some(libc::ECONNREFUSED);
                    assert!(nobody && F::IS_ROUGH && self.harsh && self.connected, "{error}");
                    self.tally(|tally| tally.unreachable += 1);
                }
            }
        }
    }

    /// Records a letter, or as much of it as there was room for. Returns its sender.
    fn got<F: Mail>(&self, me: u8, received: Received, bytes: &[u8]) -> u8 {
        let [from, to, low, high] = *bytes.first_chunk().expect("room for who, to whom and which");
        assert!(from < self.ends && to == me, "a letter from {from} to {to} came to {me}");
        let number = usize::from(u16::from_le_bytes([low, high]));
        let letter = self.letter(from, to, number);
        assert!(
            letter.starts_with(bytes) && received.length == letter.len(),
            "{received:?} of letter {number}"
        );
        let Faults { doubled, late, .. } = self.faults;
        let overtakes = F::IS_ROUGH && (doubled > 0 || late > 0);
        let (times, overtaken) = self.pair(from, to, |pair| {
            let (_, times) = pair.letters.get_mut(number).expect("it was sent before it came");
            *times += 1;
            let overtaken = pair.last.is_some_and(|last| last >= number);
            pair.last = pair.last.max(Some(number));
            (*times, overtaken)
        });
        assert!(times <= 1 + u8::from(F::IS_ROUGH && doubled > 0), "letter {number} came {times} times");
        assert!(overtakes || !overtaken, "letter {number} comes behind a later one");
        self.tally(|tally| {
            tally.letters += 1;
            tally.letters_cut += u64::from(received.is_truncated());
            tally.letters_doubled += u64::from(times > 1);
            tally.letters_overtaken += u64::from(overtaken && times == 1);
        });
        from
    }

    /// Whether everything came that should have come, and nothing else.
    fn judge<F: Mail>(&self) {
        let roomy = self.faults.socket_buffer_bytes >= 4 * 30 * LETTER_MAX;
        let all_come = !F::IS_ROUGH || (self.faults.lost == 0 && roomy);
        for from in 0..self.ends {
            for to in 0..self.ends {
                let gone = self.gone.borrow()[usize::from(to)];
                let letters = self.pair(from, to, |pair| pair.letters.clone());
                for (number, (sent, times)) in letters.into_iter().enumerate() {
                    let what = format!("letter {number} from {from} to {to}: {sent:?}, came {times} times");
                    assert!(sent != Some(Sent::No) || times == 0, "{what}");
                    if sent == Some(Sent::Yes) && times == 0 && !gone {
                        assert!(!all_come, "{what}");
                        self.tally(|tally| tally.letters_lost += 1);
                    }
                }
            }
        }
    }
}

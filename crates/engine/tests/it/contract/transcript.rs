//! A seeded script of clients, played on every driver: what each connection sends and gets, how it ends and
//! with which class of error is worked out from the script alone, and has to come out on all of them.

use crate::peer::anywhere;
use crate::support::{Case, with_runtime};
use ringroad_engine::net::{SocketOption, TcpListener, TcpStream};
use ringroad_engine::sim::{Faults, SimConfig};
use ringroad_engine::time::{sleep, timeout};
use ringroad_engine::{Error, spawn};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

const CONNECTIONS: u32 = 12;

/// Sebastiano Vigna's SplitMix64: the script must be the same everywhere and for ever.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Mostly small, now and then `largest`.
    fn bytes(&mut self, largest: u64) -> u32 {
        let most = [1, 20, 600, 5000, largest][self.below(5) as usize].min(largest);
        self.below(most + 1) as u32
    }
}

/// What a client does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Sends so many requests at once, each of `bytes`, and then receives as many answers of `answer` bytes.
    Ask {
        requests: u32,
        bytes: u32,
        answer: u32,
    },
    Pause(Duration),
    /// Waits a little for bytes that are never sent, by a receive that is then dropped.
    WaitInVain {
        into_own_memory: bool,
    },
}

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The client sends its end; the server answers with so many bytes more, then with its own.
    Half(u32),
    Close,
    Reset,
    ServerCloses,
    ServerResets,
}

/// What decides a script, and how long its messages are.
#[derive(Clone, Copy, Debug)]
struct Seed {
    number: u64,
    largest: u64,
}

/// Now and then more than a socket takes at once.
const fn seed(number: u64) -> Seed {
    Seed { number, largest: 150_000 }
}

fn script(seed: Seed, connection: u32) -> (Vec<Step>, End) {
    let mut dice = Dice(seed.number << 8 | u64::from(connection));
    let steps = (0..dice.below(12)).map(|_| match dice.below(8) {
        0 | 1 => Step::Pause(Duration::from_millis(dice.below(3))),
        2 => Step::WaitInVain { into_own_memory: dice.below(2) == 0 },
        3 => Step::Ask { requests: 1 + dice.below(10) as u32, bytes: 30, answer: 1 + dice.below(500) as u32 },
        // An answer has at least a byte, so that its arrival proves that the whole request was received.
        _ => Step::Ask { requests: 1, bytes: dice.bytes(seed.largest), answer: 1 + dice.bytes(seed.largest) },
    });
    // The first step tells the server which client this is.
    let steps = std::iter::once(Step::Ask { requests: 1, bytes: 0, answer: 1 }).chain(steps).collect();
    let end = match dice.below(5) {
        0 => End::Half(dice.bytes(seed.largest)),
        1 => End::Close,
        2 => End::Reset,
        3 => End::ServerCloses,
        _ => End::ServerResets,
    };
    (steps, end)
}

// A request: connection, what to do then, length of the body, length of the answer; then the body.
const HEAD: usize = 16;
const ANSWER: u32 = 0;
const ANSWER_AT_THE_END: u32 = 1;
const CLOSE: u32 = 2;
const RESET: u32 = 3;

fn request(connection: u32, order: u32, bytes: u32, answer: u32) -> Vec<u8> {
    let mut request = Vec::with_capacity(HEAD + bytes as usize);
    for word in [connection, order, bytes, answer] {
        request.extend_from_slice(&word.to_be_bytes());
    }
    request.extend(body(connection, bytes));
    request
}

fn body(salt: u32, bytes: u32) -> impl Iterator<Item = u8> {
    (0..bytes).map(move |at| (at.wrapping_mul(31).wrapping_add(salt.wrapping_mul(7)) >> 2) as u8)
}

/// What is written down of bytes: how many, and their FNV-1a.
fn digest(bytes: impl IntoIterator<Item = u8>) -> String {
    let (mut count, mut hash) = (0, 0xcbf2_9ce4_8422_2325u64);
    for byte in bytes {
        count += 1;
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    format!("{count} bytes {hash:016x}")
}

/// What happened on each connection, at the client and at the server.
#[derive(Debug, Default, PartialEq)]
struct Transcript {
    client: Vec<String>,
    server: Vec<String>,
}

type Transcripts = BTreeMap<u32, Transcript>;

/// What must come out, from the script alone.
fn expected(seed: Seed) -> Transcripts {
    let mut all = Transcripts::new();
    for connection in 0..CONNECTIONS {
        let Transcript { client, server } = all.entry(connection).or_default();
        let (steps, end) = script(seed, connection);
        for step in steps {
            if let Step::Ask { requests, bytes, answer } = step {
                for _ in 0..requests {
                    server.push(format!("asked with {}", digest(body(connection, bytes))));
                    client.push(format!("answered with {}", digest(body(answer, answer))));
                }
            }
        }
        let asked = |bytes| format!("asked with {}", digest(body(connection, bytes)));
        match end {
            End::Half(answer) => {
                server.extend([asked(0), "end".to_owned()]);
                client.extend([format!("answered with {}", digest(body(answer, answer))), "end".to_owned()]);
            }
            End::Close => server.push("end".to_owned()),
            End::Reset => server.push("reset".to_owned()),
            End::ServerCloses => {
                server.push(asked(5));
                client.push("end".to_owned());
            }
            End::ServerResets => {
                server.push(asked(5));
                client.push("reset".to_owned());
            }
        }
    }
    all
}

/// The end of a connection as it is written down.
fn class(received: Result<usize, Error>) -> String {
    match received {
        Ok(0) => "end".to_owned(),
        Ok(bytes) => format!("{bytes} bytes too many"),
        Err(why) if why.kind() == ErrorKind::ConnectionReset => "reset".to_owned(),
        Err(why) => why.to_string(),
    }
}

/// A stream and what came too early.
struct Reader {
    stream: TcpStream,
    early: Vec<u8>,
    /// Receives so far: each third is into memory of our own, mostly less than what is there.
    receives: usize,
}

impl Reader {
    /// Exactly so many bytes, or how the stream ended before.
    async fn exactly(&mut self, bytes: usize) -> Result<Vec<u8>, String> {
        while self.early.len() < bytes {
            self.receives += 1;
            let got = if self.receives.is_multiple_of(3) {
                let own = Vec::with_capacity(1 + self.receives * 37 % 300);
                let (got, own) = self.stream.recv_into(own).await;
                self.early.extend_from_slice(&own);
                got
            } else {
                let lease = self.stream.recv().await;
                lease.inspect(|lease| self.early.extend_from_slice(lease)).map(|lease| lease.len())
            };
            if !matches!(got, Ok(1..)) {
                return Err(class(got));
            }
        }
        let rest = self.early.split_off(bytes);
        Ok(std::mem::replace(&mut self.early, rest))
    }

    async fn end(&mut self) -> String {
        match self.early.len() {
            0 => class(self.stream.recv().await.map(|lease| lease.len())),
            early => class(Ok(early)),
        }
    }
}

async fn serve(stream: TcpStream, all: Rc<RefCell<Transcripts>>) {
    let mut reader = Reader { stream, early: Vec::new(), receives: 0 };
    let mut whose = None;
    let mut last_words = 0;
    let note = |whose: Option<u32>, text: String| {
        all.borrow_mut().entry(whose.unwrap_or(u32::MAX)).or_default().server.push(text);
    };
    loop {
        let head = match reader.exactly(HEAD).await {
            Ok(head) => head,
            Err(end) => {
                note(whose, end);
                if last_words > 0 {
                    let answer: Vec<u8> = body(last_words, last_words).collect();
                    reader.stream.write_all(answer).await.0.unwrap();
                }
                return;
            }
        };
        let word = |at: usize| u32::from_be_bytes(head[4 * at..][..4].try_into().unwrap());
        let (order, answer) = (word(1), word(3));
        whose = Some(word(0));
        let asked = reader.exactly(word(2) as usize).await.unwrap();
        note(whose, format!("asked with {}", digest(asked)));
        match order {
            ANSWER => {
                let answer: Vec<u8> = body(answer, answer).collect();
                reader.stream.write_all(answer).await.0.unwrap();
            }
            ANSWER_AT_THE_END => last_words = answer,
            CLOSE => return,
            _ => return reader.stream.set_option(SocketOption::Linger(Some(Duration::ZERO))).unwrap(),
        }
    }
}

async fn play(seed: Seed, connection: u32, address: SocketAddr, all: Rc<RefCell<Transcripts>>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut reader = Reader { stream, early: Vec::new(), receives: 0 };
    let note = |text: String| all.borrow_mut().entry(connection).or_default().client.push(text);
    let (steps, end) = script(seed, connection);
    for step in steps {
        match step {
            Step::Ask { requests, bytes, answer } => {
                let all = request(connection, ANSWER, bytes, answer).repeat(requests as usize);
                reader.stream.write_all(all).await.0.unwrap();
                for _ in 0..requests {
                    let answer = reader.exactly(answer as usize).await.unwrap();
                    note(format!("answered with {}", digest(answer)));
                }
            }
            Step::Pause(span) => sleep(span).await,
            Step::WaitInVain { into_own_memory } => {
                let little = Duration::from_millis(1);
                if into_own_memory {
                    let vain = timeout(little, reader.stream.recv_into(Vec::with_capacity(100))).await;
                    assert!(vain.is_err(), "nothing was asked for");
                } else {
                    assert!(timeout(little, reader.stream.recv()).await.is_err(), "nothing was asked for");
                }
            }
        }
    }
    match end {
        End::Half(answer) => {
            let last = request(connection, ANSWER_AT_THE_END, 0, answer);
            reader.stream.write_all(last).await.0.unwrap();
            reader.stream.shutdown(Shutdown::Write).unwrap();
            let answer = reader.exactly(answer as usize).await.unwrap();
            note(format!("answered with {}", digest(answer)));
            note(reader.end().await);
        }
        End::Close => {}
        End::Reset => {
            // Nothing is on its way: a reset discards undelivered bytes, and how many is not specified.
            reader.stream.set_option(SocketOption::Linger(Some(Duration::ZERO))).unwrap();
        }
        End::ServerCloses | End::ServerResets => {
            let order = if matches!(end, End::ServerCloses) { CLOSE } else { RESET };
            reader.stream.write_all(request(connection, order, 5, 0)).await.0.unwrap();
            note(reader.end().await);
        }
    }
}

async fn transcripts(seed: Seed) -> Transcripts {
    let mut listener = TcpListener::bind(anywhere()).unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), listener.canceller());
    let all = Rc::new(RefCell::new(Transcripts::new()));
    let server = spawn({
        let all = Rc::clone(&all);
        async move {
            let mut served = Vec::new();
            while let Ok(stream) = listener.accept().await {
                served.push(spawn(serve(stream, Rc::clone(&all))));
            }
            for connection in served {
                connection.await.unwrap();
            }
        }
    });
    let clients: Vec<_> =
        (0..CONNECTIONS).map(|connection| spawn(play(seed, connection, address, Rc::clone(&all)))).collect();
    for client in clients {
        client.await.unwrap();
    }
    // All have been answered, so all have been accepted.
    stop.cancel();
    server.await.unwrap();
    all.take()
}

fn compare(got: &Transcripts, seed: Seed) {
    for (connection, wanted) in expected(seed) {
        let got = got.get(&connection);
        assert_eq!(got, Some(&wanted), "{seed:?}, connection {connection}: {:?}", script(seed, connection));
    }
}

cases!(a_seeded_script_of_clients_gives_the_same_transcript_on_every_driver, all, |case| with_runtime(
    case,
    |builder| builder.buffers(16, 2048),
    |_, runtime| {
        for number in 0..6 {
            compare(&runtime.block_on(transcripts(seed(number))).unwrap(), seed(number));
        }
    }
));

/// The same transcript again where everything goes wrong that may.
#[test]
fn a_seeded_script_gives_the_same_transcript_whatever_goes_wrong() {
    for number in 0..40 {
        let mut faults = Faults::swarm(number);
        // Ten requests fit, or a client that sends them before it receives would stop for ever.
        faults.socket_buffer_bytes = faults.socket_buffer_bytes.max(1024);
        let config = SimConfig::new(number, faults);
        let runtime = Case::Sim.builder().buffers(16, 256).sim(config).build().unwrap();
        // Where a socket holds a byte, a long message takes long.
        let seed = Seed { number: number % 6, largest: 700 };
        let got = runtime.block_on(transcripts(seed)).unwrap_or_else(|why| panic!("seed {number}: {why}"));
        compare(&got, seed);
    }
}

#[test]
fn the_scripts_have_every_step_and_every_end() {
    let all: Vec<_> =
        (0..6).flat_map(|n| (0..CONNECTIONS).map(move |connection| script(seed(n), connection))).collect();
    let steps =
        |of: fn(&Step) -> bool| all.iter().flat_map(|(steps, _)| steps).filter(|step| of(step)).count();
    assert!(steps(|step| matches!(step, Step::Ask { requests: 2.., .. })) > 5);
    assert!(steps(|step| matches!(step, Step::Ask { bytes: 70_000.., .. })) > 5);
    assert!(steps(|step| matches!(step, Step::WaitInVain { into_own_memory: true })) > 2);
    assert!(steps(|step| matches!(step, Step::WaitInVain { into_own_memory: false })) > 2);
    let ends = |of: fn(&End) -> bool| all.iter().filter(|(_, end)| of(end)).count();
    assert!(ends(|end| matches!(end, End::Half(_))) > 5);
    assert!(ends(|end| matches!(end, End::Close)) > 5);
    assert!(ends(|end| matches!(end, End::Reset)) > 5);
    assert!(ends(|end| matches!(end, End::ServerCloses)) > 5);
    assert!(ends(|end| matches!(end, End::ServerResets)) > 5);
}

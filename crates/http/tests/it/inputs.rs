//! What no server should take: each gets its answer, one answer, and the end of its connection; and the
//! server is none the worse for it. The rules themselves are tested in `ringroad-wire`; here it is the whole
//! way over TCP.

use crate::counts::allocated;
use crate::support::{Client, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_http::{BodyError, Request, Server, any, get};
use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

async fn read(mut request: Request) -> Result<String, BodyError> {
    request.bytes(1 << 20).await.map(|bytes| format!("{} bytes", bytes.len()))
}

fn server() -> Server {
    Server::new().route("/", any(read)).route("/good", get(|_: Request| async { "good" }))
}

const REST: &str = "Host: a\r\n\r\n";

/// Input, and the statuses of all responses to it.
fn table() -> Vec<(&'static str, Vec<u8>, Vec<u16>)> {
    let mut rows: Vec<(&'static str, Vec<u8>, Vec<u16>)> = Vec::new();
    let mut row = |what, input: &str, statuses: &[u16]| {
        rows.push((what, input.as_bytes().to_vec(), statuses.to_vec()));
    };
    // Framing, each followed by what must not be taken for a request.
    let after = "GET /good HTTP/1.1\r\nHost: a\r\n\r\n";
    for (what, lines) in [
        ("length and coding", "Content-Length: 3\r\nTransfer-Encoding: chunked"),
        ("two lengths", "Content-Length: 3\r\nContent-Length: 4"),
        ("one length twice", "Content-Length: 3\r\nContent-Length: 3"),
        ("a list of lengths", "Content-Length: 3, 3"),
        ("plus", "Content-Length: +3"),
        ("minus", "Content-Length: -1"),
        ("hexadecimal", "Content-Length: 0x10"),
        ("underscore", "Content-Length: 1_0"),
        ("empty", "Content-Length: "),
        ("two numbers", "Content-Length: 5 5"),
        ("past 64 bits", "Content-Length: 18446744073709551616"),
        ("a coding we do not know", "Transfer-Encoding: blegh"),
        ("chunked, but not last", "Transfer-Encoding: chunked, identity"),
        ("two codings", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        ("a comma before it", "Transfer-Encoding: ,chunked"),
        ("another word", "Transfer-Encoding: xchunked"),
        ("space before the colon", "Content-Length : 3"),
        ("a folded line", "X: a\r\n b"),
        ("two hosts", "Host: b"),
        ("no colon", "nonsense"),
        ("no name", ": x"),
        ("a quote in a name", "X\"Y: z"),
        ("a control character", "X: a\u{7}b"),
        ("a bare CR", "X: a\rb"),
        ("a bare LF", "X: a\nY: b"),
    ] {
        row(what, &format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\nabc{after}"), &[400]);
    }
    row(
        "coding in 1.0",
        &format!("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{after}"),
        &[400],
    );
    // Chunks.
    for (what, body) in [
        ("0x", "0x5\r\nhello\r\n"),
        ("plus", "+5\r\nhello\r\n"),
        ("minus", "-1\r\nhello\r\n"),
        ("a space before", " 5\r\nhello\r\n"),
        ("17 digits", "00000000000000005\r\nhello\r\n"),
        ("a bare LF", "5\nhello\r\n"),
        ("an LF in an extension", "5;a\nb\r\nhello\r\n"),
        ("two CRs", "5\r\r;a\r\nhello\r\n"),
        ("data without its end", "5\r\nhelloX\r\n"),
        ("a length among the trailers", "0\r\nContent-Length: 5\r\n\r\n"),
    ] {
        row(
            what,
            &format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}{after}"),
            &[400],
        );
    }
    // Syntax.
    for (what, line, status) in [
        ("two spaces", "GET  / HTTP/1.1", 400),
        ("a tab", "GET\t/ HTTP/1.1", 400),
        ("an odd version", "GET / HTTP/1.32", 400),
        ("another version", "GET / HTTP/9.9", 505),
        ("an odd method", "G=\"x\" / HTTP/1.1", 400),
        ("an unknown method", "BREW / HTTP/1.1", 501),
        ("no path", "GET ! HTTP/1.1", 400),
        ("a fragment", "GET /#x HTTP/1.1", 400),
        ("everything, but not with OPTIONS", "GET * HTTP/1.1", 400),
        ("an authority without CONNECT", "GET a:80 HTTP/1.1", 400),
        ("0.9", "GET /", 400),
        ("HTTP/2", "PRI * HTTP/2.0", 400),
    ] {
        row(what, &format!("{line}\r\n{REST}{after}"), &[status]);
    }
    row("no host", &format!("GET / HTTP/1.1\r\n\r\n{after}"), &[400]);
    row("an odd host", &format!("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n{after}"), &[400]);
    row("an expectation", &format!("GET / HTTP/1.1\r\nHost: a\r\nExpect: xyz\r\n\r\n{after}"), &[417]);
    row("nine empty lines", &format!("{}{after}", "\r\n".repeat(9)), &[400]);
    row("eight empty lines", &format!("{}{after}", "\r\n".repeat(8)), &[200]);
    row("a good one before", &format!("{after}{after}BAD\r\n\r\n{after}"), &[200, 200, 400]);
    // Sizes.
    let long = "x".repeat(9000);
    row("a long line", &format!("GET /{long} HTTP/1.1\r\n{REST}"), &[414]);
    row("a long header", &format!("GET / HTTP/1.1\r\nX: {long}\r\n{REST}"), &[431]);
    row("many headers", &format!("GET / HTTP/1.1\r\n{}{REST}", "X: y\r\n".repeat(101)), &[431]);
    row(
        "long headers together",
        &format!("GET / HTTP/1.1\r\n{}{REST}", format!("X: {}\r\n", "y".repeat(7000)).repeat(6)),
        &[431],
    );
    row("a long body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n", &[413]);
    rows.push(("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), vec![400]));
    rows.push(("zeros", vec![0; 100], vec![400]));
    rows
}

drivers!(
    /// The right status, one answer, nothing after it; and the next client is served.
    every_bad_input_gets_its_answer_and_the_server_goes_on,
    |driver: DriverName| {
        let server = start(driver, server());
        for (what, input, statuses) in table() {
            let mut client = Client::new(server.address());
            // The server may have answered and closed before all of it was sent.
            client.try_send(&input);
            client.finish();
            let got: Vec<u16> = client.replies().iter().map(|reply| reply.status).collect();
            assert_eq!(got, statuses, "{what}");
        }
        let mut client = Client::new(server.address());
        assert_eq!(client.get("/good").text(), "good");
        drop(client);
        wait_until("all connections are gone", || server.counters().connections == 0);
        assert_eq!(server.counters().panics, 0);
    }
);

/// Names the driver to a process of its own, which is nothing but a server.
const ROLE: &str = "RINGROAD_HTTP_TEST_SERVER";

/// Not a test by itself: what [`Served`] starts. It serves until its standard input ends.
#[test]
fn a_server_for_another_process() {
    let Ok(driver) = std::env::var(ROLE) else { return };
    let server = start(driver.parse().unwrap(), server().route("/allocated", get(allocated)));
    // Behind the words of the test harness, which end in no line.
    println!("\nlistening on {}", server.address());
    let _ = std::io::stdin().read(&mut [0]);
}

/// A server in a process where nothing else happens, so that what it holds can be counted.
struct Served {
    process: Child,
    address: std::net::SocketAddr,
    /// Kept open so that the process can write its last lines; the tests do not read them.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Served {
    fn start(driver: DriverName) -> Served {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "inputs::a_server_for_another_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, driver.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("it says where it listens").unwrap();
            if let Some((_, address)) = line.split_once("listening on ") {
                break address.parse().unwrap();
            }
        };
        Served { process, address, _output: lines }
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }

    /// Bytes of the worker's heap.
    fn heap(&self) -> i64 {
        let reply = Client::new(self.address).get("/allocated");
        reply.text().split_once(' ').unwrap().1.parse().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

drivers!(
    /// As many descriptors as before, and no more memory than the pools keep: a connection that is leaked is
    /// a few hundred bytes and a descriptor each time. A pool that takes another group of buffers does so in
    /// one stretch; a leak grows in each.
    bad_inputs_again_and_again_leave_neither_memory_nor_descriptors_behind,
    |driver: DriverName| {
        const STRETCHES: usize = 3;
        const ROUNDS: usize = 3;
        let served = Served::start(driver);
        let fresh = served.descriptors();
        let table = table();
        let round = || {
            for (_, input, _) in &table {
                let mut client = Client::new(served.address);
                client.try_send(input);
                client.finish();
                client.count_rest();
            }
            // And clients that go without a word, in the midst of a head, and of a body.
            for input in ["", "GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhel"] {
                Client::new(served.address).send(input);
            }
        };
        round();
        round();
        let mut heap = served.heap();
        let mut stretch = || {
            for _ in 0..ROUNDS {
                round();
            }
            let before = std::mem::replace(&mut heap, served.heap());
            heap - before
        };
        let mut grown: [i64; STRETCHES] = std::array::from_fn(|_| stretch());
        grown.sort_unstable();
        let connections = ROUNDS * (table.len() + 3);
        let most = 128 * connections as i64;
        // Of three, all but the one in which a pool has grown.
        assert!(grown[1] < most, "{grown:?} bytes more, each of {connections} connections");
        // On threads the workers that are kept for the next have a bell each.
        let spare = if driver == DriverName::Threads { 64 } else { 0 };
        wait_until("all descriptors are closed", || served.descriptors() <= fresh + spare);
    }
);

drivers!(
    /// A reset after every byte of a request, and an end after every byte.
    clients_that_go_at_any_byte_leave_nothing_behind,
    |driver: DriverName| {
        let server = start(driver, server());
        let request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
        for cut in 0..request.len() {
            let mut client = Client::new(server.address());
            client.send(&request[..cut]);
            let socket = socket2::SockRef::from(client.stream()).set_linger(Some(std::time::Duration::ZERO));
            socket.unwrap();
            drop(client);
            let mut client = Client::new(server.address());
            client.send(&request[..cut]).finish();
            let head = request.len() - 5;
            let statuses: Vec<u16> = client.replies().iter().map(|reply| reply.status).collect();
            // A connection that ends inside a head gets a 400; one that ends before or after the head gets no
            // response.
            let cut_head: &[u16] = if (1..head).contains(&cut) { &[400] } else { &[] };
            assert_eq!(statuses, cut_head, "cut at {cut}");
        }
        assert_eq!(Client::new(server.address()).get("/good").text(), "good");
        wait_until("all connections are gone", || server.counters().connections == 0);
    }
);

drivers!(
    /// A client sends ten thousand requests at once and reads nothing. The server holds no more for it than
    /// the kernel's buffers and one or two of its own, and the client receives every response in the end.
    a_flood_of_pipelined_requests_is_answered_at_the_readers_pace,
    |driver: DriverName| {
        let large = |_: Request| async { vec![b'x'; 10_000] };
        let server = start(driver, server().route("/large", get(large)));
        let mut client = Client::new(server.address());
        let mut sender = client.stream().try_clone().unwrap();
        let requests = 5_000;
        let sending = std::thread::spawn(move || {
            use std::io::Write;
            sender.write_all("GET /large HTTP/1.1\r\nHost: a\r\n\r\n".repeat(requests).as_bytes()).unwrap();
        });
        let mut other = Client::new(server.address());
        for _ in 0..200 {
            assert_eq!(other.get("/good").text(), "good");
        }
        // Fifty megabytes were asked for.
        assert!(server.counters().requests() < requests as u64, "{:?}", server.counters());
        for _ in 0..requests {
            assert_eq!(client.reply().body.len(), 10_000);
        }
        sending.join().unwrap();
    }
);

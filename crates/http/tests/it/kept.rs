//! Connections that a client keeps: what comes behind an answer is no answer to the next request.

use ringroad_engine::net::UnixStream;
use ringroad_engine::{DriverName, Runtime, yield_now};
use ringroad_http::{Client, KeptConnections};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// What a server does behind its answer.
#[derive(Clone, Copy, Debug)]
enum Behind {
    AnotherAnswer,
    LineEnd,
    End,
    Reset,
}

const ALL: [Behind; 4] = [Behind::AnotherAnswer, Behind::LineEnd, Behind::End, Behind::Reset];

const ANOTHER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign";

/// Bodies within one receive buffer, and in bulk.
const BODIES: [usize; 4] = [1000, 100_000, 250_000, 2_000_000];

/// Reads a head. None: the end of the connection.
fn head(stream: &mut TcpStream) -> Option<()> {
    let (mut got, mut byte) = (Vec::new(), [0]);
    while !got.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => got.push(byte[0]),
            _ => return None,
        }
    }
    Some(())
}

/// A server. Its first connection answers with `bytes` bytes; when it is told to go on, it does what `behind`
/// says, and tells. Later connections answer "mine".
fn server(bytes: usize, behind: Behind) -> (String, Sender<()>, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (go_on, told) = channel();
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        head(&mut first).unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n{}", "k".repeat(bytes));
        first.write_all(answer.as_bytes()).unwrap();
        told.recv().unwrap();
        let rest = match behind {
            Behind::AnotherAnswer => first.write_all(ANOTHER).map(|()| Some(first)),
            Behind::LineEnd => first.write_all(b"\r\n").map(|()| Some(first)),
            Behind::End => first.shutdown(std::net::Shutdown::Write).map(|()| Some(first)),
            Behind::Reset => {
                // At once, also if another test has just forked, and its child holds the descriptor too.
                rustix::net::connect_unspec(&first).map_err(Into::into).map(|()| None)
            }
        };
        let _first = rest.unwrap();
        done.send(()).unwrap();
        while let Ok((mut other, _)) = listener.accept() {
            while head(&mut other).is_some() {
                other.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine").unwrap();
            }
        }
    });
    (url, go_on, is_done)
}

drivers!(
    /// The runtime gets no turn between what the server does and the next request: nothing but a look at the
    /// connection can tell.
    what_comes_behind_an_answer_is_no_answer_to_the_next_request,
    |driver: DriverName| {
        let cases = BODIES.into_iter().flat_map(|bytes| ALL.map(|behind| (bytes, behind)));
        for ((bytes, behind), buffer_bytes) in cases.flat_map(|case| [(case, 8 << 10), (case, 60 << 10)]) {
            let runtime = Runtime::builder(driver).buffers(16, buffer_bytes).build().unwrap();
            let answer = runtime.block_on(async {
                let (url, go_on, is_done) = server(bytes, behind);
                let client = Client::new();
                let first = client.get(&url).send().await.unwrap().bytes(bytes).await.unwrap();
                assert_eq!((first.len(), client.idle_connections()), (bytes, 1));
                go_on.send(()).unwrap();
                is_done.recv().unwrap();
                client.get(&url).send().await.unwrap().text().await.unwrap()
            });
            assert_eq!(answer.unwrap(), "mine", "{behind:?} behind {bytes} bytes");
        }
    }
);

drivers!(
    /// As above, where the first request of the next client may not be repeated.
    a_post_is_not_sent_on_a_connection_that_is_over,
    |driver: DriverName| {
        for (bytes, behind) in BODIES.into_iter().flat_map(|bytes| ALL.map(|behind| (bytes, behind))) {
            let answer = Runtime::new(driver).unwrap().block_on(async {
                let (url, go_on, is_done) = server(bytes, behind);
                let client = Client::new();
                client.get(&url).send().await.unwrap().bytes(bytes).await.unwrap();
                go_on.send(()).unwrap();
                is_done.recv().unwrap();
                client.post(&url).body("x").send().await.unwrap().text().await.unwrap()
            });
            assert_eq!(answer.unwrap(), "mine", "{behind:?} behind {bytes} bytes");
        }
    }
);

drivers!(
    /// One connection for each of many servers is as many descriptors as many for one.
    kept_connections_are_bounded_over_all_servers_and_a_server_without_any_is_forgotten,
    |driver: DriverName| {
        let kept = Runtime::new(driver).unwrap().block_on(async {
            let pool = KeptConnections::bounded(2, 3);
            let mut fars = Vec::new();
            let mut near = || {
                let (near, far) = UnixStream::pair().unwrap();
                fars.push(far);
                near
            };
            let span = Duration::from_secs(600);
            pool.keep(9, near(), Duration::ZERO);
            assert_eq!((pool.len(), pool.servers()), (0, 0), "for no time it is not kept");
            for server in [0, 0, 0, 1, 2, 3] {
                pool.keep(server, near(), span);
                assert!(pool.len() <= 3);
            }
            assert!(pool.take(&0).is_none(), "those that were used longest ago are closed");
            // Those of 2 and 3 are open; 0 is forgotten when its watching tasks have run.
            while pool.servers() > 3 {
                yield_now().await;
            }
            let _last = pool.take(&3).unwrap();
            drop(fars);
            while pool.servers() > 0 {
                yield_now().await;
            }
            pool.len()
        });
        assert_eq!(kept.unwrap(), 0, "their servers have closed");
    }
);

drivers!(
    /// With and without a task that watches it from the beginning.
    a_kept_connection_is_closed_when_its_time_is_over,
    |driver: DriverName| {
        Runtime::new(driver).unwrap().block_on(async {
            for millis in [10, 1200] {
                let pool = KeptConnections::new(2);
                let (near, mut far) = UnixStream::pair().unwrap();
                pool.keep((), near, Duration::from_millis(millis));
                assert_eq!(pool.len(), 1);
                assert!(far.recv().await.unwrap().is_empty(), "{millis} ms");
                while pool.servers() > 0 {
                    yield_now().await;
                }
            }
        })
        .unwrap();
    }
);

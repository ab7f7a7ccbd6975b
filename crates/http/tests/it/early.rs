//! Answers that come before the request is sent: our client with servers that do not wait for its end.

use crate::support::{odd, start};
use crate::tls::Authority;
use ringroad_engine::{DriverName, Runtime, spawn, sync, time};
use ringroad_http::{
    Body, BodyError, Client, ClientError, FailedAt, Limits, Method, Piece, Request, SentSoFar, Server,
    Status, post,
};
use ringroad_tls::Output;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Far beyond what any of these takes.
const HANG: Duration = Duration::from_secs(60);

/// More than the buffers of both sockets take.
const LARGE: usize = 10 << 20;

fn run<F: Future>(driver: DriverName, future: F) -> F::Output {
    Runtime::new(driver).unwrap().block_on(future).unwrap()
}

/// What follows an early answer.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The connection stays, and nothing more is read.
    Keep,
    /// It is closed with the rest of the request unread, which resets it.
    Close,
    /// It is reset at once.
    Reset,
}

/// A server that reads 1000 bytes, says this, and goes on so.
fn early(told: &'static str, then: Then) -> String {
    let kept = std::sync::Mutex::new(Vec::new());
    odd(move |_, mut stream| {
        let _ = stream.read_exact(&mut [0; 1000]);
        stream.write_all(told.as_bytes()).unwrap();
        match then {
            Then::Keep => kept.lock().unwrap().push(stream),
            Then::Close => drop(stream),
            Then::Reset => {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
        }
    })
}

/// A body that is whole, that is made as it is sent, or that never ends.
fn bodies() -> [(&'static str, Body); 3] {
    let (sender, pieces) = sync::bounded::<Vec<u8>>(1);
    spawn(async move { while sender.send(vec![b'x'; 64 << 10]).await.is_ok() {} }).detach();
    let (waiting, silent) = sync::bounded::<Vec<u8>>(1);
    spawn(async move {
        waiting.send(vec![b'x'; 1000]).await.unwrap();
        std::future::pending::<()>().await;
    })
    .detach();
    [
        ("whole", Body::from(vec![b'x'; LARGE])),
        ("made", Body::stream(pieces)),
        ("waiting", Body::stream(silent)),
    ]
}

drivers!(an_answer_that_comes_before_the_request_is_sent_is_the_answer, |driver: DriverName| {
    for (status, told) in [
        (413, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig"),
        (401, "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig"),
        (
            503,
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbig\r\n0\r\n\r\n",
        ),
        (200, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbig"),
    ] {
        for then in [Then::Keep, Then::Close, Then::Reset] {
            let url = early(told, then);
            run(driver, async {
                for (what, body) in bodies() {
                    let context = format!("{status}, {then:?}, a body that is {what}");
                    let client = Client::new().timeout(HANG);
                    let answer = client.post(&url).body(body).send().await;
                    let mut answer = answer.unwrap_or_else(|why| panic!("{context}: {why}"));
                    assert_eq!(answer.status().code(), status, "{context}");
                    assert_eq!(answer.text().await.unwrap(), "big", "{context}");
                    assert_eq!(client.idle_connections(), 0, "{context}: the rest of the body is missing");
                }
            });
        }
    }
});

/// The same over TLS.
fn early_secure(authority: &Authority, told: &'static str, then: Then) -> String {
    let tls = authority.server(&["localhost"]);
    let kept = std::sync::Mutex::new(Vec::new());
    let url = odd(move |_, mut stream| {
        let (mut session, mut plain) = (tls.begin().unwrap(), Vec::new());
        while plain.len() < 1000 {
            let mut buffer = [0; 20_000];
            let bytes = stream.read(&mut buffer).unwrap();
            assert!(bytes > 0, "a thousand bytes come");
            let mut out = Output::default();
            session.receive(&mut buffer[..bytes], &mut plain, &mut out).unwrap();
            stream.write_all(&out).unwrap();
        }
        let mut out = Output::default();
        session.seal(told.as_bytes(), &mut out).unwrap();
        // Held back until tickets are acknowledged it would be lost with the connection.
        stream.set_nodelay(true).unwrap();
        stream.write_all(&out).unwrap();
        match then {
            Then::Keep => kept.lock().unwrap().push(stream),
            Then::Close => drop(stream),
            Then::Reset => {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
        }
    });
    url.replace("http://127.0.0.1", "https://localhost")
}

drivers!(an_answer_over_tls_that_comes_before_the_request_is_sent_is_the_answer, |driver: DriverName| {
    let authority = Authority::new();
    let told = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig";
    for then in [Then::Keep, Then::Close, Then::Reset] {
        let url = early_secure(&authority, told, then);
        run(driver, async {
            for (what, body) in bodies() {
                let context = format!("{then:?}, a body that is {what}");
                let client = Client::new().tls(&authority.client()).timeout(HANG);
                let answer = client.post(&url).body(body).send().await;
                let mut answer = answer.unwrap_or_else(|why| panic!("{context}: {why}"));
                assert_eq!(answer.status().code(), 413, "{context}");
                assert_eq!(answer.text().await.unwrap(), "big", "{context}");
                assert_eq!(client.idle_connections(), 0, "{context}: the rest of the body is missing");
            }
        });
    }
});

drivers!(what_is_said_before_an_answer_does_not_end_the_request, |driver: DriverName| {
    let (done, held) = channel();
    let held = std::sync::Mutex::new(held);
    let url = odd(move |_, mut stream| {
        stream.read_exact(&mut [0; 10]).unwrap();
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n").unwrap();
        let mut left = LARGE;
        let mut buffer = vec![0; 1 << 16];
        while left > 0 {
            let read = stream.read(&mut buffer).unwrap();
            left -= buffer[..read].iter().filter(|byte| **byte == 7).count();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        held.lock().unwrap().recv().unwrap();
    });
    run(driver, async {
        let client = Client::new().timeout(HANG);
        let mut answer = client.post(&url).body(vec![7; LARGE]).send().await.unwrap();
        assert_eq!((answer.status(), answer.text().await.unwrap()), (Status::OK, "ok".to_owned()));
        assert_eq!(client.idle_connections(), 1, "all of it was sent");
        done.send(()).unwrap();
    });
});

/// A server that says all that it hears, as it hears it.
fn echo() -> Server {
    let limits = Limits { body_bytes: u64::MAX, ..Limits::default() };
    Server::new().limits(limits).route("/", post(async |request: Request| Body::from(request.into_body())))
}

drivers!(
    /// Each side waits for the other, if one sends all before it receives.
    a_body_goes_on_being_sent_while_the_answer_is_read,
    |driver: DriverName| {
        let authority = Authority::new();
        let plain = start(driver, echo());
        let secure = start(driver, echo().tls(authority.server(&["localhost"])));
        let urls = [
            format!("http://{}/", plain.address()),
            format!("https://localhost:{}/", secure.address().port()),
        ];
        for url in urls {
            run(driver, async {
                let client = Client::new().tls(&authority.client()).timeout(HANG);
                let whole = 4 * LARGE;
                let mut answer = client.post(&url).body(vec![7; whole]).send().await.unwrap();
                let mut came = 0;
                while let Some(piece) = answer.next().await {
                    came += piece.unwrap().iter().filter(|byte| **byte == 7).count();
                }
                assert_eq!(came, whole, "{url}");
                // One piece at a time, each after the answer to the one before.
                let (sender, pieces) = sync::bounded::<Vec<u8>>(1);
                sender.send(b"0".to_vec()).await.unwrap();
                let mut answer = client.post(&url).body(Body::stream(pieces)).send().await.unwrap();
                let mut sender = Some(sender);
                let mut heard = String::new();
                while let Some(piece) = answer.next().await {
                    heard.push_str(str::from_utf8(&piece.unwrap()).unwrap());
                    match heard.len() {
                        10 => sender = None,
                        next => sender.as_ref().unwrap().send(next.to_string().into_bytes()).await.unwrap(),
                    }
                }
                assert_eq!((sender.is_none(), &*heard), (true, "0123456789"), "{url}");
                assert_eq!(client.idle_connections(), 2, "{url}: both were sent and read to the end");
            });
        }
    }
);

drivers!(a_large_request_on_a_kept_connection_that_ends_is_sent_on_another, |driver: DriverName| {
    let (done, held) = channel();
    let held = std::sync::Mutex::new(held);
    let url = odd(move |number, mut stream| {
        let mut buffer = vec![0; 1 << 16];
        let mut read = |stream: &mut TcpStream, mut left: usize| {
            while left > 0 {
                let read = stream.read(&mut buffer).unwrap();
                left = left.saturating_sub(buffer[..read].iter().filter(|byte| **byte == 7).count());
            }
        };
        if number == 0 {
            read(&mut stream, 10);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            // Some of the next, and no answer to it.
            read(&mut stream, 1);
            return;
        }
        read(&mut stream, LARGE);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        held.lock().unwrap().recv().unwrap();
    });
    run(driver, async {
        let client = Client::new().timeout(HANG);
        client.post(&url).body(vec![7; 10]).send().await.unwrap();
        assert_eq!(client.idle_connections(), 1);
        let mut answer = client.request(Method::Put, &url).body(vec![7; LARGE]).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "ok");
        done.send(()).unwrap();
    });
});

/// A body of one piece, and then an error.
struct Broken(bool);

impl futures_core::Stream for Broken {
    type Item = Result<Piece, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let first = !std::mem::replace(&mut self.0, true);
        let piece = Piece::Data(vec![b'x'; 1000].into());
        std::task::Poll::Ready(Some(
            first.then_some(piece).ok_or_else(|| std::io::Error::other("no more of it")),
        ))
    }
}

drivers!(a_body_that_fails_ends_its_request_at_once, |driver: DriverName| {
    let url = odd(|_, stream| std::mem::forget(stream));
    run(driver, async {
        let client = Client::new().timeout(HANG);
        let failure = client.post(&url).body(Body::stream(Broken(false))).send().await.unwrap_err();
        assert!(matches!(failure.why, ClientError::Body(_)), "{failure}");
        assert_eq!((failure.at, failure.sent), (FailedAt::Send, SentSoFar::Part));
    });
});

drivers!(a_body_that_fails_while_the_answer_is_read_ends_that_too, |driver: DriverName| {
    let url = odd(|_, mut stream| {
        stream.read_exact(&mut [0; 10]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").unwrap();
        std::mem::forget(stream);
    });
    run(driver, async {
        let client = Client::new().timeout(HANG);
        let (fail, failing) = sync::bounded::<Vec<u8>>(1);
        let body = After { failing: Box::pin(failing), broken: Broken(true) };
        let mut answer = client.post(&url).body(Body::stream(body)).send().await.unwrap();
        assert_eq!(&*answer.next().await.unwrap().unwrap(), b"a");
        drop(fail);
        let why = time::timeout(HANG, answer.next()).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(why, BodyError::Source(_)), "{why}");
    });
});

/// A body that fails once a channel is closed.
struct After<S> {
    failing: std::pin::Pin<Box<S>>,
    broken: Broken,
}

impl<S: futures_core::Stream> futures_core::Stream for After<S> {
    type Item = Result<Piece, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::ready!(self.failing.as_mut().poll_next(context));
        std::pin::Pin::new(&mut self.broken).poll_next(context)
    }
}

drivers!(
    a_handshake_that_is_refused_before_it_is_read_is_refused_as_the_server_says,
    |driver: DriverName| {
        let url = odd(|_, mut stream| {
            stream.write_all(b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
            stream.read_exact(&mut [0; 1]).unwrap();
        });
        run(driver, async {
            let client = Client::new().timeout(HANG);
            let refused = client.websocket(&url.replace("http", "ws")).connect().await.unwrap_err();
            assert!(matches!(refused.why, ClientError::NotUpgraded { .. }), "{refused}");
        });
    }
);

drivers!(a_redirect_that_comes_early_is_followed_with_the_whole_body, |driver: DriverName| {
    let server = start(driver, echo());
    let told = format!(
        "HTTP/1.1 307 Elsewhere\r\nLocation: http://{}/\r\nContent-Length: 0\r\n\r\n",
        server.address()
    );
    let url = early(Box::leak(told.into_boxed_str()), Then::Close);
    run(driver, async {
        let client = Client::new().timeout(HANG).redirects(1);
        let mut answer = client.post(&url).body(vec![7; LARGE]).send().await.unwrap();
        assert_eq!(answer.bytes(LARGE).await.unwrap().len(), LARGE);
    });
});

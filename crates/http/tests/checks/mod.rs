//! Properties of HTTP/2 connections that hold for any bytes of a peer: nothing panics, and a connection comes
//! to its end when the peer has ended.
//!
//! The fuzz targets `http2-server` and `http2-client` of `fuzz/` are these functions; the tests replay their
//! corpus.

use ringroad_engine::choose::Wish;
use ringroad_engine::net::UnixStream;
use ringroad_engine::{DriverName, Runtime, spawn};
use ringroad_http::ws::{self, Options};
use ringroad_http::{
    Body, FieldBlock, Handle, Http2, Http2Connection, Http2Request, Request, Response, Server, Transport,
    get, post,
};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How a client begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a connection may take before it is shown to hang. Far beyond what any needs.
const HANG: Duration = Duration::from_secs(100);

async fn echo_messages(request: Request) -> Response {
    ws::accept(&request, |mut socket| async move {
        while let Ok(Some(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                break;
            }
        }
    })
}

/// `O_PATH` of open(2), on the architectures that this library is tested on.
const O_PATH: i32 = 0o10_000_000;

/// A server for as long as the process lives, and its socket. The socket's name is gone: it is reached
/// through a descriptor, so that no file is left when the process ends.
fn server() -> &'static (Handle, File) {
    static SERVER: OnceLock<(Handle, File)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("ringroad-http2-checks-{}", std::process::id()));
        let server = Server::new()
            .route("/", get(async |_: Request| "page"))
            .route("/echo", post(async |request: Request| Body::from(request.into_body())))
            .route(
                "/all",
                post(async |mut request: Request| request.body().bytes(100_000).await.is_ok().to_string()),
            )
            .route("/large", get(async |_: Request| vec![7_u8; 100_000]))
            .route("/socket", get(echo_messages))
            .http2_prior_knowledge(Http2::default());
        let server = server.bind(format!("unix:{}", path.display()).as_str()).unwrap();
        let handle = server.driver(Wish::Named(DriverName::Epoll)).start().unwrap();
        let socket = OpenOptions::new().read(true).custom_flags(O_PATH).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        (handle, socket)
    })
}

/// Any bytes behind the preface of a client: what the server sends is frames, and then it closes.
pub(crate) fn http2_server(bytes: &[u8]) {
    let (server, socket) = server();
    let mut stream = StdStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    // The server may have closed.
    let _ = stream.write_all(&[PREFACE, bytes].concat());
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(why) => assert_eq!(why.kind(), std::io::ErrorKind::ConnectionReset),
    }
    let mut at = 0;
    while let Some(rest) = answer.get(at..).filter(|rest| !rest.is_empty()) {
        // A connection that was cut may end within a frame.
        let Some(&[high, middle, low, kind, ..]) = rest.first_chunk::<9>() else { break };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        assert!(length <= 16_384 && kind <= 9, "{length} bytes of type {kind}");
        at += 9 + length;
    }
    let begun = Instant::now();
    while server.counters().connections > 0 {
        assert!(begun.elapsed() < HANG, "the connection stays");
        std::thread::yield_now();
    }
    assert_eq!(server.counters().panics, 0);
}

thread_local! {
    static RUNTIME: Runtime = Runtime::new(DriverName::Epoll).unwrap();
}

/// Any bytes of a server: requests and a session on the connection come to their end.
pub(crate) fn http2_client(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let work = async move {
        let (near, far) = UnixStream::pair().unwrap();
        let peer = spawn(async move {
            let (mut read, mut write) = far.split();
            let sent = write.write_all(bytes).await.0;
            if sent.is_ok() {
                let _ = write.shutdown();
            }
            while read.recv().await.is_ok_and(|lease| !lease.is_empty()) {}
        });
        if let Ok(connection) = Http2Connection::begin(Transport::from(near)).await {
            let none = FieldBlock::new();
            let request = |method, target, body| Http2Request {
                method,
                scheme: "http",
                authority: "a.test",
                target,
                lines: &none,
                body,
            };
            let one = connection.send(request("GET", "/", Body::empty()));
            if let Ok(mut response) = one.await {
                let _ = response.bytes(1 << 20).await;
            }
            if let Ok(mut response) = connection.send(request("POST", "/", Body::from(vec![1; 1000]))).await {
                let _ = response.bytes(1 << 20).await;
            }
            if let Ok(mut socket) = connection.websocket("http", "a.test", "/", &none, &Options::new()).await
            {
                let _ = socket.send("hello").await;
                while let Ok(Some(_)) = socket.recv().await {}
            }
        }
        peer.await.unwrap();
    };
    RUNTIME.with(|runtime| runtime.block_on(work).unwrap());
}

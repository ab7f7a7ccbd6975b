//! TLS: the server with a client that is a blocking session, and our client with our server.

use crate::support::{HANG, file_of, start, wait_until};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use ringroad_engine::DriverName;
use ringroad_engine::net::UnixStream;
use ringroad_engine::{Runtime, spawn};
use ringroad_http::{
    Body, Client, FailedAt, Handle, HandshakeError, IntoResponse, Outcome, Receive, Request, SentSoFar,
    Server, TlsStream, Transport, get, post,
};
use ringroad_tls::{Client as TlsClient, ClientSettings, Output, Pair, ServerSettings, Session, Trust};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn run<F: Future>(driver: DriverName, future: F) -> F::Output {
    Runtime::new(driver).unwrap().block_on(future).unwrap()
}

/// An authority, and the certificates that it signs.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
    /// The certificate as a file, for settings that name a file.
    file: tempfile::NamedTempFile,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(certificate.pem().as_bytes()).unwrap();
        Authority { issuer: Issuer::new(parameters, key), certificate, file }
    }

    pub(crate) fn pair(&self, names: &[&str]) -> Pair {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let parameters = CertificateParams::new(names).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        Pair::from_pem(&certificate.pem(), &key.serialize_pem()).unwrap()
    }

    pub(crate) fn server(&self, names: &[&str]) -> Arc<ringroad_tls::Server> {
        let settings = ServerSettings::new(Vec::new());
        Arc::new(ringroad_tls::Server::new(settings, vec![self.pair(names)]).unwrap().0)
    }

    pub(crate) fn trust(&self) -> Trust {
        Trust::Given(vec![self.certificate.der().clone()])
    }

    pub(crate) fn client(&self) -> TlsClient {
        TlsClient::new(ClientSettings::new(self.trust())).unwrap()
    }
}

/// A client with a blocking session.
struct Tls {
    stream: TcpStream,
    session: Session,
    plain: Vec<u8>,
}

impl Tls {
    fn connect(address: SocketAddr, client: &TlsClient) -> Tls {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut tls = Tls { stream, session: client.begin("a.test").unwrap(), plain: Vec::new() };
        tls.take_in(&mut []);
        while tls.session.is_handshaking() {
            assert!(tls.more(), "the server closed the connection during the handshake");
        }
        tls
    }

    fn take_in(&mut self, bytes: &mut [u8]) {
        let mut out = Output::default();
        self.session.receive(bytes, &mut self.plain, &mut out).unwrap();
        self.stream.write_all(&out).unwrap();
    }

    fn more(&mut self) -> bool {
        let mut buffer = [0; 20_000];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(bytes) => {
                self.take_in(&mut buffer[..bytes]);
                true
            }
            Err(why) if why.kind() == ErrorKind::ConnectionReset => false,
            // As in `read_more`.
            Err(why) if why.kind() == ErrorKind::Interrupted => true,
            Err(why) => panic!("{why}"),
        }
    }

    fn send(&mut self, text: impl AsRef<[u8]>) {
        let mut out = Output::default();
        self.session.seal(text.as_ref(), &mut out).unwrap();
        self.stream.write_all(&out).unwrap();
    }

    /// Returns the status and body of the next response, which has a length.
    fn reply(&mut self) -> (u16, Vec<u8>) {
        let end = loop {
            if let Some(at) = self.plain.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.more(), "a head");
        };
        let head = String::from_utf8(self.plain.drain(..end).collect()).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap_or("0");
        let length: usize = length.parse().unwrap();
        while self.plain.len() < length {
            assert!(self.more(), "{} of {length} bytes", self.plain.len());
        }
        (head.split(' ').nth(1).unwrap().parse().unwrap(), self.plain.drain(..length).collect())
    }

    fn get(&mut self, path: &str) -> (u16, Vec<u8>) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n"));
        self.reply()
    }

    /// Returns the rest up to the end of the connection, and whether `close_notify` announced the end.
    fn rest(mut self) -> (Vec<u8>, bool) {
        while self.more() {}
        (self.plain, self.session.has_ended())
    }
}

const LARGE: usize = 3_000_000;

fn large() -> Vec<u8> {
    (0..LARGE).map(|at| (at * 7 / 3) as u8).collect()
}

async fn told(request: Request) -> String {
    let info = request.connection().unwrap();
    let tls = info.tls.unwrap();
    let alpn = String::from_utf8_lossy(tls.alpn.as_deref().unwrap()).into_owned();
    format!("{} {} {} {}", tls.version, tls.server_name.as_deref().unwrap(), alpn, info.client.is_some())
}

async fn echo(mut request: Request) -> Vec<u8> {
    request.body().bytes(10_000_000).await.unwrap()
}

fn site() -> Server {
    let file = file_of(&large());
    Server::new()
        .route("/", get(|_: Request| async { "hello" }))
        .route("/told", get(told))
        .route("/large", get(|_: Request| async { large() }))
        .route(
            "/file",
            get(move |_: Request| {
                let file = Arc::clone(&file);
                async move { Body::file(file, 0..LARGE as u64) }
            }),
        )
        .route("/echo", post(echo))
}

fn secured(driver: DriverName, authority: &Authority) -> Handle {
    start(driver, site().tls(authority.server(&["a.test"])))
}

drivers!(pages_bodies_and_files_go_over_tls, |driver: DriverName| {
    let authority = Authority::new();
    let server = secured(driver, &authority);
    let mut client = Tls::connect(server.address(), &authority.client());
    assert_eq!(client.get("/"), (200, b"hello".to_vec()));
    assert_eq!(client.get("/told"), (200, b"TLSv1.3 a.test http/1.1 true".to_vec()));
    let all = large();
    for path in ["/large", "/file", "/large"] {
        let (status, body) = client.get(path);
        assert!(status == 200 && body == all, "{path}: {status}, {} bytes", body.len());
    }
    client.send(format!("POST /echo HTTP/1.1\r\nHost: a.test\r\nContent-Length: {LARGE}\r\n\r\n"));
    for piece in all.chunks(50_000) {
        client.send(piece);
    }
    assert!(client.reply() == (200, all));
    // Many requests in one record, and one request in many records.
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".repeat(50));
    (0..50).for_each(|_| assert_eq!(client.reply(), (200, b"hello".to_vec())));
    for byte in b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.reply(), (200, b"hello".to_vec()));
    assert_eq!(client.rest(), (Vec::new(), true), "the end is announced");
    let counters = server.counters();
    assert_eq!((counters.handshakes, counters.handshakes_failed), ([0, 0, 1, 0], 0));
});

drivers!(a_connection_without_tls_is_refused_told_and_does_no_harm, |driver: DriverName| {
    let authority = Authority::new();
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let server = site().tls(authority.server(&["a.test"])).on_refused(move |refused| {
        tell.lock().unwrap().send((refused.status, refused.reason.to_string())).unwrap();
    });
    let server = start(driver, server);
    let mut other = TcpStream::connect(server.address()).unwrap();
    other.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = other.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(told.recv().unwrap(), (None, "TLS handshake: the peer does not speak TLS".to_owned()));
    // Closed without an alert: counted, but not reported.
    drop(TcpStream::connect(server.address()).unwrap());
    wait_until("both are counted", || server.counters().handshakes_failed == 2);
    assert!(told.try_recv().is_err());
    assert_eq!(Tls::connect(server.address(), &authority.client()).get("/").0, 200);
});

drivers!(a_plain_request_to_an_address_with_tls_is_answered_in_plain_http, |driver: DriverName| {
    let authority = Authority::new();
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let server = site().tls(authority.server(&["a.test"])).on_refused(move |refused| {
        let (status, head) = (refused.status.map(|status| status.code()), refused.head.to_vec());
        tell.lock().unwrap().send((status, refused.reason.to_string(), head)).unwrap();
    });
    let server = start(driver, server);
    let text = "This port speaks TLS: use https:// instead of http://\n";
    // In one piece; with more bytes after it than one read takes; and cut within the method.
    let rest = vec![b'x'; 300_000];
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n".as_slice();
    let pieces: [&[&[u8]]; 3] =
        [&[b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"], &[post, &rest], &[b"O", b"PTIONS * HTTP/1.1\r\n\r\n"]];
    for pieces in pieces {
        let mut plain = TcpStream::connect(server.address()).unwrap();
        plain.set_read_timeout(Some(HANG)).unwrap();
        plain.set_nodelay(true).unwrap();
        pieces.iter().for_each(|piece| plain.write_all(piece).unwrap());
        let mut answer = String::new();
        plain.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert!(answer.contains("Connection: close\r\n") && answer.ends_with(text), "{answer}");
        let (status, reason, head) = told.recv().unwrap();
        assert_eq!((status, reason.as_str()), (Some(400), "TLS handshake: the peer does not speak TLS"));
        assert!(head.starts_with(pieces[0]), "{}", head.escape_ascii());
    }
    let mut plain = TcpStream::connect(server.address()).unwrap();
    plain.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    drop(plain);
    wait_until("they are over", || server.counters().connections == 0);
    assert_eq!(Tls::connect(server.address(), &authority.client()).get("/").0, 200);
});

drivers!(a_handshake_that_takes_too_long_is_given_up, |driver: DriverName| {
    let authority = Authority::new();
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let server = site()
        .tls(authority.server(&["a.test"]))
        .handshake_timeout(Duration::from_millis(20))
        .on_refused(move |refused| {
            tell.lock().unwrap().send((refused.reason.to_string(), refused.client)).unwrap();
        });
    let server = start(driver, server);
    let mut slow = TcpStream::connect(server.address()).unwrap();
    // An incomplete record.
    slow.write_all(&[22, 3, 1, 1]).unwrap();
    let (reason, client) = told.recv().unwrap();
    assert_eq!(reason, "TLS handshake: it took too long");
    assert_eq!(client, Some(slow.local_addr().unwrap()), "the report names the client");
    assert_eq!(slow.read(&mut [0; 10]).unwrap_or(0), 0);
});

/// Servers that refuse any client with these settings after its last flight, and one that refuses it after
/// the first.
fn refusals(authority: &Authority) -> [(ServerSettings, ClientSettings, &'static str); 3] {
    let mut wants_certificate = ServerSettings::new(Vec::new());
    wants_certificate.client = Some(ringroad_tls::ClientAuth {
        authorities: authority.file.path().to_owned(),
        required: true,
        revoked: Vec::new(),
    });
    let other = Authority::new();
    let plain = || ClientSettings::new(authority.trust());
    let stranger = ClientSettings { identity: Some(other.pair(&["c.test"])), ..plain() };
    let other_protocol = ClientSettings { alpn: vec![b"unheard-of".to_vec()], ..plain() };
    [
        (wants_certificate.clone(), plain(), "CertificateRequired"),
        // Both authorities have the same name, so the signature is invalid.
        (wants_certificate, stranger, "DecryptError"),
        (ServerSettings::new(Vec::new()), other_protocol, "NoApplicationProtocol"),
    ]
}

fn refusing(driver: DriverName, authority: &Authority, settings: ServerSettings) -> Handle {
    let server = ringroad_tls::Server::new(settings, vec![authority.pair(&["a.test"])]).unwrap().0;
    start(driver, site().tls(Arc::new(server)))
}

drivers!(a_client_that_is_refused_reads_the_alert_and_an_end_that_is_no_reset, |driver: DriverName| {
    let authority = Authority::new();
    for (settings, client, alert) in refusals(&authority) {
        let server = refusing(driver, &authority, settings);
        let client = TlsClient::new(client).unwrap();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        let mut session = client.begin("a.test").unwrap();
        let mut told = None;
        let (mut buffer, mut plain) = (vec![0; 100_000], Vec::new());
        let mut bytes = 0;
        loop {
            let was_handshaking = session.is_handshaking();
            let mut out = Output::default();
            if let Err(why) = session.receive(&mut buffer[..bytes], &mut plain, &mut out)
                && told.is_none()
            {
                told = Some(why.detail().to_owned());
            }
            if told.is_none() && was_handshaking && !session.is_handshaking() {
                // The client considers itself connected, and sends more than the server reads at once.
                session.seal(&vec![b'x'; 300_000], &mut out).unwrap();
            }
            let mut all = out.into_vec();
            if alert == "NoApplicationProtocol" && bytes == 0 {
                // Any bytes after a first flight.
                all.extend(vec![0; 300_000]);
            }
            if told.is_none() {
                stream.write_all(&all).unwrap();
                if all.len() > 300_000 {
                    wait_until("it is refused", || server.counters().handshakes_failed == 1);
                }
            }
            bytes = loop {
                match stream.read(&mut buffer) {
                    // As in `read_more`.
                    Err(why) if why.kind() == ErrorKind::Interrupted => {}
                    done => break done.unwrap_or_else(|why| panic!("{alert}: {why}")),
                }
            };
            if bytes == 0 {
                break;
            }
        }
        assert_eq!(told.as_deref(), Some(format!("alert {alert}").as_str()));
        drop(stream);
        wait_until("it is over", || server.counters().connections == 0);
    }
});

drivers!(a_refused_client_that_goes_on_sending_is_closed_after_so_many_bytes, |driver: DriverName| {
    let authority = Authority::new();
    let [_, _, (settings, client, _)] = refusals(&authority);
    let server = refusing(driver, &authority, settings);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let mut session = TlsClient::new(client).unwrap().begin("a.test").unwrap();
    let mut out = Output::default();
    session.receive(&mut [], &mut Vec::new(), &mut out).unwrap();
    stream.write_all(out.as_slice()).unwrap();
    let mut sent = 0_u64;
    while stream.write_all(&[0; 64 * 1024]).is_ok() {
        sent += 64;
        assert!(sent < 1024 * 1024, "the server takes everything");
    }
    wait_until("it is over", || server.counters().connections == 0);
    assert!(server.counters().bytes_in <= 3 << 20);
});

drivers!(openssl_says_which_alert_it_got, |driver: DriverName| {
    let authority = Authority::new();
    let [(settings, ..), _, _] = refusals(&authority);
    let server = refusing(driver, &authority, settings);
    let address = server.address().to_string();
    let words = ["s_client", "-tls1_3", "-ign_eof", "-connect", &address];
    let mut command = std::process::Command::new("openssl");
    command.args(words).stdin(std::process::Stdio::piped());
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(why) => return eprintln!("skipped: openssl: {why}"),
    };
    // It may end before it has received everything.
    let _ = child.stdin.take().unwrap().write_all(&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000));
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("alert certificate required"), "{told}");
});

drivers!(handshakes_that_wait_for_their_clients_keep_no_other_waiting, |driver: DriverName| {
    let authority = Authority::new();
    let hour = Duration::from_secs(3600);
    let server = site().tls(authority.server(&["a.test"])).handshakes_max(1.try_into().unwrap());
    let server = start(driver, server.handshake_timeout(hour));
    let hello = {
        let mut out = Output::default();
        let mut session = authority.client().begin("a.test").unwrap();
        session.receive(&mut [], &mut Vec::new(), &mut out).unwrap();
        out.into_vec()
    };
    // Silent within a record header, within a record, and after the server's flight.
    let stops = [0, 3, hello.len() / 2, hello.len()];
    let mut slow = Vec::new();
    for stop in stops.into_iter().cycle().take(20) {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.write_all(&hello[..stop]).unwrap();
        if stop == hello.len() {
            stream.read_exact(&mut [0; 100]).expect("it has come so far");
        }
        slow.push(stream);
    }
    wait_until("all are there", || server.counters().accepted == 20);
    assert_eq!(Tls::connect(server.address(), &authority.client()).get("/").0, 200);
    assert_eq!((server.counters().handshakes_waiting, server.counters().handshakes_failed), (0, 0));
});

drivers!(many_handshakes_at_once_with_one_place_all_come_to_their_end, |driver: DriverName| {
    let authority = Authority::new();
    let server = site().tls(authority.server(&["a.test"])).handshakes_max(1.try_into().unwrap());
    let server = start(driver, server.handshake_timeout(Duration::from_secs(3600)));
    std::thread::scope(|scope| {
        let ask = || Tls::connect(server.address(), &authority.client()).get("/").0;
        let all: Vec<_> = (0..12).map(|_| scope.spawn(ask)).collect();
        all.into_iter().for_each(|one| assert_eq!(one.join().unwrap(), 200));
    });
    assert_eq!(server.counters().handshakes_waiting, 0);
});

drivers!(a_stop_waits_for_what_has_begun_and_not_for_handshakes_that_do_not_come, |driver: DriverName| {
    let authority = Authority::new();
    let inside = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&inside);
    let (go, gone) = channel();
    let (gone, ended) = (Arc::new(Mutex::new(Some(gone))), Arc::new(Mutex::new(None)));
    let outcome = Arc::clone(&ended);
    let slow = move |_: Request| {
        let gone = gone.lock().unwrap().take().unwrap();
        let outcome = Arc::clone(&outcome);
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            let _ = ringroad_engine::spawn_blocking(move || gone.recv()).await;
            "done".into_response().on_sent(move |sent| *outcome.lock().unwrap() = Some(sent.outcome))
        }
    };
    let server = Server::new().route("/slow", get(slow)).tls(authority.server(&["a.test"]));
    let server = start(driver, server);
    let mut client = Tls::connect(server.address(), &authority.client());
    client.send("GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let silent = TcpStream::connect(server.address()).unwrap();
    wait_until("it is with the handler", || {
        inside.load(Ordering::SeqCst) == 1 && server.counters().accepted == 2
    });
    server.stop();
    go.send(()).unwrap();
    assert_eq!(client.reply(), (200, b"done".to_vec()));
    assert_eq!(client.rest(), (Vec::new(), true));
    server.wait().unwrap();
    assert_eq!(*ended.lock().unwrap(), Some(Outcome::Complete));
    drop(silent);
});

drivers!(our_client_speaks_https_and_keeps_its_connections, |driver: DriverName| {
    let authority = Authority::new();
    let server = start(driver, site().tls(authority.server(&["localhost", "127.0.0.1"])));
    let url = |host: &str, path: &str| format!("https://{host}:{}{path}", server.address().port());
    run(driver, async {
        let client = Client::new().tls(&authority.client());
        for _ in 0..3 {
            let mut response = client.get(&url("localhost", "/")).send().await.unwrap();
            assert_eq!(response.text().await.unwrap(), "hello");
        }
        assert_eq!(client.idle_connections(), 1);
        let mut response = client.get(&url("localhost", "/large")).send().await.unwrap();
        assert!(response.bytes(10_000_000).await.unwrap() == large());
        let sent = client.post(&url("127.0.0.1", "/echo")).body(large()).send().await;
        assert!(sent.unwrap().bytes(10_000_000).await.unwrap() == large());
        assert_eq!(client.idle_connections(), 2, "another name is another session");
        // A client with other trust settings gets no connection of this one.
        let failure = client.clone().tls(&Authority::new().client()).get(&url("localhost", "/")).send().await;
        assert_eq!(failure.unwrap_err().at, FailedAt::Tls);
        // Nor do the system's authorities or a plain connection.
        let failure = Client::new().get(&url("localhost", "/")).send().await.unwrap_err();
        assert_eq!((failure.at, failure.sent), (FailedAt::Tls, SentSoFar::Nothing));
        let plain = format!("http://{}/", server.address());
        assert_eq!(client.get(&plain).send().await.unwrap().status().code(), 400);
    });
    assert_eq!(server.counters().handshakes.iter().sum::<u64>(), 2);
});

drivers!(a_client_that_a_stream_refuses_reads_the_alert_and_no_reset, |driver: DriverName| {
    use ringroad_engine::net::{self, SocketOption};
    let authority = Authority::new();
    for (settings, client, alert) in refusals(&authority) {
        let server = ringroad_tls::Server::new(settings, vec![authority.pair(&["a.test"])]).unwrap().0;
        let client = TlsClient::new(client).unwrap();
        let told = run(driver, async {
            let mut listener = net::TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
            let stream = net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            // Bytes of the client wait for the server to receive them.
            stream.set_option(SocketOption::SendBuffer(32 << 10)).unwrap();
            let accepting = spawn(async move {
                let stream = listener.accept().await.unwrap();
                stream.set_option(SocketOption::ReceiveBuffer(32 << 10)).unwrap();
                TlsStream::accept(stream, &server).await
            });
            let told = match TlsStream::connect(stream, &client, "a.test").await {
                Err(why) => why.to_string(),
                // The client considers itself connected, and sends more than there is room for.
                Ok(mut stream) => {
                    stream.write_all(vec![b'x'; 300_000]).await.0.unwrap();
                    stream.recv().await.unwrap_err().to_string()
                }
            };
            assert!(matches!(accepting.await.unwrap(), Err(HandshakeError::Tls(_))));
            told
        });
        assert!(told.contains(alert), "{told}");
    }
});

drivers!(a_certificate_for_another_name_is_not_accepted, |driver: DriverName| {
    let authority = Authority::new();
    let server = secured(driver, &authority);
    let url = format!("https://localhost:{}/", server.address().port());
    run(driver, async {
        let failure = Client::new().tls(&authority.client()).get(&url).send().await.unwrap_err();
        assert_eq!(failure.at, FailedAt::Tls);
        assert!(failure.to_string().contains("not valid for name"), "{failure}");
    });
});

/// A server that sends an answer without a length, and ends it with or without `close_notify`.
fn until_close(authority: &Authority, word: bool) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, tls) = (listener.local_addr().unwrap(), authority.server(&["localhost"]));
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut session, mut plain) = (tls.begin().unwrap(), Vec::new());
        while !plain.ends_with(b"\r\n\r\n") {
            let mut buffer = [0; 20_000];
            let bytes = stream.read(&mut buffer).unwrap();
            let mut out = Output::default();
            session.receive(&mut buffer[..bytes], &mut plain, &mut out).unwrap();
            stream.write_all(&out).unwrap();
        }
        let mut out = Output::default();
        session.seal(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end", &mut out).unwrap();
        if word {
            session.close(&mut out);
        }
        stream.write_all(&out).unwrap();
    });
    (address, serving)
}

drivers!(a_body_that_ends_with_the_connection_is_whole_only_if_the_end_is_announced, |driver: DriverName| {
    let authority = Authority::new();
    for word in [true, false] {
        let (address, serving) = until_close(&authority, word);
        let read = run(driver, async {
            let client = Client::new().tls(&authority.client());
            let url = format!("https://localhost:{}/", address.port());
            client.get(&url).send().await.unwrap().bytes(10_000_000).await
        });
        serving.join().unwrap();
        match word {
            true => assert_eq!(read.unwrap(), b"to the end"),
            false => assert!(read.unwrap_err().to_string().contains("close_notify")),
        }
    }
});

drivers!(a_tls_stream_lies_over_any_stream, |driver: DriverName| {
    let authority = Authority::new();
    let (tls, client) = (authority.server(&["a.test"]), authority.client());
    run(driver, async {
        let (near, far) = UnixStream::pair().unwrap();
        let accepting = spawn(async move {
            let mut far = TlsStream::accept(far, &tls).await.unwrap();
            let mut all = Vec::new();
            loop {
                let lease = far.recv().await.unwrap();
                if lease.is_empty() {
                    break;
                }
                all.extend_from_slice(&lease);
            }
            far.write_all(all).await.0.unwrap();
            far.finish().await.unwrap();
        });
        let near = TlsStream::connect(near, &client, "a.test").await.unwrap();
        let (mut read, mut write) = Transport::from(near).split();
        let sending = spawn(async move {
            for piece in large().chunks(100_000) {
                write.write_all(piece.to_vec()).await.0.unwrap();
            }
            write.finish().await.unwrap();
        });
        let mut all = Vec::new();
        loop {
            let lease = read.recv().await.unwrap();
            if lease.is_empty() {
                break;
            }
            all.extend_from_slice(&lease);
        }
        sending.await.unwrap();
        accepting.await.unwrap();
        assert!(all == large());
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        let failed = TlsStream::connect(near, &client, "a.test").await;
        assert!(matches!(failed, Err(HandshakeError::Closed | HandshakeError::Connection(_))), "{failed:?}");
    });
});

drivers!(a_tls_stream_has_the_traits_of_every_stream, |driver: DriverName| {
    use ringroad_io::{AsyncRead, AsyncReadExt, AsyncWrite, BufReader, copy_bidirectional};
    let authority = Authority::new();
    let (tls, client) = (authority.server(&["a.test"]), authority.client());
    run(driver, async {
        // A TLS client, a proxy that terminates TLS, and a server behind it without TLS.
        let (near, far) = UnixStream::pair().unwrap();
        let (inner, mut behind) = UnixStream::pair().unwrap();
        let proxy = spawn(async move {
            let far = TlsStream::accept(far, &tls).await.unwrap();
            copy_bidirectional(far, inner).await.unwrap()
        });
        let mut near = TlsStream::connect(near, &client, "a.test").await.unwrap();
        AsyncWrite::write_all(&mut near, "one\ntwo\n").await.0.unwrap();
        AsyncWrite::shutdown(&mut near).await.unwrap();
        assert_eq!(behind.read_to_string().await.unwrap(), "one\ntwo\n");
        behind.write_all("0123456789\nend").await.0.unwrap();
        behind.shutdown(std::net::Shutdown::Write).unwrap();
        // Bytes that do not fit a small buffer are not lost.
        let (read, got) = AsyncRead::read(&mut near, exactly(4)).await;
        assert_eq!((read.unwrap(), &*got), (4, &b"0123"[..]));
        let mut reader = BufReader::new(near);
        assert_eq!(reader.read_line().await.unwrap().as_deref(), Some("456789"));
        assert_eq!(reader.read_to_string().await.unwrap(), "end");
        assert_eq!(proxy.await.unwrap(), (8, 14));
    });
});

drivers!(hyper_serves_and_asks_over_tls_in_both_versions, |driver: DriverName| {
    use http_body_util::{BodyExt as _, Full};
    use hyper::body::{Bytes, Incoming};
    use hyper::service::service_fn;
    use hyper::{Response as Answer, client, server};
    use ringroad_bridge::{Io, LocalExecutor};
    let authority = Authority::new();
    let (tls, client) = (authority.server(&["a.test"]), authority.client());
    let echo = async |request: hyper::Request<Incoming>| {
        let body = request.into_body().collect().await?.to_bytes();
        Ok::<_, hyper::Error>(Answer::new(Full::new(body)))
    };
    let ask = || {
        let body = Full::new(Bytes::from(large()));
        hyper::Request::post("http://a.test/").header("host", "a.test").body(body).unwrap()
    };
    run(driver, async {
        for http2 in [false, true] {
            let (near, far) = UnixStream::pair().unwrap();
            let tls = Arc::clone(&tls);
            let serving = spawn(async move {
                let far = Io::gathering(Transport::from(TlsStream::accept(far, &tls).await.unwrap()));
                // The client leaves before it gets the last TLS record, which is an error here.
                let _ = if http2 {
                    let builder = server::conn::http2::Builder::new(LocalExecutor);
                    builder.serve_connection(far, service_fn(echo)).await
                } else {
                    server::conn::http1::Builder::new().serve_connection(far, service_fn(echo)).await
                };
            });
            let near = TlsStream::connect(near, &client, "a.test").await.unwrap();
            let near = Io::gathering(Transport::from(near));
            let answer = if http2 {
                let (mut sender, connection) =
                    client::conn::http2::handshake(LocalExecutor, near).await.unwrap();
                spawn(connection).detach();
                sender.send_request(ask()).await.unwrap().into_body().collect().await.unwrap()
            } else {
                let (mut sender, connection) = client::conn::http1::handshake(near).await.unwrap();
                spawn(connection).detach();
                sender.send_request(ask()).await.unwrap().into_body().collect().await.unwrap()
            };
            assert!(answer.to_bytes() == large(), "HTTP/2: {http2}");
            serving.await.unwrap();
        }
    });
});

/// Returns an empty buffer with exactly this capacity.
fn exactly(bytes: usize) -> Vec<u8> {
    let mut exact = vec![0; bytes].into_boxed_slice().into_vec();
    exact.clear();
    exact
}

drivers!(a_proxy_header_comes_before_the_handshake, |driver: DriverName| {
    let authority = Authority::new();
    let server = Server::new()
        .route("/", get(|request: Request| async move { request.peer_addr().unwrap().to_string() }))
        .tls(authority.server(&["a.test"]))
        .proxy_from(["127.0.0.0/8".parse().unwrap()]);
    let server = start(driver, server);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let mut session = authority.client().begin("a.test").unwrap();
    let mut first = Output::default();
    session.receive(&mut [], &mut Vec::new(), &mut first).unwrap();
    // In one piece with the beginning of the handshake.
    let header = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n";
    stream.write_all(&[header.as_slice(), &first].concat()).unwrap();
    let mut tls = Tls { stream, session, plain: Vec::new() };
    while tls.session.is_handshaking() {
        assert!(tls.more());
    }
    assert_eq!(tls.get("/"), (200, b"192.0.2.7:4711".to_vec()));
});

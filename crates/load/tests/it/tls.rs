//! https, against servers by the same library on blocking sockets. What is tested is what we make of it:
//! counting, trust, ends, and that no certificate that is not vouched for is believed.

use crate::server::{Log, Requests, Server, close};
use crate::{best, drivers, get, plan, run};
use ringroad_load::plan::Request;
use ringroad_load::tls::{Client, Trust};
use ringroad_load::{Message, Plan, Target};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A self-signed certificate for this name, and a server's configuration with it.
pub(crate) fn certificate(name: &str) -> (Arc<ServerConfig>, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    (Arc::new(config), certificate)
}

/// A server that says `answer` to each request, over TLS.
fn https(config: Arc<ServerConfig>, answer: &'static [u8]) -> Server {
    Server::start(move |stream, log| {
        talk(&config, stream, log, answer, Goodbye::Said);
    })
}

/// How a server ends a connection.
#[derive(Clone, Copy, PartialEq)]
enum Goodbye {
    None,
    Said,
    /// Said, and the connection stays until the client has closed it.
    Waits,
}

/// Answers requests until there are no more; then says goodbye, or just closes.
fn talk(config: &Arc<ServerConfig>, stream: &mut TcpStream, log: &Log, answer: &[u8], goodbye: Goodbye) {
    let mut session = ServerConnection::new(Arc::clone(config)).unwrap();
    let mut requests = Requests::default();
    let keeps = answer.windows(17).any(|part| part.eq_ignore_ascii_case(b"content-length: 5"));
    while requests.next(&mut Stream::new(&mut session, stream), log).is_some() {
        let mut tls = Stream::new(&mut session, stream);
        if tls.write_all(answer).and_then(|()| tls.flush()).is_err() {
            return;
        }
        if !keeps {
            break;
        }
    }
    if goodbye != Goodbye::None {
        session.send_close_notify();
        let _ = session.write_tls(stream);
    }
    if goodbye == Goodbye::Waits {
        let _ = std::io::copy(stream, &mut std::io::sink());
    }
    close(stream);
}

fn secured(address: SocketAddr, trust: Trust) -> Plan {
    let target: Target = format!("https://localhost:{}/", address.port()).parse().unwrap();
    let message = get(&target, 1);
    Plan { tls: Some(Client::new(trust).unwrap()), ..plan(target, message) }
}

#[test]
fn on_every_driver_requests_and_handshakes_are_counted_apart() {
    let (config, certificate) = certificate("localhost");
    for choice in drivers() {
        let server = https(Arc::clone(&config), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        let trust = Trust::Roots(vec![certificate.clone()]);
        let plan = Plan { threads: 2, count: Some(60), ..secured(server.address, trust) };
        let outcome = run(&plan, &choice).unwrap();
        let counts = &outcome.counts;
        assert_eq!((counts.sent, counts.completed, counts.errors.total()), (60, 60, 0), "{choice}");
        assert_eq!((server.requests(), counts.body_bytes), (60, 300), "{choice}");
        let handshakes = outcome.handshakes.as_ref().unwrap();
        assert_eq!((handshakes.full + handshakes.resumed, handshakes.failed), (3, 0), "{choice}");
        assert_eq!(handshakes.took.count(), counts.connects, "{choice}");
        assert_eq!(outcome.tally.latencies.response.count(), 60, "{choice}");
    }
}

/// Larger than a record and than every buffer, both ways.
#[test]
fn what_is_longer_than_a_record_comes_whole() {
    let (config, _) = certificate("localhost");
    let server = Server::start(move |stream, log| {
        let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut requests = Requests::default();
        let body = vec![b'x'; 300_000];
        while requests.next(&mut Stream::new(&mut session, stream), log).is_some() {
            let mut tls = Stream::new(&mut session, stream);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            tls.write_all(head.as_bytes()).and_then(|()| tls.write_all(&body)).unwrap();
        }
    });
    let mut plan = secured(server.address, Trust::Anybody);
    let header = [("X-Long".to_owned(), "y".repeat(50_000))];
    let request = Request { method: "GET", headers: &header, body: b"", close: false };
    plan.messages = vec![Message::http(&plan.target, &request, 1).unwrap()];
    let counts = run(&plan, &best()).unwrap().counts;
    assert_eq!((counts.completed, counts.errors.total(), counts.body_bytes), (12, 0, 12 * 300_000));
}

#[test]
fn a_session_is_resumed_where_the_server_offers_it() {
    let (config, certificate) = certificate("localhost");
    let server = https(config, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
    let mut plan = secured(server.address, Trust::Roots(vec![certificate]));
    let request = Request { method: "GET", headers: &[], body: b"", close: true };
    plan.messages = vec![Message::http(&plan.target, &request, 1).unwrap()];
    (plan.connections, plan.one_request_per_connection) = (1, true);
    let outcome = run(&plan, &best()).unwrap();
    let handshakes = outcome.handshakes.unwrap();
    assert_eq!((outcome.counts.completed, outcome.counts.errors.total()), (12, 0));
    // Its tickets come before its answer, so the second connection has one.
    assert_eq!((handshakes.full, handshakes.failed), (1, 0));
    assert!(handshakes.resumed >= 11, "{handshakes:?}");
}

#[test]
fn an_untrusted_certificate_or_one_for_another_name_is_refused() {
    let (config, own) = certificate("localhost");
    let (_, stranger) = certificate("localhost");
    let (other_config, other) = certificate("elsewhere.example");
    for (config, trust, words) in [
        (
            &config,
            Trust::Roots(vec![stranger.clone()]),
            "not signed by one that this system trusts. --cacert FILE",
        ),
        (&config, Trust::Given(vec![stranger]), "not among those of --cacert"),
        (&other_config, Trust::Roots(vec![other.clone()]), "for another name"),
        (&other_config, Trust::Given(vec![other]), "for another name"),
    ] {
        let server = https(Arc::clone(config), b"");
        let error = run(&secured(server.address, trust), &best()).unwrap_err();
        let text = error.to_string();
        assert!(!error.is_usage() && text.contains("handshake") && text.contains(words), "{text}");
        assert!(text.contains("--insecure"), "{text}");
        assert_eq!(server.requests(), 0, "nothing is sent to a server that is not trusted");
    }
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    for (config, trust) in [
        (&config, Trust::Roots(vec![own.clone()])),
        (&config, Trust::Given(vec![own])),
        (&config, Trust::Anybody),
        (&other_config, Trust::Anybody),
    ] {
        let server = https(Arc::clone(config), answer);
        assert_eq!(run(&secured(server.address, trust), &best()).unwrap().counts.completed, 12);
    }
}

/// As `openssl req -x509` makes one: it says that it is an authority, and it is the server's own.
#[test]
fn a_given_certificate_of_an_authority_is_accepted_from_the_server_that_shows_it() {
    let made = |name: &str| {
        let mut wanted = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        wanted.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = wanted.self_signed(&key).unwrap().der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.clone()], key)
                .unwrap();
        (Arc::new(config), certificate)
    };
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let (config, own) = made("localhost");
    let server = https(Arc::clone(&config), answer);
    let plan = secured(server.address, Trust::Given(vec![own.clone()]));
    assert_eq!(run(&plan, &best()).unwrap().counts.completed, 12);
    let (other, elsewhere) = made("elsewhere.example");
    for (config, given) in
        [(&config, vec![elsewhere.clone()]), (&other, vec![elsewhere]), (&other, vec![own])]
    {
        let server = https(Arc::clone(config), answer);
        let error = run(&secured(server.address, Trust::Given(given)), &best()).unwrap_err().to_string();
        assert!(error.contains("handshake: the server's certificate"), "{error}");
        assert_eq!(server.requests(), 0);
    }
    // Without --cacert the words are not those of a library's innards.
    let server = https(config, answer);
    let (_, root) = certificate("root.example");
    let error = run(&secured(server.address, Trust::Roots(vec![root])), &best()).unwrap_err().to_string();
    assert!(error.contains("is that of an authority (CA:TRUE)"), "{error}");
    assert!(error.contains("--cacert FILE adds it, --insecure accepts it."), "{error}");
}

/// An answer that ends with its connection may have been truncated on the way, unless close_notify came.
#[test]
fn an_answer_that_is_cut_off_is_no_answer() {
    let (config, _) = certificate("localhost");
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end";
    for goodbye in [Goodbye::Said, Goodbye::None] {
        let config = Arc::clone(&config);
        let server = Server::start(move |stream, log| talk(&config, stream, log, answer, goodbye));
        let plan = Plan { count: Some(4), connections: 2, ..secured(server.address, Trust::Anybody) };
        let counts = run(&plan, &best()).unwrap().counts;
        let expected = if goodbye == Goodbye::Said { (4, 0) } else { (0, 4) };
        assert_eq!((counts.completed, counts.errors.reset), expected, "{:?}", counts.failures);
    }
}

/// OpenSSL's way to close is to say so, and to wait for the other side's word before the connection ends.
#[test]
fn an_answer_ends_with_the_servers_word_and_not_only_with_the_connection() {
    let (config, _) = certificate("localhost");
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end";
    let server = Server::start(move |stream, log| {
        talk(&config, stream, log, answer, Goodbye::Waits);
    });
    let plan = Plan { count: Some(4), connections: 2, ..secured(server.address, Trust::Anybody) };
    let counts = run(&plan, &best()).unwrap().counts;
    assert_eq!(counts.completed, 4, "{:?}", counts.failures);
}

#[test]
fn a_server_without_tls_and_one_that_does_not_answer_have_their_own_errors() {
    let plain = Server::start(|stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        close(stream);
    });
    let error = run(&secured(plain.address, Trust::Anybody), &best()).unwrap_err().to_string();
    assert!(error.contains("handshake: the server does not speak TLS on this port: load http://"), "{error}");

    let closing = Server::start(|stream, _| drop(stream.shutdown(Shutdown::Both)));
    let error = run(&secured(closing.address, Trust::Anybody), &best()).unwrap_err().to_string();
    assert!(error.contains("handshake: "), "{error}");

    // The kernel takes connections, and the server never accepts them.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut plan = secured(silent.local_addr().unwrap(), Trust::Anybody);
    plan.timeout = Duration::from_secs(2);
    let error = run(&plan, &best()).unwrap_err().to_string();
    assert!(error.contains("no answer in time"), "{error}");
}

#[test]
fn idle_connections_have_shaken_hands_and_are_silent() {
    let (config, _) = certificate("localhost");
    let server = https(config, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let plan = Plan { idle: 5, ..secured(server.address, Trust::Anybody) };
    let outcome = run(&plan, &best()).unwrap();
    assert_eq!((outcome.idle_at_end, outcome.counts.idle_lost, outcome.counts.errors.total()), (5, 0, 0));
    let handshakes = outcome.handshakes.unwrap();
    assert_eq!(handshakes.full + handshakes.resumed, 8);
}

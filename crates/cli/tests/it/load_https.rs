//! `ringroad load https://` as users run it. What a handshake is and what counts is tested in the library;
//! here is which certificates the command line accepts.

use crate::support::{Outcome, Server, ringroad, run};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// A server with a certificate of its own for 127.0.0.1, which is written to `file`. It lives as long as the
/// test.
pub(crate) fn serve(file: &Path) -> SocketAddr {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(file, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind(("127.0.0.1", 0)).unwrap());
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            thread::spawn(move || {
                let mut tls = StreamOwned::new(session, stream);
                let mut buffer = [0; 4096];
                // A request comes in one piece, and the next when it is answered.
                while let Ok(1..) = tls.read(&mut buffer) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
                    if tls.write_all(answer).and_then(|()| tls.flush()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn load(url: &str, more: &[&str]) -> Outcome {
    run(ringroad(["load", url, "-c", "2", "-n", "20"].iter().chain(more)).env_remove("SSL_CERT_FILE"))
}

#[test]
fn a_server_is_trusted_by_the_ca_file_or_without_verification() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, record) = (folder.path().join("ca.pem"), folder.path().join("run.json"));
    let url = format!("https://{}/", serve(&certificate));
    for believing in [&["--cacert", certificate.to_str().unwrap()][..], &["--insecure"], &["-k"]] {
        let outcome = load(&url, &[believing, &["--out", record.to_str().unwrap()]].concat());
        let text = outcome.text();
        assert_eq!(outcome.code, Some(0), "{text}{}", outcome.stderr);
        assert!(
            text.contains("20 sent, 20 completed, 0 failed") && text.contains(" resumed, 0 failed: p50"),
            "{text}"
        );
        let record: Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
        let cell = &record["cells"][0];
        assert_eq!((&cell["protocol"], &cell["completed"]), (&"https".into(), &20.into()));
        // The second may find the session of the first.
        let handshakes = &cell["details"]["handshakes"];
        let count = |kind: &str| handshakes[kind].as_u64().unwrap();
        assert_eq!((count("full") + count("resumed"), count("failed")), (2, 0));
    }
    // This certificate is in no system's store; and where a system has no store at all, that is reported.
    let outcome = load(&url, &[]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("--insecure"), "{}", outcome.stderr);
}

#[test]
fn what_is_no_certificate_or_not_for_https_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, "no certificate\n").unwrap();
    let outcome = load("https://127.0.0.1:9/", &["--cacert", file.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("no certificate to trust"), "{}", outcome.stderr);
    let outcome = load("https://127.0.0.1:9/", &["--cacert", "/nowhere/ca.pem"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("/nowhere/ca.pem"), "{}", outcome.stderr);
    assert_eq!(load("http://127.0.0.1:9/", &["-k"]).code, Some(2));
    assert_eq!(load("https://127.0.0.1:9/", &["-k", "--cacert", "x"]).code, Some(2));
}

/// It was said of the first alone that no URL is https.
#[test]
fn of_two_urls_that_are_compared_either_may_be_https() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let secured = format!("https://{}/", serve(&file));
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    let plain = format!("http://{}/", server.address);
    let words = ["--repeat", "2", "-n", "20", "-c", "1"];
    let trust = ["--cacert", file.to_str().unwrap()];
    for (one, other) in [(&plain, &secured), (&secured, &plain)] {
        let mut load = ringroad(["load", one, "--vs", other].iter().chain(&words).chain(&trust));
        let outcome = run(&mut load);
        assert!(outcome.text().contains("2 of 2 blocks"), "{}{}", outcome.text(), outcome.stderr);
    }
    let outcome = run(&mut ringroad(["load", &plain, "--vs", &plain, "-k"].iter().chain(&words)));
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("no URL has it"), "{}", outcome.stderr);
}

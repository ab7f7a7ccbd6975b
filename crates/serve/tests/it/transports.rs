//! Steps that change messages, on each transport: HTTP/1.1 and HTTP/2, plain and over TLS, with curl as the
//! client.

use crate::support::{Site, behind, start, write};
use ringroad_engine::DriverName;
use std::io::{ErrorKind, Read};
use std::process::Command;

/// Options of curl, the scheme, and how the answer's first line begins.
const TRANSPORTS: [(&str, &str, &str); 4] = [
    ("--http1.1", "http", "HTTP/1.1 "),
    ("--http2-prior-knowledge", "http", "HTTP/2 "),
    ("--http1.1", "https", "HTTP/1.1 "),
    ("--http2", "https", "HTTP/2 "),
];

/// Returns the answer's head, in lower case, and its body; `None` where curl is not installed.
fn ask(site: &Site, version: &str, scheme: &str, path: &str, more: &[&str]) -> Option<(String, Vec<u8>)> {
    let address = site.service.addresses().nth(usize::from(scheme == "https")).unwrap();
    let mut command = Command::new("curl");
    command.args(["-sS", "-i", "--max-time", "100", "--insecure", version]).args(more);
    let output = match command.arg(format!("{scheme}://{address}{path}")).output() {
        Err(why) if why.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: curl is not installed");
            return None;
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{version} {scheme}: {}", String::from_utf8_lossy(&output.stderr));
    let end = output.stdout.windows(4).position(|mark| mark == b"\r\n\r\n").unwrap() + 4;
    let (head, body) = output.stdout.split_at(end);
    Some((String::from_utf8(head.to_vec()).unwrap().to_lowercase(), body.to_vec()))
}

fn unzipped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
    out
}

drivers!(header_rules_and_compression_hold_on_every_transport, |driver: DriverName| {
    // Answers with the head of the request, and a line that is to be removed.
    let (app, _) = behind(|client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            let length = head.len();
            client.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Behind: 1\r\nX-Old: a\r\nContent-Length: {length}\r\n\r\n"
            ));
            client.send(head);
        }
    });
    let large: Vec<u8> = (0..300_000_u32).map(|at| b'a' + (at.wrapping_mul(at) % 7) as u8).collect();
    let rules = format!(
        r#"@listen = ["127.0.0.1:0", {{ address = "127.0.0.1:0", tls = true, http2 = true }}]
        compress = {{ min = 100 }}
        http2 = {{ prior_knowledge = true }}
        tls = {{ certificates = ["certs/"] }}
        [[route]]
        path = "/app/"
        kind = "proxy"
        to = "http://{app}"
        [route.headers.request]
        set = {{ X-A = "{{method}} {{path}}" }}
        remove = ["Cookie"]
        [route.headers.response]
        set = {{ X-Old = "{{scheme}}" }}
        add = {{ Link = "</style.css>; rel=preload" }}
        remove = ["X-Behind"]
        [[route]]
        path = "/"
        kind = "static"
        root = "www"
        headers = {{ X-Of-The-Route = "1" }}
        "#
    );
    let site = start(driver, &rules, |folder| {
        let pair = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        write(folder, "certs/a.pem", pair.cert.pem());
        write(folder, "certs/a.key", pair.signing_key.serialize_pem());
        write(folder, "www/large.txt", &large);
    });
    for (version, scheme, begins) in TRANSPORTS {
        let what = format!("{version} {scheme}");
        let gzip = ["-H", "Accept-Encoding: gzip", "-H", "Cookie: a=b"];
        let path = format!("/app/{}", "x".repeat(200));
        let Some((head, body)) = ask(&site, version, scheme, &path, &gzip) else { return };
        assert!(head.starts_with(&format!("{}200", begins.to_lowercase())), "{what}: {head}");
        for line in [
            format!("x-old: {scheme}\r\n"),
            "link: </style.css>; rel=preload\r\n".to_owned(),
            "content-encoding: gzip\r\n".to_owned(),
            "vary: accept-encoding\r\n".to_owned(),
        ] {
            assert_eq!(head.matches(&line).count(), 1, "{what}: {line} in {head}");
        }
        assert!(!head.contains("x-behind") && !head.contains("x-old: a"), "{what}: {head}");
        let asked = String::from_utf8(unzipped(&body)).unwrap();
        assert!(asked.contains(&format!("X-A: GET {path}\r\n")), "{what}: {asked}");
        assert!(!asked.to_lowercase().contains("cookie"), "{what}: {asked}");
        // A body that is made while it is sent, and one that is not compressed.
        let (head, body) = ask(&site, version, scheme, "/large.txt", &gzip).unwrap();
        assert!(head.contains("x-of-the-route: 1\r\n") && head.contains("content-encoding: gzip"), "{what}");
        assert!(unzipped(&body) == large, "{what}: {} bytes", body.len());
        let (head, body) = ask(&site, version, scheme, "/large.txt", &[]).unwrap();
        assert!(head.contains("content-length: 300000\r\n") && body == large, "{what}: {head}");
        let (head, body) =
            ask(&site, version, scheme, "/large.txt", &["-I", "-H", "Accept-Encoding: gzip"]).unwrap();
        assert!(head.contains("vary: accept-encoding\r\n") && body.is_empty(), "{what}: {head}");
    }
});

//! HTTP/2 in front of what this server does.

use crate::frames::Peer;
use crate::support::{behind, start, write};
use ringroad_engine::DriverName;

const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "a.example"), (":path", "/api/x")];

drivers!(files_and_servers_behind_answer_http_2_clients, |driver: DriverName| {
    let (address, _) = behind(|client| {
        let head = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap().to_lowercase();
        assert!(head.starts_with("post /api/x http/1.1\r\n"), "{head}");
        assert!(head.contains("host: a.example\r\n"), "{head}");
        assert!(head.contains("transfer-encoding: chunked") || head.contains("content-length: 4"), "{head}");
        let body = if head.contains("chunked") { client.until(b"0\r\n\r\n") } else { client.exactly(4) };
        assert!(String::from_utf8(body.unwrap()).unwrap().contains("ping"));
        client.send("HTTP/1.1 200 OK\r\nConnection: close\r\nKeep-Alive: timeout=5\r\n\r\npong");
    });
    let site = start(
        driver,
        &format!(
            "[http2]\nprior_knowledge = true\n[[route]]\npath = \"/api/\"\nkind = \"proxy\"\nto = \"http://{address}\"\n\
             [[route]]\npath = \"/\"\nkind = \"static\"\nroot = \".\"\n"
        ),
        |folder| {
            write(folder, "small.txt", "a file");
            write(folder, "large.bin", vec![7; 1_000_000]);
        },
    );
    let mut peer = Peer::with_settings(site.address(), &[(4, 2_000_000)]);
    peer.send(&crate::frames::frame(8, 0, 0, &2_000_000_u32.to_be_bytes()));
    peer.get(1, "/small.txt");
    assert_eq!(peer.response(1).as_deref(), Some(&b"a file"[..]));
    peer.get(3, "/api/.././/small.txt");
    assert_eq!(peer.response(3).as_deref(), Some(&b"a file"[..]));
    peer.get(5, "/large.bin");
    assert!(peer.response(5).unwrap() == vec![7; 1_000_000]);
    peer.headers(7, &POST, false);
    peer.send(&crate::frames::frame(0, 1, 7, b"ping"));
    assert_eq!(peer.response(7).as_deref(), Some(&b"pong"[..]));
    // HTTP/1.1 goes on beside it.
    assert_eq!(site.client().get("/small.txt").text(), "a file");
});

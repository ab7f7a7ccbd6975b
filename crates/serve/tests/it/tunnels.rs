//! WebSocket connections passed through to an upstream server, which here is a script on a socket. The proxy
//! does not read the bytes of a tunnel, so the script need not send WebSocket frames.

use crate::support::{Client, Site, behind, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_serve::Event;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

const OFFER: &str = "GET /chat?room=1 HTTP/1.1\r\nHost: example.org\r\nConnection: keep-alive, Upgrade\r\n\
                     Upgrade: WebSocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                     Sec-WebSocket-Version: 13\r\n\r\n";

const TAKEN: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn site(driver: DriverName, to: &str, more: &str) -> Site {
    let route = format!("[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"{to}\"\n{more}\n");
    start(driver, &route, |_| {})
}

/// Accepts the offer and returns the request.
fn take_offer(client: &mut Client) -> Option<String> {
    let head = client.until(b"\r\n\r\n")?;
    client.send(TAKEN);
    Some(String::from_utf8(head).unwrap())
}

/// Accepts the offer, echoes every byte until the end, and then sends a last message.
fn echo(client: &mut Client) {
    if take_offer(client).is_none() {
        return;
    }
    while let Some(byte) = client.exactly(1) {
        let more = client.take();
        client.send([byte, more].concat());
    }
    client.send("bye");
}

/// A tunnel that has been dug.
fn dig(site: &Site) -> Client {
    let mut client = site.client();
    client.send(OFFER);
    let reply = client.reply();
    assert_eq!(reply.status, 101, "{reply:?}");
    client
}

drivers!(an_offer_goes_through_and_so_do_the_bytes_behind_it, |driver: DriverName| {
    let (address, _) = behind(|client| {
        // Bytes behind the head of the answer are the tunnel's, and may come with it.
        let head = client.until(b"\r\n\r\n").unwrap();
        client.send([TAKEN.as_bytes(), b"early", &head].concat());
        assert_eq!(client.exactly(5).unwrap(), b"first");
        client.send("got it");
        client.rest();
    });
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = site.client();
    client.send(format!("{OFFER}first"));
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("Upgrade")), (101, Some("websocket")));
    assert_eq!(reply.header("Connection"), Some("upgrade"));
    assert_eq!(reply.header("Sec-WebSocket-Accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(client.exactly(5).unwrap(), b"early");
    let asked = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap();
    assert!(asked.starts_with("GET /chat?room=1 HTTP/1.1\r\n"), "{asked}");
    for line in ["Upgrade: websocket", "Connection: upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="] {
        assert_eq!(asked.matches(&format!("{line}\r\n")).count(), 1, "{line} in {asked}");
    }
    assert_eq!(client.exactly(6).unwrap(), b"got it");
});

drivers!(what_is_said_comes_back_in_order_and_whole, |driver: DriverName| {
    let (address, _) = behind(echo);
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = dig(&site);
    for size in [1, 2, 1000, 16_384, 65_536, 100_000, 7] {
        let message: Vec<u8> = (0..size).map(|at: usize| (at * 7 + size) as u8).collect();
        client.send(&message);
        assert!(client.exactly(size).unwrap() == message, "{size} bytes");
    }
    client.finish();
    assert_eq!(client.rest(), b"bye", "who has ended still hears what the other has to say");
});

drivers!(a_tunnel_ends_when_the_server_behind_ends_it, |driver: DriverName| {
    let (address, _) = behind(|client| {
        take_offer(client);
        client.send("enough");
    });
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = dig(&site);
    assert_eq!(client.rest(), b"enough");
});

drivers!(a_client_that_is_gone_is_told_to_the_server_behind, |driver: DriverName| {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let (address, _) = behind(move |client| {
        take_offer(client);
        let heard = client.rest();
        tell.lock().unwrap().send(heard).unwrap();
    });
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = dig(&site);
    client.send("last words");
    drop(client);
    assert_eq!(told.recv_timeout(crate::support::HANG).unwrap(), b"last words");
});

drivers!(a_silent_tunnel_is_closed_and_the_log_says_so, |driver: DriverName| {
    let (address, _) = behind(|client| {
        take_offer(client);
        client.rest();
    });
    let site = site(driver, &format!("http://{address}"), "tunnel_timeout = \"200ms\"");
    let mut client = dig(&site);
    assert_eq!(client.rest(), b"");
    match site.event() {
        Event::Fault { request, why } => {
            assert!(why.contains("tunnel: nothing moved for 200ms"), "{why}");
            assert!(request.contains("GET /chat?room=1"), "{request}");
        }
        event => panic!("{event:?}"),
    }
});

drivers!(a_side_that_hears_of_the_others_end_and_never_ends_is_cut, |driver: DriverName| {
    let (address, _) = behind(|client| {
        take_offer(client);
        client.rest();
        // It keeps its own side open until that is closed for it.
        while client.try_send("x") {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    });
    let site = site(driver, &format!("http://{address}"), "answer_timeout = \"300ms\"");
    let mut client = site.client();
    // The server's acceptance has to come within this time as well.
    wait_until("a tunnel", || {
        client = site.client();
        let reply = client.send(OFFER).reply();
        assert!(matches!(reply.status, 101 | 504), "{reply:?}");
        reply.status == 101
    });
    client.finish();
    client.rest();
});

drivers!(an_offer_that_is_refused_is_answered_as_the_server_behind_does, |driver: DriverName| {
    let (address, _) = behind(|client| {
        while client.until(b"\r\n\r\n").is_some() {
            client.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        }
    });
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = site.client();
    for _ in 0..2 {
        client.send(OFFER);
        let reply = client.reply();
        assert_eq!((reply.status, reply.text()), (403, "no"));
    }
});

#[test]
fn offers_of_other_protocols_stay_here() {
    let (address, _) = behind(|client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", head.len())).send(head);
        }
    });
    let site = site(DriverName::Epoll, &format!("http://{address}"), "");
    let mut client = site.client();
    for lines in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
        "Upgrade: websocket\r\n",
    ] {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        let reply = client.reply();
        assert_eq!(reply.status, 200);
        let asked = reply.text().to_lowercase();
        assert!(!asked.contains("upgrade") && !asked.contains("h2c"), "{asked}");
    }
    client.send("DELETE / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert!(!client.reply().text().to_lowercase().contains("upgrade"));
}

drivers!(who_takes_an_offer_that_was_not_made_is_not_believed, |driver: DriverName| {
    for protocol in ["h2c", "websocket, h2c"] {
        let (address, _) = behind(move |client| {
            client.until(b"\r\n\r\n");
            client.send(TAKEN.replace("websocket", protocol));
            client.rest();
        });
        let site = site(driver, &format!("http://{address}"), "");
        let mut client = site.client();
        client.send(OFFER);
        assert_eq!(client.reply().status, 502);
        let why = site.event().to_string();
        assert!(why.contains("101 to a protocol that was not offered"), "{why}");
    }
});

drivers!(a_tunnel_leads_to_a_socket_in_the_file_system_as_well, |driver: DriverName| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // To the kernel's calls a stream is a stream.
            let stream = TcpStream::from(OwnedFd::from(stream.unwrap()));
            std::thread::spawn(move || echo(&mut Client::of_any(stream)));
        }
    });
    let site = site(driver, &format!("unix:{}", path.display()), "");
    let mut client = dig(&site);
    client.send("through");
    assert_eq!(client.exactly(7).unwrap(), b"through");
    client.finish();
    assert_eq!(client.rest(), b"bye");
});

drivers!(a_stop_waits_for_tunnels_and_the_log_tells_what_they_carried, |driver: DriverName| {
    let (address, _) = behind(echo);
    let log = "drain = \"5m\"\nlog = { file = \"log.json\", format = \"json\" }\n";
    let route = format!("{log}[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{address}\"\n");
    let site = start(driver, &route, |_| {});
    let (mut client, address) = (dig(&site), site.address());
    let Site { folder, service, .. } = site;
    let stopping = std::thread::spawn(move || service.stop());
    wait_until("nobody can connect", || TcpStream::connect(address).is_err());
    client.send("still here");
    assert_eq!(client.exactly(10).unwrap(), b"still here");
    client.finish();
    assert_eq!(client.rest(), b"bye");
    stopping.join().unwrap().unwrap();
    let log = std::fs::read_to_string(folder.path().join("log.json")).unwrap();
    assert!(log.contains("\"status\":101") && log.contains("\"bytes\":13,"), "{log}");
});

drivers!(a_stop_cuts_tunnels_when_its_time_is_over, |driver: DriverName| {
    let (address, _) = behind(echo);
    let route =
        format!("drain = \"100ms\"\n[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{address}\"\n");
    let site = start(driver, &route, |_| {});
    let mut client = dig(&site);
    site.service.stop().unwrap();
    client.rest();
});

drivers!(a_reload_leaves_tunnels_as_they_are, |driver: DriverName| {
    let (address, _) = behind(echo);
    let mut site = site(driver, &format!("http://{address}"), "");
    let mut client = dig(&site);
    crate::support::configure(site.folder.path(), "[[route]]\npath = \"/\"\nkind = \"health\"\n");
    site.service.reload();
    assert!(matches!(site.event(), Event::Reloaded { .. }));
    assert_eq!(site.client().get("/").status, 200);
    client.send("still");
    assert_eq!(client.exactly(5).unwrap(), b"still");
});

drivers!(
    the_protocol_that_426_asks_for_is_told_and_an_offer_in_another_answer_is_not,
    |driver: DriverName| {
        let (address, _) = behind(|client| {
            while let Some(head) = client.until(b"\r\n\r\n") {
                let status = match &head[..] {
                    head if head.starts_with(b"GET /426") => "426 Upgrade Required",
                    head if head.starts_with(b"GET /407") => "407 Proxy Authentication Required",
                    _ => "200 OK",
                };
                client.send(format!(
                    "HTTP/1.1 {status}\r\nUpgrade: websocket\r\nUpgrade: TLS/1.3\r\nConnection: Upgrade\r\n\
                 Proxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n"
                ));
            }
        });
        let route = format!("[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{address}\"\n");
        let site = start(driver, &route, |_| {});
        let mut client = site.client();
        // HTTP goes on.
        for _ in 0..2 {
            let reply = client.get("/426");
            assert_eq!((reply.status, reply.header("Upgrade")), (426, Some("websocket, TLS/1.3")));
            assert_eq!(
                (reply.header("Connection"), reply.header("Proxy-Authenticate")),
                (Some("upgrade"), None)
            );
            let reply = client.get("/407");
            assert_eq!(
                (reply.status, reply.header("Upgrade"), reply.header("Connection")),
                (407, None, None)
            );
            assert_eq!(reply.header("Proxy-Authenticate"), Some("Basic realm=\"x\""));
            let reply = client.get("/200");
            assert_eq!(
                (reply.status, reply.header("Upgrade"), reply.header("Connection")),
                (200, None, None)
            );
            assert_eq!(reply.header("Proxy-Authenticate"), None);
        }
    }
);

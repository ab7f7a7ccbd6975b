//! WebSockets of ASGI applications, with a client that writes its frames itself.

use crate::apps::{ask, python, site, told, workers};
use crate::support::{Client, Site, start, wait_until, write};
use ringroad_engine::DriverName;

const HANDSHAKE: &str = "Host: example.org\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";

pub(crate) const TEXT: u8 = 1;
const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Offers a WebSocket, with further header lines.
fn offer(client: &mut Client, path: &str, lines: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\n{HANDSHAKE}{lines}\r\n"));
}

/// A session that was accepted.
pub(crate) fn open(site: &Site, path: &str, lines: &str) -> (Client, crate::support::Reply) {
    let mut client = site.client();
    offer(&mut client, path, lines);
    let reply = client.reply();
    assert_eq!(reply.status, 101, "{reply:?}");
    assert_eq!(reply.header("Sec-WebSocket-Accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    (client, reply)
}

/// A frame of a client, masked.
pub(crate) fn frame(opcode: u8, is_last: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![opcode | if is_last { 0x80 } else { 0 }];
    match payload.len() {
        length @ 0..126 => out.push(0x80 | length as u8),
        length @ 126..65_536 => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    let mask = [1, 2, 3, 4];
    out.extend_from_slice(&mask);
    out.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    out
}

/// The server's next frame: its opcode and payload. It must be whole and not masked.
pub(crate) fn next(client: &mut Client) -> (u8, Vec<u8>) {
    try_next(client).expect("a frame")
}

/// The next frame; `None`: the connection has ended.
fn try_next(client: &mut Client) -> Option<(u8, Vec<u8>)> {
    let head = client.exactly(2)?;
    assert_eq!((head[0] & 0xf0, head[1] & 0x80), (0x80, 0), "{head:?}");
    let length = match head[1] {
        126 => usize::from(u16::from_be_bytes(client.exactly(2).unwrap().try_into().unwrap())),
        127 => u64::from_be_bytes(client.exactly(8).unwrap().try_into().unwrap()) as usize,
        length => usize::from(length),
    };
    Some((head[0] & 0xf, client.exactly(length).unwrap()))
}

/// The server's close frame, and the end of the connection behind it.
pub(crate) fn closed(client: &mut Client) -> (u16, String) {
    let last = next(client);
    closed_by(client, last)
}

/// The same, of a frame that has come.
fn closed_by(client: &mut Client, (opcode, payload): (u8, Vec<u8>)) -> (u16, String) {
    assert_eq!(opcode, CLOSE, "{payload:?}");
    let code = u16::from_be_bytes([payload[0], payload[1]]);
    assert!(client.try_send(frame(CLOSE, true, &payload[..2])));
    assert!(client.rest().is_empty());
    (code, String::from_utf8(payload[2..].to_vec()).unwrap())
}

fn events(site: &Site) -> String {
    std::fs::read_to_string(site.path("events")).unwrap_or_default()
}

drivers!(an_asgi_application_speaks_websocket, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "asgi_app:app", "workers = 1");
    let (mut client, _) =
        open(&site, "/ws/scope?a=%20b", "Sec-WebSocket-Protocol: chat.v2, chat\r\nX-A: 1\r\n");
    let (opcode, text) = next(&mut client);
    assert_eq!(opcode, TEXT);
    let scope: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&scope["type"], &scope["scheme"]), (&"websocket".into(), &"ws".into()));
    assert_eq!((&scope["path"], &scope["query_string"]), (&"/ws/scope".into(), &"a=%20b".into()));
    assert_eq!(scope["subprotocols"], serde_json::json!(["chat.v2", "chat"]));
    assert_eq!(scope["asgi"], serde_json::json!({ "version": "3.0", "spec_version": "2.5" }));
    assert_eq!(scope["extensions"], serde_json::json!({ "websocket.http.response": {} }));
    assert_eq!((&scope["state"]["started"], scope.get("method")), (&"yes".into(), None));
    assert!(scope["headers"].as_array().unwrap().contains(&serde_json::json!(["x-a", "1"])), "{scope}");
    // An application that returns closes.
    assert_eq!(closed(&mut client), (1000, String::new()));

    // The subprotocol and the lines of the application, but for those of the handshake.
    let (mut client, reply) =
        open(&site, "/ws/echo", "Sec-WebSocket-Protocol: chat.v2\r\nSec-WebSocket-Protocol: chat\r\n");
    assert_eq!(reply.header("Sec-WebSocket-Protocol"), Some("chat"));
    assert_eq!((reply.header("X-Ws"), reply.headers("Upgrade").count()), (Some("yes"), 1));
    let (_, reply) = open(&site, "/ws/unknown", "Sec-WebSocket-Protocol: chat\r\n");
    assert_eq!(reply.header("Sec-WebSocket-Protocol"), None);
    told(&site, "subprotocol 'unknown' was not offered");

    // Messages of any length, of both kinds, in order, in parts, with control frames between them.
    for size in [0, 1, 125, 126, 65_535, 65_536, 300_000, 3_000_000] {
        let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        client.send(frame(BINARY, true, &bytes));
        assert!(next(&mut client) == (BINARY, bytes), "{size}");
    }
    client.send(
        [frame(TEXT, false, "caf\u{e9} ".as_bytes()), frame(PING, true, b"p"), frame(0, true, b"crema")]
            .concat(),
    );
    assert_eq!(next(&mut client), (PONG, b"p".to_vec()));
    assert_eq!(next(&mut client), (TEXT, "caf\u{e9} crema".as_bytes().to_vec()));
    let parts = (0..2000).flat_map(|at| frame(if at == 0 { TEXT } else { 0 }, at == 1999, b"part "));
    client.send(parts.collect::<Vec<u8>>());
    assert!(next(&mut client) == (TEXT, b"part ".repeat(2000)));
    let many: Vec<u8> = (0..1000).flat_map(|at| frame(TEXT, true, format!("{at}").as_bytes())).collect();
    client.send(many);
    for at in 0..1000 {
        assert_eq!(next(&mut client), (TEXT, format!("{at}").into_bytes()));
    }
    // The client closes: the application is told how.
    client.send(frame(CLOSE, true, b"\x0f\xa2bye"));
    assert_eq!(next(&mut client), (CLOSE, b"\x0f\xa2".to_vec()));
    wait_until("the disconnect", || events(&site).contains("ws disconnect: 4002 bye\nws send: OSError\n"));
    // The client vanishes, or breaks the protocol.
    let (client, _) = open(&site, "/ws/echo", "");
    client.reset();
    wait_until("the second disconnect", || events(&site).contains("ws disconnect: 1006 \n"));
    let (mut client, _) = open(&site, "/ws/echo", "");
    client.send(frame(TEXT, true, b"\xff"));
    assert_eq!(closed(&mut client).0, 1007);
    wait_until("the third disconnect", || events(&site).contains("ws disconnect: 1007 \n"));
});

drivers!(an_application_learns_at_once_that_a_client_breaks_the_protocol_or_closes, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "asgi_app:app", "workers = 1");
    for (sent, told, code) in [
        (frame(TEXT, true, b"\xff"), "ws disconnect: 1007 \n", 1007_u16),
        (frame(CLOSE, true, b"\x0f\xa2bye"), "ws disconnect: 4002 bye\n", 4002),
    ] {
        // The client does not end the connection, which the server does after some seconds. On a machine that
        // stands still for so long that may come first: then once more.
        let learns_first = (0..10).any(|_| {
            let before = events(&site).matches(told).count();
            let (mut client, _) = open(&site, "/ws/echo", "");
            client.send(&sent);
            let (opcode, payload) = next(&mut client);
            assert_eq!((opcode, &payload[..2]), (CLOSE, &code.to_be_bytes()[..]));
            wait_until("the disconnect", || events(&site).matches(told).count() > before);
            // Where nothing receives any more, a reset answers the first of these.
            client.try_send("x") && client.try_send("x")
        });
        assert!(learns_first, "{code}");
    }
});

drivers!(several_tasks_of_an_application_send_on_one_websocket, |driver: DriverName| {
    if !python() {
        return;
    }
    // More than the worker may send at once, so that all of them have to wait.
    let site = site(driver, "asgi_app:app", "workers = 1");
    let (mut client, _) = open(&site, "/ws/several", "");
    for _ in 0..80 {
        assert!(next(&mut client) == (BINARY, vec![0; 50_000]));
    }
    assert_eq!(next(&mut client), (TEXT, b"all".to_vec()));
    assert_eq!(closed(&mut client), (1000, String::new()));
});

drivers!(an_asgi_application_refuses_or_closes_a_websocket, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "asgi_app:app", "workers = 1");
    let mut client = site.client();
    offer(&mut client, "/ws/refuse", "");
    assert_eq!(client.reply().status, 403);
    wait_until("the refusal", || {
        events(&site).contains("refused: {'type': 'websocket.disconnect', 'code': 4000")
    });
    offer(&mut client, "/ws/deny", "");
    let denied = client.reply();
    assert_eq!((denied.status, denied.header("X-Why"), denied.text()), (401, Some("no key"), "who are you"));
    for path in ["/ws/raise", "/ws/nothing"] {
        offer(&mut client, path, "");
        assert_eq!(client.reply().status, 500, "{path}");
    }
    // What is no valid handshake does not come to the application.
    client.send("GET /ws/echo HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 12\r\n\r\n");
    assert_eq!(client.reply().status, 426);
    // The connection was kept through all that.
    assert_eq!(client.get("/x").text(), "'/x'");
    let (mut client, _) = open(&site, "/ws/close", "");
    assert_eq!(closed(&mut client), (4001, "caf\u{e9}".to_owned()));
    wait_until("what is behind the close", || {
        let events = events(&site);
        events.contains("ws closed: {'type': 'websocket.disconnect', 'code': 4001, 'reason': 'caf\u{e9}'}")
            && events.contains("ws behind: websocket.send behind websocket.close")
    });
    let (mut client, _) = open(&site, "/ws/raise-late", "");
    assert_eq!(closed(&mut client).0, 1011);
    told(&site, "boom behind accept");
    // A client that leaves before the application has decided.
    let mut client = site.client();
    offer(&mut client, "/ws/wait", "");
    wait_until("the offer", || events(&site).contains("ws offered"));
    client.reset();
    wait_until("its end", || {
        events(&site).contains("ws left: {'type': 'websocket.disconnect', 'code': 1006")
    });
});

drivers!(a_websocket_waits_for_the_side_that_is_slow, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "asgi_app:app", "workers = 1");
    // The client takes nothing: the application stops at some point, with 6 MB in all to send.
    let (mut slow, _) = open(&site, "/ws/flood", "");
    wait_until("the flood", || events(&site).contains("ws flood 0\n"));
    // Another client is served meanwhile.
    let (mut other, _) = open(&site, "/ws/echo", "");
    other.send(frame(TEXT, true, b"hello"));
    assert_eq!(next(&mut other), (TEXT, b"hello".to_vec()));
    for number in 0..200 {
        let (opcode, bytes) = next(&mut slow);
        assert!(opcode == BINARY && bytes == format!("{number:03}").repeat(10_000).into_bytes(), "{number}");
    }
    assert_eq!(closed(&mut slow).0, 1000);
    // The application takes nothing: the client's bytes wait in front of it.
    let (mut deaf, _) = open(&site, "/ws/deaf", "");
    wait_until("the deaf one", || events(&site).contains("ws deaf"));
    let message = frame(BINARY, true, &[7; 100_000]);
    let sender = std::thread::spawn(move || {
        for _ in 0..50 {
            deaf.send(&message);
        }
        deaf
    });
    other.send(frame(TEXT, true, b"still"));
    assert_eq!(next(&mut other), (TEXT, b"still".to_vec()));
    site.write("hear", "");
    // Its answers fill the way back until they are read.
    let mut deaf = sender.join().unwrap();
    for _ in 0..50 {
        assert!(next(&mut deaf) == (BINARY, vec![7; 100_000]));
    }
});

drivers!(websockets_end_with_their_worker_and_clients_may_come_again, |driver: DriverName| {
    if !python() {
        return;
    }
    // With one place for requests: sessions take none.
    let site = site(driver, "asgi_app:app", "workers = 2\nconcurrency = 1\nstop_timeout = \"5s\"");
    wait_until("two workers", || workers(&site, "ready").len() == 2);
    let mut sessions: Vec<Client> = (0..5).map(|_| open(&site, "/ws/echo", "").0).collect();
    let sockets =
        || workers(&site, "ready").iter().map(|one| one["sockets"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(sockets(), [3, 2], "the one with fewer gets the next");
    assert_eq!(site.client().get("/x").text(), "'/x'");
    // A reload tells the clients to come again.
    assert!(ask(&site, "{\"do\":\"reload\"}")["ok"].is_object());
    for client in &mut sessions {
        assert_eq!(closed(client), (1012, "the server restarts".to_owned()));
    }
    wait_until("the disconnect", || {
        events(&site).matches("ws disconnect: 1012 the server restarts\n").count() == 5
    });
    // A worker that dies: before it has accepted another one is asked, behind that the session has failed.
    let (mut client, _) = open(&site, "/ws/exit-once", "");
    client.send(frame(TEXT, true, b"second"));
    assert_eq!(next(&mut client), (TEXT, b"second".to_vec()));
    drop(client);
    let (mut dead, _) = open(&site, "/ws/exit", "");
    dead.send(frame(TEXT, true, b"now"));
    assert_eq!(closed(&mut dead).0, 1011);
    // The server stops.
    let (mut client, _) = open(&site, "/ws/echo", "");
    let Site { folder, service, .. } = site;
    let stopping = std::thread::spawn(move || service.stop());
    assert_eq!(closed(&mut client).0, 1001);
    stopping.join().unwrap().unwrap();
    let events = std::fs::read_to_string(folder.path().join("events")).unwrap();
    assert!(events.contains("ws disconnect: 1001"), "{events}");
});

drivers!(a_websocket_is_pinged_and_bounded, |driver: DriverName| {
    if !python() {
        return;
    }
    let site =
        site(driver, "asgi_app:app", "workers = 1\nwebsocket_message = \"1K\"\nwebsocket_ping = \"1s\"");
    // On a machine that stands still for a second the pong may come too late: then once more.
    let mut given_up = 0;
    wait_until("a pong in time", || {
        let (mut client, _) = open(&site, "/ws/echo", "");
        assert_eq!(next(&mut client), (PING, Vec::new()));
        client.try_send([frame(PONG, true, b""), frame(BINARY, true, &[0; 1025])].concat());
        let Some(last) = try_next(&mut client) else {
            given_up += 1;
            return false;
        };
        assert_eq!(closed_by(&mut client, last).0, 1009);
        true
    });
    // One that answers no ping is given up.
    let (mut silent, _) = open(&site, "/ws/echo", "");
    assert_eq!(next(&mut silent), (PING, Vec::new()));
    assert!(silent.rest().is_empty());
    wait_until("its end", || events(&site).matches("ws disconnect: 1006 \n").count() > given_up);
});

drivers!(a_wsgi_application_gets_the_offer_of_a_websocket_as_a_request, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 1");
    let mut client = site.client();
    offer(&mut client, "/environ?HTTP_UPGRADE", "");
    assert_eq!(client.reply().text(), "['WebSocket']");
});

/// An application in development, in both protocols. Streams heed nothing until the file `end` is there.
const CHANGING: &str = r#"
import asyncio, os, time

VERSION = "one"

def until(name):
    while not os.path.exists(name):
        time.sleep(0.005)

def wsgi(environ, start_response):
    path = environ["PATH_INFO"]
    kind = "text/event-stream" if path == "/events" else "text/plain"
    start_response("200 OK", [("Content-Type", kind)])
    if path == "/events":
        return events()
    if path == "/held":
        open("held", "w").close()
        until("go")
    return [VERSION.encode()]

def events():
    yield b"data: first\n\n"
    until("end")
    yield b"data: late\n\n"

async def asgi(scope, receive, send):
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return await asyncio.to_thread(until, "end")
    path = scope["path"]
    kind = b"text/event-stream" if path == "/events" else b"text/plain"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    if path == "/events":
        await send({"type": "http.response.body", "body": b"data: first\n\n", "more_body": True})
        return await asyncio.to_thread(until, "end")
    if path == "/held":
        await send({"type": "http.response.body", "body": b"of ", "more_body": True})
        open("held", "w").close()
        await asyncio.to_thread(until, "go")
    await send({"type": "http.response.body", "body": VERSION.encode()})
"#;

drivers!(in_development_open_streams_end_when_the_code_has_changed, |driver: DriverName| {
    if !python() {
        return;
    }
    for app in ["wsgi", "asgi"] {
        let text = format!(
            "control = \"control.sock\"\n[[app]]\nname = \"web\"\napp = \"changing:{app}\"\npython = \"python3\"\nworkers = 1\ndev = true\n\
             concurrency = 4\nqueue_timeout = \"2m\"\nstop_timeout = \"1h\"\n\
             [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n"
        );
        let site = start(driver, &text, |folder| write(folder, "changing.py", CHANGING));
        let mut stream = site.client();
        stream.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").until(b"data: first").unwrap();
        let mut socket = (app == "asgi").then(|| open(&site, "/ws", "").0);
        let mut held = site.client();
        held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("the request", || site.path("held").exists());
        site.replace("changing.py", CHANGING.replace("\"one\"", "\"two, and longer\""));
        told(&site, "generation 2 serves");
        // They end well, so that pages ask again, and get the new code.
        assert!(stream.until(b"\r\n0\r\n\r\n").is_some(), "{app}");
        if let Some(socket) = &mut socket {
            assert_eq!(closed(socket), (1012, "the server restarts".to_owned()));
        }
        assert_eq!(site.client().get("/").text(), "two, and longer");
        // A request in progress is finished by the old code.
        site.write("go", "");
        assert!(held.reply().text().ends_with("one"), "{app}");
        // What the old worker's threads wait for is looked for in the folder, which goes with the site.
        site.write("end", "");
        let has = |state| !workers(&site, state).is_empty();
        wait_until("the end of the old worker", || !has("draining") && !has("stopping"));
    }
});

/// A server in development that speaks HTTP itself. When it is told to end it waits for what is open.
const CHANGING_HTTP: &str = r#"
import base64, hashlib, os, signal, socket, sys, threading

VERSION = b"one"
KIND = b"Content-Type: text/event-stream\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\n%sTransfer-Encoding: chunked\r\n\r\nd\r\ndata: first\n\n\r\n"

def stop(*_):
    raise SystemExit

def until_left(client, name):
    while client.recv(65536):
        pass
    open("left " + name, "w").close()

def serve(client):
    with client:
        head = b""
        while b"\r\n\r\n" not in head:
            more = client.recv(65536)
            if not more:
                return
            head += more
        path = head.split()[1]
        if path == b"/events":
            client.sendall(CHUNKED % KIND)
            return until_left(client, "events")
        if path == b"/ws":
            lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
            lines = {name.lower(): value for name, value in lines.items()}
            key = lines[b"sec-websocket-key"] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            accept = base64.b64encode(hashlib.sha1(key).digest())
            client.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x05hello"
            )
            return until_left(client, "ws")
        if path == b"/held":
            open("held", "w").close()
            while not os.path.exists("go"):
                threading.Event().wait(0.005)
        end = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(VERSION)
        client.sendall(end + (b"" if head.startswith(b"HEAD") else VERSION))

signal.signal(signal.SIGTERM, stop)
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
while True:
    threading.Thread(target=serve, args=(listening.accept()[0],)).start()
"#;

drivers!(in_development_open_streams_of_a_program_that_speaks_http_end_as_well, |driver: DriverName| {
    if !python() {
        return;
    }
    for buffer in [true, false] {
        let text = format!(
            "control = \"control.sock\"\n[[app]]\nname = \"web\"\ncommand = \"python3 changing.py {{socket}}\"\nworkers = 1\n\
             dev = true\nqueue_timeout = \"2m\"\nstop_timeout = \"1h\"\n\
             [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\nbuffer = {buffer}\n"
        );
        let site = start(driver, &text, |folder| write(folder, "changing.py", CHANGING_HTTP));
        let mut stream = site.client();
        stream.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").until(b"data: first").unwrap();
        let (mut socket, _) = open(&site, "/ws", "");
        assert_eq!(next(&mut socket), (TEXT, b"hello".to_vec()));
        let mut held = site.client();
        held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("the request", || site.path("held").exists());
        site.replace("changing.py", CHANGING_HTTP.replace("b\"one\"", "b\"two, and longer\""));
        told(&site, "generation 2 serves");
        // They end well, so that pages ask again, and get the new code.
        assert!(stream.until(b"\r\n0\r\n\r\n").is_some(), "{buffer}");
        assert_eq!(closed(&mut socket), (1012, "the server restarts".to_owned()));
        // The old code learns that its clients have left.
        for name in ["left events", "left ws"] {
            wait_until(name, || site.path(name).exists());
        }
        assert_eq!(site.client().get("/").text(), "two, and longer");
        // A request in progress is finished by the old code.
        site.write("go", "");
        assert_eq!(held.reply().text(), "one", "{buffer}");
        let has = |state| !workers(&site, state).is_empty();
        wait_until("the end of the old worker", || !has("draining") && !has("stopping"));
    }
});

//! Upstream servers that answer before they have read the request.

use crate::support::{Client, behind, start};
use ringroad_engine::DriverName;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

/// More than the buffers of all sockets on the way take.
const LARGE: usize = 10 << 20;

/// What follows an early answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// The connection stays, and nothing more is read.
    Keep,
    /// It is closed with the rest of the request unread, which resets it.
    Close,
    /// It is reset at once.
    Reset,
}

drivers!(an_answer_that_comes_before_the_request_is_sent_is_passed_on, |driver: DriverName| {
    for (status, told) in [
        (413, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig"),
        (401, "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig"),
        (200, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbig\r\n0\r\n\r\n"),
        (503, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"),
    ] {
        for then in [Then::Keep, Then::Close, Then::Reset] {
            let (address, connections) = behind(move |client: &mut Client| {
                client.exactly(1000);
                client.send(told);
                match then {
                    // It ends with the test's process.
                    Then::Keep => loop {
                        std::thread::park();
                    },
                    Then::Close => {}
                    Then::Reset => client.reset_now(),
                }
            });
            let framings = [format!("Content-Length: {LARGE}"), "Transfer-Encoding: chunked".to_owned()];
            // Collected first, or passed on as it comes.
            for (framing, buffer) in framings.iter().flat_map(|framing| [(framing, true), (framing, false)]) {
                let context = format!("{status}, {then:?}, {framing}, buffer = {buffer}");
                let route = format!(
                    "[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{address}\"\nlimits = {{ body = \"100M\" }}\nbuffer = {buffer}\n"
                );
                let site = start(driver, &route, |_| {});
                let before = connections.load(Ordering::SeqCst);
                for asked in 1..=2 {
                    let mut client = site.client();
                    let mut writer = Client::of_any(client.stream().try_clone().unwrap());
                    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
                    let is_chunked = framing.ends_with("chunked");
                    let (stop, stopped) = channel::<()>();
                    let writing = std::thread::spawn(move || {
                        let piece = vec![b'x'; 64 << 10];
                        for _ in 0..LARGE / piece.len() {
                            let sent = match is_chunked {
                                true => {
                                    writer.try_send("10000\r\n")
                                        && writer.try_send(&piece)
                                        && writer.try_send("\r\n")
                                }
                                false => writer.try_send(&piece),
                            };
                            if !sent || stopped.try_recv().is_ok() {
                                return;
                            }
                        }
                        if is_chunked {
                            writer.try_send("0\r\n\r\n");
                        }
                    });
                    let reply = client.reply();
                    assert_eq!(reply.status, status, "{context}");
                    assert_eq!(reply.text(), if status == 503 { "" } else { "big" }, "{context}");
                    let _ = stop.send(());
                    let _ = client.stream().shutdown(Shutdown::Both);
                    writing.join().unwrap();
                    let of_site = connections.load(Ordering::SeqCst) - before;
                    assert_eq!(of_site, asked, "{context}: a connection with half a request is not kept");
                }
            }
        }
    }
});

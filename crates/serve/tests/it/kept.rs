//! Kept connections to upstream servers: what comes behind an answer is no answer to another client.

use crate::support::{Client, HANG, behind, start};
use ringroad_engine::DriverName;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What an upstream server does behind its answer.
#[derive(Clone, Copy, Debug)]
enum Behind {
    AnotherAnswer,
    LineEnd,
    End,
    Reset,
}

const ALL: [Behind; 4] = [Behind::AnotherAnswer, Behind::LineEnd, Behind::End, Behind::Reset];

/// Bodies within one receive buffer, and in bulk.
const BODIES: [usize; 4] = [1000, 100_000, 250_000, 2_000_000];

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// The test tells an upstream server to go on, which tells when that is done.
struct Cue {
    go_on: Mutex<Receiver<()>>,
    done: Mutex<Sender<()>>,
}

/// Answers `/first` with so many bytes, and on its cue does something behind that; answers other paths
/// "mine".
fn upstream(client: &mut Client, bytes: usize, what: Behind, cue: &Cue) {
    while let Some(head) = client.until(b"\r\n\r\n") {
        if !head.starts_with(b"GET /first ") {
            client.send(ok("mine"));
            continue;
        }
        client.send(ok(&"k".repeat(bytes)));
        cue.go_on.lock().unwrap().recv_timeout(HANG).unwrap();
        match what {
            Behind::AnotherAnswer => drop(client.try_send(ok("foreign"))),
            Behind::LineEnd => drop(client.try_send("\r\n")),
            Behind::End => client.finish(),
            Behind::Reset => client.reset_now(),
        }
        cue.done.lock().unwrap().send(()).unwrap();
        if matches!(what, Behind::Reset) {
            return;
        }
    }
}

drivers!(what_comes_behind_an_answer_reaches_no_other_client, |driver: DriverName| {
    for (bytes, what) in BODIES.into_iter().flat_map(|bytes| ALL.map(|what| (bytes, what))) {
        let ((go_on, cued), (done, is_done)) = (channel(), channel());
        let cue = Cue { go_on: Mutex::new(cued), done: Mutex::new(done) };
        let (address, count) = behind(move |client| upstream(client, bytes, what, &cue));
        let route = format!("[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{address}\"\n");
        let site = start(driver, &route, |_| {});
        for method in ["GET", "POST"] {
            assert_eq!(site.client().get("/first").body.len(), bytes, "{what:?} behind {bytes} bytes");
            // The proxy has taken all of it: a reset any earlier would take a part of the answer away.
            go_on.send(()).unwrap();
            is_done.recv_timeout(HANG).unwrap();
            let before = count.load(Ordering::SeqCst);
            let reply = site.client().ask(method, "/mine", &[("Content-Length", "0")]);
            assert_eq!(
                (reply.status, reply.text()),
                (200, "mine"),
                "{method}: {what:?} behind {bytes} bytes"
            );
            assert_eq!(count.load(Ordering::SeqCst), before + 1, "{method}: {what:?} behind {bytes} bytes");
        }
    }
});

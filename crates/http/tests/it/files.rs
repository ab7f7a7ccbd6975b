//! Bodies that are files: sent as they are, whatever becomes of them meanwhile.

use crate::support::{Client, file_of, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_http::{Body, Client as Asker, Request, Response, Server, Shared, get, post};
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::sync::Arc;

/// Bytes that differ from place to place.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at ^ ((at >> 8) * 7) ^ ((at >> 16) * 31)) as u8).collect()
}

/// `/?from,to`: these places of the file. `/small`: something else.
fn server(file: &Arc<File>) -> Server {
    let file = Arc::clone(file);
    let part = move |request: Request| {
        let (from, to) = request.query().unwrap().split_once(',').unwrap();
        let range = from.parse().unwrap()..to.parse().unwrap();
        let body = Body::file(Arc::clone(&file), range);
        async move { Response::html(body) }
    };
    Server::new().route("/", get(part)).route("/small", get(|_: Request| async { "small" }))
}

drivers!(parts_of_a_file_are_bodies_of_known_length, |driver: DriverName| {
    let bytes = pattern(3 << 20);
    let server = start(driver, server(&file_of(&bytes)));
    let mut client = Client::new(server.address());
    for (from, to) in
        [(0, 3 << 20), (0, 0), (7, 8), (1 << 20, 2 << 20), ((1 << 20) - 1, (2 << 20) + 1), (100, 50_000)]
    {
        let reply = client.get(&format!("/?{from},{to}"));
        assert_eq!((reply.status, reply.body.len()), (200, to - from));
        assert_eq!(reply.header("Content-Length"), Some((to - from).to_string().as_str()));
        assert!(reply.body == bytes[from..to], "{from}..{to}");
        // Only a body has a type.
        assert_eq!(reply.header("Content-Type"), (from < to).then_some("text/html"));
    }
    client.send("HEAD /?0,1000 HTTP/1.1\r\nHost: a\r\n\r\n");
    let reply = client.reply_to_head();
    assert_eq!(reply.header("Content-Length"), Some("1000"));
    assert_eq!(client.get("/small").text(), "small");
});

drivers!(files_go_between_other_answers_in_the_order_of_the_requests, |driver: DriverName| {
    let bytes = pattern(200_000);
    let server = start(driver, server(&file_of(&bytes)));
    let mut client = Client::new(server.address());
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(["/small", "/?0,200000", "/?5,6", "/small"].map(ask).concat());
    assert_eq!(client.reply().text(), "small");
    assert!(client.reply().body == bytes);
    assert_eq!(client.reply().body, bytes[5..6]);
    assert_eq!(client.reply().text(), "small");
});

drivers!(a_file_that_shrinks_while_it_is_sent_ends_its_connection_and_no_other, |driver: DriverName| {
    const BYTES: usize = 64 << 20;
    let file = file_of(&[]);
    file.set_len(BYTES as u64).unwrap();
    let server = start(driver, server(&file));
    let mut other = Client::new(server.address());
    let mut client = Client::new(server.address());
    client.send(format!("GET /?0,{BYTES} HTTP/1.1\r\nHost: a\r\n\r\n"));
    // Far more than two sockets hold: it is on its way, and waits for us.
    let sent = || server.counters().bytes_out;
    wait_until("it is on its way", || sent() > 0);
    file.set_len(1000).unwrap();
    assert!(client.count_rest() < BYTES);
    wait_until("it is counted", || server.counters().files_cut == 1);
    assert_eq!(other.get("/small").text(), "small");
    assert_eq!(other.get("/?0,1000").body.len(), 1000);
    wait_until("its connection is gone", || server.counters().connections == 1);
});

drivers!(what_cannot_be_sent_as_a_file_ends_its_connection, |driver: DriverName| {
    let server = start(driver, server(&Arc::new(File::open("/").unwrap())));
    let mut client = Client::new(server.address());
    client.send("GET /?0,10 HTTP/1.1\r\nHost: a\r\n\r\n");
    let rest = client.rest();
    assert!(rest.ends_with(b"\r\n\r\n"), "a head and nothing else");
    wait_until("it is counted", || server.counters().files_cut == 1);
});

/// Takes a file out of the page cache; false where it cannot be done, or not be seen. (The look begins to
/// read: so it is far from what is asked for.)
fn is_cold(file: &File) -> bool {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None::<NonZeroU64>, Advice::DontNeed).unwrap();
    let mut byte = [0];
    let looked = preadv2(file, &mut [IoSliceMut::new(&mut byte)], 15 << 20, ReadWriteFlags::NOWAIT);
    looked == Err(Errno::AGAIN)
}

drivers!(what_is_not_in_the_page_cache_is_read_by_the_pool_first, |driver: DriverName| {
    let bytes = vec![b'x'; 16 << 20];
    let file = file_of(&bytes);
    let server = start(driver, server(&file));
    let mut client = Client::new(server.address());
    if !is_cold(&file) {
        eprintln!("skipped: this file system does not tell what is in its page cache");
        return;
    }
    assert!(client.get(&format!("/?0,{}", 2 << 20)).body == bytes[..2 << 20]);
    let reads = server.counters().file_reads;
    assert!((1..=2).contains(&reads), "{reads} of two steps");
});

#[test]
fn a_client_sends_files_and_a_file_is_not_shared() {
    let bytes = pattern(300_000);
    let file = file_of(&bytes);
    let echo = |mut request: Request| async move { request.bytes(1 << 20).await };
    let server = start(DriverName::Epoll, Server::new().route("/", post(echo)));
    let url = format!("http://{}/", server.address());
    let body = Body::file(Arc::clone(&file), 10..290_000);
    let runtime = ringroad_engine::Runtime::builder(DriverName::Epoll).build().unwrap();
    let back = runtime.block_on(async {
        let mut reply = Asker::new().post(&url).body(body).send().await.unwrap();
        reply.bytes(1 << 20).await.unwrap()
    });
    let back = back.unwrap();
    assert!(back == bytes[10..290_000]);
    assert!(Shared::new(Response::html(Body::file(file, 0..10))).is_err());
}

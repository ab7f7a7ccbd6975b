//! Sending from files, and large buffers in steps.

use crate::support::{alone, listener, narrow_pair, pair, pattern, poll_once, receive_all};
use ringroad_engine::net::{SocketOption, TcpStream};
use ringroad_engine::{FilePart, spawn};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A file with these bytes, and no name.
fn file_of(bytes: &[u8]) -> Arc<File> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("ringroad-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    fs::write(&path, bytes).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    Arc::new(file)
}

/// Sends all of it.
async fn send_all(stream: &mut TcpStream, mut part: FilePart) {
    while part.left() > 0 {
        let left = part.left();
        let (sent, back) = stream.send_file(part).await;
        let sent = sent.unwrap() as u64;
        assert!(sent > 0 && back.left() == left - sent);
        part = back;
    }
}

everywhere!(a_part_of_a_file_is_sent_also_to_a_slow_reader, |case| async move {
    let bytes = pattern(400_000);
    let file = file_of(&bytes);
    for narrow in [false, true] {
        let (mut ours, mut theirs) = if narrow { narrow_pair(case).await } else { pair().await };
        let reader = spawn(async move { receive_all(&mut theirs).await });
        ours.write_all("before ").await.0.unwrap();
        send_all(&mut ours, FilePart::new(Arc::clone(&file), 7..399_000)).await;
        send_all(&mut ours, FilePart::new(Arc::clone(&file), 5..5)).await;
        ours.write_all(" behind").await.0.unwrap();
        drop(ours);
        let expected = [b"before ", &bytes[7..399_000], b" behind"].concat();
        assert!(reader.await.unwrap() == expected, "narrow: {narrow}");
    }
});

everywhere!(halves_send_files_and_have_the_addresses_and_options_of_their_connection, |_| async {
    let (ours, mut theirs) = pair().await;
    let addresses = (ours.local_addr().unwrap(), ours.peer_addr().unwrap());
    let (reader, mut writer) = ours.split();
    assert_eq!((reader.local_addr().unwrap(), reader.peer_addr().unwrap()), addresses);
    assert_eq!((writer.local_addr().unwrap(), writer.peer_addr().unwrap()), addresses);
    for on in [true, false] {
        writer.set_option(SocketOption::NoDelay(on)).unwrap();
        assert_eq!(reader.option(SocketOption::NoDelay(!on)).unwrap(), SocketOption::NoDelay(on));
        reader.set_option(SocketOption::NoDelay(!on)).unwrap();
        assert_eq!(writer.option(SocketOption::NoDelay(on)).unwrap(), SocketOption::NoDelay(!on));
    }
    // Each sends at least one byte.
    let (sent, text) = writer.write("a part of it").await;
    let mut expected = text.as_bytes()[..sent.unwrap()].to_vec();
    let (sent, part) = writer.send_file(FilePart::new(file_of(b"of a file"), 5..9)).await;
    let sent = sent.unwrap();
    assert_eq!(part.left(), 4 - sent as u64);
    expected.extend_from_slice(&b"file"[..sent]);
    drop((reader, writer));
    assert!(sent > 0 && expected.len() > sent);
    assert_eq!(receive_all(&mut theirs).await, expected);
});

everywhere!(a_file_that_ends_before_its_part_is_said, |_| async {
    let (mut ours, mut theirs) = pair().await;
    let file = file_of(b"short");
    let mut part = FilePart::new(Arc::clone(&file), 0..1000);
    let why = loop {
        match ours.send_file(part).await {
            (Ok(_), back) => part = back,
            (Err(why), back) => {
                assert_eq!(back.left(), 995);
                break why;
            }
        }
    };
    assert_eq!(why.raw_os_error(), Some(libc::ENODATA));
    assert!(why.to_string().contains("shorter"), "{why}");
    // Only the promise of 1000 bytes is broken; the connection still works.
    ours.write_all(" and more").await.0.unwrap();
    drop(ours);
    assert_eq!(receive_all(&mut theirs).await, b"short and more");
});

/// Which of SIGPIPE's set this thread has blocked, and has pending.
fn sigpipe_blocked_and_pending() -> (bool, bool) {
    // SAFETY: sets of bits: zeros are a valid value; both calls write them during the call only.
    unsafe {
        let (mut blocked, mut pending): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked), 0);
        assert_eq!(libc::sigpending(&raw mut pending), 0);
        let has = |set: &libc::sigset_t| libc::sigismember(set, libc::SIGPIPE) == 1;
        (has(&blocked), has(&pending))
    }
}

cases!(
    /// Rust's programs ignore SIGPIPE; many command-line programs set its default action back, which ends the
    /// process. Every send of a stream is EPIPE then, a file's too.
    a_file_for_a_peer_that_is_gone_is_an_error_and_no_signal,
    real,
    |case| alone(None, move || {
        // SAFETY: takes numbers, in a process that is this test's alone.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        case.builder()
            .build()
            .unwrap()
            .block_on(async {
                let file = file_of(&pattern(1 << 20));
                for in_the_middle in [false, true] {
                    let (mut ours, mut theirs) = pair().await;
                    if in_the_middle {
                        ours.send_file(FilePart::new(Arc::clone(&file), 0..100)).await.0.unwrap();
                        assert!(!theirs.recv().await.unwrap().is_empty());
                    }
                    theirs.close().await;
                    let why = loop {
                        let part = FilePart::new(Arc::clone(&file), 0..1 << 20);
                        if let Err(why) = ours.send_file(part).await.0 {
                            break why;
                        }
                    };
                    let gone = [Some(libc::EPIPE), Some(libc::ECONNRESET)];
                    assert!(gone.contains(&why.raw_os_error()), "{why}");
                    // The reset is told once; afterwards each send is EPIPE.
                    let part = FilePart::new(Arc::clone(&file), 0..1 << 20);
                    let why = ours.send_file(part).await.0.unwrap_err();
                    assert_eq!(why.raw_os_error(), Some(libc::EPIPE), "{why}");
                    assert_eq!(sigpipe_blocked_and_pending(), (false, false));
                }
            })
            .unwrap();
    })
);

scenario!(a_dropped_send_of_a_file_that_waited_for_room_has_sent_nothing, |case| async move {
    if !case.is_real() {
        // A simulation may do it between two looks.
        return;
    }
    let bytes = pattern(100_000);
    let file = file_of(&bytes);
    let (mut ours, mut theirs) = narrow_pair(case).await;
    let mut expected = Vec::new();
    loop {
        let part = FilePart::new(Arc::clone(&file), 0..bytes.len() as u64);
        let Some((sent, _)) = poll_once(pin!(ours.send_file(part))).await else { break };
        expected.extend_from_slice(&bytes[..sent.unwrap()]);
    }
    let reader = spawn(async move { receive_all(&mut theirs).await });
    ours.write_all("behind").await.0.unwrap();
    drop(ours);
    expected.extend_from_slice(b"behind");
    assert!(reader.await.unwrap() == expected);
});

everywhere!(a_large_buffer_goes_in_steps_and_comes_back_each_time, |case| async move {
    let bytes = pattern(500_000);
    let (mut ours, mut theirs) = narrow_pair(case).await;
    let reader = spawn(async move { receive_all(&mut theirs).await });
    let (mut buffer, mut from) = (bytes.clone(), 0);
    while from < bytes.len() {
        let (sent, back) = ours.write_from(buffer, from).await;
        let to = sent.unwrap();
        assert!(to > from && back == bytes);
        (buffer, from) = (back, to);
    }
    // There is nothing left of it.
    assert_eq!(ours.write_from(buffer, from).await.0.unwrap(), from);
    drop(ours);
    assert!(reader.await.unwrap() == bytes);
});

everywhere!(a_streams_canceller_knows_its_peer_while_it_is_open, |_| async {
    let (ours, theirs) = pair().await;
    let canceller = ours.canceller();
    assert_eq!(canceller.peer_addr().unwrap(), theirs.local_addr().unwrap());
    drop(ours);
    assert_eq!(canceller.peer_addr().unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
});

scenario!(a_listener_without_a_waiting_task_can_be_taken_out_with_its_backlog, |case| async move {
    if !case.is_real() {
        return;
    }
    let (mut listener, address) = listener();
    let ours = {
        let mut accept = pin!(listener.accept());
        assert!(poll_once(accept.as_mut()).await.is_none());
        let ours = TcpStream::connect(address).await.unwrap();
        accept.await.unwrap();
        ours
    };
    listener.canceller().cancel();
    while listener.accept().await.is_ok() {}
    let listener = listener.into_std().map_err(|(why, _)| why).unwrap();
    let mut client = std::net::TcpStream::connect(address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    std::io::Write::write_all(&mut server, b"taken").unwrap();
    drop(server);
    let mut told = String::new();
    std::io::Read::read_to_string(&mut client, &mut told).unwrap();
    assert_eq!(told, "taken");
    drop(ours);
});

#[test]
fn what_of_a_file_is_in_the_page_cache_is_told_where_the_kernel_tells() {
    let file = file_of(&pattern(1 << 20));
    let told = |range| ringroad_engine::fs::is_cached(&file, range);
    // Written just now. If the kernel has evicted a page under memory pressure, it is read again.
    let mut buffer = vec![0; 1 << 20];
    loop {
        match told(0..1 << 20) {
            Some(true) => break,
            Some(false) => file.read_exact_at(&mut buffer, 0).unwrap(),
            None => return eprintln!("skipped: this kernel does not tell what is in its page cache"),
        }
    }
    assert_eq!(told(5..5), Some(true));
    // Behind the end there is nothing to be had.
    assert_eq!(told(0..2 << 20), Some(false));
    // A hole that was never read.
    file.set_len(4 << 20).unwrap();
    assert_eq!(told(2 << 20..4 << 20), Some(false));
}

//! Reads and writes of what has no positions: they wait for a peer, in the driver, and take and write nothing
//! while they do.

use super::Folder;
use crate::support::{alone, poll_once, runtime, some_turns, with_runtime};
use ringroad_engine::fs::File;
use ringroad_engine::time::sleep;
use ringroad_engine::{blocking, fs, spawn, spawn_blocking};
use std::fs as std_fs;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::time::Duration;

/// Sends bytes from the peer's side.
type Send = Box<dyn FnMut(&[u8])>;

/// What is read here, and how a peer speaks.
struct Peer {
    name: &'static str,
    reader: File,
    /// Sends these bytes.
    writer: Send,
}

fn owned(number: i32) -> OwnedFd {
    assert!(number >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a call has just opened it, and told nothing else of it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn to(mut file: impl Write + 'static) -> Send {
    Box::new(move |bytes| file.write_all(bytes).unwrap())
}

/// A pipe, a FIFO, a Unix socket, a terminal in its usual mode.
fn peers(folder: &Folder) -> Vec<Peer> {
    let (pipe, into_pipe) = std::io::pipe().unwrap();
    let fifo = folder.fifo();
    // Both ways, which never waits for the other end.
    let fifo = std_fs::OpenOptions::new().read(true).write(true).open(fifo).unwrap();
    let into_fifo = fifo.try_clone().unwrap();
    let (socket, into_socket) = UnixStream::pair().unwrap();
    let (mut master, mut terminal) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: openpty(3) writes two numbers; name, modes and size are not given.
    let opened = unsafe { libc::openpty(&raw mut master, &raw mut terminal, null, null.cast(), null.cast()) };
    assert_eq!(opened, 0);
    let (master, terminal) = (owned(master), owned(terminal));
    vec![
        Peer { name: "pipe", reader: File::from(OwnedFd::from(pipe)), writer: to(into_pipe) },
        Peer { name: "FIFO", reader: File::from_std(fifo), writer: to(into_fifo) },
        Peer { name: "socket", reader: File::from(OwnedFd::from(socket)), writer: to(into_socket) },
        Peer { name: "terminal", reader: File::from(terminal), writer: to(std_fs::File::from(master)) },
    ]
}

/// Waits until nothing is open but what the test holds.
async fn watches_nothing() {
    while runtime(|runtime| runtime.descriptors() + runtime.in_flight()) > 0 {
        sleep(Duration::from_millis(1)).await;
    }
}

cases!(
    /// More than the pool has threads: before, each held one for ever, and the bytes went to the first.
    abandoned_reads_take_no_thread_of_the_pool_and_no_bytes,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        runtime
            .block_on(async {
                let folder = Folder::new();
                for Peer { name, reader, mut writer } in peers(&folder) {
                    for round in 0..2 * blocking::threads_max() {
                        let mut read = pin!(reader.read_at(Vec::with_capacity(100), 0));
                        assert!(poll_once(read.as_mut()).await.is_none(), "{name}");
                        if round % 2 == 0 {
                            // Abandoned while the driver has it.
                            some_turns().await;
                        }
                    }
                    assert_eq!(spawn_blocking(|| 7).await.unwrap(), 7);
                    assert!(fs::read_dir(folder.path()).await.is_ok());
                    writer(b"a line\n");
                    let (read, bytes) = reader.read_at(Vec::with_capacity(100), 0).await;
                    assert_eq!((read.unwrap(), &*bytes), (7, &b"a line\n"[..]), "{name}");
                }
                watches_nothing().await;
            })
            .unwrap();
    })
);

cases!(
    /// The wait is over, and the read has not been made, or just been made, when its future is dropped.
    a_read_abandoned_as_the_bytes_come_leaves_them_to_the_next,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        runtime
            .block_on(async {
                let folder = Folder::new();
                for Peer { name, reader, mut writer } in peers(&folder) {
                    for turns in 0..20 {
                        {
                            let mut read = pin!(reader.read_at(Vec::with_capacity(100), 0));
                            assert!(poll_once(read.as_mut()).await.is_none(), "{name}");
                            some_turns().await;
                            writer(b"the next one's\n");
                            for _ in 0..turns {
                                ringroad_engine::yield_now().await;
                            }
                        }
                        let (read, bytes) = reader.read_at(Vec::with_capacity(100), 0).await;
                        assert_eq!((read.unwrap(), &*bytes), (15, &b"the next one's\n"[..]), "{name}");
                    }
                }
                watches_nothing().await;
            })
            .unwrap();
    })
);

cases!(a_pipe_is_read_in_its_order_to_its_end, real, |case| with_runtime(
    case,
    |builder| builder,
    move |_, runtime| {
        runtime
            .block_on(async {
                let (reader, mut writer) = std::io::pipe().unwrap();
                let bytes = crate::support::pattern(300_000);
                let sent = bytes.clone();
                let sending = std::thread::spawn(move || {
                    sent.chunks(7001).for_each(|part| writer.write_all(part).unwrap());
                });
                let reader = File::from(OwnedFd::from(reader));
                let mut got = Vec::new();
                loop {
                    let (read, part) = reader.read_at(Vec::with_capacity(5000), 0).await;
                    if read.unwrap() == 0 {
                        break;
                    }
                    got.extend_from_slice(&part);
                }
                sending.join().unwrap();
                assert!(got == bytes);
                watches_nothing().await;
            })
            .unwrap();
    }
));

cases!(
    /// Several tasks wait for one pipe: each line goes to one of them.
    several_reads_wait_for_one_pipe,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        runtime
            .block_on(async {
                let (reader, mut writer) = std::io::pipe().unwrap();
                let reader = File::from(OwnedFd::from(reader));
                let reading: Vec<_> = (0..5)
                    .map(|_| {
                        let reader = reader.clone();
                        spawn(async move { reader.read_at(Vec::with_capacity(1), 0).await.1 })
                    })
                    .collect();
                some_turns().await;
                writer.write_all(b"01234").unwrap();
                let mut got = Vec::new();
                for reading in reading {
                    got.extend(reading.await.unwrap());
                }
                got.sort_unstable();
                assert_eq!(got, b"01234");
                drop(reader);
                watches_nothing().await;
            })
            .unwrap();
    })
);

cases!(
    /// inotify(7) knows no read that does not wait: the pool makes it, but only when there is something.
    what_promises_nothing_is_waited_for_likewise,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        runtime
            .block_on(async {
                let folder = Folder::new();
                // SAFETY: inotify_init1(2) takes a number.
                let events = owned(unsafe { libc::inotify_init1(libc::IN_CLOEXEC) });
                let path = std::ffi::CString::new(folder.path().to_str().unwrap()).unwrap();
                let number = std::os::fd::AsRawFd::as_raw_fd(&events);
                // SAFETY: inotify_add_watch(2) reads a path that ends in NUL.
                assert!(unsafe { libc::inotify_add_watch(number, path.as_ptr(), libc::IN_CREATE) } >= 0);
                let events = File::from(events);
                for _ in 0..2 * blocking::threads_max() {
                    let mut read = pin!(events.read_at(Vec::with_capacity(4096), 0));
                    assert!(poll_once(read.as_mut()).await.is_none());
                    some_turns().await;
                }
                assert_eq!(spawn_blocking(|| 7).await.unwrap(), 7);
                folder.file("made", b"");
                let (read, event) = events.read_at(Vec::with_capacity(4096), 0).await;
                assert!(read.unwrap() > 0);
                assert!(event.windows(4).any(|part| part == b"made"));
                watches_nothing().await;
            })
            .unwrap();
    })
);

cases!(
    /// Devices that never wait have nothing to be waited for.
    devices_that_are_always_ready_are_read_at_once,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        runtime
            .block_on(async {
                for (path, bytes) in [("/dev/zero", 10), ("/dev/urandom", 10), ("/dev/null", 0)] {
                    let device = File::open(path).await.unwrap();
                    let (read, _) = device.read_at(Vec::with_capacity(10), 0).await;
                    assert_eq!(read.unwrap(), bytes, "{path}");
                }
            })
            .unwrap();
    })
);

cases!(
    /// Opening does not wait for a writer, and reading does: bytes, the end, and nothing before a writer has
    /// come.
    a_fifo_is_read_once_its_first_writer_has_come,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        runtime
            .block_on(async {
                let folder = Folder::new();
                let path = folder.fifo();
                for silent in [false, true] {
                    let fifo = File::open(&path).await.unwrap();
                    let mut read = pin!(fifo.read_at(Vec::with_capacity(100), 0));
                    assert!(poll_once(read.as_mut()).await.is_none());
                    some_turns().await;
                    assert!(poll_once(read.as_mut()).await.is_none(), "no writer is no end");
                    let mut writer = std_fs::OpenOptions::new().write(true).open(&path).unwrap();
                    if !silent {
                        writer.write_all(b"a line").unwrap();
                    }
                    drop(writer);
                    let (read, bytes) = read.await;
                    let expected: &[u8] = if silent { b"" } else { b"a line" };
                    assert_eq!((read.unwrap(), &*bytes), (expected.len(), expected));
                    // Its writers have gone: the end, each time.
                    for _ in 0..2 {
                        assert_eq!(fifo.read_at(Vec::with_capacity(100), 0).await.0.unwrap(), 0);
                    }
                }
                watches_nothing().await;
            })
            .unwrap();
    })
);

cases!(
    /// A path that leads to an open pipe, as /dev/stdin and /dev/fd do.
    a_pipe_by_its_path_is_read_as_the_pipe,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        runtime
            .block_on(async {
                let (reader, mut writer) = std::io::pipe().unwrap();
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
                let by_path = File::open(&path).await.unwrap();
                let mut read = Box::pin(by_path.read_at(Vec::with_capacity(100), 0));
                assert!(poll_once(read.as_mut()).await.is_none());
                some_turns().await;
                writer.write_all(b"first").unwrap();
                assert_eq!(read.as_mut().await.1, b"first");
                drop(read);
                drop(writer);
                assert_eq!(by_path.read_at(Vec::with_capacity(100), 0).await.0.unwrap(), 0);
                drop(by_path);
                watches_nothing().await;
            })
            .unwrap();
    })
);

cases!(
    /// They say a length of zero, and promise nothing about waiting.
    files_of_the_kernel_are_read_whole,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        runtime
            .block_on(async {
                for path in ["/proc/self/cmdline", "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"] {
                    let Ok(expected) = std_fs::read(path) else { continue };
                    assert_eq!(fs::read(path).await.unwrap(), expected, "{path}");
                    let file = File::open(path).await.unwrap();
                    let (read, bytes) = file.read_at(Vec::with_capacity(5), 2).await;
                    assert_eq!((read.unwrap(), &*bytes), (5, &expected[2..7]), "{path}");
                }
            })
            .unwrap();
    })
);

cases!(
    /// It says a length of zero, and its parts come as its writer makes them.
    a_whole_fifo_is_read_to_its_end,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        runtime
            .block_on(async {
                let folder = Folder::new();
                let path = folder.fifo();
                let bytes = crate::support::pattern(200_000);
                let (to, sent) = (path.clone(), bytes.clone());
                let sending = std::thread::spawn(move || std_fs::write(to, sent).unwrap());
                assert!(fs::read(&path).await.unwrap() == bytes);
                sending.join().unwrap();
                watches_nothing().await;
            })
            .unwrap();
    })
);

/// What is written to here, full, and how its peer reads.
struct FullPeer {
    name: &'static str,
    writer: File,
    /// Reads what is there, of so many bytes.
    peer: std_fs::File,
    holds: usize,
}

/// Fills what this writes to.
fn filled(name: &'static str, writer: OwnedFd, peer: OwnedFd) -> FullPeer {
    let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
    // SAFETY: fcntl(2) takes numbers only.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    // SAFETY: likewise.
    let set = |flags: i32| assert_eq!(unsafe { libc::fcntl(number, libc::F_SETFL, flags) }, 0);
    set(flags | libc::O_NONBLOCK);
    let (mut file, mut holds) = (std_fs::File::from(writer), 0);
    for bytes in [4096, 1] {
        while let Ok(written) = file.write(&[b'x'; 4096][..bytes]) {
            holds += written;
        }
    }
    set(flags);
    FullPeer { name, writer: File::from_std(file), peer: std_fs::File::from(peer), holds }
}

/// Halts a terminal's output, or lets it go on.
fn halted(terminal: i32, halts: bool) -> OwnedFd {
    let act = if halts { libc::TCOOFF } else { libc::TCOON };
    // SAFETY: tcflow(3) takes numbers only.
    assert_eq!(unsafe { libc::tcflow(terminal, act) }, 0);
    owned(terminal)
}

/// A pipe, a FIFO, a Unix socket, a terminal.
fn full_peers(folder: &Folder) -> Vec<FullPeer> {
    let (out_of_pipe, pipe) = std::io::pipe().unwrap();
    let fifo = folder.fifo();
    let fifo = std_fs::OpenOptions::new().read(true).write(true).open(fifo).unwrap();
    let out_of_fifo = fifo.try_clone().unwrap();
    let (socket, out_of_socket) = UnixStream::pair().unwrap();
    let (mut master, mut terminal) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: openpty(3) writes two numbers; name, modes and size are not given.
    let opened = unsafe { libc::openpty(&raw mut master, &raw mut terminal, null, null.cast(), null.cast()) };
    assert_eq!(opened, 0);
    vec![
        filled("pipe", pipe.into(), out_of_pipe.into()),
        filled("FIFO", fifo.into(), out_of_fifo.into()),
        filled("socket", socket.into(), out_of_socket.into()),
        // The kernel moves what is written on to its other end at any time, so it is halted instead (Ctrl-S).
        FullPeer {
            name: "terminal",
            writer: File::from(halted(terminal, true)),
            peer: std_fs::File::from(owned(master)),
            holds: 0,
        },
    ]
}

cases!(
    /// More than the pool has threads: before, each held one until its peer read.
    abandoned_writes_take_no_thread_of_the_pool_and_write_nothing,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        runtime
            .block_on(async {
                let folder = Folder::new();
                for FullPeer { name, writer, mut peer, holds } in full_peers(&folder) {
                    for round in 0..2 * blocking::threads_max() {
                        let mut write = pin!(writer.write_at("abandoned", 0));
                        assert!(poll_once(write.as_mut()).await.is_none(), "{name}");
                        if round % 2 == 0 {
                            // Abandoned while the driver has it.
                            some_turns().await;
                        }
                    }
                    assert_eq!(spawn_blocking(|| 7).await.unwrap(), 7);
                    assert!(fs::read_dir(folder.path()).await.is_ok());
                    let mut write = pin!(writer.write_all_at("the next one's", 0));
                    assert!(poll_once(write.as_mut()).await.is_none(), "{name}");
                    if holds == 0 {
                        let duplicate = writer.try_clone().unwrap().into_std().unwrap();
                        drop(halted(std::os::fd::IntoRawFd::into_raw_fd(duplicate), false));
                    }
                    let reading = spawn_blocking(move || {
                        let mut bytes = vec![0; holds + 14];
                        peer.read_exact(&mut bytes).unwrap();
                        (bytes, peer)
                    });
                    write.await.0.unwrap();
                    let (bytes, _peer) = reading.await.unwrap();
                    assert!(bytes[..holds].iter().all(|byte| *byte == b'x'), "{name}");
                    assert_eq!(&bytes[holds..], b"the next one's", "{name}");
                }
                watches_nothing().await;
            })
            .unwrap();
    })
);

cases!(
    /// Rust's programs ignore SIGPIPE; many command-line programs set its default action back, which ends the
    /// process. Every write of the engine is EPIPE then.
    a_write_to_a_peer_that_is_gone_is_an_error_and_no_signal,
    real,
    |case| alone(None, move || {
        // SAFETY: takes numbers, in a process that is this test's alone.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        case.builder()
            .build()
            .unwrap()
            .block_on(async {
                let gone = Some(libc::EPIPE);
                for waits in [false, true] {
                    let (out_of_pipe, pipe) = std::io::pipe().unwrap();
                    let (socket, out_of_socket) = UnixStream::pair().unwrap();
                    let peers: [(OwnedFd, OwnedFd); 2] =
                        [(pipe.into(), out_of_pipe.into()), (socket.into(), out_of_socket.into())];
                    for (writer, peer) in peers {
                        let (writer, peer) = if waits {
                            let full = filled("full", writer, peer);
                            (full.writer, full.peer)
                        } else {
                            (File::from(writer), std_fs::File::from(peer))
                        };
                        let mut write = pin!(writer.write_at("in vain", 0));
                        if waits {
                            assert!(poll_once(write.as_mut()).await.is_none());
                            some_turns().await;
                        }
                        drop(peer);
                        assert_eq!(write.await.0.unwrap_err().raw_os_error(), gone);
                        let again = writer.write_all_at("in vain", 0).await.0;
                        assert_eq!(again.unwrap_err().raw_os_error(), gone);
                    }
                }
            })
            .unwrap();
    })
);

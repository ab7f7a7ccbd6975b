//! Memory the kernel may touch stays, and memory it may not touch is gone. Shown with buffers on pages of
//! their own, which leave the address space when they are freed. A late write would fail with EFAULT, or
//! overwrite what is mapped there by then; lost bytes would be missed.
//!
//! Each test has a process to itself: in another, a thread may map something at the address in question.

use crate::contract::fs::Folder;
use crate::peer::pair;
use crate::support::{Case, alone, with_runtime};
use futures_util::poll;
use ringroad_engine::net::{TcpStream, UnixDatagram};
use ringroad_engine::{Pages, Runtime, fs, yield_now};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

const PAGE: usize = 4096;

/// Whether this page is part of our address space.
fn is_mapped(address: usize) -> bool {
    let mut resident = 0u8;
    // SAFETY: mincore(2) looks at no memory but the one byte it answers to, which is ours.
    let answer = unsafe { libc::mincore(address as *mut libc::c_void, PAGE, &raw mut resident) };
    answer == 0
}

/// Whether the driver has a receive or a send without a future.
fn is_orphaned() -> bool {
    let dump = Runtime::dump_current().unwrap();
    dump.lines().any(|line| line.contains("  orphaned  ") && !line.contains("  accept  "))
}

/// From a drop on: as long as the driver has the operation its memory is there, and then it is gone. Whether
/// the driver had it at all.
async fn mapped_until_let_go(addresses: &[usize]) -> bool {
    let was_orphaned = is_orphaned();
    loop {
        let orphaned = is_orphaned();
        for address in addresses {
            assert_eq!(is_mapped(*address), orphaned, "{:?}", Runtime::dump_current());
        }
        if !orphaned {
            return was_orphaned;
        }
        yield_now().await;
    }
}

/// Pages full of received bytes, each its offset.
async fn full(pages: usize) -> Pages {
    let (mut sender, mut reader) = pair().await;
    let mut buffer = Pages::new(pages * PAGE).unwrap();
    let sending = ringroad_engine::spawn(async move {
        let bytes: Vec<u8> = (0..pages * PAGE).map(|at| (at / 64) as u8).collect();
        sender.write_all(bytes).await.0.unwrap();
    });
    while buffer.len() < pages * PAGE {
        let (got, back) = reader.recv_into(buffer).await;
        assert!(got.unwrap() > 0);
        buffer = back;
    }
    sending.await.unwrap();
    buffer
}

cases!(the_memory_of_a_dropped_receive_stays_until_its_last_completion_and_no_byte_is_lost, all, |case| {
    alone(None, || {
        with_runtime(
            case,
            |builder| builder,
            |case, runtime| {
                let body = async {
                    let (mut sender, mut reader) = pair().await;
                    let mut had_it = 0;
                    for round in 0..50u8 {
                        let buffer = Pages::new(PAGE).unwrap();
                        let address = buffer.as_ptr() as usize;
                        let mut receiving = Box::pin(reader.recv_into(buffer));
                        assert!(poll!(&mut receiving).is_pending());
                        // In every other round the bytes are there when it is dropped, and in some before it
                        // is handed over.
                        if round % 2 == 0 {
                            sender.write_all(vec![round; 100]).await.0.unwrap();
                        }
                        if round % 4 < 2 {
                            yield_now().await;
                        }
                        assert!(is_mapped(address));
                        drop(receiving);
                        had_it += u32::from(mapped_until_let_go(&[address]).await);
                        if round % 2 == 1 {
                            sender.write_all(vec![round; 100]).await.0.unwrap();
                        }
                        let mut got = 0;
                        while got < 100 {
                            let lease = reader.recv().await.unwrap();
                            assert!(!lease.is_empty() && lease.iter().all(|byte| *byte == round));
                            got += lease.len();
                        }
                        assert_eq!(got, 100);
                        // The next receive into memory needs that the standing one is over.
                        reader.canceller().cancel();
                        reader = renewed(reader, &mut sender).await;
                    }
                    had_it
                };
                let had_it = runtime.block_on(body).unwrap();
                match case {
                    Case::Epoll | Case::Poll | Case::Select => {
                        assert_eq!(had_it, 0, "between two system calls the kernel has nothing")
                    }
                    Case::Threads | Case::IoUring | Case::IoUringPlain => {
                        assert!(had_it >= 20, "{had_it} of 50")
                    }
                    Case::Sim => {}
                }
            },
        )
    })
});

cases!(the_memory_of_a_dropped_datagram_stays_until_its_last_completion, all, |case| alone(None, || {
    with_runtime(
        case,
        |builder| builder,
        |case, runtime| {
            let body = async {
                let (mut sender, mut reader) = UnixDatagram::pair().unwrap();
                let mut had_it = 0;
                for round in 0..50u8 {
                    let buffer = Pages::new(PAGE).unwrap();
                    let address = buffer.as_ptr() as usize;
                    let mut receiving = Box::pin(reader.recv(buffer));
                    assert!(poll!(&mut receiving).is_pending());
                    // In every other round a datagram is there when it is dropped, and stays in the buffer
                    // for the next.
                    if round % 2 == 0 {
                        sender.send(vec![round; 100]).await.0.unwrap();
                    }
                    if round % 4 < 2 {
                        yield_now().await;
                    }
                    assert!(is_mapped(address));
                    drop(receiving);
                    if round % 2 == 1 {
                        had_it += u32::from(mapped_until_let_go(&[address]).await);
                        sender.send(vec![round; 100]).await.0.unwrap();
                    }
                    let (received, buffer) = reader.recv(Vec::with_capacity(200)).await;
                    assert_eq!((received.unwrap().length, buffer), (100, vec![round; 100]));
                    assert!(!is_mapped(address), "{:?}", Runtime::dump_current());
                }
                had_it
            };
            let had_it = runtime.block_on(body).unwrap();
            match case {
                Case::Epoll | Case::Poll | Case::Select => {
                    assert_eq!(had_it, 0, "between two system calls the kernel has nothing")
                }
                Case::Threads | Case::IoUring | Case::IoUringPlain => assert_eq!(had_it, 25),
                Case::Sim => {}
            }
        },
    )
}));

/// Another connection in its place, on which no receive has begun.
async fn renewed(before: TcpStream, sender: &mut TcpStream) -> TcpStream {
    before.close().await;
    let (client, server) = pair().await;
    *sender = client;
    server
}

cases!(the_memory_of_a_dropped_send_stays_until_its_last_completion, all, |case| alone(None, || {
    with_runtime(
        case,
        |builder| builder,
        |case, runtime| {
            let body = async {
                let mut had_it = 0;
                for vectored in [false, true, false, true] {
                    let (mut sender, mut reader) = pair().await;
                    // More than the sockets take, so that it has to wait.
                    let pages = if case.is_real() { 2048 } else { 128 };
                    let (first, second) = (full(4).await, full(pages).await);
                    let (first_at, second_at) = (first.as_ptr() as usize, second.as_ptr() as usize);
                    // The peer has the beginning, as it was meant: until it has a part, so that the rest is
                    // underway.
                    let mut got = Vec::new();
                    let was_with_the_driver = if vectored {
                        let mut sending = Box::pin(sender.write_vectored_all(vec![first, second]));
                        assert!(poll!(&mut sending).is_pending());
                        got.extend_from_slice(&reader.recv().await.unwrap());
                        assert!(poll!(&mut sending).is_pending());
                        assert!(is_mapped(first_at) && is_mapped(second_at));
                        drop(sending);
                        mapped_until_let_go(&[first_at, second_at]).await
                    } else {
                        drop(first);
                        let mut sending = Box::pin(sender.write_all(second));
                        assert!(poll!(&mut sending).is_pending());
                        got.extend_from_slice(&reader.recv().await.unwrap());
                        assert!(poll!(&mut sending).is_pending());
                        assert!(is_mapped(second_at));
                        drop(sending);
                        mapped_until_let_go(&[second_at]).await
                    };
                    had_it += u32::from(was_with_the_driver);
                    // Nothing may follow a part.
                    let next = sender.write_all("more").await.0.unwrap_err();
                    assert_eq!(next.raw_os_error(), Some(libc::EPIPE), "{next}");
                    drop(sender);
                    while let Ok(lease) = reader.recv().await {
                        if lease.is_empty() {
                            break;
                        }
                        got.extend_from_slice(&lease);
                    }
                    assert!(got.len() < pages * PAGE, "it was dropped midway");
                    let before = if vectored { 4 * PAGE } else { 0 };
                    let meant = |at: usize| if at < before { at } else { at - before };
                    assert!(got.iter().enumerate().all(|(at, byte)| *byte == (meant(at) / 64) as u8));
                }
                had_it
            };
            let had_it = runtime.block_on(body).unwrap();
            match case {
                Case::Epoll | Case::Poll | Case::Select => {
                    assert_eq!(had_it, 0, "between two system calls the kernel has nothing")
                }
                Case::Threads | Case::IoUring | Case::IoUringPlain => assert_eq!(had_it, 4),
                Case::Sim => {}
            }
        },
    )
}));

cases!(
    /// Without patience nothing is reaped: what the kernel may still touch is left to it for ever, and told.
    a_shutdown_without_patience_leaks_what_the_kernel_has_and_says_so,
    real,
    |case| alone(None, || {
        let runtime = case.builder().build().unwrap();
        let (address, kept) = runtime
            .block_on(async {
                let (kept, mut reader) = pair().await;
                let buffer = Pages::new(PAGE).unwrap();
                let address = buffer.as_ptr() as usize;
                let task = ringroad_engine::spawn(async move { drop(reader.recv_into(buffer).await) });
                task.detach();
                yield_now().await;
                yield_now().await;
                (address, kept)
            })
            .unwrap();
        let ended = runtime.shutdown(Duration::ZERO);
        if case.is_readiness() {
            assert_eq!(ended, Ok(()));
            assert!(!is_mapped(address), "the kernel had nothing: there is nothing to leak");
        } else {
            assert_eq!(ended.map_err(|stuck| stuck.operations), Err(1));
            assert!(is_mapped(address));
        }
        drop(kept);
    })
);

cases!(
    /// A lease holds its buffer, whatever becomes of the runtime.
    a_lease_may_be_read_after_its_runtime_is_gone,
    all,
    |case| alone(None, || {
        let runtime = case.builder().build().unwrap();
        let lease = runtime
            .block_on(async {
                let (mut sender, mut reader) = pair().await;
                sender.write_all("still here").await.0.unwrap();
                reader.recv().await.unwrap()
            })
            .unwrap();
        assert!(lease.is_pooled() || case == Case::Sim);
        runtime.shutdown(Duration::from_secs(10)).unwrap();
        let page = lease.as_ptr() as usize / PAGE * PAGE;
        assert!(is_mapped(page));
        assert_eq!(&*lease, b"still here");
        let pooled = lease.is_pooled();
        drop(lease);
        assert!(!pooled || !is_mapped(page), "nobody has the pool any more");
    })
);

/// Makes a FIFO full: a write to it waits.
fn fill(mut fifo: &std::fs::File) {
    while fifo.write(&[0; PAGE]).is_ok_and(|bytes| bytes > 0) {}
}

/// Takes everything out of a FIFO.
fn drain(mut fifo: &std::fs::File) {
    while fifo.read(&mut [0; 16 * PAGE]).is_ok_and(|bytes| bytes > 0) {}
}

cases!(
    /// On a thread of the pool, or in the kernel. (Reads, and writes to pipes, wait in the driver without
    /// their memory. A file system in memory takes the bytes at once.)
    the_memory_of_a_dropped_write_to_a_file_stays_until_that_is_over,
    real,
    |case| alone(None, || with_runtime(case, |builder| builder, |case, runtime| {
        let body = async {
            let folder = Folder::new();
            let writer = fs::File::from_std(std::fs::File::create(folder.join("file")).unwrap());
            for round in 0..20 {
                let buffer = full(256).await;
                while is_orphaned() {
                    yield_now().await;
                }
                let address = buffer.as_ptr() as usize;
                let mut writing = Box::pin(writer.write_at(buffer, 0));
                if poll!(&mut writing).is_ready() {
                    continue;
                }
                let is_new = round % 2 == 0;
                if !is_new {
                    yield_now().await;
                }
                drop(writing);
                if case == Case::IoUring {
                    let had_it = mapped_until_let_go(&[address]).await;
                    assert!(had_it || !is_new, "nothing ended it since it was handed over");
                }
                // Before a thread has taken it up it is gone with its future, and after that not before it is
                // written.
                while is_mapped(address) {
                    yield_now().await;
                }
            }
        };
        runtime.block_on(body).unwrap();
    }))
);

cases!(
    /// It waits in the driver, without its memory.
    the_memory_of_a_dropped_write_to_a_full_pipe_goes_with_it,
    real,
    |case| alone(None, || with_runtime(case, |builder| builder, |_, runtime| {
        let body = async {
            let folder = Folder::new();
            let path = folder.fifo();
            let open = |flags| {
                let mut options = std::fs::OpenOptions::new();
                options.read(true).write(true).custom_flags(flags).open(&path).unwrap()
            };
            let (other_end, writer) = (open(libc::O_NONBLOCK), fs::File::from_std(open(0)));
            fill(&other_end);
            for round in 0..20 {
                let buffer = full(1).await;
                let address = buffer.as_ptr() as usize;
                let mut writing = Box::pin(writer.write_at(buffer, 0));
                assert!(poll!(&mut writing).is_pending());
                if round % 2 == 0 {
                    yield_now().await;
                }
                assert!(is_mapped(address));
                drop(writing);
                assert!(!is_mapped(address));
            }
            // And nothing of it is written once there is room.
            drain(&other_end);
            assert!((&other_end).read(&mut [0; 1]).is_err_and(|why| why.kind() == std::io::ErrorKind::WouldBlock));
        };
        runtime.block_on(body).unwrap();
    }))
);

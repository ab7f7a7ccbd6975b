//! Cost of a zero-copy send, compared with a copying send: `cargo run --release -p ringroad-engine --example
//! zero_copy -- [ROUNDS]`.
//!
//! The first part measures by size, without a network. A loopback connection has a small receive buffer and
//! its peer does not read, so the bytes stay in the sender's kernel until the connection is reset. The figure
//! is the CPU time of the sends and of releasing the bytes, notifications included: the saving that a device
//! with scatter-gather would get. The second part sends over loopback to a peer that reads, through the
//! engine: there the kernel copies anyway, and the figure is the cost of trying. Figures are microseconds of
//! CPU, including the receiving thread. Rounds are interleaved; the output is the median round with minimum
//! and maximum.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use ringroad_engine::net::TcpStream;
use ringroad_engine::{DriverName, Features, Runtime, ZeroCopy};
use ringroad_uring::abi::setup::{IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_SINGLE_ISSUER};
use ringroad_uring::{Ring, Sqe, Wait};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

const SIZES: [usize; 8] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20];
/// Bytes sent per round.
const ROUND_BYTES: usize = 16 << 20;
/// The small receive buffer, in bytes.
const ROOM: usize = 4 << 10;

fn cpu() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one timespec, which is this frame's.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) }, 0);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn listener(room: Option<usize>) -> (Socket, SocketAddr) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    if let Some(room) = room {
        listener.set_recv_buffer_size(room).unwrap();
    }
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(16).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    (listener, address)
}

/// Returns the CPU time of sends of this size that stay in the kernel, in microseconds per send.
fn queued(ring: &mut Ring, size: usize, zero_copy: bool) -> f64 {
    let bytes = vec![7_u8; size];
    let (listener, address) = listener(Some(ROOM));
    let (mut done, mut spent) = (0, Duration::ZERO);
    while done < ROUND_BYTES {
        let near = std::net::TcpStream::connect(address).unwrap();
        let _far = listener.accept().unwrap();
        SockRef::from(&near).set_send_buffer_size(4 << 20).unwrap();
        SockRef::from(&near).set_linger(Some(Duration::ZERO)).unwrap();
        let began = cpu();
        let mut notifications = 0;
        // Send until the buffer is full.
        loop {
            let (fd, start, length) = (near.as_raw_fd(), bytes.as_ptr(), size as u32);
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            let entry = match zero_copy {
                true => Sqe::send_zc(fd, start, length, flags).report_usage(),
                false => Sqe::send(fd, start, length, flags),
            };
            // SAFETY: the bytes outlive the last completion, which is taken below.
            unsafe { ring.submissions().push(entry) }.unwrap();
            let sent = next(ring);
            notifications += usize::from(sent.more());
            if sent.result <= 0 {
                assert_eq!(sent.result, -libc::EAGAIN);
                break;
            }
            done += sent.result as usize;
        }
        drop(near);
        for _ in 0..notifications {
            assert!(next(ring).is_notification());
        }
        spent += cpu() - began;
    }
    spent.as_secs_f64() * 1e6 * size as f64 / done as f64
}

fn next(ring: &mut Ring) -> ringroad_uring::Cqe {
    loop {
        if let Some(completion) = ring.completions().pop() {
            return completion;
        }
        ring.submit_and_wait(Wait { completions: 1, ..Wait::default() }).unwrap();
    }
}

/// Returns the CPU time of sends of this size to a peer that reads, through the engine, in microseconds per
/// send.
fn delivered(size: usize, zero_copy: ZeroCopy) -> f64 {
    let (listener, address) = listener(None);
    let mut features = Features::default();
    features.zero_copy = zero_copy;
    let runtime = Runtime::builder(DriverName::IoUring).features(features).build().unwrap();
    let reader = std::thread::spawn(move || {
        let mut far = std::net::TcpStream::from(listener.accept().unwrap().0);
        let mut room = vec![0; 256 << 10];
        while far.read(&mut room).unwrap() > 0 {}
    });
    let bytes: Rc<[u8]> = vec![7; size].into();
    let sends = 4 * ROUND_BYTES / size;
    let spent = runtime.block_on(async {
        let mut near = TcpStream::connect(address).await.unwrap();
        let began = cpu();
        for _ in 0..sends {
            near.write_all(Rc::clone(&bytes)).await.0.unwrap();
        }
        cpu() - began
    });
    drop(runtime);
    reader.join().unwrap();
    spent.unwrap().as_secs_f64() * 1e6 / sends as f64
}

fn row(what: &str, rounds: &mut [Vec<f64>]) {
    print!("{what:<24}");
    for round in rounds.iter_mut() {
        round.sort_by(f64::total_cmp);
        let (least, largest) = (round[0], round[round.len() - 1]);
        print!("  {:>8.2} ({least:.2} to {largest:.2})", round[round.len() / 2]);
    }
    println!();
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(5, |rounds| rounds.parse().unwrap());
    let flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    let mut ring = Ring::builder(64).completion_entries(16384).flags(flags).build().unwrap();
    println!("stays in the kernel       copied, from where it lies");
    for size in SIZES {
        let mut each = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            each[0].push(queued(&mut ring, size, false));
            each[1].push(queued(&mut ring, size, true));
        }
        row(&format!("{} KiB", size >> 10), &mut each);
    }
    println!("delivered over loopback   off, until copied, always");
    for size in SIZES.into_iter().filter(|size| *size >= 64 << 10) {
        let mut each = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (each, way) in each.iter_mut().zip([ZeroCopy::Off, ZeroCopy::UntilCopied, ZeroCopy::Always]) {
                each.push(delivered(size, way));
            }
        }
        row(&format!("{} KiB", size >> 10), &mut each);
    }
}

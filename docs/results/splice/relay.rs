//! CPU of a relay between two TCP connections on loopback: recv and send through 64 KiB, or splice through a pipe.
//! `rustc --edition 2024 -O relay.rs && ./relay`: five rounds; microseconds for each message of the relay and of the whole process.
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

// SAFETY: the signatures are those of the C library on 64-bit Linux. Each call below passes descriptors that are open, null
// offsets, or pointers to locals of the size that the call writes.
unsafe extern "C" {
    fn splice(i: i32, oi: *mut i64, o: i32, oo: *mut i64, n: usize, f: u32) -> isize;
    fn pipe2(p: *mut i32, f: i32) -> i32;
    fn fcntl(f: i32, c: i32, a: i32) -> i32;
    fn close(f: i32) -> i32;
    fn clock_gettime(c: i32, t: *mut [i64; 2]) -> i32;
    fn sched_setaffinity(p: i32, n: usize, m: *const u64) -> i32;
}
fn cpu(clock: i32) -> f64 {
    let mut t = [0; 2];
    unsafe { clock_gettime(clock, &mut t) };
    t[0] as f64 + t[1] as f64 / 1e9
}
fn pin(c: u64) {
    let m = 1u64 << c;
    unsafe { sched_setaffinity(0, 8, &m) };
}
fn pair() -> (TcpStream, TcpStream) {
    let l = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(l.local_addr().unwrap()).unwrap();
    let b = l.accept().unwrap().0;
    a.set_nodelay(true).unwrap();
    b.set_nodelay(true).unwrap();
    (a, b)
}
fn relay(mut from: TcpStream, mut to: TcpStream, way: &str) -> f64 {
    pin(0);
    let begun = cpu(3);
    if way == "copy" {
        let mut b = vec![0; 65536];
        loop {
            let n = from.read(&mut b).unwrap();
            if n == 0 {
                break;
            }
            to.write_all(&b[..n]).unwrap();
        }
    } else {
        let mut p = [0; 2];
        unsafe {
            pipe2(p.as_mut_ptr(), 0);
            if way == "splice-1m" {
                fcntl(p[1], 1031, 1 << 20);
            }
        }
        loop {
            let mut n = unsafe {
                splice(from.as_raw_fd(), std::ptr::null_mut(), p[1], std::ptr::null_mut(), 1 << 20, 1)
            };
            if n <= 0 {
                break;
            }
            while n > 0 {
                let m = unsafe {
                    splice(p[0], std::ptr::null_mut(), to.as_raw_fd(), std::ptr::null_mut(), n as usize, 1)
                };
                assert!(m > 0);
                n -= m;
            }
        }
        unsafe {
            close(p[0]);
            close(p[1]);
        }
    }
    cpu(3) - begun
}
fn main() {
    let ways = ["copy", "splice", "splice-1m"];
    for round in 0..5 {
        for k in 0..3 {
            let way = ways[(k + round) % 3];
            // bulk: writes of 64 KiB; small: one message at a time, sent when the one before has arrived
            for (name, size, count) in
                [("bulk", 65536usize, 32768usize), ("1k", 1024, 30000), ("16k", 16384, 30000)]
            {
                let (mut tx, a) = pair();
                let (b, mut rx) = pair();
                let whole = cpu(2);
                let t = thread::spawn(move || relay(a, b, way));
                pin(1);
                if name == "bulk" {
                    let s = thread::spawn(move || {
                        pin(1);
                        let d = vec![7u8; size];
                        for _ in 0..count {
                            tx.write_all(&d).unwrap();
                        }
                    });
                    let mut d = vec![0; 1 << 18];
                    let mut got = 0;
                    loop {
                        let n = rx.read(&mut d).unwrap();
                        if n == 0 {
                            break;
                        }
                        got += n;
                    }
                    assert_eq!(got, size * count);
                    s.join().unwrap();
                } else {
                    let d = vec![7u8; size];
                    let mut e = vec![0u8; size];
                    for _ in 0..count {
                        tx.write_all(&d).unwrap();
                        rx.read_exact(&mut e).unwrap();
                    }
                    drop(tx);
                }
                let c = t.join().unwrap();
                println!(
                    "{name}\t{way}\t{:.3}\t{:.3}",
                    c * 1e6 / count as f64,
                    (cpu(2) - whole) * 1e6 / count as f64
                );
            }
        }
    }
}

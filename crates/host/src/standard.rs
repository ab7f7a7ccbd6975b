//! What a program was started with that Rust changes before `main`: standard streams that are closed, and
//! what SIGPIPE does.
//!
//! Before `main` Rust opens `/dev/null` in the place of descriptors 0 to 2 that are closed, and aborts where
//! it cannot: in a `chroot` or a container without `/dev`. A program that has
//! [`fill_standard_streams!`](crate::fill_standard_streams) in its root runs there: the descriptors are
//! filled before Rust looks.
//!
//! Rust also ignores SIGPIPE, so that whether the parent did is known only from before.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A bit for each descriptor that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Whether SIGPIPE ends a program that was started as this one.
static PIPE_ENDS: AtomicBool = AtomicBool::new(false);

/// Returns whether the program was started so that SIGPIPE ends it: a write to a pipe without a reader.
/// Parents may have it ignored. Known in programs with
/// [`fill_standard_streams!`](crate::fill_standard_streams); in others always `false`.
pub fn pipe_ends() -> bool {
    PIPE_ENDS.load(Ordering::Relaxed)
}

/// Returns whether the program was started without standard input (0), output (1) or error (2). Known in
/// programs with [`fill_standard_streams!`](crate::fill_standard_streams); in others always `false`.
pub fn was_closed(descriptor: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & 1_u8.checked_shl(descriptor.into()).unwrap_or(0) != 0
}

/// Has the program that it stands in, in the root module of its binary, call [`fill`] before `main`.
#[macro_export]
macro_rules! fill_standard_streams {
    () => {
        #[used]
        // SAFETY: the loader calls what is in this section once, on the only thread there is, with arguments
        // that a C function may leave alone. `fill` makes system calls and stores to a static only, so it
        // needs nothing that Rust sets up later.
        #[unsafe(link_section = ".init_array")]
        static FILL_STANDARD_STREAMS: extern "C" fn() = $crate::standard::fill;
    };
}

/// Fills those of descriptors 0 to 2 that are closed: with `/dev/null`, and where it is missing with a
/// socket, of which reading is the end (0) or writing an error (1 and 2).
///
/// Notes what SIGPIPE does. Meant for [`fill_standard_streams!`](crate::fill_standard_streams). A later call
/// finds nothing to fill.
pub extern "C" fn fill() {
    PIPE_ENDS.store(!crate::process::ignores(libc::SIGPIPE), Ordering::Relaxed);
    for descriptor in 0..=2 {
        // SAFETY: asks for the flags of a number, open or not; no memory is involved.
        let closed = unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1;
        if !closed {
            continue;
        }
        CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
        // What is opened takes the lowest free number, which is this one: those below are open by now.
        if !opens_null() && !takes_socket(descriptor) {
            // SAFETY: the path is a string that ends in NUL; the call reads it and writes no memory of ours.
            unsafe { libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_DIRECTORY) };
        }
    }
}

/// Opens `/dev/null`, if it is the device.
fn opens_null() -> bool {
    // SAFETY: the path is a string that ends in NUL; `about` is a live, aligned value of ours that the second
    // call fills, and all zeros is one of its values. The descriptor closed is the one opened here.
    unsafe {
        let opened = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        let mut about: libc::stat = std::mem::zeroed();
        let is_device = opened >= 0
            && libc::fstat(opened, &mut about) == 0
            && about.st_mode & libc::S_IFMT == libc::S_IFCHR;
        if opened >= 0 && !is_device {
            libc::close(opened);
        }
        is_device
    }
}

/// Takes a socket: for standard input one with a closed other end, for the others one without
/// another end. Neither can be opened again by `/proc/self/fd`.
fn takes_socket(descriptor: libc::c_int) -> bool {
    let mut ends = [-1; 2];
    // SAFETY: `ends` is an array of two integers of ours, which the first call fills. The descriptor closed
    // is one that it made.
    unsafe {
        if descriptor == 0 && libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) == 0 {
            let [_, other] = ends;
            return libc::close(other) == 0;
        }
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) >= 0
    }
}

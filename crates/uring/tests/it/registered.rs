//! Fixed files, fixed buffers, worker limits, synchronous cancel.
use crate::take;
use ringroad_uring::abi::setup::*;
use ringroad_uring::{Ring, Sqe};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

fn file_of(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn a_fixed_file_is_read_by_index_after_its_descriptor_is_closed() {
    let mut ring = Ring::builder(4).build().unwrap();
    let file = file_of(b"kept by the ring");
    ring.register_files(&[None, Some(file.as_fd())]).unwrap();
    drop(file);
    let mut buffer = [0_u8; 32];
    // SAFETY: `buffer` outlives the completion, which is taken in the next line.
    unsafe { ring.submissions().push(Sqe::read(1, buffer.as_mut_ptr(), 32, 0).fixed_file()) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 16);
    assert_eq!(&buffer[..16], b"kept by the ring");
}

#[test]
fn an_empty_slot_fails_with_ebadf_until_it_is_filled() {
    let mut ring = Ring::builder(4).build().unwrap();
    ring.register_files_sparse(4).unwrap();
    let mut buffer = [0_u8; 8];
    // SAFETY: `buffer` outlives both completions.
    unsafe { ring.submissions().push(Sqe::read(2, buffer.as_mut_ptr(), 8, 0).fixed_file()) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, -libc::EBADF);
    let file = file_of(b"filled");
    assert_eq!(ring.update_files(2, &[Some(file.as_fd())]).unwrap(), 1);
    // SAFETY: as above.
    unsafe { ring.submissions().push(Sqe::read(2, buffer.as_mut_ptr(), 8, 0).fixed_file()) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 6);
    ring.unregister_files().unwrap();
    assert_eq!(ring.unregister_files().unwrap_err().raw_os_error(), Some(libc::ENXIO));
}

#[test]
fn a_registered_buffer_receives_a_fixed_read() {
    let mut ring = Ring::builder(4).build().unwrap();
    let file = file_of(b"into pinned memory");
    let mut memory = vec![0_u8; 4096];
    let vector = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
    // SAFETY: `memory` is neither moved nor freed before it is unregistered below, after the only request.
    unsafe { ring.register_buffers(&[vector]).unwrap() };
    let inside = memory.as_mut_ptr().wrapping_add(100);
    // SAFETY: 64 bytes at 100 lie inside the registered buffer, which is not accessed until the completion.
    unsafe { ring.submissions().push(Sqe::read_fixed(file.as_raw_fd(), inside, 64, 5, 0)) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 13);
    ring.unregister_buffers().unwrap();
    assert_eq!(&memory[100..113], b"pinned memory");
}

#[test]
fn a_fixed_write_takes_its_bytes_from_the_registered_buffer() {
    let mut ring = Ring::builder(4).build().unwrap();
    let file = tempfile::tempfile().unwrap();
    let mut memory = b"written through a pinned page".to_vec();
    let vector = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
    // SAFETY: `memory` lives to the end of the test and is not reallocated; unregistered after its request.
    unsafe { ring.register_buffers(&[vector]).unwrap() };
    // SAFETY: inside the registered buffer, which is only read until the completion.
    unsafe { ring.submissions().push(Sqe::write_fixed(file.as_raw_fd(), memory.as_ptr(), 7, 0, 0)) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 7);
    ring.unregister_buffers().unwrap();
    let mut back = [0_u8; 7];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut back, 0).unwrap();
    assert_eq!(&back, b"written");
}

#[test]
fn the_registered_descriptor_is_released_when_the_ring_goes() {
    // A thread has 16 places for registered rings; leaking them would fail by the 17th.
    for _ in 0..40 {
        let mut ring = Ring::builder(1).build().unwrap();
        ring.register_ring_fd().unwrap();
    }
}

#[test]
fn worker_limits_are_kept_and_read_back() {
    let mut ring = Ring::builder(4).build().unwrap();
    ring.limit_workers(3, 2).unwrap();
    assert_eq!(ring.limit_workers(0, 0).unwrap(), (3, 2));
}

#[test]
fn a_disabled_ring_refuses_work_until_it_is_enabled() {
    let mut ring = Ring::builder(4).flags(IORING_SETUP_R_DISABLED).build().unwrap();
    // SAFETY: a NOP names no memory.
    unsafe { ring.submissions().push(Sqe::nop()) }.unwrap();
    assert_eq!(ring.submit().unwrap_err().raw_os_error(), Some(libc::EBADFD));
    ring.enable().unwrap();
    assert_eq!(ring.submit().unwrap(), 1);
}

#[test]
fn cancel_all_ends_what_waits_and_is_harmless_when_nothing_does() {
    let mut ring = Ring::builder(4).build().unwrap();
    ring.cancel_all(Duration::from_secs(5)).unwrap();
    let (reader, _writer) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut buffer = [0_u8; 8];
    // SAFETY: `buffer` outlives the completion, which is taken below.
    unsafe { ring.submissions().push(Sqe::recv(reader.as_raw_fd(), buffer.as_mut_ptr(), 8, 0)) }.unwrap();
    ring.submit().unwrap();
    ring.cancel_all(Duration::from_secs(5)).unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, -libc::ECANCELED);
}

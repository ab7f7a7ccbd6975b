//! Tables of files: what has a place needs no descriptor, and a place is given out once.
use crate::take;
use ringroad_uring::{FileTable, Ring, Sqe};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

fn errno(result: std::io::Result<impl std::fmt::Debug>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

fn ring() -> Ring {
    Ring::builder(8).build().unwrap()
}

#[test]
fn a_socket_whose_number_is_closed_goes_on_at_its_place() {
    let mut ring = ring();
    let mut table = FileTable::new(&mut ring, 4).unwrap();
    let (near, mut far) = UnixStream::pair().unwrap();
    let place = table.insert(near.as_fd()).unwrap() as i32;
    drop(near);
    far.write_all(b"to a place").unwrap();
    let mut buffer = [0_u8; 16];
    // SAFETY: `buffer` outlives the completion, which is taken in the next line.
    unsafe { ring.submissions().push(Sqe::recv(place, buffer.as_mut_ptr(), 16, 0).fixed_file()) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 10);
    // SAFETY: what is sent is static.
    unsafe { ring.submissions().push(Sqe::send(place, b"and back".as_ptr(), 8, 0).fixed_file()) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 8);
    let mut back = [0_u8; 8];
    far.read_exact(&mut back).unwrap();
    assert_eq!((&buffer[..10], &back), (&b"to a place"[..], b"and back"));
}

#[test]
fn a_removed_socket_is_closed_and_the_others_are_not() {
    let mut ring = ring();
    let mut table = FileTable::new(&mut ring, 2).unwrap();
    let (first, mut of_first) = UnixStream::pair().unwrap();
    let (second, mut of_second) = UnixStream::pair().unwrap();
    let place = table.insert(first.as_fd()).unwrap();
    table.insert(second.as_fd()).unwrap();
    drop((first, second));
    let is_open = |far: &mut UnixStream| {
        far.set_nonblocking(true).unwrap();
        let why = far.read(&mut [0]).unwrap_err();
        far.set_nonblocking(false).unwrap();
        why.kind() == ErrorKind::WouldBlock
    };
    assert!(is_open(&mut of_first));
    table.remove(place).unwrap();
    // A kernel before 6.13 may leave it to a thread of its own.
    assert_eq!(of_first.read(&mut [0]).unwrap(), 0, "its peer sees the end");
    assert!(is_open(&mut of_second));
    drop(table);
    assert_eq!(of_second.read(&mut [0]).unwrap(), 0, "with the table the rest is closed");
}

#[test]
fn places_are_given_out_once_until_none_is_left_and_again_when_they_are_empty() {
    let mut ring = ring();
    let mut table = FileTable::new(&mut ring, 3).unwrap();
    let (file, _far) = UnixStream::pair().unwrap();
    let places: Vec<u32> = (0..3).map(|_| table.insert(file.as_fd()).unwrap()).collect();
    assert_eq!((&places[..], table.used(), table.places()), (&[0, 1, 2][..], 3, 3));
    assert_eq!(errno(table.insert(file.as_fd())), Some(libc::ENFILE));
    table.remove(1).unwrap();
    assert_eq!(errno(table.remove(1)), Some(libc::EBADF), "it is empty already");
    assert_eq!(errno(table.remove(3)), Some(libc::EBADF), "there is no such place");
    table.remove(0).unwrap();
    assert_eq!(table.used(), 1);
    assert_eq!([table.insert(file.as_fd()).unwrap(), table.insert(file.as_fd()).unwrap()], [0, 1]);
    assert_eq!(errno(table.insert(file.as_fd())), Some(libc::ENFILE));
}

#[test]
fn what_the_kernel_refuses_takes_no_place() {
    let mut ring = ring();
    let mut table = FileTable::new(&mut ring, 1).unwrap();
    // No table takes a ring: it could not be freed.
    let other = self::ring();
    assert_eq!(errno(table.insert(other.as_fd())), Some(libc::EBADF));
    assert_eq!(table.used(), 0);
    let (file, _far) = UnixStream::pair().unwrap();
    assert_eq!(table.insert(file.as_fd()).unwrap(), 0);
}

#[test]
fn a_table_has_as_many_places_as_a_process_may_have_descriptors_and_a_ring_has_one() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the live local is written during the call only.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let mut ring = ring();
    // The kernel's own limit is 2^20 places.
    let most = limit.rlim_cur.min(1 << 20) as u32;
    assert_eq!(errno(FileTable::new(&mut ring, most + 1)), Some(libc::EMFILE));
    let table = FileTable::new(&mut ring, most).unwrap();
    assert_eq!(errno(FileTable::new(&mut ring, 1)), Some(libc::EBUSY));
    drop(table);
    FileTable::new(&mut ring, 1).unwrap();
}

//! Buffer rings: the kernel picks, we give back, nothing is offered twice.
use crate::take;
use ringroad_uring::{BufferRing, Ring, Sqe, Wait};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// A stream whose other end receives by group 7 of `entries` buffers of 16 bytes.
fn receiving(entries: u16) -> (UnixStream, UnixStream, Ring, BufferRing) {
    let ring = Ring::builder(8).build().unwrap();
    let buffers = BufferRing::new(&ring, 7, entries, 16).unwrap();
    let (writer, reader) = UnixStream::pair().unwrap();
    (writer, reader, ring, buffers)
}

#[test]
fn every_buffer_comes_and_goes_many_times_around() {
    let (mut writer, reader, mut ring, mut buffers) = receiving(4);
    for round in 0..50_u8 {
        writer.write_all(&[round; 10]).unwrap();
        let entry = Sqe::recv(reader.as_raw_fd(), std::ptr::null_mut(), 0, 0).buffer_group(7);
        // SAFETY: the group's memory lives in `buffers`, which outlives the completion.
        unsafe { ring.submissions().push(entry) }.unwrap();
        let completion = take(&mut ring, 1)[0];
        // SAFETY: a completion of this group, shown once.
        let (id, bytes) = unsafe { buffers.take(&completion) }.unwrap();
        assert_eq!(bytes, [round; 10]);
        assert_eq!(buffers.outstanding(), 1);
        buffers.give_back(id);
        assert_eq!(buffers.outstanding(), 0);
    }
}

#[test]
fn a_multishot_receive_takes_buffers_until_none_is_left_then_ends_with_enobufs() {
    let (mut writer, reader, mut ring, mut buffers) = receiving(2);
    // SAFETY: as above.
    unsafe { ring.submissions().push(Sqe::recv_multishot(reader.as_raw_fd(), 7)) }.unwrap();
    ring.submit().unwrap();
    writer.write_all(&[1; 40]).unwrap();
    let completions = take(&mut ring, 3);
    // SAFETY: completions of this group, each shown once; likewise below.
    let ids: Vec<u16> = completions[..2].iter().map(|c| unsafe { buffers.take(c) }.unwrap().0).collect();
    assert_eq!(completions.iter().map(|c| c.result).collect::<Vec<_>>(), [16, 16, -libc::ENOBUFS]);
    assert!(completions[0].more() && completions[1].more() && !completions[2].more());
    assert_eq!(buffers.outstanding(), 2);

    // Once buffers are back, a new receive finds the rest: no byte was lost.
    for id in ids {
        buffers.stage(id);
    }
    buffers.offer();
    // SAFETY: as above.
    unsafe { ring.submissions().push(Sqe::recv_multishot(reader.as_raw_fd(), 7)) }.unwrap();
    let rest = take(&mut ring, 1)[0];
    // SAFETY: as above.
    assert_eq!(unsafe { buffers.take(&rest) }.unwrap().1, [1; 8]);
    drop(writer);
    let end = take(&mut ring, 1)[0];
    assert_eq!((end.result, end.more()), (0, false));
}

#[test]
fn a_group_number_in_use_is_refused() {
    let ring = Ring::builder(4).build().unwrap();
    let first = BufferRing::new(&ring, 1, 2, 64).unwrap();
    assert_eq!(BufferRing::new(&ring, 1, 2, 64).unwrap_err().raw_os_error(), Some(libc::EEXIST));
    drop(first);
    BufferRing::new(&ring, 1, 2, 64).expect("free again once the first is gone");
}

#[test]
fn sizes_the_kernel_cannot_hold_are_refused_with_the_rule() {
    let ring = Ring::builder(4).build().unwrap();
    for (entries, bytes) in [(3, 64), (0, 64), (2, 0)] {
        let error = BufferRing::new(&ring, 1, entries, bytes).unwrap_err();
        assert!(error.to_string().contains("power of two"), "{error}");
    }
}

#[test]
#[should_panic(expected = "given back, but not taken")]
fn giving_back_a_buffer_that_was_not_taken_is_a_bug_that_says_so() {
    let (_writer, _reader, _ring, mut buffers) = receiving(2);
    buffers.give_back(0);
}

/// The argument in `BufferRing::drop`: once the group is gone the kernel takes no buffer of it, so its memory
/// may be freed although a receive still names the group.
#[test]
fn a_receive_that_names_a_group_already_gone_ends_with_enobufs_and_writes_nothing() {
    let (mut writer, reader, mut ring, buffers) = receiving(2);
    // SAFETY: the receive holds no buffer while it waits, and after the drop below it can take none.
    unsafe { ring.submissions().push(Sqe::recv_multishot(reader.as_raw_fd(), 7)) }.unwrap();
    ring.submit().unwrap();
    drop(buffers);
    writer.write_all(b"late").unwrap();
    ring.submit_and_wait(Wait { completions: 1, ..Wait::default() }).unwrap();
    let completion = ring.completions().pop().unwrap();
    assert_eq!((completion.result, completion.more(), completion.buffer_id()), (-libc::ENOBUFS, false, None));
}

#[test]
#[should_panic(expected = "the kernel may write it")]
fn the_bytes_of_an_offered_buffer_are_not_shown() {
    let (_writer, _reader, _ring, mut buffers) = receiving(2);
    buffers.bytes(0, 5);
}

#[test]
#[should_panic(expected = "taken already")]
fn a_completion_shown_twice_is_noticed_while_its_buffer_is_out() {
    let (mut writer, reader, mut ring, mut buffers) = receiving(2);
    writer.write_all(b"once").unwrap();
    let entry = Sqe::recv(reader.as_raw_fd(), std::ptr::null_mut(), 0, 0).buffer_group(7);
    // SAFETY: the group outlives the completion.
    unsafe { ring.submissions().push(entry) }.unwrap();
    let completion = take(&mut ring, 1)[0];
    for _ in 0..2 {
        // SAFETY: false the second time, which is the point; nothing is read through the answer.
        let _ = unsafe { buffers.take(&completion) };
    }
}

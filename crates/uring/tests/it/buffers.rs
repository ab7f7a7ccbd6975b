//! Buffer rings: the kernel picks, we give back, nothing is offered twice.
use crate::take;
use ringroad_uring::abi::{io_uring_buf_reg, io_uring_register_op};
use ringroad_uring::{BufferRing, Cqe, Ring, Sqe, Wait, syscall};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

/// A stream, with its other end receiving into group 7 of `entries` buffers of 16 bytes.
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

/// Bytes that differ at every position of a round, and between rounds.
fn pattern(round: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (round * 31 + at) as u8).collect()
}

/// The kernel names the first buffer of a bundle; the others are those offered after it, in whatever order
/// they had been given back.
#[test]
fn a_bundle_fills_buffers_in_the_order_they_were_offered() {
    const BUFFERS: usize = 8;
    let mut ring = Ring::builder(8).build().unwrap();
    if !ring.features().has(ringroad_uring::abi::IORING_FEAT_RECVSEND_BUNDLE) {
        eprintln!("skipped: bundles came with Linux 6.10");
        return;
    }
    let mut buffers = BufferRing::new(&ring, 7, BUFFERS as u16, 16).unwrap();
    let (mut writer, reader) = UnixStream::pair().unwrap();
    let arm = |ring: &mut Ring| {
        // SAFETY: the group's memory lives in `buffers`, which outlives the last completion.
        unsafe { ring.submissions().push(Sqe::recv_multishot(reader.as_raw_fd(), 7).bundle()) }.unwrap();
    };
    arm(&mut ring);
    let mut several = 0;
    for round in 0..100 {
        let sent = pattern(round, 16 * (BUFFERS - 1) - round % 16);
        writer.write_all(&sent).unwrap();
        let (mut received, mut ids) = (Vec::new(), Vec::new());
        while received.len() < sent.len() {
            let completion = take(&mut ring, 1)[0];
            if !completion.more() {
                // The bundle took the last buffer, with whatever it brought.
                arm(&mut ring);
            }
            let mut filled = Vec::new();
            // SAFETY: a completion of this group, shown once.
            unsafe { buffers.take_each(&completion, |id, bytes| filled.push((id, bytes as usize))) };
            several += usize::from(filled.len() > 1);
            for (id, bytes) in filled {
                received.extend_from_slice(buffers.bytes(id, bytes));
                ids.push(id);
            }
        }
        assert_eq!(received, sent, "round {round}");
        // Back in another order each time.
        ids.rotate_left(round % 3);
        if round % 2 == 0 {
            ids.reverse();
        }
        ids.into_iter().for_each(|id| buffers.stage(id));
        buffers.offer();
        assert_eq!(buffers.outstanding(), 0);
    }
    assert!(several >= 50, "{several} bundles of more than one buffer");
}

/// A bundle that is seen late: meanwhile a later completion's buffer went round, into the slot the bundle
/// had.
#[test]
fn a_bundle_seen_after_a_later_completion_still_knows_its_buffers() {
    let mut ring = Ring::builder(8).build().unwrap();
    if !ring.features().has(ringroad_uring::abi::IORING_FEAT_RECVSEND_BUNDLE) {
        eprintln!("skipped: bundles came with Linux 6.10");
        return;
    }
    let mut buffers = BufferRing::new(&ring, 7, 4, 16).unwrap();
    let (mut early, from_early) = UnixStream::pair().unwrap();
    let (mut late, from_late) = UnixStream::pair().unwrap();
    let standing = Sqe::recv_multishot(from_early.as_raw_fd(), 7).bundle().user_data(1);
    // SAFETY: the group's memory lives in `buffers`, which outlives the last completion.
    unsafe { ring.submissions().push(standing) }.unwrap();
    early.write_all(&pattern(1, 48)).unwrap();
    let mut first = take(&mut ring, 1);
    let filled = |completions: &[Cqe]| completions.iter().map(|c| c.result).sum::<i32>();
    while filled(&first) < 48 {
        first.extend(take(&mut ring, 1));
    }
    late.write_all(&pattern(2, 16)).unwrap();
    let once = Sqe::recv(from_late.as_raw_fd(), std::ptr::null_mut(), 0, 0).buffer_group(7).user_data(2);
    // SAFETY: as above.
    unsafe { ring.submissions().push(once) }.unwrap();
    let second = take(&mut ring, 1)[0];
    // SAFETY: a completion of this group, shown once; likewise below.
    let (id, bytes) = unsafe { buffers.take(&second) }.unwrap();
    assert_eq!(bytes, pattern(2, 16));
    buffers.give_back(id);
    let (mut received, mut all) = (Vec::new(), Vec::new());
    for completion in &first {
        // SAFETY: as above.
        unsafe { buffers.take_each(completion, |id, bytes| all.push((id, bytes as usize))) };
    }
    for (id, bytes) in all {
        received.extend_from_slice(buffers.bytes(id, bytes));
    }
    assert_eq!(received, pattern(1, 48));
}

#[test]
fn buffers_whose_group_cannot_be_unregistered_stay_mapped() {
    let mut ring = Ring::builder(4).build().unwrap();
    let mut buffers = BufferRing::new(&ring, 5, 1, 4096).unwrap();
    let (reader, mut writer) = UnixStream::pair().unwrap();
    writer.write_all(b"!").unwrap();
    // SAFETY: names no memory but the group's, which is taken once, below, and offered no more.
    unsafe { ring.submissions().push(Sqe::recv_selected(reader.as_raw_fd(), 5)) }.unwrap();
    let completion = take(&mut ring, 1)[0];
    // SAFETY: the completion of a receive from this group, popped once.
    let (_, bytes) = unsafe { buffers.take(&completion) }.unwrap();
    let start = bytes.as_ptr();
    let argument = io_uring_buf_reg { ring_addr: 0, ring_entries: 0, bgid: 5, flags: 0, resv: [0; 3] };
    let opcode = io_uring_register_op::IORING_UNREGISTER_PBUF_RING as u32;
    // SAFETY: one such structure is read during the call. The group's memory is only used less after it.
    unsafe { syscall::register(ring.as_fd(), opcode, (&raw const argument).cast(), 1) }.unwrap();
    drop(buffers);
    let mut resident = 0_u8;
    // SAFETY: mincore(2) writes a byte for the one page; of memory that is not mapped it says ENOMEM.
    assert_eq!(unsafe { libc::mincore(start.cast_mut().cast(), 4096, &raw mut resident) }, 0);
}

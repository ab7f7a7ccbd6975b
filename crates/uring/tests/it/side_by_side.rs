//! The same work through this crate and through the `io-uring` crate gives the same answers.
use crate::take;
use ringroad_uring::{Probe, Ring, Sqe};
use std::io::Write;
use std::os::fd::AsRawFd;

/// What both sides read: results per block and the bytes.
type Outcome = (Vec<i32>, Vec<u8>);

const BLOCK: usize = 512;
const BLOCKS: usize = 8;

fn sample() -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    // Ends inside the sixth block, so the last reads are short and empty.
    let bytes: Vec<u8> = (0..5 * BLOCK + 100).map(|k| (k * 7 % 251) as u8).collect();
    file.write_all(&bytes).unwrap();
    file
}

fn ours(file: &std::fs::File) -> Outcome {
    let mut ring = Ring::builder(16).build().unwrap();
    let mut bytes = vec![0_u8; BLOCK * BLOCKS];
    for block in 0..BLOCKS {
        let into = bytes.as_mut_ptr().wrapping_add(block * BLOCK);
        let entry =
            Sqe::read(file.as_raw_fd(), into, BLOCK as u32, (block * BLOCK) as u64).user_data(block as u64);
        // SAFETY: `bytes` is not touched before all completions are taken below.
        unsafe { ring.submissions().push(entry) }.unwrap();
    }
    let mut results = vec![0; BLOCKS];
    for completion in take(&mut ring, BLOCKS) {
        results[completion.user_data as usize] = completion.result;
    }
    (results, bytes)
}

fn theirs(file: &std::fs::File) -> Outcome {
    let mut ring = io_uring::IoUring::new(16).unwrap();
    let mut bytes = vec![0_u8; BLOCK * BLOCKS];
    for block in 0..BLOCKS {
        let into = bytes.as_mut_ptr().wrapping_add(block * BLOCK);
        let entry = io_uring::opcode::Read::new(io_uring::types::Fd(file.as_raw_fd()), into, BLOCK as u32)
            .offset((block * BLOCK) as u64)
            .build()
            .user_data(block as u64);
        // SAFETY: as in `ours`.
        unsafe { ring.submission().push(&entry) }.unwrap();
    }
    ring.submit_and_wait(BLOCKS).unwrap();
    let mut results = vec![0; BLOCKS];
    for completion in ring.completion() {
        results[completion.user_data() as usize] = completion.result();
    }
    (results, bytes)
}

#[test]
fn reads_give_the_same_counts_and_bytes() {
    let file = sample();
    let (ours, theirs) = (ours(&file), theirs(&file));
    assert_eq!(ours.0, [512, 512, 512, 512, 512, 100, 0, 0]);
    assert_eq!(ours, theirs);
}

#[test]
fn the_probe_agrees_on_every_opcode_both_name() {
    let ring = Ring::builder(4).build().unwrap();
    let ours = Probe::of(&ring).unwrap();
    let other = io_uring::IoUring::new(4).unwrap();
    let mut theirs = io_uring::Probe::new();
    other.submitter().register_probe(&mut theirs).unwrap();
    for opcode in 0..=ours.last_op() {
        assert_eq!(ours.supports(opcode), theirs.is_supported(opcode), "opcode {opcode}");
    }
}

#[test]
fn both_get_the_same_features_and_sizes_from_the_same_wish() {
    let mut ours = Ring::builder(100).completion_entries(1000).build().unwrap();
    let theirs: io_uring::IoUring = io_uring::IoUring::builder().setup_cqsize(1000).build(100).unwrap();
    assert_eq!(ours.submissions().entries(), theirs.params().sq_entries());
    assert_eq!(ours.completions().entries(), theirs.params().cq_entries());
    let has = |bit| ours.features().has(bit);
    use ringroad_uring::abi::*;
    assert_eq!(has(IORING_FEAT_SINGLE_MMAP), theirs.params().is_feature_single_mmap());
    assert_eq!(has(IORING_FEAT_NODROP), theirs.params().is_feature_nodrop());
    assert_eq!(has(IORING_FEAT_EXT_ARG), theirs.params().is_feature_ext_arg());
    assert_eq!(has(IORING_FEAT_CQE_SKIP), theirs.params().is_feature_skip_cqe_on_success());
}

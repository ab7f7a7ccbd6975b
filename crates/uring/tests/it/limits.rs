//! What the kernel refuses, and how the refusal reads.
use ringroad_uring::abi::{IORING_SETUP_SQE128, setup::*};
use ringroad_uring::{Probe, Ring};

#[test]
fn too_many_entries_are_refused_with_the_limit() {
    let error = Ring::builder(40_000).build().unwrap_err();
    assert_eq!(error.source.raw_os_error(), Some(libc::EINVAL));
    let text = error.to_string();
    assert!(text.contains("40000 entries") && text.contains("32768"), "{text}");
}

#[test]
fn clamp_takes_the_largest_ring_instead() {
    let mut ring = Ring::builder(40_000).flags(IORING_SETUP_CLAMP).build().unwrap();
    assert_eq!(ring.submissions().entries(), 32_768);
}

#[test]
fn flags_this_library_was_not_written_for_are_refused_by_number_before_the_kernel_is_asked() {
    const SUPPORTED: u32 = IORING_SETUP_IOPOLL
        | IORING_SETUP_SQPOLL
        | IORING_SETUP_CQSIZE
        | IORING_SETUP_CLAMP
        | IORING_SETUP_R_DISABLED
        | IORING_SETUP_SUBMIT_ALL
        | IORING_SETUP_COOP_TASKRUN
        | IORING_SETUP_TASKRUN_FLAG
        | IORING_SETUP_SINGLE_ISSUER
        | IORING_SETUP_DEFER_TASKRUN
        | IORING_SETUP_NO_SQARRAY;
    for flag in (0..32).map(|bit| 1 << bit) {
        match Ring::builder(4).flags(flag).build() {
            Err(error) if flag & SUPPORTED == 0 => {
                assert_eq!(error.call, "Builder::build", "{error}");
                assert!(error.to_string().contains(&format!("{flag:#x}")), "{error}");
            }
            // Some need another beside them, or a newer kernel, which says so itself.
            Err(error) => assert_ne!(error.call, "Builder::build", "{error}"),
            Ok(_) => assert_ne!(flag & SUPPORTED, 0, "{flag:#x} was passed on"),
        }
    }
}

#[test]
fn layouts_this_library_does_not_walk_are_refused_before_the_kernel_is_asked() {
    let error = Ring::builder(4).flags(IORING_SETUP_SQE128).build().unwrap_err();
    assert_eq!(error.call, "Builder::build");
}

#[test]
fn the_probe_knows_what_every_kernel_has_and_denies_what_none_has() {
    let ring = Ring::builder(4).build().unwrap();
    let probe = Probe::of(&ring).unwrap();
    let table: std::collections::BTreeMap<_, _> = probe.table().collect();
    for opcode in ["NOP", "READV", "POLL_ADD", "ACCEPT", "RECV", "SEND", "READ", "WRITE", "CLOSE"] {
        assert!(table[opcode], "{opcode}");
    }
    assert!(!probe.supports(255));
    assert!(probe.last_op() >= 32, "PROVIDE_BUFFERS came in 5.7");
}

#[test]
fn features_are_named() {
    let ring = Ring::builder(4).build().unwrap();
    let names: Vec<_> = ring.features().names().collect();
    assert!(names.contains(&"NODROP") && names.contains(&"FAST_POLL"), "{names:?}");
    assert!(format!("{:?}", ring.features()).contains("NODROP"));
}

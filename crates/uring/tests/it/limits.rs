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
fn an_unknown_flag_is_refused_by_name_of_the_call() {
    let error = Ring::builder(4).flags(1 << 31).build().unwrap_err();
    assert_eq!((error.call, error.source.raw_os_error()), ("io_uring_setup", Some(libc::EINVAL)));
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

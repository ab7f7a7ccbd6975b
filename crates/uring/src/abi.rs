//! The kernel's structures and constants, as `linux-raw-sys` generates them from the headers.
//!
//! Nothing is retyped: this file only gathers the names we use and asserts what our pointer arithmetic relies
//! on. A constant missing from the bindings is written out with the kernel version that added it.

pub use linux_raw_sys::io_uring::*;

/// Ring set-up flags, by the names of io_uring_setup(2).
pub mod setup {
    pub use linux_raw_sys::io_uring::{
        IORING_SETUP_ATTACH_WQ, IORING_SETUP_CLAMP, IORING_SETUP_COOP_TASKRUN, IORING_SETUP_CQE32,
        IORING_SETUP_CQSIZE, IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_IOPOLL, IORING_SETUP_NO_MMAP,
        IORING_SETUP_NO_SQARRAY, IORING_SETUP_R_DISABLED, IORING_SETUP_REGISTERED_FD_ONLY,
        IORING_SETUP_SINGLE_ISSUER, IORING_SETUP_SQ_AFF, IORING_SETUP_SQE128, IORING_SETUP_SQPOLL,
        IORING_SETUP_SUBMIT_ALL, IORING_SETUP_TASKRUN_FLAG,
    };
}

// The sizes and offsets the queues are walked by. A binding generated from other headers, or a target with
// another layout, must fail here and not in a ring.
const _: () = assert!(size_of::<io_uring_sqe>() == 64);
const _: () = assert!(size_of::<io_uring_params>() == 120);
const _: () = assert!(std::mem::offset_of!(io_uring_sqe, user_data) == 32);
const _: () = assert!(std::mem::offset_of!(io_uring_cqe, res) == 8);
const _: () = assert!(std::mem::offset_of!(io_uring_cqe, flags) == 12);
const _: () = assert!(size_of::<io_uring_cqe>() == 16);
const _: () = assert!(size_of::<io_uring_buf>() == 16);
const _: () = assert!(size_of::<io_uring_getevents_arg>() == 24);
const _: () = assert!(size_of::<io_uring_probe>() == 16);
const _: () = assert!(size_of::<io_uring_probe_op>() == 8);
// The tail of a buffer ring lies over the `resv` field of its first entry (kernel:
// include/uapi/linux/io_uring.h).
const _: () = assert!(std::mem::offset_of!(io_uring_buf, resv) == 14);

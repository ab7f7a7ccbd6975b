//! Opcodes that the running kernel supports (`IORING_REGISTER_PROBE`, 5.6).
//!
//! An opcode that is listed may still be forbidden by a restriction or fail for the file at hand: only a
//! trial shows that. The names are the kernel's, without the prefix.

use crate::abi::*;
use crate::ring::Ring;
use std::io;

const OPS_MAX: usize = 256;

/// The set of opcodes that a kernel supports.
#[derive(Clone, Debug)]
pub struct Probe {
    last_op: u8,
    supported: [bool; OPS_MAX],
}

/// `io_uring_probe` with room for every opcode: the kernel's structure ends in a flexible array.
#[repr(C)]
struct ProbeBuffer {
    head: io_uring_probe,
    ops: [io_uring_probe_op; OPS_MAX],
}

impl Probe {
    /// Asks the kernel behind `ring`.
    pub fn of(ring: &Ring) -> io::Result<Probe> {
        // SAFETY: integers only; the kernel demands zeros on entry.
        let mut buffer: Box<ProbeBuffer> = unsafe { Box::new(std::mem::zeroed()) };
        // SAFETY: the kernel writes a head and at most OPS_MAX operations, which is what the buffer holds,
        // and keeps nothing. `repr(C)` puts the array where the flexible one would begin (sizes asserted in
        // abi.rs).
        unsafe {
            ring.handle.register(
                io_uring_register_op::IORING_REGISTER_PROBE,
                (&raw mut *buffer).cast(),
                OPS_MAX as u32,
            )?
        };
        let mut supported = [false; OPS_MAX];
        // IO_URING_OP_SUPPORTED, bit 0 of the operation's flags.
        for op in buffer.ops.iter().take(usize::from(buffer.head.ops_len)) {
            supported[usize::from(op.op)] = op.flags & 1 != 0;
        }
        Ok(Probe { last_op: buffer.head.last_op, supported })
    }

    /// Makes a probe from bits by opcode, which another process may have obtained.
    pub fn from_bits(bits: [u64; 4]) -> Probe {
        let mut supported = [false; OPS_MAX];
        for (opcode, known) in supported.iter_mut().enumerate() {
            *known = bits[opcode / 64] >> (opcode % 64) & 1 != 0;
        }
        let last_op = supported.iter().rposition(|known| *known).unwrap_or(0);
        Probe { last_op: last_op as u8, supported }
    }

    /// Returns the highest opcode the kernel knows.
    pub fn last_op(&self) -> u8 {
        self.last_op
    }

    /// Returns whether the kernel supports `opcode`.
    pub fn supports(&self, opcode: u8) -> bool {
        self.supported[usize::from(opcode)]
    }

    /// Returns every opcode that has a name here, and whether the kernel supports it.
    pub fn table(&self) -> impl Iterator<Item = (&'static str, bool)> + '_ {
        OPCODES.iter().enumerate().map(|(opcode, name)| (*name, self.supported[opcode]))
    }
}

/// The opcodes in the kernel's order, as of Linux 6.16.
const OPCODES: [&str; 63] = [
    "NOP",
    "READV",
    "WRITEV",
    "FSYNC",
    "READ_FIXED",
    "WRITE_FIXED",
    "POLL_ADD",
    "POLL_REMOVE",
    "SYNC_FILE_RANGE",
    "SENDMSG",
    "RECVMSG",
    "TIMEOUT",
    "TIMEOUT_REMOVE",
    "ACCEPT",
    "ASYNC_CANCEL",
    "LINK_TIMEOUT",
    "CONNECT",
    "FALLOCATE",
    "OPENAT",
    "CLOSE",
    "FILES_UPDATE",
    "STATX",
    "READ",
    "WRITE",
    "FADVISE",
    "MADVISE",
    "SEND",
    "RECV",
    "OPENAT2",
    "EPOLL_CTL",
    "SPLICE",
    "PROVIDE_BUFFERS",
    "REMOVE_BUFFERS",
    "TEE",
    "SHUTDOWN",
    "RENAMEAT",
    "UNLINKAT",
    "MKDIRAT",
    "SYMLINKAT",
    "LINKAT",
    "MSG_RING",
    "FSETXATTR",
    "SETXATTR",
    "FGETXATTR",
    "GETXATTR",
    "SOCKET",
    "URING_CMD",
    "SEND_ZC",
    "SENDMSG_ZC",
    "READ_MULTISHOT",
    "WAITID",
    "FUTEX_WAIT",
    "FUTEX_WAKE",
    "FUTEX_WAITV",
    "FIXED_FD_INSTALL",
    "FTRUNCATE",
    "BIND",
    "LISTEN",
    "RECV_ZC",
    "EPOLL_WAIT",
    "READV_FIXED",
    "WRITEV_FIXED",
    "PIPE",
];
const _: () = assert!(OPCODES.len() == io_uring_op::IORING_OP_LAST as usize);

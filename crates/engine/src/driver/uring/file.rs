//! File operations as entries of the ring.
//!
//! `fs::way` decides which operations go through the ring.

use crate::op::FileOp;
use crate::sys::attempt::bounded;
use crate::sys::file::{STAT_MASK, unlink_flags};
use ringroad_uring::abi::{IORING_FSYNC_DATASYNC, io_uring_op};
use ringroad_uring::{Probe, Sqe};

/// Returns the opcode for this operation, if io_uring has one.
fn opcode(op: &FileOp) -> Option<io_uring_op> {
    Some(match op {
        FileOp::Read { .. } => io_uring_op::IORING_OP_READ,
        FileOp::Write { .. } => io_uring_op::IORING_OP_WRITE,
        FileOp::Open { .. } => io_uring_op::IORING_OP_OPENAT,
        FileOp::Stat { .. } => io_uring_op::IORING_OP_STATX,
        FileOp::Sync { .. } => io_uring_op::IORING_OP_FSYNC,
        FileOp::Truncate { .. } => io_uring_op::IORING_OP_FTRUNCATE,
        FileOp::Rename { .. } => io_uring_op::IORING_OP_RENAMEAT,
        FileOp::Unlink { .. } => io_uring_op::IORING_OP_UNLINKAT,
        FileOp::MakeDirectory { .. } => io_uring_op::IORING_OP_MKDIRAT,
        FileOp::Link { .. } => io_uring_op::IORING_OP_LINKAT,
        FileOp::Symlink { .. } => io_uring_op::IORING_OP_SYMLINKAT,
        FileOp::ReadLink { .. } | FileOp::ReadDirectory { .. } => return None,
    })
}

/// The opcodes that this kernel supports, one bit each. Opcodes are below 64 so far, and those of [`opcode`]
/// are part of the kernel's ABI.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Files(u64);

impl Files {
    pub(super) fn of(known: &Probe) -> Files {
        let bits = (0..64u8).filter(|opcode| known.supports(*opcode)).map(|opcode| 1 << opcode);
        Files(bits.fold(0, |all, bit: u64| all | bit))
    }

    pub(super) fn has(self, op: &FileOp) -> bool {
        opcode(op).is_some_and(|opcode| self.0 >> opcode as u32 & 1 != 0)
    }
}

/// Makes the entry for an operation.
pub(super) fn entry(op: FileOp) -> Sqe {
    match op {
        FileOp::Read { fd, memory, offset } => {
            Sqe::read(fd, memory.start, bounded(memory.bytes) as u32, offset)
        }
        FileOp::Write { fd, bytes, offset } => {
            Sqe::write(fd, bytes.start, bounded(bytes.bytes) as u32, offset)
        }
        FileOp::Open { at, flags, mode } => Sqe::openat(at.beneath, at.path, flags, mode),
        FileOp::Stat { at, flags, into } => Sqe::statx(at.beneath, at.path, flags, STAT_MASK, into),
        FileOp::Sync { fd, data_only } => Sqe::fsync(fd, if data_only { IORING_FSYNC_DATASYNC } else { 0 }),
        FileOp::Truncate { fd, bytes } => Sqe::ftruncate(fd, bytes),
        FileOp::Rename { from, to } => Sqe::renameat(from.beneath, from.path, to.beneath, to.path, 0),
        FileOp::Unlink { at, directory } => Sqe::unlinkat(at.beneath, at.path, unlink_flags(directory)),
        FileOp::MakeDirectory { at, mode } => Sqe::mkdirat(at.beneath, at.path, mode),
        FileOp::Link { from, to } => Sqe::linkat(from.beneath, from.path, to.beneath, to.path, 0),
        FileOp::Symlink { target, at } => Sqe::symlinkat(target, at.beneath, at.path),
        FileOp::ReadLink { .. } | FileOp::ReadDirectory { .. } => {
            unreachable!("{} is no operation of the ring", op.name())
        }
    }
}

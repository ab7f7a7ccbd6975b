//! File operations. They are not simulated: an operation runs on the real file system immediately, and its
//! completion is delivered when the seed decides, possibly after operations that began later. Faults are
//! simulated.
//!
//! The log has only values that are the same in every run, so no descriptor numbers.

use super::{Event, Sim};
use crate::op::{Completion, FileOp, Kind, News, Outcome, Token};
use crate::sys::file::perform;
use std::os::fd::{FromRawFd, OwnedFd};

/// An operation that has run, with its completion pending.
pub(super) struct Filed {
    token: Token,
    kind: Kind,
    result: i32,
}

impl Sim {
    /// Runs an operation or injects a fault. The completion comes later.
    pub(super) fn file(&mut self, token: Token, kind: Kind, op: FileOp) {
        self.submitted += 1;
        let id = self.submitted;
        self.ledger.taken_on(token, kind, u32::MAX);
        let result = match self.file_fault(&op) {
            Some(errno) => -errno,
            // SAFETY: what it points to is valid, and used by no other code, until its completion is reported
            // (contract of `Driver::submit`).
            None => unsafe { perform(self.shortened_op(op)) },
        };
        self.note(op.name(), token.to_bits(), told(kind, result));
        self.files.insert(id, Filed { token, kind, result });
        self.later(Event::Filed(id));
    }

    fn file_fault(&mut self, op: &FileOp) -> Option<i32> {
        if self.chance.hits(self.faults.again) {
            return Some(libc::EINTR);
        }
        if self.chance.hits(self.faults.broken_disk) {
            return Some(libc::EIO);
        }
        let takes_room = match op {
            FileOp::Write { .. } | FileOp::MakeDirectory { .. } => true,
            FileOp::Open { flags, .. } => flags & libc::O_CREAT != 0,
            FileOp::Link { .. } | FileOp::Symlink { .. } | FileOp::Rename { .. } => true,
            _ => false,
        };
        (takes_room && self.chance.hits(self.faults.no_space)).then_some(libc::ENOSPC)
    }

    fn shortened_op(&mut self, mut op: FileOp) -> FileOp {
        match &mut op {
            FileOp::Read { memory: span, .. } | FileOp::Write { bytes: span, .. } => {
                span.bytes = self.shortened(span.bytes);
            }
            _ => {}
        }
        op
    }

    /// Delivers the completion of an operation.
    pub(super) fn filed(&mut self, id: u64, out: &mut Vec<Completion>) {
        let Some(Filed { token, kind, result }) = self.files.remove(&id) else { return };
        self.ledger.let_go(token);
        self.note("last", token.to_bits(), told(kind, result));
        out.push(Completion { token, news: News::Last(Outcome::of(result)) });
    }

    /// Drops all pending operations without a completion.
    pub(super) fn give_up_files(&mut self) {
        self.counters.leaked += self.files.len() as u64;
        for (_, Filed { kind, result, .. }) in std::mem::take(&mut self.files) {
            if kind == Kind::Open && result >= 0 {
                // SAFETY: opened by `file`, and no other code has the number.
                drop(unsafe { OwnedFd::from_raw_fd(result) });
            }
        }
    }
}

/// Returns a result in the form of the log.
fn told(kind: Kind, result: i32) -> i64 {
    if kind == Kind::Open { i64::from(result.min(0)) } else { i64::from(result) }
}

//! Files, which are not simulated: an operation is done to the real file system at once, and its end comes when the
//! seed says, after others that began later if it likes. What goes wrong is simulated too.
//!
//! Only what is the same in every run goes into the log, so no descriptor's number does.

use super::{Event, Sim};
use crate::op::{Completion, FileOp, Kind, News, Outcome, Token};
use crate::sys::file::perform;
use std::os::fd::{FromRawFd, OwnedFd};

/// An operation that is done and not over.
pub(super) struct Filed {
    token: Token,
    kind: Kind,
    result: i32,
}

impl Sim {
    /// Does an operation, or has it fail; the end comes later.
    pub(super) fn file(&mut self, token: Token, kind: Kind, op: FileOp) {
        self.submitted += 1;
        let id = self.submitted;
        self.ledger.taken_on(token, kind, u32::MAX);
        let result = match self.file_fault(&op) {
            Some(errno) => -errno,
            // SAFETY: what it points to is valid, and ours alone, until its end is told (contract of `Driver::submit`).
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

    /// The end of one.
    pub(super) fn filed(&mut self, id: u64, out: &mut Vec<Completion>) {
        let Some(Filed { token, kind, result }) = self.files.remove(&id) else { return };
        self.ledger.let_go(token);
        self.note("last", token.to_bits(), told(kind, result));
        out.push(Completion { token, news: News::Last(Outcome::of(result)) });
    }

    /// Nobody is told any more.
    pub(super) fn give_up_files(&mut self) {
        self.counters.leaked += self.files.len() as u64;
        for (_, Filed { kind, result, .. }) in std::mem::take(&mut self.files) {
            if kind == Kind::Open && result >= 0 {
                // SAFETY: opened by `file`, and told to nobody.
                drop(unsafe { OwnedFd::from_raw_fd(result) });
            }
        }
    }
}

/// A result as the log has it.
fn told(kind: Kind, result: i32) -> i64 {
    if kind == Kind::Open { i64::from(result.min(0)) } else { i64::from(result) }
}

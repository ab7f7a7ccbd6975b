//! File operations, for drivers that support them. They have no entry in the table of descriptors: any number
//! may be in flight on one file, and each keeps it open.

use super::{Io, OneShot};
use crate::caller::Caller;
use crate::descriptor::{Descriptor, NONE};
use crate::driver::Cancelled;
use crate::inflight::{Memory, Remains, Request, State};
use crate::op::{FileOp, Kind, Outcome, Target, Token};
use crate::sys::file::{read_cached, read_now, write_now};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;

/// A file operation in progress.
#[derive(Debug)]
pub(crate) enum Filing {
    Fresh(Box<Request>),
    InFlight(Token),
    Over,
}

impl Io {
    /// Returns whether the driver does this operation; otherwise the pool does.
    pub(crate) fn takes(&self, request: &mut Request) -> bool {
        self.driver.takes(&request.op())
    }

    /// Returns whether the running task has budget left in this poll. Otherwise it must yield.
    pub(crate) fn has_answers_left(&self) -> bool {
        self.answers_left > 0
    }

    /// Does a transfer in place, limited to cached bytes if `cached`. Returns the raw result.
    pub(crate) fn attempt_file(&mut self, request: &mut Request, cached: bool) -> i32 {
        self.answers_left = self.answers_left.saturating_sub(1);
        self.counters.system_calls += 1;
        self.counters.answered_at_once += 1;
        match request.op() {
            // SAFETY: the request owns its memory, is borrowed for the call, and lends it to nothing else.
            FileOp::Read { fd, memory, offset } if cached => unsafe { read_cached(fd, memory, offset) },
            _ => request.perform(),
        }
    }

    /// Reads from or writes to a file without positions if that does not wait.
    pub(crate) fn attempt_stream(&mut self, request: &mut Request) -> i32 {
        self.answers_left = self.answers_left.saturating_sub(1);
        let (result, calls) = match request.op() {
            // SAFETY: the request owns its memory, is borrowed for the call, and lends it to nothing else.
            FileOp::Read { fd, memory, .. } => (unsafe { read_now(fd, memory) }, 1),
            // SAFETY: likewise; the memory is only read.
            FileOp::Write { fd, bytes, .. } => unsafe { write_now(fd, bytes) },
            op => unreachable!("a transfer of a stream, not {op:?}"),
        };
        self.counters.system_calls += calls;
        result
    }

    /// Adds a duplicate of a file's descriptor to the table, to wait for it.
    pub(crate) fn watch(&mut self, duplicate: OwnedFd) -> Target {
        self.open(Descriptor::Watched(duplicate))
    }

    /// Ready with 0 when a read ([`Kind::Readable`]) or a write ([`Kind::Writable`]) would not block, or with
    /// a negated errno if the driver cannot watch the file.
    pub(crate) fn poll_readiness(
        &mut self,
        kind: Kind,
        on: Target,
        operation: &mut OneShot,
        caller: &Caller<'_>,
    ) -> Poll<i32> {
        self.poll_one_shot(kind, on.index, operation, caller)
    }

    /// Returns the counter of open files.
    pub(crate) fn files_open(&self) -> &Arc<AtomicUsize> {
        &self.files_open
    }

    /// Ready with the kernel's result and the request.
    pub(crate) fn poll_file(
        &mut self,
        filing: &mut Filing,
        caller: &Caller<'_>,
    ) -> Poll<(i32, Box<Request>)> {
        let token = match std::mem::replace(filing, Filing::Over) {
            Filing::Fresh(request) => {
                let kind = if matches!(*request, Request::Open { .. }) { Kind::Open } else { Kind::File };
                let token = self.slots.insert(kind, NONE, Memory::Request(request), 0, self.now);
                self.submit_file(token);
                token
            }
            Filing::InFlight(token) => token,
            Filing::Over => unreachable!("polled after its end"),
        };
        if self.slots.state(token) == State::Done {
            let result = self.slots.result(token);
            // After EINTR nothing was done.
            if result != -libc::EINTR {
                self.trash.extend(self.slots.clear_waker(token));
                let Memory::Request(request) = self.slots.release(token) else {
                    unreachable!("a file operation has a request")
                };
                return Poll::Ready((result, request));
            }
            self.slots.requeue(token);
            self.counters.retries += 1;
            self.submit_file(token);
        }
        self.wait_for(token, caller);
        *filing = Filing::InFlight(token);
        Poll::Pending
    }

    fn submit_file(&mut self, token: Token) {
        self.driver.submit(token, &self.slots.op(token, Target::NONE));
        self.slots.hand_over(token);
        self.files_with_driver += 1;
        self.counters.submitted += 1;
    }

    /// Cancels an operation after its future was dropped; what it names is kept until the driver has released
    /// it.
    pub(crate) fn drop_file(&mut self, filing: &Filing) {
        if let Filing::InFlight(token) = filing {
            self.abandon_file(*token);
        }
    }

    fn abandon_file(&mut self, token: Token) {
        let kind = self.slots.kind(token);
        let mut result = -libc::ECANCELED;
        match self.slots.state(token) {
            State::Submitted => {
                self.counters.cancels += 1;
                if self.driver.cancel(token, kind, Target::NONE) == Cancelled::Asked {
                    self.counters.orphaned += 1;
                    self.trash.extend(self.slots.orphan(token, self.now));
                    return;
                }
                self.slots.retract(token);
                self.files_with_driver -= 1;
            }
            State::Done => result = self.slots.result(token),
            _ => {}
        }
        self.trash.extend(self.slots.clear_waker(token));
        let memory = self.slots.release(token);
        dispose(memory, result);
    }

    /// Cancels all file operations; no task waits for them any more.
    pub(super) fn abandon_files(&mut self) {
        for token in self.slots.files() {
            self.abandon_file(token);
        }
    }

    /// Handles the end of an operation without a future.
    pub(super) fn dispose_file(&mut self, remains: Remains) {
        let Remains { memory, outcome: Outcome { result, .. }, .. } = remains;
        dispose(memory, result);
        self.files_with_driver -= 1;
    }
}

fn dispose(memory: Memory, result: i32) {
    if let Memory::Request(request) = memory {
        request.dispose(result);
    }
}

//! Operations on files, for drivers that take them. They stand in no entry of the table: any number may be under way
//! on one file, which each of them keeps open by itself.

use super::Io;
use crate::caller::Caller;
use crate::descriptor::NONE;
use crate::driver::Cancelled;
use crate::inflight::{Memory, Remains, Request, State};
use crate::op::{FileOp, Kind, Outcome, Target, Token};
use crate::sys::file::read_cached;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;

/// A file operation on its way.
#[derive(Debug)]
pub(crate) enum Filing {
    Fresh(Box<Request>),
    InFlight(Token),
    Over,
}

impl Io {
    /// Whether the driver does this; otherwise the pool has to.
    pub(crate) fn takes(&self, request: &mut Request) -> bool {
        self.driver.takes(&request.op())
    }

    /// Whether the task that runs may be answered at once once more in this poll. One that may not is to yield.
    pub(crate) fn has_answers_left(&self) -> bool {
        self.answers_left > 0
    }

    /// Does a transfer here: a read of what is cached, or all of it. What it says is not looked at.
    pub(crate) fn attempt_file(&mut self, request: &mut Request, cached: bool) -> i32 {
        self.answers_left = self.answers_left.saturating_sub(1);
        self.counters.system_calls += 1;
        self.counters.answered_at_once += 1;
        match request.op() {
            // SAFETY: the request owns its memory, is borrowed for the call, and lends it to nobody else.
            FileOp::Read { fd, memory, offset } if cached => unsafe { read_cached(fd, memory, offset) },
            _ => request.perform(),
        }
    }

    /// How many files are open; who opens one counts it.
    pub(crate) fn files_open(&self) -> &Arc<AtomicUsize> {
        &self.files_open
    }

    /// Ready with the result as the kernel gives it, and the request.
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
            // Interrupted, nothing was done.
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

    /// The future is gone: the operation is cancelled, and what it names kept until the driver has let go.
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

    /// Nobody waits for any of them any more.
    pub(super) fn abandon_files(&mut self) {
        for token in self.slots.files() {
            self.abandon_file(token);
        }
    }

    /// An operation without a future is over.
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

//! The receiving side of an adapter: what has come and is not read yet.

use crate::duplex::Source;
use ringroad_engine::Lease;
use std::io;
use std::task::{Context, Poll, ready};

/// Received bytes in the buffer they arrived in. INVARIANT: while the adapter waits it holds none.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    lease: Lease,
}

impl Inbox {
    /// Behind bytes that were received before.
    pub(crate) fn with(received: Lease) -> Inbox {
        Inbox { lease: received }
    }

    /// Returns the bytes that come next, without using them up; none at the end.
    pub(crate) fn poll_fill<S: Source>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<&[u8]>> {
        if self.lease.is_empty() {
            // The empty lease of an end is asked for again: the engine gives it again.
            self.lease = ready!(stream.poll_recv(context))?;
        }
        Poll::Ready(Ok(&self.lease))
    }

    /// Uses up so many of them.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.lease.advance(bytes);
        if self.lease.is_empty() {
            self.lease = Lease::default();
        }
    }

    /// Returns what is left.
    pub(crate) fn into_rest(self) -> Lease {
        self.lease
    }
}

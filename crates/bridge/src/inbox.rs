//! The receiving side of an adapter: bytes that were received and not read yet.

use crate::duplex::Source;
use ringroad_engine::Lease;
use std::io;
use std::task::{Context, Poll, ready};

/// Received bytes in the buffer that they arrived in. INVARIANT: while the adapter waits it holds none.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    lease: Lease,
}

impl Inbox {
    /// Makes an inbox that begins with bytes received before.
    pub(crate) fn with(received: Lease) -> Inbox {
        Inbox { lease: received }
    }

    /// Returns the next bytes without consuming them; empty at the end.
    pub(crate) fn poll_fill<S: Source>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<&[u8]>> {
        if self.lease.is_empty() {
            // At the end the lease is empty, so each call asks again. The engine then returns the end again.
            self.lease = ready!(stream.poll_recv(context))?;
        }
        Poll::Ready(Ok(&self.lease))
    }

    /// Consumes `bytes` of them.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.lease.advance(bytes);
        if self.lease.is_empty() {
            self.lease = Lease::default();
        }
    }

    /// Returns the bytes that were not read.
    pub(crate) fn into_rest(self) -> Lease {
        self.lease
    }
}

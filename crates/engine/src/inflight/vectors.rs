//! Several buffers for one send, with their vector in the kernel's form.

use crate::buf::Buf;
use std::fmt;

/// Several buffers to be sent in order, with their vector in the kernel's form.
pub(crate) struct Vectors {
    pub(crate) bufs: Vec<Buf>,
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
}

impl Vectors {
    pub(crate) fn new(bufs: Vec<Buf>) -> Box<Vectors> {
        let vectors = Vec::with_capacity(bufs.len());
        // SAFETY: integers and pointers, for which zero is valid and means "none".
        let message = unsafe { std::mem::zeroed() };
        Box::new(Vectors { bufs, vectors, message })
    }

    /// Returns the header for the bytes after the first `done`.
    pub(super) fn message_after(&mut self, mut done: usize) -> &libc::msghdr {
        self.vectors.clear();
        for buf in &self.bufs {
            let span = buf.span_after(done);
            done = done.saturating_sub(buf.bytes().len());
            if span.bytes > 0 && self.vectors.len() < VECTORS_MAX {
                self.vectors.push(libc::iovec { iov_base: span.start.cast(), iov_len: span.bytes });
            }
        }
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = self.vectors.len() as _;
        &self.message
    }
}

/// `UIO_MAXIOV`: more vectors are EMSGSIZE. The rest is sent by the next call.
const VECTORS_MAX: usize = 1024;

impl fmt::Debug for Vectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.bufs).finish()
    }
}

//! One datagram, in the form that `sendmsg(2)` and `recvmsg(2)` require.
//!
//! INVARIANT: everything that is named to the kernel is in the message or in its buffer, and the message is
//! boxed: it stays in place while its owner moves.

use crate::address::Address;
use crate::buf::{Buf, filled, spare_of};
use socket2::{SockAddr, SockAddrStorage};
use std::fmt;

/// A datagram's buffer and address, with both in the kernel's form.
pub(crate) struct Message {
    pub(crate) buf: Buf,
    vector: libc::iovec,
    name: SockAddrStorage,
    /// Length of the address in `name`, for a send; 0 for the connected peer.
    name_bytes: u32,
    header: libc::msghdr,
}

impl Message {
    pub(crate) fn new() -> Box<Message> {
        Box::new(Message {
            buf: Buf::Static(&[]),
            vector: libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
            name: SockAddrStorage::zeroed(),
            name_bytes: 0,
            // SAFETY: integers and pointers, for which zero is valid and means "none".
            header: unsafe { std::mem::zeroed() },
        })
    }

    /// Sets the destination; `None`: the connected peer.
    pub(crate) fn address_to(&mut self, address: Option<SockAddr>) {
        self.name_bytes = address.as_ref().map_or(0, SockAddr::len);
        if let Some(address) = address {
            self.name = address.as_storage();
        }
    }

    /// Returns the header for a send.
    pub(crate) fn for_send(&mut self) -> &libc::msghdr {
        let span = self.buf.span_after(0);
        self.vector = libc::iovec { iov_base: span.start.cast(), iov_len: span.bytes };
        self.refer(self.name_bytes);
        &self.header
    }

    /// Returns the header for a receive into the buffer's spare capacity.
    pub(crate) fn for_receive(&mut self) -> *mut libc::msghdr {
        let (start, bytes) = spare_of(&mut self.buf);
        self.vector = libc::iovec { iov_base: start.as_ptr().cast(), iov_len: bytes };
        self.refer(self.name.size_of());
        &raw mut self.header
    }

    fn refer(&mut self, name_bytes: u32) {
        let name = if name_bytes > 0 { (&raw mut self.name).cast() } else { std::ptr::null_mut() };
        self.header.msg_name = name;
        self.header.msg_namelen = name_bytes;
        self.header.msg_iov = &raw mut self.vector;
        self.header.msg_iovlen = 1;
        self.header.msg_flags = 0;
    }

    /// Returns the sender of a received datagram; `None`: it has no address.
    pub(crate) fn sender(&self) -> Option<Address> {
        let bytes = self.header.msg_namelen.min(self.name.size_of());
        if bytes == 0 {
            return None;
        }
        let mut name = SockAddrStorage::zeroed();
        // SAFETY: both are valid for one storage: the kernel's name, followed by zeroes.
        unsafe { (&raw mut name).copy_from_nonoverlapping(&raw const self.name, 1) };
        // SAFETY: the kernel, or the simulation, wrote an address of that length there.
        Address::of_kernel(&unsafe { SockAddr::new(name, bytes) })
    }

    /// Records a received datagram of `length` bytes; returns how many of them are in the buffer.
    ///
    /// # Safety
    /// The last completion of a receive into this message reported this length; as many bytes as there was
    /// room for were written.
    pub(crate) unsafe fn received(&mut self, length: usize) -> usize {
        let bytes = length.min(spare_of(&mut self.buf).1);
        // SAFETY: promised by the caller.
        unsafe { filled(&mut self.buf, bytes) };
        bytes
    }

    /// Copies the bytes of `kept` after the first `start`; returns how many of them there was room for.
    pub(crate) fn receive_from(&mut self, kept: &Message, start: usize) -> usize {
        let bytes = kept.buf.bytes().get(start..).unwrap_or_default();
        let (room, most) = spare_of(&mut self.buf);
        let count = bytes.len().min(most);
        // SAFETY: the spare capacity of this buffer is valid for `most` bytes, and does not overlap the other
        // buffer; exactly the bytes written are marked as filled.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.as_ptr(), count);
            filled(&mut self.buf, count);
            (&raw mut self.name).copy_from_nonoverlapping(&raw const kept.name, 1);
        }
        self.header.msg_namelen = kept.header.msg_namelen;
        count
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("buf", &self.buf).finish_non_exhaustive()
    }
}

//! A submitted operation, and the checks on the memory it points to.
//!
//! Between `submit` and the end of an operation its memory belongs to the driver. So memory to be written is
//! filled with a pattern that must still be there when the result arrives, and memory to be read must be
//! unchanged. Code that frees, moves or touches it is found by that comparison, or by Miri (`cargo xtask
//! miri`).

use super::net::Direction;
use crate::address::Address;
use crate::op::{Kind, Op, Span, Target, Token};
use socket2::{SockAddr, SockAddrStorage};
use std::fs::File;

pub(super) struct Operation {
    pub(super) token: Token,
    pub(super) kind: Kind,
    pub(super) on: Target,
    /// The driver completes the operation; otherwise it reports when an attempt may succeed.
    pub(super) completes: bool,
    work: Work,
    /// A send that waits until there is room for all of it.
    pub(super) whole: bool,
    /// The expected content of the memory while the driver owns it.
    seal: u64,
    /// Bytes sent so far.
    pub(super) done: usize,
    /// `Ready` was reported, and no attempt has found the socket empty since.
    pub(super) told: bool,
    /// An event to advance it is pending.
    pub(super) due: bool,
    /// Results not delivered yet, and when the last of them arrives.
    pub(super) underway: u32,
    pub(super) arrives: u64,
    /// The last wait that delivered one of its results.
    pub(super) told_in: u64,
    /// Its last result is pending.
    pub(super) over: bool,
    pub(super) cancelling: bool,
}

/// The memory it names, by address: valid until the operation ends
/// ([`Driver::submit`](crate::driver::Driver::submit)).
#[derive(Clone, Copy)]
enum Work {
    Nothing,
    Connect(*const SockAddr),
    Receive(Span),
    Send(Span),
    SendVectored(*const libc::msghdr),
    SendFile { file: *const File, at: u64, bytes: usize },
    ReceiveMessage(*mut libc::msghdr),
}

/// Content of memory that will be written, until it is written.
const PATTERN: u8 = 0xa5;

pub(super) fn direction(kind: Kind) -> Direction {
    if kind.is_inward() { Direction::In } else { Direction::Out }
}

impl Operation {
    /// Takes over the memory of `op`.
    pub(super) fn new(token: Token, op: &Op<'_>, completes: bool) -> Operation {
        let work = match *op {
            Op::Accept { .. } | Op::Receive { .. } | Op::ReceiveBulk { .. } => Work::Nothing,
            Op::Connect { address, .. } => Work::Connect(address),
            Op::ReceiveInto { memory, .. } => Work::Receive(memory),
            Op::Send { bytes, .. } | Op::SendLasting { bytes, .. } => Work::Send(bytes),
            Op::SendVectored { message, .. }
            | Op::SendMessage { message, .. }
            | Op::SendUnixMessage { message, .. } => Work::SendVectored(message),
            Op::ReceiveMessage { message, .. } => Work::ReceiveMessage(message),
            Op::SendFile { file, at, bytes, .. } => Work::SendFile { file, at, bytes },
            Op::File(_) | Op::Readable { .. } | Op::Writable { .. } => unreachable!("files are apart"),
        };
        if let Some(memory) = room_of(work) {
            // SAFETY: owned by the driver until the operation ends (contract of `Driver::submit`).
            let _ = unsafe { fill(memory) };
        }
        let mut operation = Operation {
            token,
            kind: op.kind(),
            on: op.target(),
            completes,
            work,
            whole: !matches!(op, Op::Send { whole: false, .. } | Op::SendLasting { whole: false, .. }),
            seal: 0,
            done: 0,
            told: false,
            due: false,
            underway: 0,
            arrives: 0,
            told_in: 0,
            over: false,
            cancelling: false,
        };
        operation.seal();
        operation
    }

    pub(super) fn number(&self) -> u32 {
        self.on.number as u32
    }

    pub(super) fn direction(&self) -> Direction {
        direction(self.kind)
    }

    /// Returns the address of a connect.
    pub(super) fn address(&self) -> Option<&SockAddr> {
        match self.work {
            // SAFETY: in place and unchanged until the operation ends (contract of `Driver::submit`), which
            // consumes `self`; nothing writes it meanwhile.
            Work::Connect(address) => Some(unsafe { &*address }),
            _ => None,
        }
    }

    /// Returns the file that it sends, with offset and length in bytes.
    pub(super) fn file(&self) -> Option<(&File, u64, usize)> {
        match self.work {
            // SAFETY: as above, for the file that the slot holds.
            Work::SendFile { file, at, bytes } => Some((unsafe { &*file }, at, bytes)),
            _ => None,
        }
    }

    /// Returns the memory it receives into, if that belongs to the caller.
    pub(super) fn room(&mut self) -> &mut [u8] {
        match room_of(self.work) {
            // SAFETY: valid for writes, and used by no other code, until the operation ends, as above;
            // initialised when it was taken over.
            Some(Span { start, bytes }) if bytes > 0 => unsafe {
                std::slice::from_raw_parts_mut(start, bytes)
            },
            _ => &mut [],
        }
    }

    /// Returns the datagram it sends, and its destination if it names one.
    pub(super) fn letter(&self) -> (Option<Address>, &[u8]) {
        let Work::SendVectored(message) = self.work else { return (None, &[]) };
        // SAFETY: in place and unchanged until the operation ends, as above.
        let message = unsafe { &*message };
        // SAFETY: the same.
        unsafe { (name_of(message), one_of(vectors_of(message))) }
    }

    /// Notes the sender of the datagram it has received.
    pub(super) fn sent_by(&mut self, name: Option<&Address>) {
        if let Work::ReceiveMessage(message) = self.work {
            // SAFETY: used by no other code until the operation ends, as above.
            unsafe { write_name(message, name) }
        }
    }

    /// Returns the bytes left to send, in pieces.
    pub(super) fn rest(&self) -> Vec<&[u8]> {
        let mut skip = self.done;
        let mut pieces = self.pieces();
        for piece in &mut pieces {
            let used = skip.min(piece.len());
            *piece = &piece[used..];
            skip -= used;
        }
        pieces
    }

    fn pieces(&self) -> Vec<&[u8]> {
        match self.work {
            Work::Nothing | Work::Connect(_) | Work::SendFile { .. } => Vec::new(),
            // SAFETY: as below.
            Work::ReceiveMessage(_) => unsafe {
                room_of(self.work).map(|span| bytes_of(span)).into_iter().collect()
            },
            // SAFETY: valid for reads, and not written, until the operation ends (contract of
            // `Driver::submit`).
            Work::Send(span) | Work::Receive(span) => unsafe { vec![bytes_of(span)] },
            // SAFETY: as above, for the message, its vectors and what they name.
            Work::SendVectored(message) => unsafe { vectors_of(&*message) },
        }
    }

    /// Records a checksum of the memory, which must not change from here on.
    pub(super) fn seal(&mut self) {
        self.seal = self.look();
    }

    /// Returns the checksum of the memory.
    fn look(&self) -> u64 {
        let mut sum = 0;
        for piece in self.pieces() {
            sum = mix(sum, piece);
        }
        if let Some(address) = self.address() {
            let text = format!("{:?}", address.as_socket());
            sum = mix(sum, text.as_bytes());
        }
        sum
    }

    /// Ends the operation and returns its memory.
    ///
    /// # Panics
    /// If other code has changed it.
    pub(super) fn let_go(self) {
        assert!(
            self.look() == self.seal,
            "memory of {} on descriptor {} changed while it was with the driver",
            self.kind,
            self.on.number
        );
    }
}

/// Fills memory that is about to be written, which also initialises it.
///
/// # Safety
/// The memory is valid for writes of its length, and used by no other code while the result is used.
pub(super) unsafe fn fill<'a>(memory: Span) -> &'a mut [u8] {
    if memory.bytes == 0 {
        return &mut [];
    }
    // SAFETY: promised by the caller.
    unsafe {
        memory.start.write_bytes(PATTERN, memory.bytes);
        std::slice::from_raw_parts_mut(memory.start, memory.bytes)
    }
}

/// # Safety
/// The memory is valid for reads, and not written while the result is used.
pub(super) unsafe fn bytes_of<'a>(span: Span) -> &'a [u8] {
    if span.bytes == 0 {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(span.start, span.bytes) }
}

/// # Safety
/// As [`bytes_of`], for the vectors and all that they name.
pub(super) unsafe fn vectors_of<'a>(message: &'a libc::msghdr) -> Vec<&'a [u8]> {
    if message.msg_iovlen == 0 {
        return Vec::new();
    }
    #[allow(clippy::unnecessary_cast)] // The field's type differs between C libraries.
    // SAFETY: promised by the caller.
    let vectors: &'a [libc::iovec] =
        unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen as usize) };
    let span = |vector: &libc::iovec| Span { start: vector.iov_base.cast(), bytes: vector.iov_len };
    // SAFETY: promised by the caller.
    vectors.iter().map(|vector| unsafe { bytes_of(span(vector)) }).collect()
}

/// Returns the memory that an operation receives into, if that belongs to the caller.
fn room_of(work: Work) -> Option<Span> {
    match work {
        Work::Receive(memory) => Some(memory),
        // SAFETY: the message is in place until the operation ends (contract of `Driver::submit`).
        Work::ReceiveMessage(message) => Some(unsafe { room_in(message) }),
        Work::Nothing | Work::Connect(_) | Work::Send(_) | Work::SendVectored(_) | Work::SendFile { .. } => {
            None
        }
    }
}

/// Returns the memory that a message is received into.
///
/// # Safety
/// The message is valid for reads, and so are its vectors, of which there is one.
pub(super) unsafe fn room_in(message: *const libc::msghdr) -> Span {
    // SAFETY: promised by the caller.
    let vector = unsafe { *(*message).msg_iov };
    Span { start: vector.iov_base.cast(), bytes: vector.iov_len }
}

/// Returns the destination of a message, if it names one.
///
/// # Safety
/// Its name is valid for reads.
pub(super) unsafe fn name_of(message: &libc::msghdr) -> Option<Address> {
    if message.msg_namelen == 0 {
        return None;
    }
    let mut name = SockAddrStorage::zeroed();
    let bytes = message.msg_namelen.min(name.size_of());
    // SAFETY: both are valid for that many bytes; the caller promises that the name is an address of that
    // length.
    unsafe {
        let place: *mut u8 = (&raw mut name).cast();
        place.copy_from_nonoverlapping(message.msg_name.cast(), bytes as usize);
        Address::of_kernel(&SockAddr::new(name, bytes))
    }
}

/// Writes the sender's name into a message.
///
/// # Safety
/// It is valid for reads and writes, and so is the place for its name, of `msg_namelen` bytes.
pub(super) unsafe fn write_name(message: *mut libc::msghdr, name: Option<&Address>) {
    let name = name.and_then(|name| name.to_kernel().ok());
    // SAFETY: promised by the caller; no more is written than there is room for.
    unsafe {
        let room = (*message).msg_namelen;
        (*message).msg_namelen = name.as_ref().map_or(0, SockAddr::len);
        if let Some(name) = name {
            let bytes = name.len().min(room) as usize;
            (*message).msg_name.cast::<u8>().copy_from_nonoverlapping(name.as_ptr().cast(), bytes);
        }
    }
}

/// Returns the one piece of a datagram.
pub(super) fn one_of(pieces: Vec<&[u8]>) -> &[u8] {
    assert!(pieces.len() <= 1, "a datagram in {} pieces", pieces.len());
    pieces.first().copied().unwrap_or_default()
}

/// Returns a checksum, eight bytes at a time. It has to detect accidents, not attacks.
fn mix(mut sum: u64, bytes: &[u8]) -> u64 {
    let mut take = |word: u64| sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let words = bytes.chunks_exact(8);
    take(bytes.len() as u64);
    for byte in words.remainder() {
        take(u64::from(*byte));
    }
    for word in words {
        let mut eight = [0; 8];
        eight.copy_from_slice(word);
        take(u64::from_le_bytes(eight));
    }
    sum
}

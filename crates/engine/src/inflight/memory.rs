//! The memory that an operation owns while it is with the driver, and the operation in the driver's form.
//!
//! Start at [`Memory`] and [`op_of`].

use super::{Items, Message, Request, Vectors};
use crate::buf::Buf;
use crate::file_part::FilePart;
use crate::op::{Kind, Op, Span, Target};
use socket2::SockAddr;

/// Memory that the kernel may access for an operation.
#[derive(Debug)]
pub(crate) enum Memory {
    None,
    /// A buffer to send from or receive into.
    Buf(Buf),
    Vectors(Box<Vectors>),
    File(FilePart),
    Address(Box<SockAddr>),
    Message(Box<Message>),
    /// A file operation, with everything it names.
    Request(Box<Request>),
    /// The untaken results of a standing operation, which names no memory.
    Items(Items),
}

impl Memory {
    /// Returns the total number of bytes to be sent.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Memory::Buf(buf) => buf.bytes().len(),
            Memory::Vectors(vectors) => vectors.bufs.iter().map(|buf| buf.bytes().len()).sum(),
            Memory::File(part) => part.step(),
            Memory::Message(message) => message.buf.bytes().len(),
            Memory::None | Memory::Address(_) | Memory::Request(_) | Memory::Items(_) => 0,
        }
    }

    /// Copies leases out of their pool, because the operation is going to wait.
    pub(crate) fn leave_pool(&mut self) {
        match self {
            Memory::Buf(buf) => buf.leave_pool(),
            Memory::Vectors(vectors) => vectors.bufs.iter_mut().for_each(Buf::leave_pool),
            Memory::Message(message) => message.buf.leave_pool(),
            Memory::None | Memory::File(_) | Memory::Address(_) | Memory::Request(_) | Memory::Items(_) => {}
        }
    }
}

/// Returns the operation `kind` on this memory, after `done` bytes. `whole`: a send of all of it.
#[inline]
pub(crate) fn op_of(kind: Kind, memory: &mut Memory, done: usize, on: Target, whole: bool) -> Op<'_> {
    match (kind, memory) {
        (Kind::Accept, _) => Op::Accept { on },
        (Kind::Receive, _) => Op::Receive { on },
        (Kind::Readable, _) => Op::Readable { on },
        (Kind::Writable, _) => Op::Writable { on },
        (Kind::Connect, Memory::Address(address)) => Op::Connect { on, address },
        (Kind::ReceiveInto, Memory::Buf(buf)) => {
            let (start, bytes) = crate::buf::spare_of(buf);
            Op::ReceiveInto { on, memory: Span { start: start.as_ptr(), bytes } }
        }
        (Kind::Send, Memory::Buf(buf)) => {
            let bytes = buf.span_after(done);
            match buf.lasting() {
                Some(owner) => Op::SendLasting { on, bytes, whole, owner },
                None => Op::Send { on, bytes, whole },
            }
        }
        (Kind::SendVectored, Memory::Vectors(vectors)) => {
            Op::SendVectored { on, message: vectors.message_after(done) }
        }
        (Kind::SendFile, Memory::File(part)) => {
            let (file, at) = part.source();
            Op::SendFile { on, file, at: at + done as u64, bytes: part.step() - done }
        }
        (Kind::ReceiveMessage, Memory::Message(message)) => {
            Op::ReceiveMessage { on, message: message.for_receive() }
        }
        (Kind::SendMessage, Memory::Message(message)) => Op::SendMessage { on, message: message.for_send() },
        (Kind::SendUnixMessage, Memory::Message(message)) => {
            Op::SendUnixMessage { on, message: message.for_send() }
        }
        (Kind::Open | Kind::File, Memory::Request(request)) => Op::File(request.op()),
        (kind, memory) => unreachable!("{kind:?} with {memory:?}"),
    }
}

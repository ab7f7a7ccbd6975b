//! Operations: the closed list of requests to a driver, as plain data.
//!
//! There are two kinds. A [`Call`] never waits (create a socket, set an option, close) and returns its
//! result. An [`Op`] may wait for a peer: it is attempted, and if it would block, it is submitted under a
//! [`Token`] and answered later by a [`Completion`].
//!
//! This file names no driver. A new operation needs a variant of [`Op`] and of [`Kind`] here, its memory in
//! `inflight::Memory`, a function in `sys`, and an arm in each driver (readiness, threads, io_uring, sim).
//! The compiler names the arms that are missing.

mod file;

pub(crate) use crate::descriptor::Target;
pub(crate) use file::{FileOp, Path};

use crate::address::Address;
use crate::descriptor::Descriptor;
use crate::option::{Credentials, Membership, SocketOption};
use crate::pool::{Large, Lease};
use socket2::SockAddr;
use std::fmt;
use std::fs::File;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;

/// Names one use of one slot: its index, and the generation that distinguishes it from earlier uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Token {
    /// Returns the token as one word, for the kernel's user_data.
    #[inline]
    pub(crate) fn to_bits(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.index)
    }

    /// Returns the token of [`Token::to_bits`].
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Token {
        Token { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Connections, one after another, until cancelled.
    Accept,
    Connect,
    /// Leases of received bytes, one after another, until cancelled or the end.
    Receive,
    /// One receive into memory of the caller.
    ReceiveInto,
    Send,
    SendVectored,
    SendFile,
    /// One datagram, with the name of its sender.
    ReceiveMessage,
    /// A wait until a read would not block. It transfers nothing.
    Readable,
    /// A wait until a write would not block. It transfers nothing.
    Writable,
    /// One datagram, to the connected peer or to a given address.
    SendMessage,
    /// The same on a Unix socket, where it may have to wait for room at the receiver.
    SendUnixMessage,
    /// A file operation that returns a descriptor.
    Open,
    /// Any other file operation.
    File,
}

impl Kind {
    /// Returns whether it stays with the driver and may complete more than once.
    #[inline]
    pub(crate) fn is_standing(self) -> bool {
        matches!(self, Kind::Accept | Kind::Receive)
    }

    /// Returns whether it waits for input. A descriptor has at most one such operation at a time, and one for
    /// output.
    #[inline]
    pub(crate) fn is_inward(self) -> bool {
        match self {
            Kind::Accept | Kind::Receive | Kind::ReceiveInto | Kind::ReceiveMessage | Kind::Readable => true,
            Kind::Connect
            | Kind::Send
            | Kind::SendVectored
            | Kind::SendFile
            | Kind::Writable
            | Kind::SendMessage
            | Kind::SendUnixMessage => false,
            Kind::Open | Kind::File => unreachable!("a file operation is about no descriptor of the table"),
        }
    }

    /// Returns the name of the corresponding system call.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Accept => "accept",
            Kind::Connect => "connect",
            Kind::Receive | Kind::ReceiveInto => "recv",
            Kind::Send => "send",
            Kind::SendFile => "sendfile",
            Kind::ReceiveMessage => "recvmsg",
            Kind::Readable | Kind::Writable => "poll",
            Kind::SendVectored | Kind::SendMessage | Kind::SendUnixMessage => "sendmsg",
            Kind::Open => "openat",
            Kind::File => "file",
        }
    }
}

/// An operation that may wait. What it points to is owned by the slot it was submitted under, which keeps it
/// in place until the last completion; during an attempt, by the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op<'a> {
    Accept {
        on: Target,
    },
    Connect {
        on: Target,
        address: &'a SockAddr,
    },
    Receive {
        on: Target,
    },
    /// A receive of a stream in bulk: an attempt fills a large buffer. Once submitted it only waits for data,
    /// and holds no buffer.
    ReceiveBulk {
        on: Target,
    },
    ReceiveInto {
        on: Target,
        memory: Span,
    },
    /// Sends as many bytes as possible; a short send is not an error. `whole`: the driver may wait for room
    /// for all bytes; otherwise for any room.
    Send {
        on: Target,
        bytes: Span,
        whole: bool,
    },
    /// A send of immutable bytes: a driver may keep another owner of them, so that the kernel can read them
    /// after the operation has ended.
    SendLasting {
        on: Target,
        bytes: Span,
        whole: bool,
        owner: Lasting<'a>,
    },
    /// The same as [`Op::Send`].
    SendVectored {
        on: Target,
        message: &'a libc::msghdr,
    },
    /// Sends bytes of a file from offset `at` on: at least one, or ENODATA at the end of the file.
    SendFile {
        on: Target,
        file: &'a File,
        at: u64,
        bytes: usize,
    },
    /// Receives one datagram and its sender's name into what `message` names. The result is the whole length
    /// of the datagram, even if it did not fit.
    ReceiveMessage {
        on: Target,
        message: *mut libc::msghdr,
    },
    /// Waits until a read of a descriptor other than a socket would not block; the result is 0.
    Readable {
        on: Target,
    },
    /// Waits until a write to a descriptor other than a socket would not block; the result is 0.
    Writable {
        on: Target,
    },
    /// Sends one datagram, whole or not at all.
    SendMessage {
        on: Target,
        message: &'a libc::msghdr,
    },
    /// The same as [`Op::SendMessage`], on a Unix socket.
    SendUnixMessage {
        on: Target,
        message: &'a libc::msghdr,
    },
    /// A file operation. It has no entry in the table of descriptors, and any number may be in flight on one
    /// file.
    File(FileOp),
}

impl Op<'_> {
    /// Returns the descriptor of the operation.
    #[inline]
    pub(crate) fn target(&self) -> Target {
        match *self {
            Op::Accept { on }
            | Op::Connect { on, .. }
            | Op::Receive { on }
            | Op::ReceiveBulk { on }
            | Op::ReceiveInto { on, .. }
            | Op::Send { on, .. }
            | Op::SendLasting { on, .. }
            | Op::SendVectored { on, .. }
            | Op::SendFile { on, .. }
            | Op::ReceiveMessage { on, .. }
            | Op::Readable { on }
            | Op::Writable { on }
            | Op::SendMessage { on, .. }
            | Op::SendUnixMessage { on, .. } => on,
            Op::File(_) => Target::NONE,
        }
    }

    /// Returns the kind of the operation.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Op::Accept { .. } => Kind::Accept,
            Op::Connect { .. } => Kind::Connect,
            Op::Receive { .. } | Op::ReceiveBulk { .. } => Kind::Receive,
            Op::ReceiveInto { .. } => Kind::ReceiveInto,
            Op::Send { .. } | Op::SendLasting { .. } => Kind::Send,
            Op::SendVectored { .. } => Kind::SendVectored,
            Op::SendFile { .. } => Kind::SendFile,
            Op::ReceiveMessage { .. } => Kind::ReceiveMessage,
            Op::Readable { .. } => Kind::Readable,
            Op::Writable { .. } => Kind::Writable,
            Op::SendMessage { .. } => Kind::SendMessage,
            Op::SendUnixMessage { .. } => Kind::SendUnixMessage,
            Op::File(op) if op.opens() => Kind::Open,
            Op::File(_) => Kind::File,
        }
    }
}

/// An owner of immutable bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lasting<'a> {
    /// `&'static`.
    Static,
    /// Reference-counted; immutable while shared.
    Shared(&'a Rc<[u8]>),
    /// The same with an atomic count: its owners may be on several threads.
    SharedByThreads(&'a Arc<[u8]>),
}

/// Memory that the kernel may access. The code that creates a span states what keeps it alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
}

impl Large {
    /// Returns the memory that a receive writes.
    pub(crate) fn span(&mut self) -> Span {
        let room = self.room();
        Span { start: room.as_mut_ptr().cast(), bytes: room.len() }
    }
}

/// Result of an attempt or a completion: a count, a descriptor number, zero, or a negated errno.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) result: i32,
    /// The received bytes of an [`Op::Receive`].
    pub(crate) lease: Option<Lease>,
}

impl Outcome {
    #[inline]
    pub(crate) fn of(result: i32) -> Outcome {
        Outcome { result, lease: None }
    }

    /// Returns the result of a receive: the bytes (none at the end of the stream), or a negated errno.
    #[inline]
    pub(crate) fn received(self) -> Result<Lease, i32> {
        match self {
            Outcome { lease: Some(lease), .. } => Ok(lease),
            Outcome { result, .. } if result < 0 => Err(result),
            Outcome { .. } => Ok(Lease::nothing()),
        }
    }
}

impl From<Result<Lease, i32>> for Outcome {
    fn from(received: Result<Lease, i32>) -> Outcome {
        match received {
            Ok(lease) if lease.is_empty() => Outcome::of(0),
            Ok(lease) => Outcome { result: lease.len() as i32, lease: Some(lease) },
            Err(errno) => Outcome::of(errno),
        }
    }
}

/// News from a driver about a submitted operation.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) token: Token,
    pub(crate) news: News,
}

/// Content of a completion.
#[derive(Debug)]
pub(crate) enum News {
    /// Nothing was transferred, but an attempt may succeed now. The driver has released a one-shot operation:
    /// it is attempted again, and submitted again if it would block.
    Ready,
    /// One result of a standing operation; more will follow.
    Item(Outcome),
    /// The last result: the driver and the kernel no longer use anything the operation names.
    Last(Outcome),
}

/// Address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    V4,
    V6,
    Unix,
}

/// Type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    Stream,
    Datagrams,
}

/// A request that never waits.
#[derive(Debug)]
pub(crate) enum Call<'a> {
    Socket {
        domain: Domain,
        carries: Carries,
    },
    /// Creates two connected Unix sockets.
    Pair {
        carries: Carries,
    },
    /// Makes a socket that came from outside non-blocking, for every descriptor that shares it.
    Adopt {
        on: Target,
    },
    Bind {
        on: Target,
        address: &'a SockAddr,
    },
    /// Connects a datagram socket or a Unix socket, which never waits (EAGAIN: not possible now).
    Join {
        on: Target,
        address: &'a SockAddr,
    },
    /// Sends one datagram now, or returns EAGAIN.
    SendTo {
        on: Target,
        bytes: &'a [u8],
        address: &'a SockAddr,
    },
    /// Removes the file of a Unix socket; ENOTSOCK, without effect, for another kind of file.
    RemoveSocketFile {
        path: &'a std::path::Path,
    },
    /// Looks whether there is something to be received on a stream, and takes nothing (`MSG_PEEK`). EAGAIN:
    /// there is nothing. The end of the stream is something.
    Peek {
        on: Target,
    },
    Listen {
        on: Target,
        backlog: i32,
    },
    SetOption {
        on: Target,
        option: SocketOption,
    },
    /// Reads the current value of this option; the given value is ignored.
    GetOption {
        on: Target,
        option: SocketOption,
    },
    /// Enters or leaves a multicast group.
    Group {
        on: Target,
        membership: Membership,
    },
    LocalName {
        on: Target,
    },
    PeerName {
        on: Target,
    },
    /// The credentials of a Unix socket's peer when it connected or listened (SO_PEERCRED).
    PeerCredentials {
        on: Target,
    },
    Shutdown {
        on: Target,
        how: Shutdown,
    },
    /// Makes the next close reset the peer instead of ending the stream.
    Reset {
        on: Target,
    },
    /// Closes a descriptor. None of its operations is with the driver.
    Close {
        on: Target,
        descriptor: Descriptor,
    },
}

impl Call<'_> {
    /// Returns the descriptor of the call, if it has one already.
    pub(crate) fn target(&self) -> Option<Target> {
        match *self {
            Call::Socket { .. } | Call::Pair { .. } | Call::RemoveSocketFile { .. } => None,
            Call::Adopt { on }
            | Call::Bind { on, .. }
            | Call::Join { on, .. }
            | Call::SendTo { on, .. }
            | Call::Peek { on }
            | Call::Listen { on, .. }
            | Call::SetOption { on, .. }
            | Call::GetOption { on, .. }
            | Call::Group { on, .. }
            | Call::LocalName { on }
            | Call::PeerName { on }
            | Call::PeerCredentials { on }
            | Call::Shutdown { on, .. }
            | Call::Reset { on }
            | Call::Close { on, .. } => Some(on),
        }
    }

    /// Returns the name of the system call.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Call::Socket { .. } => "socket",
            Call::Adopt { .. } => "ioctl",
            Call::Pair { .. } => "socketpair",
            Call::Bind { .. } => "bind",
            Call::Join { .. } => "connect",
            Call::SendTo { .. } => "sendto",
            Call::Peek { .. } => "recv",
            Call::RemoveSocketFile { .. } => "unlink",
            Call::Listen { .. } => "listen",
            Call::SetOption { .. } | Call::Group { .. } | Call::Reset { .. } => "setsockopt",
            Call::GetOption { .. } | Call::PeerCredentials { .. } => "getsockopt",
            Call::LocalName { .. } => "getsockname",
            Call::PeerName { .. } => "getpeername",
            Call::Shutdown { .. } => "shutdown",
            Call::Close { .. } => "close",
        }
    }
}

/// Result of a [`Call`].
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Descriptor(Descriptor),
    Pair(Descriptor, Descriptor),
    Name(Address),
    Option(SocketOption),
    Credentials(Credentials),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

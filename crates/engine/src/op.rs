//! Operations: the closed list of what a program can ask of a driver, as plain data.
//!
//! Two kinds. A [`Call`] never waits (make a socket, set an option, close): it is answered at once. An [`Op`]
//! may wait for a peer: it is attempted, and if it cannot be done now it is submitted under a [`Token`] and
//! answered later by a [`Completion`].
//!
//! This file names no driver. A new operation is a variant here, a row in `sys`, and an arm in each of the
//! interpretations (readiness, io_uring, sim); the compiler names the missing ones.

mod file;

pub(crate) use crate::descriptor::Target;
pub(crate) use file::{FileOp, Path};

use crate::address::Address;
use crate::descriptor::Descriptor;
use crate::option::{Credentials, Membership, SocketOption};
use crate::pool::Lease;
use socket2::SockAddr;
use std::fmt;
use std::fs::File;
use std::net::Shutdown;
use std::rc::Rc;

/// Names one life of one slot: an index, and the generation that tells it from earlier lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Token {
    /// As one word, for the kernel to carry.
    #[inline]
    pub(crate) fn to_bits(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.index)
    }

    /// Back from [`Token::to_bits`].
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Token {
        Token { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// What kind of operation a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Connections, one after another, until cancelled.
    Accept,
    Connect,
    /// Leases of received bytes, one after another, until cancelled or the end.
    Receive,
    /// One receive into memory of the caller's.
    ReceiveInto,
    Send,
    SendVectored,
    SendFile,
    /// One datagram, with the name of its sender.
    ReceiveMessage,
    /// One datagram, to the connected peer or to an address of its own.
    SendMessage,
    /// The same on a Unix socket, where it may have to wait for room at the receiver.
    SendUnixMessage,
    /// An operation on a file that brings a descriptor.
    Open,
    /// Any other on a file.
    File,
}

impl Kind {
    /// May complete more than once: it stays with the driver and brings items.
    #[inline]
    pub(crate) fn is_standing(self) -> bool {
        matches!(self, Kind::Accept | Kind::Receive)
    }

    /// Waits for something to come in. A descriptor has one operation at a time that does, and one that does not.
    #[inline]
    pub(crate) fn is_inward(self) -> bool {
        match self {
            Kind::Accept | Kind::Receive | Kind::ReceiveInto | Kind::ReceiveMessage => true,
            Kind::Connect
            | Kind::Send
            | Kind::SendVectored
            | Kind::SendFile
            | Kind::SendMessage
            | Kind::SendUnixMessage => false,
            Kind::Open | Kind::File => unreachable!("a file operation is about no descriptor of the table"),
        }
    }

    /// The name of the system call that does this.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Accept => "accept",
            Kind::Connect => "connect",
            Kind::Receive | Kind::ReceiveInto => "recv",
            Kind::Send => "send",
            Kind::SendFile => "sendfile",
            Kind::ReceiveMessage => "recvmsg",
            Kind::SendVectored | Kind::SendMessage | Kind::SendUnixMessage => "sendmsg",
            Kind::Open => "openat",
            Kind::File => "file",
        }
    }
}

/// An operation that may wait. What it points to is owned by the slot it was submitted under, which keeps it in
/// place until the last completion; during an attempt, by the caller.
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
    /// The same of a stream that brings much: one lease and no more, and what was not asked for stays with the kernel.
    ReceiveOne {
        on: Target,
    },
    ReceiveInto {
        on: Target,
        memory: Span,
    },
    /// Sends all of it if it can; fewer is not an error. `whole`: the driver may wait for room for all of it;
    /// otherwise for any.
    Send {
        on: Target,
        bytes: Span,
        whole: bool,
    },
    /// The same of bytes that never change: a driver may become another owner of them, and have the kernel read them for
    /// longer than the operation takes.
    SendLasting {
        on: Target,
        bytes: Span,
        whole: bool,
        owner: Lasting<'a>,
    },
    /// As `Send`.
    SendVectored {
        on: Target,
        message: &'a libc::msghdr,
    },
    /// Sends bytes of a file, from `at` on, as many as go: at least one, or ENODATA where the file has ended.
    SendFile {
        on: Target,
        file: &'a File,
        at: u64,
        bytes: usize,
    },
    /// Receives one datagram into what `message` names, and the sender's name with it; answers with the datagram's
    /// whole length, also where there was no room for all of it.
    ReceiveMessage {
        on: Target,
        message: *mut libc::msghdr,
    },
    /// Sends one datagram, whole or not at all.
    SendMessage {
        on: Target,
        message: &'a libc::msghdr,
    },
    /// Likewise.
    SendUnixMessage {
        on: Target,
        message: &'a libc::msghdr,
    },
    /// It is about no descriptor of the table, and any number of them may be under way on one file.
    File(FileOp),
}

impl Op<'_> {
    /// The descriptor it is about.
    #[inline]
    pub(crate) fn target(&self) -> Target {
        match *self {
            Op::Accept { on }
            | Op::Connect { on, .. }
            | Op::Receive { on }
            | Op::ReceiveOne { on }
            | Op::ReceiveInto { on, .. }
            | Op::Send { on, .. }
            | Op::SendLasting { on, .. }
            | Op::SendVectored { on, .. }
            | Op::SendFile { on, .. }
            | Op::ReceiveMessage { on, .. }
            | Op::SendMessage { on, .. }
            | Op::SendUnixMessage { on, .. } => on,
            Op::File(_) => Target::NONE,
        }
    }

    /// Which it is.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Op::Accept { .. } => Kind::Accept,
            Op::Connect { .. } => Kind::Connect,
            Op::Receive { .. } | Op::ReceiveOne { .. } => Kind::Receive,
            Op::ReceiveInto { .. } => Kind::ReceiveInto,
            Op::Send { .. } | Op::SendLasting { .. } => Kind::Send,
            Op::SendVectored { .. } => Kind::SendVectored,
            Op::SendFile { .. } => Kind::SendFile,
            Op::ReceiveMessage { .. } => Kind::ReceiveMessage,
            Op::SendMessage { .. } => Kind::SendMessage,
            Op::SendUnixMessage { .. } => Kind::SendUnixMessage,
            Op::File(op) if op.opens() => Kind::Open,
            Op::File(_) => Kind::File,
        }
    }
}

/// Whose bytes it is that never change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lasting<'a> {
    /// Everybody's, for ever.
    Static,
    /// Of all who count themselves here: as long as one does, nobody has a way to write them.
    Shared(&'a Rc<[u8]>),
}

/// Memory the kernel may touch. Who keeps it alive is said where it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
}

/// What an attempt came to, or one completion: a count, a descriptor number, zero, or a negated errno.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) result: i32,
    /// The received bytes, for a [`Op::Receive`] that brought some.
    pub(crate) lease: Option<Lease>,
}

impl Outcome {
    #[inline]
    pub(crate) fn of(result: i32) -> Outcome {
        Outcome { result, lease: None }
    }

    /// As that of a receive: the bytes, none at the end of the stream, or a negated errno.
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

/// What the news is.
#[derive(Debug)]
pub(crate) enum News {
    /// Nothing was done yet, but an attempt may succeed now. For a one-shot operation the driver has let go of
    /// it: it is attempted, and if need be submitted, again.
    Ready,
    /// One result of a standing operation; more will follow.
    Item(Outcome),
    /// The last result: the driver and the kernel have let go of everything the operation names.
    Last(Outcome),
}

/// Whose addresses a socket has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    V4,
    V6,
    Unix,
}

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    Stream,
    Datagrams,
}

/// Something that never waits.
#[derive(Debug)]
pub(crate) enum Call<'a> {
    Socket {
        domain: Domain,
        carries: Carries,
    },
    /// Two Unix sockets, each the other's peer.
    Pair {
        carries: Carries,
    },
    /// Makes a socket that came from outside fit for the driver (blocking or not, as it needs).
    Adopt {
        on: Target,
    },
    Bind {
        on: Target,
        address: &'a SockAddr,
    },
    /// Connects what is connected at once, or not at all (EAGAIN: not now): a datagram socket, or a Unix one.
    Join {
        on: Target,
        address: &'a SockAddr,
    },
    /// Sends one datagram now, or says EAGAIN.
    SendTo {
        on: Target,
        bytes: &'a [u8],
        address: &'a SockAddr,
    },
    /// Removes the file of a Unix socket; ENOTSOCK, with nothing done, if it is another kind of file.
    RemoveSocketFile {
        path: &'a std::path::Path,
    },
    Listen {
        on: Target,
        backlog: i32,
    },
    SetOption {
        on: Target,
        option: SocketOption,
    },
    /// The current value of the same option; the value inside is ignored.
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
    /// Who the peer of a Unix socket was when it connected, or listened.
    PeerCredentials {
        on: Target,
    },
    Shutdown {
        on: Target,
        how: Shutdown,
    },
    /// Has the close that comes next tell the peer of a reset instead of an end.
    Reset {
        on: Target,
    },
    /// Nothing of this descriptor is with the driver any more.
    Close {
        on: Target,
        descriptor: Descriptor,
    },
}

impl Call<'_> {
    /// The descriptor it is about, if there is one already.
    pub(crate) fn target(&self) -> Option<Target> {
        match *self {
            Call::Socket { .. } | Call::Pair { .. } | Call::RemoveSocketFile { .. } => None,
            Call::Adopt { on }
            | Call::Bind { on, .. }
            | Call::Join { on, .. }
            | Call::SendTo { on, .. }
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

    /// The system call's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Call::Socket { .. } => "socket",
            Call::Adopt { .. } => "fcntl",
            Call::Pair { .. } => "socketpair",
            Call::Bind { .. } => "bind",
            Call::Join { .. } => "connect",
            Call::SendTo { .. } => "sendto",
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

/// The answer to a [`Call`].
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

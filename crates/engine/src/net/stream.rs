//! Streams: connections of any family, and the futures of their operations.

use super::family::Family;
use super::socket::Socket;
use super::{Canceller, Detached, Inet, SocketOption};
use crate::buf::{Buf, IoBuf, IoBufMut, Loan};
use crate::descriptor::{Entry, Mark};
use crate::error::{Error, Result};
use crate::exec::Core;
use crate::file_part::FilePart;
use crate::inflight::{Memory, Vectors};
use crate::io::{OneShot, Sending};
use crate::op::Kind;
use crate::pool::Lease;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A connection: a [`TcpStream`](super::TcpStream) or a [`UnixStream`](super::UnixStream).
///
/// One receive and one send may be in flight at a time, which the borrows enforce; [`split`](Self::split)
/// lets two tasks do one each. Dropping it closes it; bytes already sent are still delivered (`close(2)`).
#[derive(Debug)]
pub struct Stream<F> {
    socket: Socket,
    family: PhantomData<fn() -> F>,
}

// Memory of an idle connection in this type.
const _: () = assert!(size_of::<Stream<super::Inet>>() == 16);

impl<F: Family> Stream<F> {
    /// Takes over a connection that was created elsewhere. It becomes non-blocking, for every descriptor that
    /// shares it.
    ///
    /// # Errors
    /// `ioctl(2)` fails.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn from_std(stream: F::StdStream) -> Result<Stream<F>> {
        Ok(Stream::new(Socket::adopt(Core::current(F::STREAM), stream.into())?))
    }

    pub(super) fn new(socket: Socket) -> Stream<F> {
        if F::STOPS_SHORT {
            // After the runtime's shutdown nothing is received.
            let _ = socket.with_io(crate::io::Io::stops_short);
        }
        Stream { socket, family: PhantomData }
    }

    /// Takes the connection out of its runtime, to be [attached](Detached::attach) to another, which may have
    /// another driver. Nothing is lost: bytes that the kernel, a worker or the engine has received move with
    /// it.
    ///
    /// Cancels operations in flight and waits for their last completions. These can be a receive that no task
    /// waits for, or a send after its future was dropped; such a send leaves the sending side broken. An
    /// awaited send borrows the stream and has to end first. Halves are joined with [`ReadHalf::reunite`]. An
    /// existing [`Canceller`] has no effect any more.
    ///
    /// Dropping the future closes the connection, as dropping the stream does.
    ///
    /// # Errors
    /// ECANCELED: the runtime has been shut down, and with it the connection. EOPNOTSUPP: it is
    /// [direct](super::TcpStream::is_direct), which is permanent; the connection is closed.
    pub async fn detach(self) -> Result<Detached<Stream<F>>> {
        Detached::new(self.socket).await
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Takes a connection out of its runtime, in blocking mode, like one created by std. Possible only before
    /// the first receive: bytes that the engine has, or that the kernel may be writing, cannot move with it.
    ///
    /// # Errors
    /// EBUSY: bytes were received, or a receive is in flight. EOPNOTSUPP: it is direct. The stream is
    /// returned.
    pub fn into_std(mut self) -> std::result::Result<F::StdStream, (Error, Stream<F>)> {
        match self.socket.take_out(Entry::is_untouched, true) {
            Ok(fd) => Ok(F::StdStream::from(fd)),
            Err(why) => Err((why, self)),
        }
    }

    /// Receives the next bytes, in the buffer they arrived in; none at the end of the stream.
    ///
    /// A waiting connection holds no buffer. Dropping the future loses nothing.
    ///
    /// # Errors
    /// ECONNRESET, ETIMEDOUT; ECANCELED by a [`Canceller`].
    #[inline]
    pub fn recv(&mut self) -> Recv<'_> {
        Recv { socket: &self.socket, waits: false }
    }

    /// Works as [`recv`](Self::recv), for a hand-written future. On `Pending` the task is woken when there is
    /// something to receive; it stays registered until the next receive of this stream, or its end.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[inline]
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        poll_recv(&self.socket, context)
    }

    /// Works as [`poll_recv`](Self::poll_recv). If the second value is true, no more bytes can be received
    /// now, and the task is registered for the next ones. A task that returns `Pending` from the same poll
    /// need not call this again first. After any other wait it must.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[inline]
    pub fn poll_recv_parked(&mut self, context: &mut Context<'_>) -> Poll<Result<(Lease, bool)>> {
        let socket = &self.socket;
        let polled = socket.poll(Kind::Receive, context.waker(), |io, index, caller| {
            io.poll_receive_and::<true>(index, caller)
        });
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(received))) => Poll::Ready(Ok(received)),
            Ok(Poll::Ready(Err(errno))) => Poll::Ready(Err(socket.error(Kind::Receive, errno))),
            Err(why) => Poll::Ready(Err(why)),
        }
    }

    /// Returns whether nothing is to be received now: no bytes, no end of the stream, no error. The answer is
    /// current on every driver, even if no receive was requested before. It takes one system call (`recv(2)`
    /// with `MSG_PEEK`) and consumes nothing.
    ///
    /// For connections that are kept between exchanges: one that is not quiet cannot carry another. A poll of
    /// [`recv`](Self::recv) is less exact: on io_uring `Pending` may mean that the kernel was asked just now.
    ///
    /// Also returns `false` if it cannot be known: after the runtime's shutdown, and for a
    /// [direct](super::TcpStream::is_direct) stream.
    pub fn is_quiet(&mut self) -> bool {
        is_quiet(&self.socket)
    }

    /// Waits until the peer has closed or reset the connection; consumes no bytes.
    ///
    /// Bytes that arrive meanwhile are kept for the next receive. Once 64 KiB are kept, the connection is not
    /// watched any more and the future stays pending: the kernel does not report an end behind bytes that
    /// were not received. Dropping the future loses nothing.
    ///
    /// [`PeerGone::Ended`] may be half a close (`shutdown(2)`): such a peer still reads. After a reset
    /// nothing that is sent can arrive.
    ///
    /// # Errors
    /// ECANCELED by a [`Canceller`].
    pub fn hangup(&mut self) -> Hangup<'_> {
        Hangup { socket: &self.socket, waits: false }
    }

    /// Receives into the spare capacity of `buffer`; returns it with the number of appended bytes. 0 means
    /// the end of the stream, unless there was no spare capacity.
    ///
    /// Dropping the future loses only the buffer: bytes that arrive anyway go to the next receive.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_into<B: IoBufMut>(&mut self, buffer: B) -> RecvInto<'_, B> {
        RecvInto::new(&self.socket, buffer)
    }

    /// Sends all of `bytes`; returns the buffer, also on an error.
    ///
    /// Success means that the kernel has taken the bytes. Dropping the future breaks the sending side, unless
    /// nothing was sent.
    ///
    /// # Errors
    /// EMSGSIZE: 4 GiB or more; nothing was sent. EPIPE, ECONNRESET: the peer has closed, or an earlier send
    /// was dropped midway; ECANCELED by a [`Canceller`], after which it is unknown how much was sent.
    #[inline]
    pub fn write_all<B: IoBuf>(&mut self, bytes: B) -> Write<'_, B> {
        Write::new(&self.socket, bytes, true)
    }

    /// Sends as much of `bytes` as possible now, without waiting; returns the number of bytes. `None`:
    /// nothing was sent, because there is no room, the connection has failed, the task's budget is used up,
    /// or the driver does not attempt sends (io_uring). [`write_all`](Self::write_all) then returns the
    /// reason; after a part continue with [`write_from`](Self::write_from).
    #[inline]
    pub fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        self.socket.with_io(|io, index| io.try_send(index, bytes)).flatten()
    }

    /// Works as [`write_all`](Self::write_all), for a hand-written future that owns the stream: polls `send`,
    /// which was made by [`SendState::new`]. On `Pending` the task is woken when the send can continue.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    ///
    /// # Panics
    /// `send` has completed, or was polled on another stream.
    #[inline]
    pub fn poll_send<B: IoBuf>(
        &mut self,
        send: &mut SendState<B>,
        context: &mut Context<'_>,
    ) -> Poll<(Result<()>, B)> {
        send.poll(&self.socket, context)
    }

    /// Sends as much of `bytes` as possible, at least one byte unless it is empty; returns the buffer and the
    /// number of bytes sent.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub fn write<B: IoBuf>(&mut self, bytes: B) -> Write<'_, B, u32> {
        Write::new(&self.socket, bytes, false)
    }

    /// Sends as much as possible of `bytes` from offset `from` on, at least one byte; returns the buffer and
    /// the number of its bytes sent so far, including those before `from`. So a large buffer can be sent in
    /// steps, each with its own deadline, without being cut or copied.
    ///
    /// Dropping the future breaks the sending side, unless nothing of the buffer was sent, including before
    /// `from`.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub fn write_from<B: IoBuf>(&mut self, bytes: B, from: usize) -> Write<'_, B, u32> {
        Write::starting_at(&self.socket, bytes, from)
    }

    /// Sends all of several buffers in order, with as few system calls as the kernel allows (1024 buffers
    /// each); returns them.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub fn write_vectored_all<B: IoBuf>(&mut self, buffers: Vec<B>) -> Write<'_, Vec<B>> {
        Write::vectored(&self.socket, buffers)
    }

    /// Returns whether [`write_all`](Self::write_all), [`write`](Self::write) or
    /// [`write_from`](Self::write_from) of `bytes` immutable bytes (`&'static [u8]`, `Rc<[u8]>`, `Arc<[u8]>`)
    /// would now be zero-copy. A caller with a head to send before the bytes then sends the head separately.
    ///
    /// Only on io_uring; see [`ZeroCopy`](crate::ZeroCopy). The result is the same, and arrives as early,
    /// either way: the runtime is another owner of the bytes until the kernel no longer reads them.
    pub fn sends_without_copy(&self, bytes: usize) -> bool {
        self.socket.with_io(|io, index| io.sends_without_copy(index, bytes)).unwrap_or(false)
    }

    /// Sends as much of a part of a file as possible, at least one byte unless it is empty, without a copy
    /// through user space (`sendfile(2)`). Returns the rest of the part, and the number of bytes sent.
    ///
    /// Bytes that are not in the page cache are read from the disk first, which blocks the runtime. Read them
    /// ahead if that matters.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all). ENODATA: the file has ended before the part. EIO: it could not be
    /// read. EOPNOTSUPP: the stream is direct.
    pub fn send_file(&mut self, part: FilePart) -> Write<'_, FilePart, u32> {
        Write::file(&self.socket, part)
    }

    /// Shuts down one direction or both (`shutdown(2)`). `Write` sends the end of the stream to the peer.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn shutdown(&mut self, how: Shutdown) -> Result<()> {
        self.socket.shutdown(how)
    }

    /// Cancels what is pending, waits for its last completion, and closes.
    pub async fn close(self) {
        self.socket.close().await;
    }

    /// Returns a handle that cancels operations on this stream.
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(false)
    }

    /// Returns another descriptor of this connection (`F_DUPFD_CLOEXEC`), for what has no method here: any
    /// option through `socket2::SockRef`, `ioctl(2)`, passing it to another process. Do not read from it,
    /// write to it or change its blocking mode: it shares all of that with this one.
    ///
    /// # Errors
    /// EMFILE. EOPNOTSUPP: it is direct, or simulated.
    pub fn duplicate_fd(&self) -> Result<OwnedFd> {
        self.socket.duplicate()
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// `getsockname(2)` fails.
    pub fn local_addr(&self) -> Result<F::Address> {
        self.socket.local_addr::<F>()
    }

    /// Returns the peer's address. Each call asks the kernel; nothing is stored.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn peer_addr(&self) -> Result<F::Address> {
        self.socket.peer_addr::<F>()
    }

    /// Sets an option.
    ///
    /// # Errors
    /// `setsockopt(2)` fails; the error names the option.
    pub fn set_option(&self, option: SocketOption) -> Result<()> {
        self.socket.set(option)
    }

    /// Reads an option; the value inside `option` is ignored.
    ///
    /// # Errors
    /// `getsockopt(2)` fails; the error names the option.
    pub fn option(&self, option: SocketOption) -> Result<SocketOption> {
        self.socket.get(option)
    }

    /// Splits the connection into a half for each direction, for two tasks. The connection is closed when
    /// both halves are dropped.
    pub fn split(self) -> (ReadHalf<F>, WriteHalf<F>) {
        let (socket, family) = (Rc::new(self.socket), self.family);
        (ReadHalf { socket: Rc::clone(&socket), family }, WriteHalf { socket, family })
    }
}

/// The receiving half of a connection. See [`Stream::split`].
#[derive(Debug)]
pub struct ReadHalf<F = Inet> {
    socket: Rc<Socket>,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> ReadHalf<F> {
    /// Joins both halves of a connection again.
    ///
    /// # Errors
    /// The halves belong to different connections; both are returned.
    pub fn reunite(self, other: WriteHalf<F>) -> std::result::Result<Stream<F>, (ReadHalf<F>, WriteHalf<F>)> {
        if !Rc::ptr_eq(&self.socket, &other.socket) {
            return Err((self, other));
        }
        drop(other);
        // There are never more than two owners.
        Rc::try_unwrap(self.socket)
            .map(Stream::new)
            .map_err(|_| unreachable!("a connection has two halves, and futures of theirs borrow them"))
    }

    /// Works as [`Stream::recv`].
    pub fn recv(&mut self) -> Recv<'_> {
        Recv { socket: &self.socket, waits: false }
    }

    /// Works as [`Stream::recv_into`].
    pub fn recv_into<B: IoBufMut>(&mut self, buffer: B) -> RecvInto<'_, B> {
        RecvInto::new(&self.socket, buffer)
    }

    /// Works as [`Stream::poll_recv`].
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        poll_recv(&self.socket, context)
    }

    /// Works as [`Stream::is_quiet`].
    pub fn is_quiet(&mut self) -> bool {
        is_quiet(&self.socket)
    }

    /// Works as [`Stream::hangup`].
    pub fn hangup(&mut self) -> Hangup<'_> {
        Hangup { socket: &self.socket, waits: false }
    }

    /// Works as [`Stream::canceller`]: ends what is awaited on both halves.
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(false)
    }

    /// Works as [`Stream::local_addr`].
    ///
    /// # Errors
    /// As [`Stream::local_addr`].
    pub fn local_addr(&self) -> Result<F::Address> {
        self.socket.local_addr::<F>()
    }

    /// Works as [`Stream::peer_addr`].
    ///
    /// # Errors
    /// As [`Stream::peer_addr`].
    pub fn peer_addr(&self) -> Result<F::Address> {
        self.socket.peer_addr::<F>()
    }

    /// Works as [`Stream::set_option`]: an option belongs to the connection, and so to both halves.
    ///
    /// # Errors
    /// As [`Stream::set_option`].
    pub fn set_option(&self, option: SocketOption) -> Result<()> {
        self.socket.set(option)
    }

    /// Works as [`Stream::option`].
    ///
    /// # Errors
    /// As [`Stream::option`].
    pub fn option(&self, option: SocketOption) -> Result<SocketOption> {
        self.socket.get(option)
    }
}

/// The sending half of a connection. See [`Stream::split`].
#[derive(Debug)]
pub struct WriteHalf<F = Inet> {
    socket: Rc<Socket>,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> WriteHalf<F> {
    /// Works as [`Stream::write_all`].
    pub fn write_all<B: IoBuf>(&mut self, bytes: B) -> Write<'_, B> {
        Write::new(&self.socket, bytes, true)
    }

    /// Works as [`Stream::write`].
    pub fn write<B: IoBuf>(&mut self, bytes: B) -> Write<'_, B, u32> {
        Write::new(&self.socket, bytes, false)
    }

    /// Works as [`Stream::write_from`].
    pub fn write_from<B: IoBuf>(&mut self, bytes: B, from: usize) -> Write<'_, B, u32> {
        Write::starting_at(&self.socket, bytes, from)
    }

    /// Works as [`Stream::write_vectored_all`].
    pub fn write_vectored_all<B: IoBuf>(&mut self, buffers: Vec<B>) -> Write<'_, Vec<B>> {
        Write::vectored(&self.socket, buffers)
    }

    /// Works as [`Stream::try_write`].
    #[inline]
    pub fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        self.socket.with_io(|io, index| io.try_send(index, bytes)).flatten()
    }

    /// Works as [`Stream::poll_send`].
    pub fn poll_send<B: IoBuf>(
        &mut self,
        send: &mut SendState<B>,
        context: &mut Context<'_>,
    ) -> Poll<(Result<()>, B)> {
        send.poll(&self.socket, context)
    }

    /// Works as [`Stream::sends_without_copy`].
    pub fn sends_without_copy(&self, bytes: usize) -> bool {
        self.socket.with_io(|io, index| io.sends_without_copy(index, bytes)).unwrap_or(false)
    }

    /// Works as [`Stream::send_file`].
    pub fn send_file(&mut self, part: FilePart) -> Write<'_, FilePart, u32> {
        Write::file(&self.socket, part)
    }

    /// Sends the end of the stream to the peer.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn shutdown(&mut self) -> Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// Works as [`Stream::canceller`]: ends what is awaited on both halves.
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(false)
    }

    /// Works as [`Stream::local_addr`].
    ///
    /// # Errors
    /// As [`Stream::local_addr`].
    pub fn local_addr(&self) -> Result<F::Address> {
        self.socket.local_addr::<F>()
    }

    /// Works as [`Stream::peer_addr`].
    ///
    /// # Errors
    /// As [`Stream::peer_addr`].
    pub fn peer_addr(&self) -> Result<F::Address> {
        self.socket.peer_addr::<F>()
    }

    /// Works as [`Stream::set_option`]: an option belongs to the connection, and so to both halves.
    ///
    /// # Errors
    /// As [`Stream::set_option`].
    pub fn set_option(&self, option: SocketOption) -> Result<()> {
        self.socket.set(option)
    }

    /// Works as [`Stream::option`].
    ///
    /// # Errors
    /// As [`Stream::option`].
    pub fn option(&self, option: SocketOption) -> Result<SocketOption> {
        self.socket.get(option)
    }
}

/// Future of [`Stream::recv`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Recv<'a> {
    socket: &'a Socket,
    waits: bool,
}

impl Future for Recv<'_> {
    type Output = Result<Lease>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = poll_recv(self.socket, context);
        self.waits = polled.is_pending();
        polled
    }
}

fn is_quiet(socket: &Socket) -> bool {
    socket.with_io(|io, index| io.is_quiet(index)).unwrap_or(false)
}

#[inline]
fn poll_recv(socket: &Socket, context: &mut Context<'_>) -> Poll<Result<Lease>> {
    let polled =
        socket.poll(Kind::Receive, context.waker(), |io, index, caller| io.poll_receive(index, caller));
    match polled {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(Ok(lease))) => Poll::Ready(Ok(lease)),
        Ok(Poll::Ready(Err(errno))) => Poll::Ready(Err(socket.error(Kind::Receive, errno))),
        Err(why) => Poll::Ready(Err(why)),
    }
}

impl Drop for Recv<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.waits {
            self.socket.with_io(|io, index| io.leave_standing(index));
        }
    }
}

/// The way in which a peer has closed: see [`Stream::hangup`].
#[derive(Debug)]
pub enum PeerGone {
    /// The peer has closed the connection, or its sending side.
    Ended,
    /// The connection is broken: ECONNRESET, ETIMEDOUT or another error of the network.
    Reset(Error),
}

/// Future of [`Stream::hangup`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Hangup<'a> {
    socket: &'a Socket,
    waits: bool,
}

impl Future for Hangup<'_> {
    type Output = Result<PeerGone>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let socket = self.socket;
        let polled =
            socket.poll(Kind::Receive, context.waker(), |io, index, caller| io.poll_hangup(index, caller));
        self.waits = matches!(polled, Ok(Poll::Pending));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(0)) => Poll::Ready(Ok(PeerGone::Ended)),
            Ok(Poll::Ready(errno)) => {
                let why = socket.error(Kind::Receive, errno);
                Poll::Ready(if why.is_cancelled() { Err(why) } else { Ok(PeerGone::Reset(why)) })
            }
            Err(why) => Poll::Ready(Err(why)),
        }
    }
}

impl Drop for Hangup<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.socket.with_io(|io, index| io.leave_standing(index));
        }
    }
}

/// Future of [`Stream::recv_into`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct RecvInto<'a, B: IoBufMut> {
    socket: &'a Socket,
    operation: OneShot,
    waits: bool,
    buffer: PhantomData<B>,
}

impl<'a, B: IoBufMut> RecvInto<'a, B> {
    fn new(socket: &'a Socket, buffer: B) -> Self {
        let operation = OneShot::Fresh(Memory::Buf(buffer.into_buf().0));
        RecvInto { socket, operation, waits: false, buffer: PhantomData }
    }
}

impl<B: IoBufMut + Unpin> Future for RecvInto<'_, B> {
    type Output = (Result<usize>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let operation = &mut this.operation;
        let polled = this.socket.poll(Kind::ReceiveInto, context.waker(), |io, index, caller| {
            let polled = io.poll_receive_into(index, operation, caller);
            polled.map(|result| result.map_err(|errno| io.error(Kind::ReceiveInto, index, errno)))
        });
        let polled = match polled {
            Ok(Poll::Pending) => {
                this.waits = true;
                return Poll::Pending;
            }
            Ok(Poll::Ready(result)) => {
                this.waits = false;
                result
            }
            // A submitted operation stays in flight until it is dropped.
            Err(why) => Err(why),
        };
        let memory = match &mut this.operation {
            OneShot::Fresh(memory) | OneShot::Over(memory) => std::mem::replace(memory, Memory::None),
            OneShot::InFlight(_) => Memory::None,
        };
        Poll::Ready((polled, B::from_buf(Loan(buf_of(memory)))))
    }
}

impl<B: IoBufMut> Drop for RecvInto<'_, B> {
    fn drop(&mut self) {
        if self.waits {
            self.socket.with_io(|io, index| match &self.operation {
                OneShot::Fresh(_) => io.leave_standing(index),
                operation => io.drop_one_shot(index, operation),
            });
        }
    }
}

pub(super) fn buf_of(memory: Memory) -> Buf {
    match memory {
        Memory::Buf(buf) => buf,
        _ => Buf::Static(&[]),
    }
}

/// Future of [`Stream::write_all`], [`write`](Stream::write) and
/// [`write_vectored_all`](Stream::write_vectored_all).
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Write<'a, B, R = ()> {
    socket: &'a Socket,
    sending: Sending,
    all: bool,
    types: PhantomData<(B, R)>,
}

impl<'a, B: IoBuf, R> Write<'a, B, R> {
    #[inline]
    fn new(socket: &'a Socket, bytes: B, all: bool) -> Self {
        let memory = Memory::Buf(bytes.into_buf().0);
        Write { socket, sending: Sending::new(memory), all, types: PhantomData }
    }
}

impl<'a, B: IoBuf> Write<'a, B, u32> {
    fn starting_at(socket: &'a Socket, bytes: B, from: usize) -> Self {
        let sending = Sending::starting_at(Memory::Buf(bytes.into_buf().0), from);
        Write { socket, sending, all: false, types: PhantomData }
    }
}

impl<'a, B: IoBuf> Write<'a, Vec<B>> {
    fn vectored(socket: &'a Socket, buffers: Vec<B>) -> Self {
        let bufs = buffers.into_iter().map(|buffer| buffer.into_buf().0).collect();
        let memory = Memory::Vectors(Vectors::new(bufs));
        Write { socket, sending: Sending::new(memory), all: true, types: PhantomData }
    }
}

impl<'a> Write<'a, FilePart, u32> {
    fn file(socket: &'a Socket, part: FilePart) -> Self {
        Write { socket, sending: Sending::new(Memory::File(part)), all: false, types: PhantomData }
    }
}

impl Future for Write<'_, FilePart, u32> {
    type Output = (Result<usize>, FilePart);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_sent(context);
        polled.map(|(sent, memory)| {
            let mut part = match memory {
                Memory::File(part) => part,
                _ => FilePart::lost(),
            };
            part.advance(*sent.as_ref().unwrap_or(&0));
            (sent.map(|sent| sent as usize), part)
        })
    }
}

impl<B, R> Write<'_, B, R> {
    #[inline]
    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<(Result<u32>, Memory)> {
        poll_sent(self.socket, &mut self.sending, self.all, context)
    }
}

#[inline]
fn poll_sent(
    socket: &Socket,
    sending: &mut Sending,
    all: bool,
    context: &mut Context<'_>,
) -> Poll<(Result<u32>, Memory)> {
    let polled = socket
        .poll(Kind::Send, context.waker(), |io, index, caller| io.poll_send(index, sending, all, caller));
    let sent = match polled {
        Ok(Poll::Pending) => return Poll::Pending,
        Ok(Poll::Ready(sent)) => sent.map_err(|errno| send_error(socket, errno)),
        Err(why) => {
            // Handle it like a drop.
            socket.with_io(|io, index| io.drop_send(index, sending));
            sending.end();
            Err(why)
        }
    };
    Poll::Ready((sent, sending.take_memory()))
}

/// A send that borrows nothing, so that an adapter can own it beside its stream: see [`Stream::poll_send`].
///
/// Once it was polled it stays in flight without being polled again. Dropping it then is as dropping the
/// future of [`Stream::write_all`], noticed at the stream's next send or at its end.
#[derive(Debug)]
pub struct SendState<B> {
    sending: Sending,
    /// The runtime's address and the socket's place, once it was polled there. The token is invalid
    /// elsewhere.
    home: Option<(usize, u32)>,
    types: PhantomData<fn() -> B>,
}

impl<B: IoBuf> SendState<B> {
    /// Makes the state of a send of all of `bytes`.
    #[inline]
    pub fn new(bytes: B) -> SendState<B> {
        SendState { sending: Sending::new(Memory::Buf(bytes.into_buf().0)), home: None, types: PhantomData }
    }

    #[inline]
    fn poll(&mut self, socket: &Socket, context: &mut Context<'_>) -> Poll<(Result<()>, B)> {
        let here = socket.place();
        assert_eq!(*self.home.get_or_insert(here), here, "a send is polled on the stream it began on");
        let polled = poll_sent(socket, &mut self.sending, true, context);
        polled.map(|(sent, memory)| (sent.map(|_| ()), B::from_buf(Loan(buf_of(memory)))))
    }
}

#[cold]
fn send_error(socket: &Socket, errno: i32) -> Error {
    let broken = socket.with_io(|io, index| io.table.entry(index).is(Mark::Broken)).unwrap_or(false);
    let error = socket.error(Kind::Send, errno);
    if errno == -libc::ENODATA {
        error.hint("the file has become shorter")
    } else if errno == -libc::EMSGSIZE {
        error.hint("less than 4 GiB can be sent at a time: send it in parts")
    } else if broken {
        error.hint("an earlier send was dropped midway, so the peer has a part of it")
    } else {
        error
    }
}

impl<B: IoBuf + Unpin> Future for Write<'_, B, ()> {
    type Output = (Result<()>, B);

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_sent(context);
        polled.map(|(sent, memory)| (sent.map(|_| ()), B::from_buf(Loan(buf_of(memory)))))
    }
}

impl<B: IoBuf + Unpin> Future for Write<'_, B, u32> {
    type Output = (Result<usize>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_sent(context);
        polled.map(|(sent, memory)| (sent.map(|sent| sent as usize), B::from_buf(Loan(buf_of(memory)))))
    }
}

impl<B: IoBuf + Unpin> Future for Write<'_, Vec<B>, ()> {
    type Output = (Result<()>, Vec<B>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_sent(context);
        polled.map(|(sent, memory)| {
            let bufs = match memory {
                Memory::Vectors(vectors) => vectors.bufs,
                _ => Vec::new(),
            };
            (sent.map(|_| ()), bufs.into_iter().map(|buf| B::from_buf(Loan(buf))).collect())
        })
    }
}

impl<B, R> Drop for Write<'_, B, R> {
    #[inline]
    fn drop(&mut self) {
        if !self.sending.is_over() {
            self.socket.with_io(|io, index| io.drop_send(index, &self.sending));
        }
    }
}

impl<F: Family> fmt::Display for Stream<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.local_addr(), self.peer_addr()) {
            (Ok(local), Ok(peer)) => write!(f, "{local} to {peer}"),
            _ => f.write_str("a connection that is over"),
        }
    }
}

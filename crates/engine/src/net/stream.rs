//! Streams: connections of any family that supports them, and the futures of what is done on them.

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
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A connection: a [`TcpStream`](super::TcpStream) or a [`UnixStream`](super::UnixStream).
///
/// One receive and one send may be under way at a time, which the borrows see to; [`split`](Self::split) lets
/// two tasks have one each. Dropping it closes it; bytes already sent are still delivered (`close(2)`).
#[derive(Debug)]
pub struct Stream<F> {
    socket: Socket,
    family: PhantomData<fn() -> F>,
}

// What an idle connection costs here.
const _: () = assert!(size_of::<Stream<super::Inet>>() == 16);

impl<F: Family> Stream<F> {
    /// Takes over a connection that was made elsewhere.
    ///
    /// # Errors
    /// `fcntl(2)` fails.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn from_std(stream: F::StdStream) -> Result<Stream<F>> {
        Ok(Stream::new(Socket::adopt(Core::current(F::STREAM), stream.into())?))
    }

    pub(super) fn new(socket: Socket) -> Stream<F> {
        if F::STOPS_SHORT {
            // Without a runtime nothing is received.
            let _ = socket.with_io(crate::io::Io::stops_short);
        }
        Stream { socket, family: PhantomData }
    }

    /// Takes the connection out of its runtime, to be [attached](Detached::attach) to another, which may have another
    /// driver. Nothing is lost: what the kernel, a worker or the engine has received goes along.
    ///
    /// Ends what is under way and waits until nothing of the connection is with the driver. That is a receive nobody
    /// waits for, or a send whose future was dropped, after which the sending side is broken, there as here; a send
    /// that is awaited borrows the stream and has to end first. Halves are joined with [`ReadHalf::reunite`].
    /// A [`Canceller`] made before has no effect any more.
    ///
    /// Dropping the future closes the connection, as dropping the stream does.
    ///
    /// # Errors
    /// ECANCELED: the runtime has been shut down, and with it the connection. EOPNOTSUPP: it is
    /// [direct](super::TcpStream::is_direct), which is for good; it is closed.
    pub async fn detach(self) -> Result<Detached<Stream<F>>> {
        Detached::new(self.socket).await
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Takes a connection out of its runtime, for another's [`from_std`](Self::from_std). Only one that nothing was
    /// received from yet: bytes that the engine has, or that the kernel may be writing, cannot go along.
    ///
    /// # Errors
    /// EBUSY: something was received, or is waited for. EOPNOTSUPP: it is direct. The stream comes back.
    pub fn into_std(mut self) -> std::result::Result<F::StdStream, (Error, Stream<F>)> {
        match self.socket.take_out(Entry::is_untouched) {
            Ok(fd) => Ok(F::StdStream::from(fd)),
            Err(why) => Err((why, self)),
        }
    }

    /// The next bytes, in the buffer they arrived in; none at the end of the stream.
    ///
    /// While it waits the connection holds no buffer. Dropping the future loses nothing.
    ///
    /// # Errors
    /// ECONNRESET, ETIMEDOUT; ECANCELED by a [`Canceller`].
    #[inline]
    pub fn recv(&mut self) -> Recv<'_> {
        Recv { socket: &self.socket, waits: false }
    }

    /// Receives into the spare room of `buffer`; gives it back with how many bytes were appended. 0 is the end of
    /// the stream, unless there was no room.
    ///
    /// Dropping the future loses nothing but the buffer: bytes that came are the next receive's.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_into<B: IoBufMut>(&mut self, buffer: B) -> RecvInto<'_, B> {
        RecvInto::new(&self.socket, buffer)
    }

    /// Sends all of `bytes`; gives the buffer back, sent or not.
    ///
    /// Done means that the kernel has taken the bytes. Dropping the future breaks the sending side, unless
    /// nothing was sent.
    ///
    /// # Errors
    /// EMSGSIZE: 4 GiB or more, of which nothing was sent. EPIPE, ECONNRESET: the peer is gone, or an earlier send was dropped midway; ECANCELED by
    /// a [`Canceller`], after which nobody knows how much was sent.
    #[inline]
    pub fn write_all<B: IoBuf>(&mut self, bytes: B) -> Send<'_, B> {
        Send::new(&self.socket, bytes, true)
    }

    /// Sends what goes of `bytes`, at least one byte unless there is none; gives the buffer back with how many
    /// that were.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub fn write<B: IoBuf>(&mut self, bytes: B) -> Send<'_, B, u32> {
        Send::new(&self.socket, bytes, false)
    }

    /// Sends what goes of the bytes of `bytes` from `from` on, at least one; gives the buffer back with how many of
    /// its bytes have been sent by then, those before `from` among them. So a large buffer is sent in steps, each with
    /// a deadline of its own, and is never cut or copied.
    ///
    /// Dropping the future breaks the sending side unless nothing of the buffer was sent, also before `from`.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub fn write_from<B: IoBuf>(&mut self, bytes: B, from: usize) -> Send<'_, B, u32> {
        Send::starting_at(&self.socket, bytes, from)
    }

    /// Sends all of several buffers, one after another, with as few system calls as the kernel allows (1024
    /// buffers each); gives them back.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub fn write_vectored_all<B: IoBuf>(&mut self, buffers: Vec<B>) -> Send<'_, Vec<B>> {
        Send::vectored(&self.socket, buffers)
    }

    /// Whether a send of so many bytes that never change (`&'static [u8]`, `Rc<[u8]>`) would now be made from where they
    /// lie, if it is [`write_all`](Self::write_all), [`write`](Self::write) or [`write_from`](Self::write_from): whoever
    /// has something to send before them then sends that by itself.
    ///
    /// Only on io_uring; see [`ZeroCopy`](crate::ZeroCopy). The result is the same either way, and comes as soon: the
    /// runtime owns the bytes as well until the kernel has read them for the last time.
    pub fn sends_without_copy(&self, bytes: usize) -> bool {
        self.socket.with_io(|io, index| io.sends_without_copy(index, bytes)).unwrap_or(false)
    }

    /// Sends what goes of a part of a file, at least one byte unless there is none, without copying it through here
    /// (`sendfile(2)`): gives back what is left of it, with how many bytes went.
    ///
    /// Bytes that are not in the page cache are read first, and nothing else of this runtime happens meanwhile: see
    /// to it that they are, if that matters.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all). ENODATA: the file has ended before the part. EIO: it could not be read.
    /// EOPNOTSUPP: the stream is direct.
    pub fn send_file(&mut self, part: FilePart) -> Send<'_, FilePart, u32> {
        Send::file(&self.socket, part)
    }

    /// Ends one direction or both (`shutdown(2)`): `Write` tells the peer that no more will come.
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

    /// Ends what others wait for on this stream.
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(false)
    }

    /// Our address.
    ///
    /// # Errors
    /// `getsockname(2)` fails.
    pub fn local_addr(&self) -> Result<F::Address> {
        self.socket.local_addr::<F>()
    }

    /// The peer's address. Asked of the kernel, each time: a connection that nobody asks about costs neither a call
    /// nor the memory.
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

    /// A half for each direction, so that two tasks can work on them. The connection is closed when both are
    /// dropped.
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
    /// The whole connection again, from both of its halves.
    ///
    /// # Errors
    /// They are of two connections, and come back.
    pub fn reunite(self, other: WriteHalf<F>) -> std::result::Result<Stream<F>, (ReadHalf<F>, WriteHalf<F>)> {
        if !Rc::ptr_eq(&self.socket, &other.socket) {
            return Err((self, other));
        }
        drop(other);
        // There are never more than two.
        Rc::try_unwrap(self.socket)
            .map(Stream::new)
            .map_err(|_| unreachable!("a connection has two halves, and futures of theirs borrow them"))
    }

    /// As [`Stream::recv`].
    pub fn recv(&mut self) -> Recv<'_> {
        Recv { socket: &self.socket, waits: false }
    }

    /// As [`Stream::recv_into`].
    pub fn recv_into<B: IoBufMut>(&mut self, buffer: B) -> RecvInto<'_, B> {
        RecvInto::new(&self.socket, buffer)
    }

    /// As [`Stream::canceller`]: ends what is awaited on both halves.
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(false)
    }
}

/// The sending half of a connection. See [`Stream::split`].
#[derive(Debug)]
pub struct WriteHalf<F = Inet> {
    socket: Rc<Socket>,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> WriteHalf<F> {
    /// As [`Stream::write_all`].
    pub fn write_all<B: IoBuf>(&mut self, bytes: B) -> Send<'_, B> {
        Send::new(&self.socket, bytes, true)
    }

    /// As [`Stream::write_vectored_all`].
    pub fn write_vectored_all<B: IoBuf>(&mut self, buffers: Vec<B>) -> Send<'_, Vec<B>> {
        Send::vectored(&self.socket, buffers)
    }

    /// Tells the peer that no more will come.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn shutdown(&mut self) -> Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// As [`Stream::canceller`]: ends what is awaited on both halves.
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(false)
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
        let socket = self.socket;
        let polled =
            socket.poll(Kind::Receive, context.waker(), |io, index, caller| io.poll_receive(index, caller));
        let polled = match polled {
            Ok(polled) => polled,
            Err(why) => return Poll::Ready(Err(why)),
        };
        self.waits = polled.is_pending();
        match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(lease)) => Poll::Ready(Ok(lease)),
            Poll::Ready(Err(errno)) => Poll::Ready(Err(socket.error(Kind::Receive, errno))),
        }
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
            // One that waits goes on waiting, until it is dropped.
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
pub struct Send<'a, B, R = ()> {
    socket: &'a Socket,
    sending: Sending,
    all: bool,
    types: PhantomData<(B, R)>,
}

impl<'a, B: IoBuf, R> Send<'a, B, R> {
    #[inline]
    fn new(socket: &'a Socket, bytes: B, all: bool) -> Self {
        let memory = Memory::Buf(bytes.into_buf().0);
        Send { socket, sending: Sending::new(memory), all, types: PhantomData }
    }
}

impl<'a, B: IoBuf> Send<'a, B, u32> {
    fn starting_at(socket: &'a Socket, bytes: B, from: usize) -> Self {
        let sending = Sending::starting_at(Memory::Buf(bytes.into_buf().0), from);
        Send { socket, sending, all: false, types: PhantomData }
    }
}

impl<'a, B: IoBuf> Send<'a, Vec<B>> {
    fn vectored(socket: &'a Socket, buffers: Vec<B>) -> Self {
        let bufs = buffers.into_iter().map(|buffer| buffer.into_buf().0).collect();
        let memory = Memory::Vectors(Vectors::new(bufs));
        Send { socket, sending: Sending::new(memory), all: true, types: PhantomData }
    }
}

impl<'a> Send<'a, FilePart, u32> {
    fn file(socket: &'a Socket, part: FilePart) -> Self {
        Send { socket, sending: Sending::new(Memory::File(part)), all: false, types: PhantomData }
    }
}

impl Future for Send<'_, FilePart, u32> {
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

impl<B, R> Send<'_, B, R> {
    #[inline]
    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<(Result<u32>, Memory)> {
        let Send { socket, sending, all, .. } = self;
        let polled = socket.poll(Kind::Send, context.waker(), |io, index, caller| {
            io.poll_send(index, sending, *all, caller)
        });
        let sent = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(sent)) => sent.map_err(|errno| send_error(socket, errno)),
            Err(why) => {
                // As though it was dropped.
                socket.with_io(|io, index| io.drop_send(index, sending));
                sending.end();
                Err(why)
            }
        };
        Poll::Ready((sent, sending.take_memory()))
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

impl<B: IoBuf + Unpin> Future for Send<'_, B, ()> {
    type Output = (Result<()>, B);

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_sent(context);
        polled.map(|(sent, memory)| (sent.map(|_| ()), B::from_buf(Loan(buf_of(memory)))))
    }
}

impl<B: IoBuf + Unpin> Future for Send<'_, B, u32> {
    type Output = (Result<usize>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_sent(context);
        polled.map(|(sent, memory)| (sent.map(|sent| sent as usize), B::from_buf(Loan(buf_of(memory)))))
    }
}

impl<B: IoBuf + Unpin> Future for Send<'_, Vec<B>, ()> {
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

impl<B, R> Drop for Send<'_, B, R> {
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

//! Datagram sockets of any family. A datagram is received whole, or not at all.
//!
//! A send and a receive each take a [`Message`], which lives in the operation's slot while the kernel may
//! touch it, and with the socket between two operations, so a datagram needs no allocation.

use super::family::Family;
use super::socket::Socket;
use super::stream::buf_of;
use super::{Canceller, SocketOption};
use crate::buf::{Buf, IoBuf, IoBufMut, Loan};
use crate::caller::Caller;
use crate::descriptor::Entry;
use crate::error::{Error, Result};
use crate::exec::Core;
use crate::inflight::{Memory, Message};
use crate::io::{Io, OneShot};
use crate::op::Kind;
use socket2::SockAddr;
use std::future::Future;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A datagram socket: a [`UdpSocket`](super::UdpSocket) or a [`UnixDatagram`](super::UnixDatagram).
///
/// One receive and one send may be in flight at a time, which the borrows enforce; [`split`](Self::split)
/// lets two tasks do one each. A datagram may be empty; that does not mean the end.
#[derive(Debug)]
pub struct DatagramSocket<F> {
    receiver: DatagramReceiver<F>,
    sender: DatagramSender<F>,
}

/// The receiving half. See [`DatagramSocket::split`].
#[derive(Debug)]
pub struct DatagramReceiver<F> {
    socket: Rc<Socket>,
    spare: Option<Box<Message>>,
    family: PhantomData<fn() -> F>,
}

/// The sending half. See [`DatagramSocket::split`].
#[derive(Debug)]
pub struct DatagramSender<F> {
    socket: Rc<Socket>,
    spare: Option<Box<Message>>,
    family: PhantomData<fn() -> F>,
}

/// Result of receiving a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Number of bytes appended to the buffer.
    pub bytes: usize,
    /// Length of the datagram in bytes. Bytes that did not fit are lost (`MSG_TRUNC`, `recv(2)`).
    pub length: usize,
}

impl Received {
    /// Returns whether a part of it did not fit and was lost.
    pub fn is_truncated(&self) -> bool {
        self.bytes < self.length
    }
}

impl<F: Family> DatagramSocket<F> {
    pub(super) fn new(socket: Socket) -> DatagramSocket<F> {
        let socket = Rc::new(socket);
        DatagramSocket {
            receiver: DatagramReceiver { socket: Rc::clone(&socket), spare: None, family: PhantomData },
            sender: DatagramSender { socket, spare: None, family: PhantomData },
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.receiver.socket
    }

    /// Takes over a socket that was created elsewhere. It becomes non-blocking, for every descriptor that
    /// shares it.
    ///
    /// # Errors
    /// `ioctl(2)` fails.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn from_std(socket: F::StdDatagrams) -> Result<DatagramSocket<F>> {
        Ok(DatagramSocket::new(Socket::adopt(Core::current(F::DATAGRAMS), socket.into())?))
    }

    /// Takes the socket out of its runtime, in blocking mode, like a socket created by std.
    ///
    /// # Errors
    /// EBUSY: a dropped receive has left a datagram or an error, or has not ended yet. The socket is
    /// returned.
    pub fn into_std(self) -> std::result::Result<F::StdDatagrams, (Error, DatagramSocket<F>)> {
        let DatagramSocket { receiver, sender } = self;
        drop(sender);
        let Some(mut socket) = Rc::into_inner(receiver.socket) else {
            unreachable!("a socket has two halves, and futures of theirs borrow them")
        };
        match socket.take_out(Entry::is_untouched, true) {
            Ok(fd) => Ok(F::StdDatagrams::from(fd)),
            Err(why) => Err((why, DatagramSocket::new(socket))),
        }
    }

    /// Receives one datagram into the spare capacity of `buffer`; returns its length and its sender's
    /// address.
    ///
    /// Dropping the future loses only the buffer: a datagram that arrives anyway is kept for the next
    /// receive.
    ///
    /// # Errors
    /// ECONNREFUSED, once: no socket received a datagram sent before (connected UDP only); ECANCELED by a
    /// [`Canceller`].
    pub fn recv_from<B: IoBufMut>(&mut self, buffer: B) -> RecvFrom<'_, F, B> {
        self.receiver.recv_from(buffer)
    }

    /// Receives without the sender's address, for a connected socket, which receives datagrams of its peer
    /// only.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn recv<B: IoBufMut>(&mut self, buffer: B) -> RecvMessage<'_, F, B> {
        self.receiver.recv(buffer)
    }

    /// Sends `bytes` to the connected peer as one datagram; returns the buffer, also on an error.
    ///
    /// Success means that the kernel has taken the datagram. If the future is dropped, the datagram was sent
    /// whole or not at all.
    ///
    /// # Errors
    /// EMSGSIZE: too long (UDP on IPv4: at most 65,507 bytes); EDESTADDRREQ, ENOTCONN: not connected;
    /// ECONNREFUSED, once: no socket received a datagram sent before, and this one was not sent; EPERM: a
    /// firewall; ECANCELED by a [`Canceller`].
    pub fn send<B: IoBuf>(&mut self, bytes: B) -> SendMessage<'_, F, B> {
        self.sender.send(bytes)
    }

    /// Returns a handle that cancels operations on this socket.
    pub fn canceller(&self) -> Canceller {
        self.socket().canceller(false)
    }

    /// Returns another descriptor of this socket (`F_DUPFD_CLOEXEC`), for what has no method here: any option
    /// through `socket2::SockRef`, `ioctl(2)`, passing it to another process. Do not read from it, write to
    /// it or change its blocking mode: it shares all of that with this one.
    ///
    /// # Errors
    /// EMFILE. EOPNOTSUPP: it is direct, or simulated.
    pub fn duplicate_fd(&self) -> Result<OwnedFd> {
        self.socket().duplicate()
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// `getsockname(2)` fails.
    pub fn local_addr(&self) -> Result<F::Address> {
        self.socket().local_addr::<F>()
    }

    /// Returns the address of the connected peer.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn peer_addr(&self) -> Result<F::Address> {
        self.socket().peer_addr::<F>()
    }

    /// Sets an option.
    ///
    /// # Errors
    /// `setsockopt(2)` fails; the error names the option.
    pub fn set_option(&self, option: SocketOption) -> Result<()> {
        self.socket().set(option)
    }

    /// Reads an option; the value inside `option` is ignored.
    ///
    /// # Errors
    /// `getsockopt(2)` fails; the error names the option.
    pub fn option(&self, option: SocketOption) -> Result<SocketOption> {
        self.socket().get(option)
    }

    /// Splits the socket into a half for each direction, for two tasks. The socket is closed when both halves
    /// are dropped.
    pub fn split(self) -> (DatagramReceiver<F>, DatagramSender<F>) {
        (self.receiver, self.sender)
    }

    /// Cancels what is pending, waits for its last completion, and closes.
    pub async fn close(self) {
        let DatagramSocket { receiver, sender } = self;
        drop(sender);
        if let Some(socket) = Rc::into_inner(receiver.socket) {
            socket.close().await;
        }
    }
}

impl<F: Family> DatagramReceiver<F> {
    /// Works as [`DatagramSocket::recv_from`].
    pub fn recv_from<B: IoBufMut>(&mut self, buffer: B) -> RecvFrom<'_, F, B> {
        RecvFrom::new(&self.socket, &mut self.spare, buffer)
    }

    /// Works as [`DatagramSocket::recv`].
    pub fn recv<B: IoBufMut>(&mut self, buffer: B) -> RecvMessage<'_, F, B> {
        RecvMessage(RecvFrom::new(&self.socket, &mut self.spare, buffer))
    }

    /// Works as [`DatagramSocket::canceller`]: ends what is awaited on both halves.
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(false)
    }
}

impl<F: Family> DatagramSender<F> {
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Works as [`DatagramSocket::send`].
    pub fn send<B: IoBuf>(&mut self, bytes: B) -> SendMessage<'_, F, B> {
        SendMessage::new(&self.socket, &mut self.spare, None, bytes)
    }

    /// Sends to an address in the kernel's form.
    pub(super) fn send_message<B: IoBuf>(
        &mut self,
        to: F::Address,
        kernel: SockAddr,
        bytes: B,
    ) -> SendMessage<'_, F, B> {
        SendMessage::new(&self.socket, &mut self.spare, Some((to, kernel)), bytes)
    }

    /// Works as [`DatagramSocket::canceller`]: ends what is awaited on both halves.
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(false)
    }
}

impl<F: Family> DatagramSocket<F> {
    pub(super) fn sender(&mut self) -> &mut DatagramSender<F> {
        &mut self.sender
    }
}

/// An operation on one message, which is owned here or by its slot.
#[derive(Debug)]
struct InMessage<'a> {
    socket: &'a Socket,
    spare: &'a mut Option<Box<Message>>,
    operation: OneShot,
    kind: Kind,
    waits: bool,
}

impl<'a> InMessage<'a> {
    fn new(
        socket: &'a Socket,
        spare: &'a mut Option<Box<Message>>,
        kind: Kind,
        to: Option<SockAddr>,
        buf: Buf,
    ) -> InMessage<'a> {
        let mut message = spare.take().unwrap_or_else(Message::new);
        message.buf = buf;
        message.address_to(to);
        let operation = OneShot::Fresh(Memory::Message(message));
        InMessage { socket, spare, operation, kind, waits: false }
    }

    fn poll<R>(
        &mut self,
        poll: impl FnOnce(&mut Io, u32, &mut OneShot, &Caller<'_>) -> Poll<std::result::Result<R, i32>>,
        waker: &Waker,
    ) -> Poll<Result<R>> {
        let (operation, kind) = (&mut self.operation, self.kind);
        let polled = self.socket.poll(kind, waker, |io, index, caller| {
            let polled = poll(io, index, operation, caller);
            polled.map(|result| result.map_err(|errno| io.error(kind, index, errno)))
        });
        match polled {
            Ok(polled) => {
                self.waits = polled.is_pending();
                polled
            }
            // A submitted operation stays in flight until it is dropped.
            Err(why) => Poll::Ready(Err(why)),
        }
    }

    /// Returns the buffer of a completed operation, and what `read` takes from its message.
    fn finish<R>(&mut self, read: impl FnOnce(&Message) -> R) -> (Option<R>, Buf) {
        let memory = match &mut self.operation {
            OneShot::Fresh(memory) | OneShot::Over(memory) => std::mem::replace(memory, Memory::None),
            OneShot::InFlight(_) => Memory::None,
        };
        let Memory::Message(mut message) = memory else { return (None, buf_of(memory)) };
        let buf = std::mem::replace(&mut message.buf, Buf::Static(&[]));
        let read = read(&message);
        *self.spare = Some(message);
        (Some(read), buf)
    }
}

impl Drop for InMessage<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.socket.with_io(|io, index| match &self.operation {
                OneShot::Fresh(_) if self.kind.is_inward() => io.leave_standing(index),
                OneShot::Fresh(_) => io.leave_send(index),
                operation => io.drop_one_shot(index, operation),
            });
        }
    }
}

/// Future of [`DatagramSocket::recv_from`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct RecvFrom<'a, F, B: IoBufMut> {
    message: InMessage<'a>,
    types: PhantomData<(fn() -> F, B)>,
}

impl<'a, F: Family, B: IoBufMut> RecvFrom<'a, F, B> {
    fn new(socket: &'a Socket, spare: &'a mut Option<Box<Message>>, buffer: B) -> Self {
        let buf = buffer.into_buf().0;
        let message = InMessage::new(socket, spare, Kind::ReceiveMessage, None, buf);
        RecvFrom { message, types: PhantomData }
    }
}

impl<F: Family, B: IoBufMut + Unpin> Future for RecvFrom<'_, F, B> {
    type Output = (Result<(Received, F::Address)>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.message.poll(Io::poll_receive_message, context.waker());
        polled.map(|received| {
            let (sender, buf) = self.message.finish(Message::sender);
            let received = received.map(|(length, bytes)| {
                let sender = sender.flatten().and_then(F::of).unwrap_or_else(F::unnamed);
                (Received { bytes, length }, sender)
            });
            (received, B::from_buf(Loan(buf)))
        })
    }
}

/// Future of [`DatagramSocket::recv`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct RecvMessage<'a, F, B: IoBufMut>(RecvFrom<'a, F, B>);

impl<F: Family, B: IoBufMut + Unpin> Future for RecvMessage<'_, F, B> {
    type Output = (Result<Received>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.0).poll(context);
        polled.map(|(received, buffer)| (received.map(|(received, _)| received), buffer))
    }
}

/// Future of [`DatagramSocket::send`] and `send_to`.
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct SendMessage<'a, F: Family, B> {
    message: InMessage<'a>,
    /// The destination, for errors.
    to: Option<F::Address>,
    buffer: PhantomData<B>,
}

impl<'a, F: Family, B: IoBuf> SendMessage<'a, F, B> {
    fn new(
        socket: &'a Socket,
        spare: &'a mut Option<Box<Message>>,
        to: Option<(F::Address, SockAddr)>,
        bytes: B,
    ) -> Self {
        let (to, kernel) = to.unzip();
        let kind = if F::WAITS_FOR_RECEIVER { Kind::SendUnixMessage } else { Kind::SendMessage };
        let message = InMessage::new(socket, spare, kind, kernel, bytes.into_buf().0);
        SendMessage { message, to, buffer: PhantomData }
    }

    fn explained(&self, why: Error) -> Error {
        let errno = why.raw_os_error();
        let why = match &self.to {
            Some(to) => why.on(to),
            None => why,
        };
        match errno {
            Some(libc::EMSGSIZE) => why.hint("a datagram goes whole or not at all: send it in parts"),
            Some(libc::EDESTADDRREQ | libc::ENOTCONN) => why.hint("connect first, or say where to"),
            Some(libc::EACCES) => why.hint("to a broadcast address: set `SocketOption::Broadcast`"),
            _ => why,
        }
    }
}

impl<F: Family, B: IoBuf + Unpin> Future for SendMessage<'_, F, B> {
    type Output = (Result<()>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let kind = self.message.kind;
        let polled = self.message.poll(
            |io, index, operation, caller| io.poll_send_message(kind, index, operation, caller),
            context.waker(),
        );
        polled.map(|sent| {
            let (_, buf) = self.message.finish(|_| ());
            (sent.map(|_| ()).map_err(|why| self.explained(why)), B::from_buf(Loan(buf)))
        })
    }
}

//! TCP streams and listeners.

use super::socket::Socket;
use super::{Canceller, Detached, SocketOption};
use crate::buf::{Buf, IoBuf, IoBufMut, Loan};
use crate::descriptor::{Entry, Mark};
use crate::error::{Error, Result};
use crate::exec::Core;
use crate::file_part::FilePart;
use crate::inflight::{Memory, Vectors};
use crate::io::{OneShot, Sending};
use crate::op::{Call, Kind};
use crate::pool::Lease;
use socket2::SockAddr;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A TCP connection.
///
/// One receive and one send may be under way at a time, which the borrows see to; [`split`](Self::split) lets
/// two tasks have one each. Dropping it closes it; bytes already sent are still delivered (`close(2)`).
#[derive(Debug)]
pub struct TcpStream {
    socket: Socket,
}

impl TcpStream {
    /// Connects to `address`.
    ///
    /// # Errors
    /// ECONNREFUSED: nothing listens there; ETIMEDOUT, EHOSTUNREACH, ENETUNREACH; EMFILE.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn connect(address: SocketAddr) -> Connect {
        Connect { address, state: Connecting::Fresh }
    }

    /// Takes over a connection that was made elsewhere.
    ///
    /// # Errors
    /// `fcntl(2)` fails.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn from_std(stream: std::net::TcpStream) -> Result<TcpStream> {
        let socket = Socket::adopt(Core::current("TcpStream::from_std"), OwnedFd::from(stream))?;
        Ok(TcpStream { socket })
    }

    /// Takes a connection out of its runtime, for another's [`from_std`](Self::from_std). Only one that nothing was
    /// received from yet: bytes that the engine has, or that the kernel may be writing, cannot go along.
    ///
    /// # Errors
    /// EBUSY: something was received, or is waited for. `fcntl(2)` fails: EMFILE. The stream comes back.
    pub fn into_std(self) -> std::result::Result<std::net::TcpStream, (Error, TcpStream)> {
        match self.socket.duplicate(Entry::is_untouched) {
            // What is closed here is our number for it, not the connection.
            Ok(fd) => Ok(std::net::TcpStream::from(fd)),
            Err(why) => Err((why, self)),
        }
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
    /// ECANCELED: the runtime has been shut down, and with it the connection.
    pub async fn detach(self) -> Result<Detached<TcpStream>> {
        Detached::new(self.socket).await
    }

    /// A stream with this socket.
    pub(super) fn of(socket: Socket) -> TcpStream {
        TcpStream { socket }
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
    /// EMSGSIZE: 4 GiB or more, of which nothing was sent. EPIPE, ECONNRESET: the peer is gone, or an earlier send was dropped midway; ECANCELED by a [`Canceller`],
    /// after which nobody knows how much was sent.
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

    /// Sends what goes of a part of a file, at least one byte unless there is none, without copying it through here
    /// (`sendfile(2)`): gives back what is left of it, with how many bytes went.
    ///
    /// Bytes that are not in the page cache are read first, and nothing else of this runtime happens meanwhile: see
    /// to it that they are, if that matters.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all). ENODATA: the file has ended before the part. EIO: it could not be read.
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
        let core = Rc::clone(self.socket.core());
        let closed = self.socket.with_io(|io, index| io.table.target(index));
        drop(self);
        if let Some(target) = closed {
            poll_fn(|context| {
                core.with_io(|io| io.poll_closed(target, context.waker())).unwrap_or(Poll::Ready(()))
            })
            .await;
        }
    }

    /// Ends what others wait for on this stream.
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(false)
    }

    /// Our address.
    ///
    /// # Errors
    /// `getsockname(2)` fails.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        self.socket.peer_addr()
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
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        let socket = Rc::new(self.socket);
        (ReadHalf { socket: Rc::clone(&socket) }, WriteHalf { socket })
    }
}

/// The receiving half of a connection. See [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf {
    socket: Rc<Socket>,
}

impl ReadHalf {
    /// As [`TcpStream::recv`].
    pub fn recv(&mut self) -> Recv<'_> {
        Recv { socket: &self.socket, waits: false }
    }

    /// As [`TcpStream::recv_into`].
    pub fn recv_into<B: IoBufMut>(&mut self, buffer: B) -> RecvInto<'_, B> {
        RecvInto::new(&self.socket, buffer)
    }

    /// The whole connection again, from both of its halves.
    ///
    /// # Errors
    /// They are of two connections, and come back.
    pub fn reunite(self, other: WriteHalf) -> std::result::Result<TcpStream, (ReadHalf, WriteHalf)> {
        if !Rc::ptr_eq(&self.socket, &other.socket) {
            return Err((self, other));
        }
        drop(other);
        // There are never more than two.
        Rc::try_unwrap(self.socket)
            .map(TcpStream::of)
            .map_err(|_| unreachable!("a connection has two halves, and futures of theirs borrow them"))
    }

    /// As [`TcpStream::canceller`]: ends what is awaited on both halves.
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(false)
    }
}

/// The sending half of a connection. See [`TcpStream::split`].
#[derive(Debug)]
pub struct WriteHalf {
    socket: Rc<Socket>,
}

impl WriteHalf {
    /// As [`TcpStream::write_all`].
    pub fn write_all<B: IoBuf>(&mut self, bytes: B) -> Send<'_, B> {
        Send::new(&self.socket, bytes, true)
    }

    /// As [`TcpStream::write_vectored_all`].
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

    /// As [`TcpStream::canceller`]: ends what is awaited on both halves.
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(false)
    }
}

/// Future of [`TcpStream::connect`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Connect {
    address: SocketAddr,
    state: Connecting,
}

#[derive(Debug)]
enum Connecting {
    Fresh,
    UnderWay { socket: Socket, operation: OneShot },
    Over,
}

impl Future for Connect {
    type Output = Result<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Connecting::Fresh = this.state {
            let made = Socket::new(Core::current("TcpStream::connect"), &this.address);
            let socket = made.map_err(|why| why.on(this.address))?;
            let operation = OneShot::Fresh(Memory::Address(Box::new(SockAddr::from(this.address))));
            this.state = Connecting::UnderWay { socket, operation };
        }
        let Connecting::UnderWay { socket, operation } = &mut this.state else {
            unreachable!("polled after its end");
        };
        let polled = socket.with_io(|io, index| {
            io.poll_one_shot(Kind::Connect, index, operation, context.waker())
                .map(|result| (result, io.driver_name()))
        });
        let (result, driver) = match polled {
            Some(Poll::Pending) => return Poll::Pending,
            Some(Poll::Ready((result, driver))) => (result, Some(driver)),
            None => (-libc::ECANCELED, None),
        };
        let Connecting::UnderWay { socket, .. } = std::mem::replace(&mut this.state, Connecting::Over) else {
            unreachable!("it was a moment ago");
        };
        if result >= 0 {
            return Poll::Ready(Ok(TcpStream { socket }));
        }
        let mut error = Error::errno("connect", -result).on(this.address);
        if let Some(driver) = driver {
            error = error.by(driver);
        }
        Poll::Ready(Err(match -result {
            libc::ECONNREFUSED => error.hint("nothing listens there"),
            libc::EADDRNOTAVAIL => {
                error.hint("no local port is free for that peer: use more source addresses")
            }
            _ => error,
        }))
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        if let Connecting::UnderWay { socket, operation } = &self.state {
            socket.with_io(|io, index| io.drop_one_shot(index, operation));
        }
    }
}

/// Future of [`TcpStream::recv`].
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
        let polled = socket.with_io(|io, index| io.poll_receive(index, context.waker()));
        self.waits = matches!(polled, Some(Poll::Pending));
        match polled {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(Ok(lease))) => Poll::Ready(Ok(lease)),
            Some(Poll::Ready(Err(errno))) => Poll::Ready(Err(socket.error(Kind::Receive, errno))),
            None => Poll::Ready(Err(socket.error(Kind::Receive, -libc::ECANCELED))),
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

/// Future of [`TcpStream::recv_into`].
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
        let mut waits = false;
        let polled = this.socket.io(Kind::ReceiveInto, |io, index| {
            match io.poll_receive_into(index, &mut this.operation, context.waker()) {
                Poll::Pending => {
                    waits = true;
                    Ok(0)
                }
                Poll::Ready(Ok(bytes)) => Ok(bytes),
                Poll::Ready(Err(errno)) => Err(io.error(Kind::ReceiveInto, index, errno)),
            }
        });
        this.waits = waits;
        if waits {
            return Poll::Pending;
        }
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

fn buf_of(memory: Memory) -> Buf {
    match memory {
        Memory::Buf(buf) => buf,
        _ => Buf::Static(&[]),
    }
}

/// Future of [`TcpStream::write_all`], [`write`](TcpStream::write) and
/// [`write_vectored_all`](TcpStream::write_vectored_all).
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
        let polled = socket.with_io(|io, index| io.poll_send(index, sending, *all, context.waker()));
        let sent = match polled {
            Some(Poll::Pending) => return Poll::Pending,
            Some(Poll::Ready(sent)) => sent,
            None => {
                sending.end();
                Err(-libc::ECANCELED)
            }
        };
        Poll::Ready((sent.map_err(|errno| send_error(socket, errno)), sending.take_memory()))
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

/// How a listener is made.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Connections the kernel may hold that nobody has accepted; `net.core.somaxconn` caps it (`listen(2)`).
    pub backlog: i32,
    /// `SO_REUSEPORT`.
    pub reuse_port: bool,
    /// `TCP_NODELAY`, which accepted connections inherit, so that it costs no system call each.
    pub no_delay: bool,
    /// `IPV6_V6ONLY`; `None` leaves the system's setting.
    pub only_v6: Option<bool>,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { backlog: 4096, reuse_port: false, no_delay: true, only_v6: None }
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct TcpListener {
    socket: Socket,
}

impl TcpListener {
    /// Binds and listens, with default options; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, EACCES.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind(address: SocketAddr) -> Result<TcpListener> {
        TcpListener::bind_with(address, ListenOptions::default())
    }

    /// Binds and listens.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind_with(address: SocketAddr, options: ListenOptions) -> Result<TcpListener> {
        let socket =
            Socket::new(Core::current("TcpListener::bind"), &address).map_err(|why| why.on(address))?;
        socket.set(SocketOption::ReuseAddress(true))?;
        if options.reuse_port {
            socket.set(SocketOption::ReusePort(true))?;
        }
        if options.no_delay {
            socket.set(SocketOption::NoDelay(true))?;
        }
        if let Some(only_v6) = options.only_v6.filter(|_| address.is_ipv6()) {
            socket.set(SocketOption::OnlyV6(only_v6))?;
        }
        socket.call(|on| Call::Bind { on, address: &address }).map_err(|why| {
            let errno = why.raw_os_error();
            let why = why.on(address);
            match errno {
                Some(libc::EADDRINUSE) => {
                    why.hint("another program listens there; choose another port, or 0 for any")
                }
                Some(libc::EACCES) => why.hint("ports below 1024 need CAP_NET_BIND_SERVICE"),
                _ => why,
            }
        })?;
        let backlog = options.backlog;
        socket.call(|on| Call::Listen { on, backlog }).map_err(|why| why.on(address))?;
        Ok(TcpListener { socket })
    }

    /// Takes over a socket that listens already.
    ///
    /// # Errors
    /// `fcntl(2)` fails.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn from_std(listener: std::net::TcpListener) -> Result<TcpListener> {
        let socket = Socket::adopt(Core::current("TcpListener::from_std"), OwnedFd::from(listener))?;
        Ok(TcpListener { socket })
    }

    /// Takes a listener out of its runtime. Only one that nothing is waited for on, as after its
    /// [`Canceller`] has ended the accepting: then what the kernel still holds of connections can be seen to by
    /// whoever has it.
    ///
    /// # Errors
    /// EBUSY: connections are waited for, or were accepted and not taken. `fcntl(2)` fails: EMFILE. The listener
    /// comes back.
    pub fn into_std(self) -> std::result::Result<std::net::TcpListener, (Error, TcpListener)> {
        match self.socket.duplicate(Entry::is_idle) {
            // What is closed here is our number for it, not the socket.
            Ok(fd) => Ok(std::net::TcpListener::from(fd)),
            Err(why) => Err((why, self)),
        }
    }

    /// The next connection.
    ///
    /// When no descriptor is left (EMFILE, ENFILE), accepting pauses until one is closed, or for a second; it is
    /// not an error. Connections that died while they waited are passed over. Dropping the future loses nothing.
    ///
    /// On the driver threads what comes has a worker for the first time it waits; to wait in both directions at once
    /// it takes another, which a limit may refuse ([`Builder::workers`](crate::Builder::workers)).
    ///
    /// # Errors
    /// ECANCELED after [`Canceller::cancel`]; EINVAL if the socket does not listen.
    pub fn accept(&mut self) -> Accept<'_> {
        Accept { socket: &self.socket, waits: false }
    }

    /// Stops accepting, for good. See [`Canceller`].
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(true)
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// `getsockname(2)` fails.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Future of [`TcpListener::accept`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Accept<'a> {
    socket: &'a Socket,
    waits: bool,
}

impl Future for Accept<'_> {
    type Output = Result<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let socket = self.socket;
        let mut waits = false;
        let polled = socket.io(Kind::Accept, |io, index| match io.poll_accept(index, context.waker()) {
            Poll::Pending => {
                waits = true;
                Ok(None)
            }
            Poll::Ready(Ok(target)) => Ok(Some(target)),
            Poll::Ready(Err(errno)) => Err(io.error(Kind::Accept, index, errno)),
        });
        self.waits = waits;
        match polled {
            Ok(None) => Poll::Pending,
            Ok(Some(target)) => {
                Poll::Ready(Ok(TcpStream { socket: Socket::accepted(socket.core(), target) }))
            }
            Err(why) => Poll::Ready(Err(why)),
        }
    }
}

impl Drop for Accept<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.socket.with_io(|io, index| io.leave_standing(index));
        }
    }
}

impl fmt::Display for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.local_addr(), self.peer_addr()) {
            (Ok(local), Ok(peer)) => write!(f, "{local} to {peer}"),
            _ => f.write_str("a connection that is over"),
        }
    }
}

//! Listening sockets of any family, and accepting.

use super::Canceller;
use super::family::Family;
use super::socket::Socket;
use super::stream::Stream;
use crate::descriptor::Entry;
use crate::error::{Error, Result};
use crate::exec::Core;
use crate::op::Kind;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A listening socket: a [`TcpListener`](super::TcpListener) or a [`UnixListener`](super::UnixListener).
#[derive(Debug)]
pub struct Listener<F> {
    socket: Socket,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> Listener<F> {
    /// Takes over a socket that listens already.
    ///
    /// # Errors
    /// `fcntl(2)` fails.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn from_std(listener: F::StdListener) -> Result<Listener<F>> {
        Ok(Listener::new(Socket::adopt(Core::current(F::LISTENER), listener.into())?))
    }

    pub(super) fn new(socket: Socket) -> Listener<F> {
        Listener { socket, family: PhantomData }
    }

    /// Takes a listener out of its runtime. Only one that nothing is waited for on, as after its
    /// [`Canceller`] has ended the accepting: then what the kernel still holds of connections can be seen to by
    /// whoever has it.
    ///
    /// # Errors
    /// EBUSY: connections are waited for, or were accepted and not taken. The listener comes back.
    pub fn into_std(mut self) -> std::result::Result<F::StdListener, (Error, Listener<F>)> {
        match self.socket.take_out(Entry::is_idle) {
            Ok(fd) => Ok(F::StdListener::from(fd)),
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
    pub fn accept(&mut self) -> Accept<'_, F> {
        Accept { socket: &self.socket, waits: false, family: PhantomData }
    }

    /// Stops accepting, for good. See [`Canceller`].
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(true)
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// `getsockname(2)` fails.
    pub fn local_addr(&self) -> Result<F::Address> {
        self.socket.local_addr::<F>()
    }
}

/// Future of [`Listener::accept`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Accept<'a, F> {
    socket: &'a Socket,
    waits: bool,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> Future for Accept<'_, F> {
    type Output = Result<Stream<F>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let socket = self.socket;
        let polled = socket.poll(Kind::Accept, context.waker(), |io, index, caller| {
            let polled = io.poll_accept(index, caller);
            polled.map(|result| result.map_err(|errno| io.error(Kind::Accept, index, errno)))
        });
        let polled = match polled {
            Ok(polled) => polled,
            Err(why) => return Poll::Ready(Err(why)),
        };
        self.waits = polled.is_pending();
        polled.map(|accepted| Ok(Stream::new(Socket::accepted(socket.core(), accepted?))))
    }
}

impl<F> Drop for Accept<'_, F> {
    fn drop(&mut self) {
        if self.waits {
            self.socket.with_io(|io, index| io.leave_standing(index));
        }
    }
}

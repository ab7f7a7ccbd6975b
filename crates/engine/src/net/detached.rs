//! Connections that move between runtimes.

use super::family::Family;
use super::socket::Socket;
use super::stream::Stream;
use crate::descriptor::Descriptor;
use crate::error::{Error, Result};
use crate::exec::{Core, Remote};
use crate::io::Loose;
use crate::name::DriverName;
use std::fmt;
use std::io;
use std::marker::PhantomData;

/// A connection that belongs to no runtime, created by [`Stream::detach`]. It may be sent to another thread,
/// and continues in the runtime where it is [attached](Self::attach), on any driver.
///
/// Received bytes that were not read move with it, and so do the end of the stream, an error, and its
/// options. Dropping it closes the connection; with [unread](Self::unread) bytes the peer gets a reset, as on
/// any close with unread bytes.
///
/// A simulated connection can only be attached to the runtime it comes from.
#[must_use = "dropping it closes the connection"]
pub struct Detached<S> {
    /// `Some` until it is attached or dropped.
    loose: Option<Loose>,
    /// The runtime it comes from.
    home: Remote,
    stream: PhantomData<fn() -> S>,
}

const fn may_be_sent<T: Send>() {}
const _: () = may_be_sent::<Detached<super::TcpStream>>();

impl<S> Detached<S> {
    pub(super) async fn new(socket: Socket) -> Result<Detached<S>> {
        let home = socket.core().remote();
        Ok(Detached { loose: Some(socket.detach().await?), home, stream: PhantomData })
    }

    /// Returns bytes that were received and not read yet. The next receive returns them.
    pub fn unread(&self) -> &[u8] {
        self.loose.as_ref().map(Loose::unread).unwrap_or_default()
    }

    /// Attaches it to the runtime that runs on this thread.
    pub(super) fn into_socket(mut self, what: &str) -> std::result::Result<Socket, (Error, Detached<S>)> {
        let core = Core::current(what);
        let Some(loose) = self.loose.take() else { unreachable!("it is there until here") };
        let simulated = matches!(loose.descriptor, Descriptor::Sim(_));
        let on_sim = core.with_io(|io| io.driver_name() == DriverName::Sim).unwrap_or(simulated);
        if simulated != on_sim || (simulated && !core.is(&self.home)) {
            self.loose = Some(loose);
            let why = "a simulated connection exists in its own simulation only, and no other does there";
            let why = io::Error::new(io::ErrorKind::Unsupported, why);
            return Err((Error::new("attach", why), self));
        }
        Socket::attach(core, loose).map_err(|(why, loose)| {
            self.loose = Some(loose);
            (why, self)
        })
    }
}

impl<F: Family> Detached<Stream<F>> {
    /// Attaches the connection to the runtime that runs on this thread.
    ///
    /// # Errors
    /// ERANGE: the descriptor number is too high for select. An error of `ioctl(2)`; or the connection
    /// belongs to another simulation. The connection is returned.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn attach(self) -> std::result::Result<Stream<F>, (Error, Detached<Stream<F>>)> {
        self.into_socket("Detached::attach").map(Stream::new)
    }
}

impl<S> Drop for Detached<S> {
    fn drop(&mut self) {
        match self.loose.take() {
            // Only its runtime can close it. If that was shut down, it is closed already.
            Some(loose) if matches!(loose.descriptor, Descriptor::Sim(_)) => {
                match Core::current_if(&self.home) {
                    Some(core) => close_in(&core, loose),
                    None => {
                        let _ = self.home.call(|core| close_in(core, loose));
                    }
                }
            }
            Some(loose) => loose.close(),
            None => {}
        }
    }
}

fn close_in(core: &Core, loose: Loose) {
    core.with_io(|io| {
        if let Ok(on) = io.arrive(loose) {
            io.close(on.index);
        }
    });
}

impl<S> fmt::Debug for Detached<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached").field("unread", &self.unread().len()).finish_non_exhaustive()
    }
}

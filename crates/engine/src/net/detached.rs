//! Connections between two runtimes.

use super::family::Family;
use super::socket::Socket;
use super::stream::Stream;
use crate::descriptor::Descriptor;
use crate::error::{Error, Result};
use crate::exec::{Core, Remote};
use crate::io::Loose;
use crate::name::Name;
use std::fmt;
use std::io;
use std::marker::PhantomData;

/// A connection that belongs to no runtime at the moment: made by [`Stream::detach`], it may be sent to another
/// thread, and goes on where it is [attached](Self::attach), on any driver.
///
/// What was received from it and not read goes along, and so do its end, its error and its options. Dropping it closes
/// the connection; if there are [unread](Self::unread) bytes, the peer is reset, as always when such are thrown away.
///
/// A connection of the simulation can only be attached to the runtime it comes from.
#[must_use = "dropping it closes the connection"]
pub struct Detached<S> {
    /// There, until it is attached or dropped.
    loose: Option<Loose>,
    /// Where it comes from.
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

    /// Bytes that were received and that nobody has read: the next receive's.
    pub fn unread(&self) -> &[u8] {
        self.loose.as_ref().map(Loose::unread).unwrap_or_default()
    }

    /// Into the runtime that runs on this thread.
    pub(super) fn into_socket(mut self, what: &str) -> std::result::Result<Socket, (Error, Detached<S>)> {
        let core = Core::current(what);
        let Some(loose) = self.loose.take() else { unreachable!("it is there until here") };
        let simulated = matches!(loose.descriptor, Descriptor::Sim(_));
        let on_sim = core.with_io(|io| io.driver_name() == Name::Sim).unwrap_or(simulated);
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
    /// Has the connection go on in the runtime that runs on this thread.
    ///
    /// # Errors
    /// ERANGE: select cannot watch so high a descriptor number. `fcntl(2)` fails; it is another simulation's. The
    /// connection comes back.
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
            // It is its runtime that knows how to close it. On one that is gone everything is closed.
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

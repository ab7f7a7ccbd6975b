//! Idle connections that are kept for the next exchange, each watched by a task.
//!
//! A server may close an idle connection at any time. If that were noticed only at the next use, the
//! descriptor would stay open until then, and a request that cannot be repeated would be lost. So each
//! connection that is idle for [`UNWATCHED`] gets a small task that waits for its end. A connection that
//! ends, receives unexpected bytes, or reaches its age is removed at once. Under load most connections are
//! taken earlier, and cost no task; their state is checked when they are taken.

use crate::transport::Receive;
use foldhash::fast::RandomState;
use ringroad_engine::{spawn, time};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Maximum time that a connection is idle without a watching task.
const UNWATCHED: Duration = Duration::from_millis(50);

/// Idle connections by the key of their server. Clones share them. A value belongs to one runtime.
///
/// `C` is the connection: a [`Transport`](crate::Transport), or a type that holds one.
pub struct KeptConnections<K, C> {
    shared: Rc<Shared<K, C>>,
}

/// Connections by the key of their server. No peer chooses the keys.
type ByServer<K, C> = HashMap<K, Vec<Rc<Idle<C>>>, RandomState>;

struct Shared<K, C> {
    /// Connections by server, the most recently used last.
    idle: RefCell<ByServer<K, C>>,
    /// Maximum number of idle connections for each server, and of all.
    most: Cell<usize>,
    most_of_all: usize,
    /// Connections that were ever kept.
    kept: Cell<u64>,
    /// Whether the task exists that runs every [`UNWATCHED`].
    ///
    /// INVARIANT: the task exists while a connection in the list is not watched, and it runs once more after
    /// that was taken.
    looks: Cell<bool>,
}

/// A connection, and the task that watches it.
struct Idle<C> {
    connection: RefCell<Option<C>>,
    /// Sequence number of the connection.
    number: u64,
    /// How long it is kept.
    span: Duration,
    /// Whether a task watches it, or is about to.
    watched: Cell<bool>,
    /// The waker of the watching task, to end it when the connection is taken.
    watcher: RefCell<Option<Waker>>,
}

impl<C: Receive> Idle<C> {
    /// Becomes ready when the connection cannot be used any more, or was taken.
    fn poll_over(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut connection = self.connection.borrow_mut();
        let Some(open) = connection.as_mut() else { return Poll::Ready(()) };
        // Unexpected bytes, the end and an error have the same effect.
        if open.poll_recv(context).is_ready() {
            let over = connection.take();
            drop(connection);
            drop(over);
            return Poll::Ready(());
        }
        *self.watcher.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<C> Idle<C> {
    /// Takes the connection, and ends the task that watches it.
    fn take(&self) -> Option<C> {
        let connection = self.connection.borrow_mut().take();
        if let Some(watcher) = self.watcher.borrow_mut().take() {
            watcher.wake();
        }
        connection
    }
}

/// Closes the connections with the last clone.
impl<K, C> Drop for Shared<K, C> {
    fn drop(&mut self) {
        for idle in self.idle.get_mut().values().flatten() {
            drop(idle.take());
        }
    }
}

impl<K, C> Clone for KeptConnections<K, C> {
    fn clone(&self) -> Self {
        KeptConnections { shared: Rc::clone(&self.shared) }
    }
}

impl<K: Eq + Hash + Clone + 'static, C: Receive + 'static> KeptConnections<K, C> {
    /// Makes an empty pool that keeps at most `most` connections for each server.
    pub fn new(most: usize) -> KeptConnections<K, C> {
        KeptConnections::bounded(most, usize::MAX)
    }

    /// Makes an empty pool that also keeps at most `most_of_all` connections for all servers together. Above
    /// that, the least recently used connection is closed.
    pub fn bounded(most: usize, most_of_all: usize) -> KeptConnections<K, C> {
        let (idle, kept, looks) = (RefCell::default(), Cell::new(0), Cell::new(false));
        let most = Cell::new(most);
        KeptConnections { shared: Rc::new(Shared { idle, most, most_of_all, kept, looks }) }
    }

    /// Sets the maximum for each server. It applies to later exchanges; present idle connections stay.
    pub fn set_most(&self, most: usize) {
        self.shared.most.set(most);
    }

    /// Keeps a connection after the end of its exchange, for `span`. It is closed if its server has enough of
    /// them.
    pub fn keep(&self, server: K, connection: C, span: Duration) {
        let Shared { most, most_of_all, kept, .. } = &*self.shared;
        let most = most.get();
        if span.is_zero() || most == 0 || *most_of_all == 0 {
            return;
        }
        let number = kept.get();
        kept.set(number + 1);
        let idle = Rc::new(Idle {
            connection: RefCell::new(Some(connection)),
            number,
            span,
            watched: Cell::new(false),
            watcher: RefCell::default(),
        });
        {
            let mut all = self.shared.idle.borrow_mut();
            let of_server = match all.get_mut(&server) {
                Some(of_server) => of_server,
                None => all.entry(server.clone()).or_default(),
            };
            if of_server.len() >= most {
                return;
            }
            of_server.push(Rc::clone(&idle));
        }
        self.shared.make_room();
        // For a short span, the wait until the next check would be a large part of it.
        if span < 20 * UNWATCHED {
            return watch(&self.shared, server, idle, span);
        }
        if !self.shared.looks.replace(true) {
            spawn(look(Rc::downgrade(&self.shared))).detach();
        }
    }

    /// Takes the most recently used open connection to the server.
    pub fn take(&self, server: &K) -> Option<C> {
        loop {
            let idle = self.shared.idle.borrow_mut().get_mut(server)?.pop()?;
            // Checks what has happened since the watching task last ran, or since the connection was kept.
            if let Some(mut connection) = idle.take()
                && connection.is_quiet()
            {
                return Some(connection);
            }
        }
    }

    /// Returns the number of servers with idle connections, or with connections that were just taken.
    pub fn servers(&self) -> usize {
        self.shared.idle.borrow().len()
    }

    /// Closes up to `count` connections, of each server the least recently used. Returns how many.
    pub fn close_oldest(&self, count: usize) -> usize {
        let mut oldest = Vec::new();
        {
            let mut all = self.shared.idle.borrow_mut();
            for of_server in all.values_mut() {
                let left = count - oldest.len();
                oldest.extend(of_server.drain(..left.min(of_server.len())));
            }
        }
        // The watching tasks find no connection and end.
        oldest.into_iter().filter_map(|idle| idle.take()).count()
    }

    /// Returns the number of idle connections.
    pub fn len(&self) -> usize {
        self.shared.idle.borrow().values().map(Vec::len).sum()
    }

    /// Returns whether no idle connection is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Starts the watching task of each idle connection, until all are watched.
async fn look<K: Eq + Hash + Clone + 'static, C: Receive + 'static>(shared: Weak<Shared<K, C>>) {
    loop {
        time::sleep(UNWATCHED).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut unwatched = Vec::new();
        shared.idle.borrow_mut().retain(|server, of_server| {
            let new = of_server.iter().filter(|idle| !idle.watched.get());
            unwatched.extend(new.map(|idle| (server.clone(), Rc::clone(idle))));
            !of_server.is_empty()
        });
        if unwatched.is_empty() {
            shared.looks.set(false);
            return;
        }
        for (server, idle) in unwatched {
            // The connection is removed at most this much too early, and never too late.
            let left = idle.span.saturating_sub(UNWATCHED);
            watch(&shared, server, idle, left);
        }
    }
}

/// Spawns the task that watches an idle connection, and takes it out of the list when it is over.
fn watch<K: Eq + Hash + 'static, C: Receive + 'static>(
    shared: &Rc<Shared<K, C>>,
    server: K,
    idle: Rc<Idle<C>>,
    span: Duration,
) {
    idle.watched.set(true);
    let shared = Rc::downgrade(shared);
    let watching = async move {
        let _ = time::timeout(span, poll_fn(|context| idle.poll_over(context))).await;
        // Closed, too old, or taken. A taken one is not in the list any more.
        if let Some(shared) = shared.upgrade() {
            shared.remove(&server, &idle);
        }
    };
    spawn(watching).detach();
}

impl<K: Eq + Hash, C> Shared<K, C> {
    /// Closes the least recently used connection, if there are too many.
    fn make_room(&self) {
        if self.most_of_all == usize::MAX {
            return;
        }
        let mut all = self.idle.borrow_mut();
        if all.values().map(Vec::len).sum::<usize>() <= self.most_of_all {
            return;
        }
        // Of each server the first is the oldest.
        let firsts = all.values_mut().filter(|of_server| !of_server.is_empty());
        let oldest = firsts.min_by_key(|of_server| of_server.first().map(|idle| idle.number));
        let oldest = oldest.map(|of_server| of_server.remove(0));
        drop(all);
        // The watching task finds no connection and ends.
        drop(oldest.and_then(|idle| idle.take()));
    }

    fn remove(&self, server: &K, idle: &Rc<Idle<C>>) {
        let mut all = self.idle.borrow_mut();
        if let Some(of_server) = all.get_mut(server) {
            of_server.retain(|other| !Rc::ptr_eq(other, idle));
            if of_server.is_empty() {
                all.remove(server);
            }
        }
    }
}

impl<K, C> fmt::Debug for KeptConnections<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle = self.shared.idle.borrow();
        write!(f, "KeptConnections({})", idle.values().map(Vec::len).sum::<usize>())
    }
}

/// Returns how long a connection may be kept, by the server's `Keep-Alive` line: a second less than it
/// states, so that a request does not cross the server's close, and never longer than `most`.
pub fn keep_for(keep_alive: Option<&[u8]>, most: Duration) -> Duration {
    let told = keep_alive.and_then(|value| {
        let value = str::from_utf8(value).ok()?;
        value.split(',').find_map(|parameter| {
            let (name, seconds) = parameter.split_once('=')?;
            let is_timeout = name.trim().eq_ignore_ascii_case("timeout");
            is_timeout.then(|| seconds.trim().trim_matches('"').parse::<u64>().ok()).flatten()
        })
    });
    told.map_or(most, |seconds| most.min(Duration::from_secs(seconds.saturating_sub(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_kept_a_second_less_than_its_server_keeps_it() {
        let of = |value: Option<&str>| keep_for(value.map(str::as_bytes), Duration::from_secs(30)).as_secs();
        assert_eq!((of(None), of(Some("timeout=5")), of(Some("max=100, Timeout = 10"))), (30, 4, 9));
        assert_eq!((of(Some("timeout=600")), of(Some("timeout=0")), of(Some("timeout=x"))), (30, 0, 30));
    }
}

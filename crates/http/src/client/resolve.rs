//! Resolution of server names: one look-up per name at a time, with results cached for all requests.
//!
//! The system's resolver (`getaddrinfo(3)`) blocks while a name server does not answer, up to half a minute.
//! So it runs on a few threads of its own, never on the pool that reads files. A result is used for
//! [`FRESH`]. After that, the next request still gets the old one while a new look-up runs, so that only the
//! first request for a name waits. If the look-up fails, the old result is used for up to [`STALE`].

use ringroad_engine::net::literal;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// How long addresses are used without a new look-up: `getaddrinfo` does not return their lifetime.
const FRESH: Duration = Duration::from_secs(30);

/// How long addresses are used if the new look-up fails.
const STALE: Duration = Duration::from_secs(3600);

/// How long a failure is returned without a new look-up.
const FAILED: Duration = Duration::from_secs(1);

/// Maximum number of concurrent look-ups.
const THREADS_MAX: usize = 4;

/// Maximum number of cached names; the oldest results are dropped beyond it.
const NAMES_MAX: usize = 1024;

/// Resolves the name `host`.
///
/// # Errors
/// The system's error. A result has at least one address.
async fn resolve(host: &str) -> io::Result<Arc<[IpAddr]>> {
    poll_fn(|context| NAMES.poll(host, context)).await
}

/// Returns the addresses of `host`, a name or an address without brackets, with this port. An IPv6 address
/// may have a zone: `fe80::1%eth0`.
///
/// # Errors
/// The system's error, or the zone is not an interface of this machine.
pub async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Some(address) = literal(host, port) {
        return Ok(vec![address.map_err(io::Error::other)?]);
    }
    let found = resolve(host).await?;
    Ok(found.iter().map(|address| SocketAddr::new(*address, port)).collect())
}

static NAMES: Names = Names { table: Mutex::new(None), look_up: by_system };

fn by_system(host: &str) -> io::Result<Vec<IpAddr>> {
    let found: Vec<IpAddr> = (host, 0).to_socket_addrs()?.map(|address| address.ip()).collect();
    if found.is_empty() { Err(io::Error::other("the name has no address")) } else { Ok(found) }
}

/// The cache, and its resolver.
struct Names {
    table: Mutex<Option<Table>>,
    look_up: fn(&str) -> io::Result<Vec<IpAddr>>,
}

#[derive(Default)]
struct Table {
    names: HashMap<String, Name>,
    /// Names that wait for a thread.
    queue: VecDeque<String>,
    threads: usize,
}

#[derive(Default)]
struct Name {
    found: Option<(Arc<[IpAddr]>, Instant)>,
    failed: Option<(String, io::ErrorKind, Instant)>,
    /// Whether a look-up is running or queued.
    asked: bool,
    waiting: Vec<Waker>,
}

impl Names {
    fn table(&self) -> MutexGuard<'_, Option<Table>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&'static self, host: &str, context: &Context<'_>) -> Poll<io::Result<Arc<[IpAddr]>>> {
        let mut table = self.table();
        let table = table.get_or_insert_default();
        table.forget_some();
        let now = Instant::now();
        let name = table.names.entry(host.to_owned()).or_default();
        let age = |since: Instant| now.saturating_duration_since(since);
        if let Some((found, since)) = &name.found
            && age(*since) < STALE
        {
            let found = Arc::clone(found);
            if age(*since) >= FRESH
                && !name.asked
                && name.failed.as_ref().is_none_or(|failed| age(failed.2) >= FAILED)
            {
                name.asked = true;
                self.ask(table, host);
            }
            return Poll::Ready(Ok(found));
        }
        if let Some((why, kind, since)) = &name.failed
            && age(*since) < FAILED
        {
            return Poll::Ready(Err(io::Error::new(*kind, why.clone())));
        }
        if !name.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            name.waiting.push(context.waker().clone());
        }
        if !std::mem::replace(&mut name.asked, true) {
            self.ask(table, host);
        }
        Poll::Pending
    }

    /// Queues a look-up for a thread.
    fn ask(&'static self, table: &mut Table, host: &str) {
        table.queue.push_back(host.to_owned());
        if table.threads < THREADS_MAX {
            let thread = thread::Builder::new().name("ringroad-resolve".to_owned());
            match thread.spawn(|| self.work()) {
                Ok(_) => table.threads += 1,
                // A running thread will take it.
                Err(_) if table.threads > 0 => {}
                Err(why) => {
                    table.queue.pop_back();
                    table.tell(host, Err(why));
                }
            }
        }
    }

    /// Looks names up until the queue is empty.
    fn work(&self) {
        loop {
            let host = {
                let mut table = self.table();
                let Some(table) = table.as_mut() else { return };
                match table.queue.pop_front() {
                    Some(host) => host,
                    None => {
                        table.threads -= 1;
                        return;
                    }
                }
            };
            let found = (self.look_up)(&host);
            if let Some(table) = self.table().as_mut() {
                table.tell(&host, found);
            }
        }
    }
}

impl Table {
    /// Records the result of a look-up.
    fn tell(&mut self, host: &str, found: io::Result<Vec<IpAddr>>) {
        let Some(name) = self.names.get_mut(host) else { return };
        name.asked = false;
        match found {
            Ok(found) => {
                name.found = Some((found.into(), Instant::now()));
                name.failed = None;
            }
            Err(why) => name.failed = Some((why.to_string(), why.kind(), Instant::now())),
        }
        // A runtime's waker puts the task's number into that runtime's queue, and takes none of our locks.
        name.waiting.drain(..).for_each(Waker::wake);
    }

    /// Drops the older half of the cache when it is full.
    fn forget_some(&mut self) {
        if self.names.len() < NAMES_MAX {
            return;
        }
        let age = |name: &Name| name.found.as_ref().map(|(_, since)| *since);
        let mut ages: Vec<_> = self.names.values().map(age).collect();
        ages.sort_unstable();
        let middle = ages.get(ages.len() / 2).copied().flatten();
        self.names.retain(|_, name| name.asked || (age(name) > middle && age(name).is_some()));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A resolver of the test's own: its look-ups end when they are told to.
    struct Told {
        asked: Receiver<String>,
        answer: Sender<io::Result<Vec<IpAddr>>>,
    }

    static LOOK_UPS: AtomicUsize = AtomicUsize::new(0);
    type Channels = (Sender<String>, Receiver<io::Result<Vec<IpAddr>>>);
    static CHANNELS: Mutex<Option<Channels>> = Mutex::new(None);

    fn told(host: &str) -> io::Result<Vec<IpAddr>> {
        LOOK_UPS.fetch_add(1, Ordering::SeqCst);
        let channels = CHANNELS.lock().unwrap();
        let (asked, answer) = channels.as_ref().unwrap();
        asked.send(host.to_owned()).unwrap();
        answer.recv().unwrap()
    }

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn until_ready(names: &'static Names, host: &str) -> io::Result<Arc<[IpAddr]>> {
        loop {
            if let Poll::Ready(found) = names.poll(host, &context()) {
                return found;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn a_name_is_looked_up_once_for_all_and_an_old_result_is_better_than_none() {
        let (send_asked, asked) = channel();
        let (answer, receive_answer) = channel();
        *CHANNELS.lock().unwrap() = Some((send_asked, receive_answer));
        let told_by = Told { asked, answer };
        let names: &'static Names = Box::leak(Box::new(Names { table: Mutex::new(None), look_up: told }));
        let address = IpAddr::from([192, 0, 2, 1]);
        for _ in 0..100 {
            assert!(names.poll("a", &context()).is_pending());
        }
        assert_eq!(told_by.asked.recv().unwrap(), "a");
        told_by.answer.send(Ok(vec![address])).unwrap();
        assert_eq!(*until_ready(names, "a").unwrap(), [address]);
        assert_eq!(LOOK_UPS.load(Ordering::SeqCst), 1);
        // It gets old: it is still given, and looked up beside.
        let make_old = |by: Duration| {
            let mut table = names.table();
            let name = table.as_mut().unwrap().names.get_mut("a").unwrap();
            name.failed = None;
            name.found.as_mut().unwrap().1 = Instant::now().checked_sub(by).unwrap();
        };
        make_old(FRESH);
        assert_eq!(*until_ready(names, "a").unwrap(), [address]);
        assert_eq!(told_by.asked.recv().unwrap(), "a");
        told_by.answer.send(Err(io::Error::other("no name server answers"))).unwrap();
        while names.table().as_ref().unwrap().names["a"].asked {
            thread::yield_now();
        }
        assert_eq!(*until_ready(names, "a").unwrap(), [address]);
        assert_eq!(LOOK_UPS.load(Ordering::SeqCst), 2, "not at once again");
        // Too old to be true.
        make_old(STALE);
        assert!(names.poll("a", &context()).is_pending());
        assert_eq!(told_by.asked.recv().unwrap(), "a");
        told_by.answer.send(Err(io::Error::other("no name server answers"))).unwrap();
        assert_eq!(until_ready(names, "a").unwrap_err().to_string(), "no name server answers");
    }
}

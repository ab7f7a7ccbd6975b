//! Signals as events that tasks can wait for, on every driver alike.
//!
//! A handler can do very little (signal-safety(7)), so `signal-hook` writes a byte. A thread of the process,
//! started with the first [`Signals`], reads it and wakes the waiting tasks. A signal with a listener loses
//! its default effect for the rest of the process, even after the `Signals` is dropped: a server that drains
//! must itself handle a second Ctrl-C.
//!
//! As in the kernel, a signal that arrives again before it was received is delivered once (signal(7)).
//!
//! A child made by fork(2) has no such thread. It creates a `Signals` of its own to listen again.

mod ctrl_c;
mod dump;

pub use ctrl_c::ctrl_c;
pub use dump::dump_on;

use crate::error::{Error, Result};
use crate::fork::PerProcess;
use signal_hook::iterator::{Handle, Signals as Source};
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::thread;

/// A signal's number, `SIGINT` for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signal(i32);

macro_rules! signals {
    ($($(#[$doc:meta])* $name:ident),*) => {
        impl Signal {
            $($(#[$doc])* pub const $name: Signal = Signal(libc::$name);)*
        }

        impl fmt::Display for Signal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Signal::$name => f.pad(stringify!($name)),)*
                    Signal(number) => write!(f, "signal {number}"),
                }
            }
        }
    };
}
signals!(
    /// Ctrl-C.
    SIGINT,
    /// What `kill` and service managers send.
    SIGTERM,
    /// The terminal was closed. By convention: read the configuration again.
    SIGHUP,
    /// Reserved for the program's own use.
    SIGUSR1,
    /// Reserved for the program's own use.
    SIGUSR2,
    /// Ctrl-\.
    SIGQUIT,
    /// A child ended or stopped.
    SIGCHLD,
    /// The size of the terminal's window has changed.
    SIGWINCH,
    /// Write to a pipe or socket without a reader. (The engine's sends never raise it.)
    SIGPIPE,
    /// A timer of `alarm(2)`.
    SIGALRM
);

impl Signal {
    /// Returns the signal with this number, `1..=64`.
    pub fn new(number: i32) -> Option<Signal> {
        (1..=64).contains(&number).then_some(Signal(number))
    }

    /// Returns the number.
    pub fn number(self) -> i32 {
        self.0
    }

    fn bit(self) -> u64 {
        1 << (self.0 - 1)
    }
}

/// A listener for some signals, from its creation on.
///
/// ```no_run
/// # async fn example() -> ringroad_engine::Result<()> {
/// use ringroad_engine::signal::{Signal, Signals};
///
/// let signals = Signals::new(&[Signal::SIGINT, Signal::SIGTERM])?;
/// let stop = signals.recv().await;
/// println!("{stop}: draining");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Signals {
    inner: Arc<Subscriber>,
}

struct Subscriber {
    wanted: u64,
    state: Mutex<State>,
    /// Called on the signal thread as well.
    tell: Option<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    /// Signals that arrived and were not received yet, one bit each.
    pending: u64,
    /// Waiting futures, by number.
    waiting: Vec<(u64, Waker)>,
    next_number: u64,
}

impl State {
    /// Takes the lowest pending signal, if any.
    fn take(&mut self) -> Option<Signal> {
        let pending = self.pending;
        if pending == 0 {
            return None;
        }
        self.pending &= pending - 1;
        Some(Signal(pending.trailing_zeros() as i32 + 1))
    }
}

impl Subscriber {
    /// No waker is cloned, woken or dropped under this lock, since that runs user code.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a signal: wakes every waiting future. A waker that panics does not keep the others from being
    /// woken, and does not end the signal thread.
    fn deliver(&self, signal: Signal) {
        let waiting = {
            let mut state = self.state();
            state.pending |= signal.bit();
            std::mem::take(&mut state.waiting)
        };
        for (_, waker) in waiting {
            guarded(|| waker.wake());
        }
        if let Some(tell) = &self.tell {
            guarded(tell);
        }
    }
}

/// Runs user code on the signal thread. The panic hook reports a panic; the payload is leaked, since its
/// destructor may panic as well.
fn guarded(code: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(code)) {
        std::mem::forget(payload);
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("wanted", &format_args!("{:#x}", self.wanted))
            .field("pending", &format_args!("{:#x}", self.state().pending))
            .finish_non_exhaustive()
    }
}

/// The connection to the signal thread, and all listeners.
struct Hub {
    handle: Handle,
    subscribers: Vec<Weak<Subscriber>>,
}

/// This process's hub; `None` until the first [`Signals`].
type Place = Mutex<Option<Hub>>;

fn place() -> &'static Place {
    static HUB: PerProcess<Place> = PerProcess::new();
    HUB.get(|_| Mutex::new(None))
}

fn lock(place: &Place) -> MutexGuard<'_, Option<Hub>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Signals {
    /// Begins to listen for `signals`. Each `Signals` gets each signal.
    ///
    /// # Errors
    /// EINVAL: one that cannot be caught (SIGKILL, SIGSTOP), that means a broken program (SIGSEGV, SIGILL,
    /// SIGFPE), or that the C library keeps for itself (32, 33); then none of `signals` is caught. EAGAIN: no
    /// thread, no descriptor.
    pub fn new(signals: &[Signal]) -> Result<Signals> {
        Signals::listen(signals, None)
    }

    /// Works as [`Signals::new`], with a function that is called for each signal. It must not block or panic.
    fn telling(signals: &[Signal], tell: impl Fn() + Send + Sync + 'static) -> Result<Signals> {
        Signals::listen(signals, Some(Box::new(tell)))
    }

    fn listen(signals: &[Signal], tell: Option<Box<dyn Fn() + Send + Sync>>) -> Result<Signals> {
        let failed = |why: io::Error| Error::new("sigaction", why);
        // Check all of them before catching any: a caught signal has lost its default effect for good.
        for signal in signals {
            signal.check().map_err(|why| failed(why).on(signal))?;
        }
        let mut hub = lock(place());
        let hub = match &mut *hub {
            Some(hub) => hub,
            none => none.insert(Hub::start().map_err(failed)?),
        };
        let mut wanted = 0;
        for signal in signals {
            hub.handle.add_signal(signal.0).map_err(|why| failed(why).on(signal))?;
            wanted |= signal.bit();
        }
        let inner = Arc::new(Subscriber { wanted, state: Mutex::default(), tell });
        hub.subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        hub.subscribers.push(Arc::downgrade(&inner));
        Ok(Signals { inner })
    }

    /// Waits for the next signal. Of several pending signals it takes the one with the lowest number.
    /// Dropping the future loses nothing.
    pub async fn recv(&self) -> Signal {
        Recv { subscriber: &self.inner, number: None }.await
    }

    /// Takes a signal that has already arrived.
    pub fn try_recv(&self) -> Option<Signal> {
        self.inner.state().take()
    }
}

impl Signal {
    /// Checks whether it can be caught, without catching it.
    fn check(self) -> io::Result<()> {
        if signal_hook::consts::FORBIDDEN.contains(&self.0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it cannot be waited for"));
        }
        // SAFETY: sigaction(2) without a new action writes the present one into a live local. Zero is a valid
        // value of it: numbers, and a handler that may be none.
        let answer = unsafe {
            let mut present: libc::sigaction = std::mem::zeroed();
            libc::sigaction(self.0, std::ptr::null(), &raw mut present)
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Future of [`Signals::recv`].
struct Recv<'a> {
    subscriber: &'a Subscriber,
    /// Its number in the list of those that wait.
    number: Option<u64>,
}

impl Future for Recv<'_> {
    type Output = Signal;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Signal> {
        // Cloning runs user code, so it happens before the lock is taken; the replaced waker is dropped after
        // the lock is released.
        let waker = context.waker().clone();
        let subscriber = self.subscriber;
        let mut state = subscriber.state();
        if let Some(signal) = state.take() {
            drop(state);
            return Poll::Ready(signal);
        }
        let number = *self.number.get_or_insert_with(|| {
            state.next_number += 1;
            state.next_number
        });
        let before = match state.waiting.iter_mut().find(|(waiting, _)| *waiting == number) {
            Some((_, before)) => Some(std::mem::replace(before, waker)),
            None => {
                state.waiting.push((number, waker));
                None
            }
        };
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Recv<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let _waker = {
            let mut state = self.subscriber.state();
            let at = state.waiting.iter().position(|(waiting, _)| *waiting == number);
            at.map(|at| state.waiting.swap_remove(at))
        };
    }
}

impl Hub {
    fn start() -> io::Result<Hub> {
        let mut source = Source::new(std::iter::empty::<i32>())?;
        let handle = source.handle();
        thread::Builder::new().name("ringroad-signals".into()).spawn(move || {
            for number in source.forever() {
                let signal = Signal(number);
                // Wakes run user code, which may listen for signals itself: not under the lock.
                let subscribers: Vec<_> = {
                    let hub = lock(place());
                    let subscribers = hub.iter().flat_map(|hub| &hub.subscribers).filter_map(Weak::upgrade);
                    subscribers.filter(|subscriber| subscriber.wanted & signal.bit() != 0).collect()
                };
                for subscriber in subscribers {
                    subscriber.deliver(signal);
                }
            }
        })?;
        Ok(Hub { handle, subscribers: Vec::new() })
    }
}

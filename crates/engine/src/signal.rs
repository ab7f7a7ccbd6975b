//! Signals as events that tasks can wait for, on every driver alike.
//!
//! A handler can do next to nothing (signal-safety(7)), so `signal-hook` writes a byte, and a thread of the
//! process, begun with the first [`Signals`], reads it and wakes whoever waits. A signal that is waited for no
//! longer has its default effect, for the rest of the process, also after the `Signals` is dropped: a second
//! Ctrl-C while a server drains is the server's to notice.
//!
//! As in the kernel, a signal that comes again before it was taken comes once (signal(7)).

mod dump;

pub use dump::dump_on;

use crate::error::{Error, Result};
use event_listener::{Event, listener};
use signal_hook::iterator::{Handle, Signals as Source};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
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
    /// The terminal is gone; by custom: read the configuration again.
    SIGHUP,
    /// For the program to use.
    SIGUSR1,
    /// For the program to use.
    SIGUSR2,
    /// Ctrl-\.
    SIGQUIT,
    /// A child ended or stopped.
    SIGCHLD,
    /// The terminal's window has another size.
    SIGWINCH,
    /// A reader is gone. (The engine's sends never raise it.)
    SIGPIPE,
    /// A timer of `alarm(2)`.
    SIGALRM
);

impl Signal {
    /// One by its number, `1..=64`.
    pub fn new(number: i32) -> Option<Signal> {
        (1..=64).contains(&number).then_some(Signal(number))
    }

    /// Its number.
    pub fn number(self) -> i32 {
        self.0
    }

    fn bit(self) -> u64 {
        1 << (self.0 - 1)
    }
}

/// Some signals, from now on.
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
    /// Those that came and were not taken, a bit each.
    pending: AtomicU64,
    came: Event,
    /// Called on the thread of the signals besides.
    tell: Option<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("wanted", &format_args!("{:#x}", self.wanted))
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

/// The thread's other end.
struct Hub {
    handle: Handle,
    subscribers: Vec<Weak<Subscriber>>,
}

static HUB: Mutex<Option<Hub>> = Mutex::new(None);

impl Signals {
    /// Begins to listen for `signals`. Each `Signals` hears of each signal.
    ///
    /// # Errors
    /// EINVAL: one that cannot be caught (SIGKILL, SIGSTOP) or that means a broken program (SIGSEGV, SIGILL,
    /// SIGFPE); EAGAIN: no thread, no descriptor.
    pub fn new(signals: &[Signal]) -> Result<Signals> {
        Signals::listen(signals, None)
    }

    /// The same, with something to be called each time; it does not wait and does not panic.
    fn telling(signals: &[Signal], tell: impl Fn() + Send + Sync + 'static) -> Result<Signals> {
        Signals::listen(signals, Some(Box::new(tell)))
    }

    fn listen(signals: &[Signal], tell: Option<Box<dyn Fn() + Send + Sync>>) -> Result<Signals> {
        let failed = |why: io::Error| Error::new("sigaction", why);
        for signal in signals {
            if signal_hook::consts::FORBIDDEN.contains(&signal.0) {
                let why = io::Error::new(io::ErrorKind::InvalidInput, "it cannot be waited for");
                return Err(failed(why).on(signal));
            }
        }
        let mut wanted = 0;
        let mut hub = HUB.lock().unwrap_or_else(PoisonError::into_inner);
        let hub = match &mut *hub {
            Some(hub) => hub,
            none => none.insert(Hub::start().map_err(failed)?),
        };
        for signal in signals {
            hub.handle.add_signal(signal.0).map_err(|why| failed(why).on(signal))?;
            wanted |= signal.bit();
        }
        let inner = Arc::new(Subscriber { wanted, pending: AtomicU64::new(0), came: Event::new(), tell });
        hub.subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        hub.subscribers.push(Arc::downgrade(&inner));
        Ok(Signals { inner })
    }

    /// The next signal. Of several that came, the one with the lowest number. Dropping the future loses nothing.
    pub async fn recv(&self) -> Signal {
        loop {
            if let Some(signal) = self.try_recv() {
                return signal;
            }
            listener!(self.inner.came => came);
            // It may have come before we listened.
            if let Some(signal) = self.try_recv() {
                return signal;
            }
            came.await;
        }
    }

    /// A signal that came already.
    pub fn try_recv(&self) -> Option<Signal> {
        let pending = &self.inner.pending;
        let taken = pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| match bits {
            0 => None,
            bits => Some(bits & (bits - 1)),
        });
        taken.ok().map(|bits| Signal(bits.trailing_zeros() as i32 + 1))
    }
}

impl Hub {
    fn start() -> io::Result<Hub> {
        let mut source = Source::new(std::iter::empty::<i32>())?;
        let handle = source.handle();
        thread::Builder::new().name("ringroad-signals".into()).spawn(move || {
            for number in source.forever() {
                let signal = Signal(number);
                let hub = HUB.lock().unwrap_or_else(PoisonError::into_inner);
                for subscriber in hub.iter().flat_map(|hub| &hub.subscribers).filter_map(Weak::upgrade) {
                    if subscriber.wanted & signal.bit() != 0 {
                        subscriber.pending.fetch_or(signal.bit(), Ordering::AcqRel);
                        subscriber.came.notify(usize::MAX);
                        if let Some(tell) = &subscriber.tell {
                            tell();
                        }
                    }
                }
            }
        })?;
        Ok(Hub { handle, subscribers: Vec::new() })
    }
}

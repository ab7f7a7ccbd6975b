//! What SIGINT, SIGTERM and their like do to every verb: the first asks it to stop, a later one ends the
//! program where it stands.
//!
//! A second signal right after the first is no second wish. GNU `timeout` sends its signal to the program and
//! then to the group that the program is in; a process manager may do the same. So until [`ONE_WISH`] is over
//! only a key ends the program: a signal that the terminal sent. Start at [`on_signals`].

use libc::siginfo_t;
use ringroad_host::process;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Signals within this time of the first are the same wish to stop.
const ONE_WISH: Duration = Duration::from_secs(1);
/// Between two looks for a key in that time.
const LOOK: Duration = Duration::from_millis(20);

/// Returns whether this is Ctrl-C at the terminal: the kernel sent it, which has codes above zero.
pub(crate) fn is_typed(came: &siginfo_t) -> bool {
    came.si_signo == SIGINT && came.si_code > 0
}

/// Ends the program as the signal does by default.
pub(crate) fn end_now(signal: i32) {
    let _ = emulate_default_handler(signal);
}

/// Sets a flag when signals are no longer the wish of the first; at once where there is no thread for it.
pub(crate) fn arm_later(armed: &Arc<AtomicBool>) {
    let arms = Arc::clone(armed);
    let later = move || {
        thread::sleep(ONE_WISH);
        arms.store(true, Ordering::Relaxed);
    };
    if thread::Builder::new().spawn(later).is_err() {
        armed.store(true, Ordering::Relaxed);
    }
}

/// What waits for signals. It waits for the first from [`Watch::over`] on.
pub(crate) struct Watch {
    give: Sender<SignalsInfo<WithRawSiginfo>>,
    armed: Arc<AtomicBool>,
}

impl Watch {
    /// Starts the thread that will wait. `first` hears of the first signal, on a thread of its own where
    /// there is one more.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn begin(first: impl FnOnce(i32) + Send + 'static) -> io::Result<Watch> {
        let armed = Arc::new(AtomicBool::new(false));
        let arms = Arc::clone(&armed);
        let (give, take) = channel::<SignalsInfo<WithRawSiginfo>>();
        thread::Builder::new().name("ringroad-signals".to_owned()).spawn(move || {
            let Ok(mut signals) = take.recv() else { return };
            let Some(came) = signals.forever().next() else { return };
            let until = Instant::now() + ONE_WISH;
            let signal = came.si_signo;
            let first = Arc::new(Mutex::new(Some(first)));
            let hear = move || {
                let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(first) = first {
                    first(signal);
                }
            };
            if thread::Builder::new().spawn(hear.clone()).is_err() {
                // Without a thread for what the first does, every later signal counts.
                arms.store(true, Ordering::Relaxed);
                return hear();
            }
            while Instant::now() < until {
                signals.pending().filter(is_typed).for_each(|_| end_now(SIGINT));
                thread::sleep(LOOK);
            }
            arms.store(true, Ordering::Relaxed);
        })?;
        Ok(Watch { give, armed })
    }

    /// Has it wait for these signals.
    ///
    /// # Errors
    /// They could not be registered: no descriptor is left, or a filter forbids pairs of sockets. Then they
    /// do what they did before.
    pub(crate) fn over(self, signals: &[i32]) -> io::Result<()> {
        let comes = SignalsInfo::new(signals)?;
        for signal in signals {
            signal_hook::flag::register_conditional_default(*signal, Arc::clone(&self.armed))?;
        }
        // Without the thread, which has just been started, this could not be sent.
        let _ = self.give.send(comes);
        Ok(())
    }
}

/// Returns the signals that ask a program to stop: also that its terminal has closed, unless it is to outlive
/// it (`nohup`).
pub(crate) fn wishes() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    signals.extend((!process::ignores(SIGHUP)).then_some(SIGHUP));
    signals
}

/// Sets `stop` on the first of these signals, and calls `first`.
///
/// Where the system has no thread left, or no pair of sockets, every second signal ends the program, and
/// `first` is not called.
///
/// # Errors
/// The signals could not be registered.
pub(crate) fn on_signals(
    signals: &[i32],
    stop: &Arc<AtomicBool>,
    first: impl FnOnce(i32) + Send + 'static,
) -> io::Result<()> {
    if Watch::begin(first).and_then(|watch| watch.over(signals)).is_err() {
        signals.iter().try_for_each(|signal| {
            signal_hook::flag::register_conditional_default(*signal, Arc::clone(stop)).map(drop)
        })?;
    }
    // In the handler, so that nothing has to be scheduled for it. After the default: the first must not end
    // the program by what it has just set.
    signals.iter().try_for_each(|signal| signal_hook::flag::register(*signal, Arc::clone(stop)).map(drop))
}

//! What reaches a runtime from other threads: wakes and work, and the alarm that ends its sleep.
//!
//! The protocol, checked by loom (`tests` below, with `--cfg ringroad_loom`): the sender puts its message in, then looks
//! whether the runtime sleeps; the runtime says that it sleeps, then looks whether there is a message. Whichever
//! comes second sees the other, because both go through the lock. The alarm is raised at most once per sleep.

#[cfg(ringroad_loom)]
use loom::sync::{Mutex, MutexGuard, atomic::AtomicBool};
use std::sync::atomic::Ordering;
#[cfg(not(ringroad_loom))]
use std::sync::{Mutex, MutexGuard, atomic::AtomicBool};

/// One message to a runtime.
pub(crate) enum Message {
    /// A task, packed as its wakers are.
    Wake(u64),
    /// To be called on the runtime's thread.
    Call(Box<dyn FnOnce() + Send>),
}

/// Ends a runtime's wait.
pub(crate) trait Alarm: Send + Sync {
    fn raise(&self);
}

/// The inbox of one runtime.
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// There is a message: set under the lock, so that looking for none takes no lock.
    has_mail: AtomicBool,
    /// The runtime waits, or is about to, and has seen no message.
    asleep: AtomicBool,
    alarm: Box<dyn Alarm>,
}

struct State {
    messages: Vec<Message>,
    /// The runtime is gone; nothing will be read again.
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(alarm: Box<dyn Alarm>) -> Inbox {
        let state = Mutex::new(State { messages: Vec::new(), closed: false });
        Inbox { state, has_mail: AtomicBool::new(false), asleep: AtomicBool::new(false), alarm }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code of ours panics while it holds the lock; if a message's drop did, the state is still whole.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sends a message; gives it back if the runtime is gone. Any thread.
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        {
            let mut state = self.state();
            if state.closed {
                return Err(message);
            }
            // A task woken over and over by somebody, while its runtime does something else, is woken once.
            let again = match (&message, state.messages.last()) {
                (Message::Wake(task), Some(Message::Wake(last))) => task == last,
                _ => false,
            };
            if !again {
                state.messages.push(message);
                self.has_mail.store(true, Ordering::Relaxed);
            }
        }
        // The lock above orders this after the runtime's store (see there). Mostly it does not sleep, and to look is cheaper
        // than to exchange; of several who find it asleep one raises the alarm.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.alarm.raise();
        }
        Ok(())
    }

    /// Moves what has come into `out`. The runtime only.
    #[inline]
    pub(crate) fn take(&self, out: &mut Vec<Message>) {
        // One that comes just now is seen in the next round or turn: before the runtime sleeps it looks under the lock.
        if self.has_mail() {
            let mut state = self.state();
            self.has_mail.store(false, Ordering::Relaxed);
            out.append(&mut state.messages);
        }
    }

    /// Whether something has come. One that comes just now is perhaps not seen, as by [`take`](Self::take). The runtime only.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Relaxed)
    }

    /// The runtime is going to wait. `false`: do not, there are messages.
    pub(crate) fn fall_asleep(&self) -> bool {
        // Before the lock is taken: whoever sends after our look below takes the lock after us, and sees this.
        self.asleep.store(true, Ordering::Release);
        let empty = self.state().messages.is_empty();
        if !empty {
            self.asleep.store(false, Ordering::Relaxed);
        }
        empty
    }

    /// The wait is over, for whatever reason.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// The runtime is gone. What nobody will read is given out, to be dropped by the caller.
    pub(crate) fn close(&self) -> Vec<Message> {
        let mut state = self.state();
        state.closed = true;
        std::mem::take(&mut state.messages)
    }
}

#[cfg(all(test, ringroad_loom))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// Counts its calls.
    struct Bell(Arc<AtomicUsize>);
    impl Alarm for Bell {
        fn raise(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn inbox() -> (Arc<Inbox>, Arc<AtomicUsize>) {
        let rings = Arc::new(AtomicUsize::new(0));
        (Arc::new(Inbox::new(Box::new(Bell(Arc::clone(&rings))))), rings)
    }

    #[test]
    fn a_message_is_seen_before_sleep_or_ends_it() {
        loom::model(|| {
            let (inbox, rings) = inbox();
            let sender = {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || assert!(inbox.send(Message::Wake(1)).is_ok()))
            };
            let sleeps = inbox.fall_asleep();
            sender.join().unwrap();
            let mut messages = Vec::new();
            inbox.take(&mut messages);
            assert_eq!(messages.len(), 1);
            // Asleep with a message and without an alarm: nobody would ever wake it.
            assert!(!sleeps || rings.load(Ordering::SeqCst) == 1);
        });
    }

    #[test]
    fn two_senders_raise_one_alarm_and_lose_nothing() {
        loom::model(|| {
            let (inbox, rings) = inbox();
            let senders: Vec<_> = (0..2)
                .map(|task| {
                    let inbox = Arc::clone(&inbox);
                    thread::spawn(move || assert!(inbox.send(Message::Wake(task)).is_ok()))
                })
                .collect();
            let sleeps = inbox.fall_asleep();
            for sender in senders {
                sender.join().unwrap();
            }
            let mut messages = Vec::new();
            inbox.take(&mut messages);
            assert_eq!(messages.len(), 2);
            let rings = rings.load(Ordering::SeqCst);
            assert!(rings <= 1 && (!sleeps || rings == 1), "sleeps {sleeps}, rings {rings}");
        });
    }

    #[test]
    fn a_message_is_either_taken_or_given_back_when_the_runtime_goes() {
        loom::model(|| {
            let (inbox, _) = inbox();
            let sender = {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || inbox.send(Message::Wake(1)).is_err())
            };
            let left = inbox.close().len();
            let refused = sender.join().unwrap();
            assert_eq!(left + usize::from(refused), 1);
        });
    }
}

//! The inbox of a runtime: wakes and calls from other threads, and the alarm that ends its sleep.
//!
//! The protocol, checked by loom (`tests` below, with `--cfg ringroad_loom`): the sender queues its message,
//! then checks whether the runtime sleeps. The runtime announces that it sleeps, then checks for messages.
//! The later of the two sees the other, because both take the lock. The alarm is raised at most once per
//! sleep.

#[cfg(ringroad_loom)]
use loom::sync::{Mutex, MutexGuard, atomic::AtomicBool};
use std::sync::atomic::Ordering;
#[cfg(not(ringroad_loom))]
use std::sync::{Mutex, MutexGuard, atomic::AtomicBool};

/// One message to a runtime.
pub(crate) enum Message {
    /// Wakes a task, given in packed form.
    Wake(u64),
    /// A call to run on the runtime's thread.
    Call(Box<dyn FnOnce() + Send>),
}

/// Ends a runtime's wait.
pub(crate) trait Alarm: Send + Sync {
    fn raise(&self);
}

/// The inbox of one runtime.
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// A message is queued. Set under the lock, so that a check that finds none takes no lock.
    has_mail: AtomicBool,
    /// The runtime waits, or is about to, and has seen no message.
    asleep: AtomicBool,
    alarm: Box<dyn Alarm>,
}

struct State {
    messages: Vec<Message>,
    /// The runtime was shut down; no message is read any more.
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(alarm: Box<dyn Alarm>) -> Inbox {
        let state = Mutex::new(State { messages: Vec::new(), closed: false });
        Inbox { state, has_mail: AtomicBool::new(false), asleep: AtomicBool::new(false), alarm }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code of the engine panics under this lock. If the drop of a message does, the state is still
        // consistent.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sends a message; returns it if the runtime was shut down. May be called on any thread.
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        {
            let mut state = self.state();
            if state.closed {
                return Err(message);
            }
            // A task that is woken repeatedly while its runtime is busy is queued once.
            let again = match (&message, state.messages.last()) {
                (Message::Wake(task), Some(Message::Wake(last))) => task == last,
                _ => false,
            };
            if !again {
                state.messages.push(message);
                self.has_mail.store(true, Ordering::Relaxed);
            }
        }
        // The lock above orders this load after the runtime's store (see there). Usually the runtime does not
        // sleep, and a load is cheaper than an exchange. Of several senders that find it asleep, one raises
        // the alarm.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.alarm.raise();
        }
        Ok(())
    }

    /// Moves all messages into `out`. Called by the runtime only.
    #[inline]
    pub(crate) fn take(&self, out: &mut Vec<Message>) {
        // A message that arrives now is seen in the next round or turn: before it sleeps, the runtime checks
        // under the lock.
        if self.has_mail() {
            let mut state = self.state();
            self.has_mail.store(false, Ordering::Relaxed);
            out.append(&mut state.messages);
        }
    }

    /// Returns whether a message has arrived. May miss one that arrives just now, like [`take`](Self::take).
    /// Called by the runtime only.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Relaxed)
    }

    /// Announces that the runtime is going to wait. `false`: messages are queued, so it must not wait.
    pub(crate) fn fall_asleep(&self) -> bool {
        // Stored before the lock is taken: a sender that queues after the check below takes the lock later,
        // and sees this.
        self.asleep.store(true, Ordering::Release);
        let empty = self.state().messages.is_empty();
        if !empty {
            self.asleep.store(false, Ordering::Relaxed);
        }
        empty
    }

    /// Announces that the wait is over, for whatever reason.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Closes the inbox. Returns the unread messages, for the caller to drop.
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
            // Asleep with a message and without an alarm, it would never wake.
            assert!(!sleeps || rings.load(Ordering::SeqCst) == 1);
        });
    }

    #[test]
    fn two_senders_raise_one_alarm_and_lose_nothing() {
        // All orders of three threads take minutes; three preemptions take seconds.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
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
    fn a_message_is_either_taken_or_returned_when_the_inbox_closes() {
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

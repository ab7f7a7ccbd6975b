//! A worker: a thread that waits for one direction of one descriptor at a time.
//!
//! It waits in `poll` for the descriptor and for its bell, an eventfd. The driver can ring the bell at any
//! time to call the worker back, and then knows exactly what the worker has done. All its other calls are
//! non-blocking. A standing receive continues without the driver: received bytes stay in the worker's state
//! until the driver takes them.
//!
//! All shared state is under locks: [`State`] of each worker, and [`Post`] of all. The driver's side is in
//! `mod.rs`. Locks and system calls are in [`ground`](super::ground), so that loom can run this hand-shake in
//! every order (`model`).

#[cfg(not(ringroad_loom))]
use super::super::alarm;
use super::ground::{Bell, Condvar, Mutex, MutexGuard};
use crate::counters::Counters;
use crate::op::Span;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Stack size of a worker.
const STACK_BYTES: usize = 64 * 1024;

/// An assignment of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Waits for one of these events of `poll(2)`, then leaves.
    Watch { number: i32, events: i16 },
    /// Receives until the end of the stream, an error, or a call-back. The first receive has room for this
    /// many bytes.
    Receive { number: i32, room_bytes: usize },
}

/// A message of a worker to the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerMessage {
    pub(super) worker: u32,
    /// The worker has left its descriptor and is idle. Otherwise it has received something.
    pub(super) left: bool,
    pub(super) system_calls: u32,
    pub(super) would_block: u32,
}

/// The messages of all workers of a driver.
pub(super) struct Post {
    queue: Mutex<Queue>,
    /// Ends the driver's sleep.
    alarm: Arc<OwnedFd>,
    #[cfg(ringroad_loom)]
    pub(super) rung: super::ground::Flag,
}

struct Queue {
    /// At most two messages per worker: it has received something, and it has left.
    told: Vec<WorkerMessage>,
    /// The driver sleeps or is about to: the next message rings the alarm.
    asleep: bool,
}

impl Post {
    pub(super) fn new(alarm: Arc<OwnedFd>) -> Post {
        Post {
            queue: Mutex::new(Queue { told: Vec::new(), asleep: false }),
            alarm,
            #[cfg(ringroad_loom)]
            rung: super::ground::Flag::default(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code panics under this lock, so poisoning means nothing.
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn alarm(&self) -> &Arc<OwnedFd> {
        &self.alarm
    }

    fn tell(&self, worker: u32, left: bool, counters: &mut Counters) {
        let asleep = {
            let mut queue = self.queue();
            let before = std::mem::take(counters);
            let (system_calls, would_block) = (before.system_calls as u32, before.would_block as u32);
            queue.told.push(WorkerMessage { worker, left, system_calls, would_block });
            std::mem::take(&mut queue.asleep)
        };
        if asleep {
            #[cfg(not(ringroad_loom))]
            alarm::ring(&self.alarm, counters);
            #[cfg(ringroad_loom)]
            self.rung.set();
        }
    }

    /// Swaps the messages with `out`, which is empty. If there are none and `then_sleep`, the next message
    /// rings the alarm, and this returns `true`.
    pub(super) fn take(&self, out: &mut Vec<WorkerMessage>, then_sleep: bool) -> bool {
        let mut queue = self.queue();
        std::mem::swap(&mut queue.told, out);
        queue.asleep = then_sleep && out.is_empty();
        queue.asleep
    }
}

/// The state that driver and worker share.
pub(super) struct Worker {
    state: Mutex<State>,
    /// Notified on a job, on room in the buffer, and on dismissal.
    go: Condvar,
    /// Rung to call the worker back from `poll`.
    bell: Bell,
}

pub(super) struct State {
    job: Option<Job>,
    called_back: bool,
    dismissed: bool,
    /// It waits until the driver has taken the received bytes.
    waits_for_room: bool,
    /// Received bytes. Memory is allocated when there is something to receive.
    pub(super) received: Vec<u8>,
    /// Room of the next receive.
    pub(super) room_bytes: usize,
    /// The result with which it has left without a call-back: 0 (the end of the stream), or a negated errno.
    pub(super) end: Option<i32>,
}

impl Worker {
    /// Starts a worker, which is `id` to the driver.
    pub(super) fn start(
        id: u32,
        post: &Arc<Post>,
        counters: &mut Counters,
    ) -> io::Result<(Arc<Worker>, JoinHandle<()>)> {
        counters.system_calls += 1;
        let worker = Arc::new(Worker::new(Bell::new()?));
        let (me, post) = (Arc::clone(&worker), Arc::clone(post));
        let thread = Builder::new().name(format!("worker {id}")).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || me.live(id, &post))?;
        Ok((worker, thread))
    }

    pub(super) fn new(bell: Bell) -> Worker {
        let state = State {
            job: None,
            called_back: false,
            dismissed: false,
            waits_for_room: false,
            received: Vec::new(),
            room_bytes: 0,
            end: None,
        };
        Worker { state: Mutex::new(state), go: Condvar::new(), bell }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // No code panics under this lock, so poisoning means nothing.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    // ---- the driver's side --------------------------------------------------------------------------------

    /// Assigns a job to an idle worker.
    pub(super) fn assign(&self, job: Job) {
        let mut state = self.state();
        debug_assert!(state.job.is_none() && state.received.is_empty());
        (state.job, state.end) = (Some(job), None);
        if let Job::Receive { room_bytes, .. } = job {
            state.room_bytes = room_bytes;
        }
        drop(state);
        self.go.notify_one();
    }

    /// Calls the worker back from its job; it sends a message when it has left. No effect if it has left
    /// already.
    pub(super) fn call_back(&self, counters: &mut Counters) {
        let mut state = self.state();
        if state.job.is_none() {
            return;
        }
        state.called_back = true;
        self.rouse(state, counters);
    }

    /// Ends the thread as soon as it has left its job.
    pub(super) fn dismiss(&self, counters: &mut Counters) {
        let mut state = self.state();
        (state.dismissed, state.called_back) = (true, true);
        self.rouse(state, counters);
    }

    /// Wakes the worker, in `poll` or on the condition variable.
    fn rouse(&self, state: MutexGuard<'_, State>, counters: &mut Counters) {
        let in_poll = state.job.is_some() && !state.waits_for_room;
        drop(state);
        // A worker that was just leaving finds the bell rung at its next job, and ignores it.
        if in_poll { self.bell.ring(counters) } else { self.go.notify_one() }
    }

    /// Wakes a worker that waits for room: its bytes were taken under this lock.
    pub(super) fn taken(&self, mut state: MutexGuard<'_, State>) {
        let waits = std::mem::take(&mut state.waits_for_room);
        drop(state);
        if waits {
            self.go.notify_one();
        }
    }

    // ---- the thread's side --------------------------------------------------------------------------------

    fn live(&self, id: u32, post: &Post) {
        block_signals();
        let mut counters = Counters::default();
        give_way(&mut counters);
        self.work(id, post, &mut counters);
    }

    /// Does one job after another, until it is dismissed.
    pub(super) fn work(&self, id: u32, post: &Post, counters: &mut Counters) {
        while let Some(job) = self.next_job() {
            match job {
                Job::Watch { number, events } => {
                    self.is_ready(number, events, counters);
                }
                Job::Receive { number, .. } => self.receive(id, number, post, counters),
            }
            // From here on a call-back has no effect: the driver gets the message that it has left.
            let mut state = self.state();
            (state.job, state.called_back) = (None, state.dismissed);
            drop(state);
            post.tell(id, true, counters);
        }
    }

    /// Waits for a job. `None`: dismissed.
    fn next_job(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            match state.job {
                _ if state.dismissed => return None,
                Some(job) => return Some(job),
                None => state = self.go.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner()),
            }
        }
    }

    /// Waits for one of the events. `false`: called back.
    fn is_ready(&self, number: i32, events: i16, counters: &mut Counters) -> bool {
        loop {
            let woken = self.bell.wait(number, events, counters);
            if woken.by_bell {
                self.bell.silence(counters);
                if self.state().called_back {
                    return false;
                }
            }
            if woken.by_descriptor {
                return true;
            }
        }
    }

    /// Waits until the buffer is free. `None`: called back.
    fn room(&self) -> Option<MutexGuard<'_, State>> {
        let mut state = self.state();
        while !state.received.is_empty() && !state.called_back {
            state.waits_for_room = true;
            state = self.go.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.waits_for_room = false;
        (!state.called_back).then_some(state)
    }

    fn receive(&self, id: u32, number: i32, post: &Post, counters: &mut Counters) {
        while self.is_ready(number, libc::POLLIN | libc::POLLRDHUP, counters) {
            let Some(mut state) = self.room() else { return };
            let bytes = state.room_bytes;
            if state.received.capacity() < bytes {
                state.received = Vec::with_capacity(bytes);
            }
            let memory = Span { start: state.received.as_mut_ptr(), bytes };
            // SAFETY: the empty buffer has that much room and is used only under the lock, which is held.
            match unsafe { self.bell.receive(number, memory, counters) } {
                bytes if bytes > 0 => {
                    // SAFETY: the call has just written this many bytes, within the capacity.
                    unsafe { state.received.set_len(bytes as usize) };
                    drop(state);
                    post.tell(id, false, counters);
                }
                errno if errno == -libc::EINTR => {}
                nothing => {
                    // A worker that waits or is idle holds no large buffer.
                    state.received = Vec::new();
                    if nothing == -libc::EAGAIN {
                        counters.would_block += 1;
                        continue;
                    }
                    state.end = Some(nothing);
                    return;
                }
            }
        }
    }
}

/// Blocks all signals, so that the program's own threads handle them.
fn block_signals() {
    // SAFETY: a set is numbers, for which zero is valid; both calls write or read the live local only.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Sets SCHED_BATCH, so that this thread does not preempt the running one when it wakes (sched(7)).
///
/// Otherwise, on one processor, the kernel interrupts the runtime for each worker that wakes, for a message
/// that the runtime handles only at its next turn (measured: 1.3 context switches a request instead of 1.15,
/// and up to a third of the CPU time). The cost: a busy process on the same processor delays a worker by the
/// rest of its time slice. A thread with a policy that the program has chosen keeps it. A failure is ignored.
fn give_way(counters: &mut Counters) {
    counters.system_calls += 1;
    // SAFETY: sched_getscheduler(2) takes a number; 0 is this thread. (By number: musl's function always
    // returns ENOSYS.)
    if unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) } != libc::c_long::from(libc::SCHED_OTHER) {
        return;
    }
    counters.system_calls += 1;
    // A `struct sched_param` is this one number, which is 0 for all policies but the real-time ones.
    let priority: libc::c_int = 0;
    // SAFETY: sched_setscheduler(2): a live number is read during the call.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_BATCH, &raw const priority) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn policy() -> libc::c_long {
        // SAFETY: takes a number; 0 is this thread.
        unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) }
    }

    #[test]
    fn a_worker_uses_sched_batch_unless_it_has_another_policy() {
        let run = |chosen: Option<libc::c_int>| {
            let thread = std::thread::spawn(move || {
                if let Some(chosen) = chosen {
                    let priority: libc::c_int = 0;
                    // SAFETY: a live number is read during the call.
                    let set = unsafe {
                        libc::syscall(libc::SYS_sched_setscheduler, 0, chosen, &raw const priority)
                    };
                    assert_eq!(set, 0);
                }
                give_way(&mut Counters::default());
                policy()
            });
            thread.join().unwrap()
        };
        if policy() != libc::c_long::from(libc::SCHED_OTHER) {
            return eprintln!("skipped: the tests themselves run under a policy of their own");
        }
        assert_eq!(run(None), libc::c_long::from(libc::SCHED_BATCH));
        assert_eq!(run(Some(libc::SCHED_IDLE)), libc::c_long::from(libc::SCHED_IDLE));
    }
}

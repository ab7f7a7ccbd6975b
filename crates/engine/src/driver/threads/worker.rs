//! A worker: a thread that waits for one direction of one descriptor at a time.
//!
//! It waits in `poll` for the descriptor and for its own bell, which is rung to take it away from there: so it can
//! always be called back, and what it has done by then is known exactly. It makes only non-blocking calls besides. A
//! receive goes on without being told anything: what it brings is left in the worker's state until the driver takes it.
//!
//! Everything shared is under a lock, [`State`] of a worker and [`Post`] of all; the driver's side is in `mod.rs`.

use super::super::alarm;
use crate::counters::Counters;
use crate::op::Span;
use crate::sys::attempt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};

/// A worker calls nothing deep.
const STACK_BYTES: usize = 64 * 1024;

/// What a worker is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Until one of these events of `poll(2)`: then it leaves.
    Watch { number: i32, events: i16 },
    /// Until the end, an error, or it is called back.
    Receive { number: i32 },
}

/// What a worker tells the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) worker: u32,
    /// It has left its descriptor, and does nothing until it gets another. Otherwise there is something to take.
    pub(super) left: bool,
    pub(super) system_calls: u32,
    pub(super) would_block: u32,
}

/// Where all workers of a driver tell their news.
pub(super) struct Post {
    queue: Mutex<Queue>,
    /// Ends the driver's sleep.
    alarm: Arc<OwnedFd>,
}

struct Queue {
    /// At most two of each worker: that there is something, and that it has left.
    told: Vec<Told>,
    /// The driver sleeps, or is about to, and has seen no news.
    asleep: bool,
}

impl Post {
    pub(super) fn new(alarm: Arc<OwnedFd>) -> Post {
        Post { queue: Mutex::new(Queue { told: Vec::new(), asleep: false }), alarm }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it holds the lock.
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
            queue.told.push(Told { worker, left, system_calls, would_block });
            std::mem::take(&mut queue.asleep)
        };
        if asleep {
            alarm::ring(&self.alarm, counters);
        }
    }

    /// Exchanges the news for `out`, which is empty. If there are none and `then_sleep`, whoever tells something from
    /// here on rings the alarm: `true`.
    pub(super) fn take(&self, out: &mut Vec<Told>, then_sleep: bool) -> bool {
        let mut queue = self.queue();
        std::mem::swap(&mut queue.told, out);
        queue.asleep = then_sleep && out.is_empty();
        queue.asleep
    }
}

/// What driver and worker share.
pub(super) struct Worker {
    state: Mutex<State>,
    /// There is a job, or room, or no reason to wait any more.
    go: Condvar,
    /// Rung to call it back from `poll`.
    bell: OwnedFd,
}

pub(super) struct State {
    job: Option<Job>,
    called_back: bool,
    dismissed: bool,
    /// It cannot go on until something is taken.
    waits_for_room: bool,
    /// Received bytes, the first `filled`. Made for the first receive.
    buffer: Vec<u8>,
    pub(super) filled: usize,
    /// Why it has left by itself: 0, the end of a stream, or a negated errno.
    pub(super) end: Option<i32>,
}

impl State {
    /// The bytes that have come.
    pub(super) fn received(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }
}

impl Worker {
    /// Starts a worker, which is `id` to the driver, with a receive buffer of so many bytes.
    pub(super) fn start(
        id: u32,
        buffer_bytes: usize,
        post: &Arc<Post>,
        counters: &mut Counters,
    ) -> io::Result<(Arc<Worker>, JoinHandle<()>)> {
        counters.system_calls += 1;
        let state = State {
            job: None,
            called_back: false,
            dismissed: false,
            waits_for_room: false,
            buffer: Vec::new(),
            filled: 0,
            end: None,
        };
        let worker = Arc::new(Worker { state: Mutex::new(state), go: Condvar::new(), bell: alarm::new()? });
        let (me, post) = (Arc::clone(&worker), Arc::clone(post));
        let thread = Builder::new().name(format!("worker {id}")).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || me.live(id, buffer_bytes, &post))?;
        Ok((worker, thread))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    // ---- the driver's side -----------------------------------------------------------------------------------

    /// Gives it something to do; it has nothing.
    pub(super) fn assign(&self, job: Job) {
        let mut state = self.state();
        debug_assert!(state.job.is_none() && state.filled == 0);
        (state.job, state.end) = (Some(job), None);
        drop(state);
        self.go.notify_one();
    }

    /// Calls it back; it tells when it has left. Nothing if it has left already.
    pub(super) fn call_back(&self, counters: &mut Counters) {
        let mut state = self.state();
        if state.job.is_none() {
            return;
        }
        state.called_back = true;
        self.rouse(state, counters);
    }

    /// Ends the thread, when it has left what it is at.
    pub(super) fn dismiss(&self, counters: &mut Counters) {
        let mut state = self.state();
        (state.dismissed, state.called_back) = (true, true);
        self.rouse(state, counters);
    }

    /// Wherever it waits.
    fn rouse(&self, state: MutexGuard<'_, State>, counters: &mut Counters) {
        let in_poll = state.job.is_some() && !state.waits_for_room;
        drop(state);
        // One that was just about to leave finds it rung at its next job, and goes on.
        if in_poll { alarm::ring(&self.bell, counters) } else { self.go.notify_one() }
    }

    /// Something was taken under this lock: it may go on if it waits for that.
    pub(super) fn taken(&self, mut state: MutexGuard<'_, State>) {
        let waits = std::mem::take(&mut state.waits_for_room);
        drop(state);
        if waits {
            self.go.notify_one();
        }
    }

    // ---- the thread's side -----------------------------------------------------------------------------------

    fn live(&self, id: u32, buffer_bytes: usize, post: &Post) {
        block_signals();
        let mut counters = Counters::default();
        give_way(&mut counters);
        while let Some(job) = self.next_job() {
            match job {
                Job::Watch { number, events } => {
                    self.is_ready(number, events, &mut counters);
                }
                Job::Receive { number } => self.receive(id, number, buffer_bytes, post, &mut counters),
            }
            // From here on it is not called back: the driver hears that it has left.
            let mut state = self.state();
            (state.job, state.called_back) = (None, state.dismissed);
            drop(state);
            post.tell(id, true, &mut counters);
        }
    }

    /// Waits for something to do. `None`: never again.
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

    /// Waits until one of the events has happened. `false`: called back before.
    fn is_ready(&self, number: i32, events: i16, counters: &mut Counters) -> bool {
        let bell = libc::pollfd { fd: self.bell.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut set = [libc::pollfd { fd: number, events, revents: 0 }, bell];
        loop {
            counters.system_calls += 1;
            // SAFETY: two live entries, written during the call only; without a time limit. The descriptor is open:
            // the driver closes none that a worker has not left. (By number, as in `sys::attempt`.)
            if unsafe { libc::syscall(libc::SYS_poll, set.as_mut_ptr(), 2usize, -1) } < 0 {
                // EINTR; the answers are old.
                continue;
            }
            if set[1].revents != 0 {
                alarm::silence(&self.bell, counters);
                if self.state().called_back {
                    return false;
                }
            }
            if set[0].revents != 0 {
                return true;
            }
        }
    }

    /// Waits until the buffer has been taken. `None`: called back before.
    fn room(&self) -> Option<MutexGuard<'_, State>> {
        let mut state = self.state();
        while state.filled > 0 && !state.called_back {
            state.waits_for_room = true;
            state = self.go.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.waits_for_room = false;
        (!state.called_back).then_some(state)
    }

    fn receive(&self, id: u32, number: i32, buffer_bytes: usize, post: &Post, counters: &mut Counters) {
        while self.is_ready(number, libc::POLLIN | libc::POLLRDHUP, counters) {
            let Some(mut state) = self.room() else { return };
            if state.buffer.is_empty() {
                state.buffer = vec![0; buffer_bytes];
            }
            let memory = Span { start: state.buffer.as_mut_ptr(), bytes: buffer_bytes };
            // SAFETY: the buffer is that long, and reached under the lock only, which is held.
            match unsafe { attempt::receive(number, memory, counters) } {
                bytes if bytes > 0 => {
                    state.filled = bytes as usize;
                    drop(state);
                    post.tell(id, false, counters);
                }
                errno if errno == -libc::EAGAIN => counters.would_block += 1,
                errno if errno == -libc::EINTR => {}
                end => {
                    state.end = Some(end);
                    return;
                }
            }
        }
    }
}

/// Signals are for the threads of the program.
fn block_signals() {
    // SAFETY: a set is numbers, for which zero is valid; both calls write or read the live local only.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// From here on this thread, when it is woken, lets whoever runs on its processor finish (SCHED_BATCH, sched(7)).
///
/// On one processor the kernel would interrupt the runtime for each worker that gets something, and switch back, for a
/// message the runtime takes in only at its next turn; measured: 1.3 switches a request instead of 1.15, and up to a
/// third of the CPU time. The price is that somebody else's program that never sleeps keeps a worker waiting for the rest
/// of its slice. A thread with a policy of the program's own choosing keeps it. If it cannot be had, all is as before.
fn give_way(counters: &mut Counters) {
    counters.system_calls += 1;
    // SAFETY: sched_getscheduler(2) takes a number; 0 is this thread. (By number: musl has it, and says ENOSYS.)
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
    fn a_thread_gives_way_unless_it_has_a_policy_of_its_own() {
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

//! The executor: one runtime on one thread.
//!
//! A turn: receive messages from other threads, run the tasks that are ready, then wait for I/O and fire
//! timers, which makes tasks ready again. One clock read and one wait per turn. A task that another task
//! wakes runs in the same turn while that turn is short, because a wait costs as much as ten wakes. A task
//! that yields runs in the next turn, after the I/O. Tasks never move to another thread. To use several
//! cores, create a runtime in each of several threads, and communicate through a [`Remote`].
//!
//! Start at [`Runtime`]; the loop is [`Core::drive`]. `builder` constructs a runtime.

mod alarm;
pub(crate) mod budget;
mod builder;
mod inbox;
mod remote;
mod runtime;
mod task;
mod waker;

pub use builder::Builder;
pub use remote::{Gone, Remote, RemoteTask};
pub use runtime::{Runtime, Stuck, run};
pub(crate) use task::in_destructor;
pub use task::{CancelHandle, JoinError, JoinHandle};

use crate::caller::Caller;
use crate::clock::{Clock, Moment, Until};
use crate::counters::Counters;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::fork::Origin;
use crate::io::{ANSWERS_PER_POLL, Io};
use crate::wheel::{TimerId, Wheel};
use inbox::{Inbox, Message};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use task::{Panics, Place, Task, Tasks, boxed, drop_caught, drop_quietly};
pub(crate) use waker::Identity;
use waker::Packed;

/// The index of the future given to `block_on`, among the task indices.
const MAIN: u32 = u32::MAX;

/// Maximum number of task polls per turn, so that I/O and timers are not starved.
const POLLS_PER_TURN: usize = 1024;

/// A turn with fewer polls runs the tasks that it woke before it waits for I/O. So a wake from task to task
/// costs no system call, and the I/O is delayed no more than by that many connections.
const POLLS_OF_SHORT_TURN: usize = 64;

/// The internals of one runtime. Handles (streams, timers, tasks) share it.
pub(crate) struct Core {
    io: RefCell<Option<Io>>,
    pub(self) tasks: RefCell<Tasks>,
    /// Tasks to poll, each listed once.
    ready: RefCell<VecDeque<u32>>,
    /// Tasks that have yielded: to poll after the next poll of the I/O.
    yielded: RefCell<Vec<u32>>,
    main: Cell<Main>,
    timers: RefCell<Wheel>,
    /// The driver's clock, kept here for timers that outlive the driver.
    clock: Clock,
    inbox: Arc<Inbox>,
    number: u16,
    identity: Arc<Identity>,
    /// The process that created the runtime.
    origin: Origin,
    counts: Cell<Counts>,
}

/// Why a future cannot use the I/O of the runtime it was created in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoIo {
    /// The runtime has been shut down.
    Gone,
    /// Another runtime runs on this thread and polls it: the future's own runtime would never process the
    /// I/O.
    Elsewhere { home: u16, here: u16 },
}

/// The state of the future given to `block_on`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Main {
    Waits,
    Ready,
    /// Ready after the next poll of the I/O.
    Yielded,
    Running,
}

/// The time at which a woken task runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// As soon as possible.
    Soon,
    /// After the next poll of the I/O.
    NextTurn,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    polls: u64,
    turns: u64,
    remote_wakes: u64,
    leaked: u64,
}

thread_local! {
    /// The runtime that runs on this thread now. [`Entered`] restores the previous value, so nothing is left
    /// to drop at the end of the thread. `ManuallyDrop` has no destructor, so this thread-local stays
    /// accessible during thread exit, where another thread-local may shut down its runtime.
    static CURRENT: RefCell<ManuallyDrop<Option<Rc<Core>>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Wakes a task of the runtime that runs on this thread. Returns `false` if the task belongs to another
/// runtime.
fn wake_here(task: Packed) -> bool {
    CURRENT.with(|current| match &**current.borrow() {
        Some(core) if core.number == task.runtime() => {
            core.wake(task, When::Soon);
            true
        }
        _ => false,
    })
}

/// Returns whether the current task has budget for another immediate result in this poll. Outside of a
/// runtime there is no limit.
#[inline]
pub(crate) fn has_answers_left() -> bool {
    CURRENT.with(|current| match &**current.borrow() {
        Some(core) => core.io.borrow().as_ref().is_none_or(|io| io.answers_left > 0),
        None => true,
    })
}

/// Charges an immediate result to the current task's budget.
#[inline]
pub(crate) fn count_answer() {
    CURRENT.with(|current| {
        if let Some(core) = &**current.borrow()
            && let Some(io) = core.io.borrow_mut().as_mut()
        {
            io.answers_left = io.answers_left.saturating_sub(1);
        }
    });
}

/// Charges an immediate result to the current task's budget, unless that is used up. Always `true` outside of
/// a runtime.
#[inline]
pub(crate) fn take_answer() -> bool {
    CURRENT.with(|current| {
        let Some(core) = &**current.borrow() else { return true };
        let mut io = core.io.borrow_mut();
        let Some(io) = io.as_mut() else { return true };
        let is_left = io.answers_left > 0;
        io.answers_left = io.answers_left.saturating_sub(1);
        is_left
    })
}

/// Takes back a charge by [`take_answer`] in the same poll: there was no result.
#[inline]
pub(crate) fn give_answer_back() {
    CURRENT.with(|current| {
        if let Some(core) = &**current.borrow()
            && let Some(io) = core.io.borrow_mut().as_mut()
        {
            io.answers_left += 1;
        }
    });
}

/// Returns the runtime that runs on this thread, if any.
fn current() -> Option<Rc<Core>> {
    CURRENT.with(|current| (**current.borrow()).clone())
}

/// Marks a runtime as the current one, for as long as it lives.
struct Entered(Option<Rc<Core>>);

impl Entered {
    fn new(core: &Rc<Core>) -> Entered {
        Entered(enter(Some(Rc::clone(core))))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        drop(enter(self.0.take()));
    }
}

/// Makes `core` the current runtime; returns the previous one.
fn enter(core: Option<Rc<Core>>) -> Option<Rc<Core>> {
    ManuallyDrop::into_inner(CURRENT.with(|current| current.replace(ManuallyDrop::new(core))))
}

/// Marks a runtime as running, for as long as this lives.
struct Runs<'a>(&'a Identity);

impl Runs<'_> {
    fn new(identity: &Identity) -> Runs<'_> {
        identity.set_runs(true);
        Runs(identity)
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.set_runs(false);
    }
}

/// Lists every runtime of this process, each with a handle.
pub(crate) fn runtimes() -> Vec<(Arc<Identity>, Remote)> {
    waker::runtimes().into_iter().map(|(identity, inbox)| (identity, Remote { inbox })).collect()
}

impl Core {
    /// Creates the internals of a runtime on this driver.
    fn new(driver: Box<dyn Driver>) -> Result<Rc<Core>> {
        let inbox = Arc::new(Inbox::new(alarm::of(driver.alarm())));
        let (number, identity) = waker::register(&inbox, driver.name()).ok_or_else(|| {
            Error::new(
                "making a runtime",
                io::Error::other("a process has at most 65,536 runtimes at a time"),
            )
        })?;
        let clock = driver.clock();
        let now = clock.now();
        Ok(Rc::new(Core {
            io: RefCell::new(Some(Io::new(driver))),
            tasks: RefCell::new(Tasks::new()),
            ready: RefCell::new(VecDeque::with_capacity(crate::COMPLETIONS_PER_TURN)),
            yielded: RefCell::new(Vec::new()),
            main: Cell::new(Main::Waits),
            timers: RefCell::new(Wheel::new(now)),
            clock,
            inbox,
            number,
            identity,
            origin: Origin::here(),
            counts: Cell::new(Counts::default()),
        }))
    }

    /// Returns the runtime that runs on this thread.
    pub(crate) fn current(what: &str) -> Rc<Core> {
        #[allow(clippy::panic, reason = "a mistake of the program, told where it is made")]
        current().unwrap_or_else(|| panic!("{what} outside of a runtime: call it inside `Runtime::block_on`"))
    }

    /// Returns the runtime that runs on this thread, if `is` is a handle of it.
    pub(crate) fn current_if(is: &Remote) -> Option<Rc<Core>> {
        current().filter(|core| core.is(is))
    }

    /// Returns the runtime that runs on this thread, if it is not this one. Compares addresses, because the
    /// numbers of dropped runtimes are reused.
    #[inline]
    pub(crate) fn other_current(&self) -> Option<Rc<Core>> {
        CURRENT.with(|current| match &**current.borrow() {
            Some(running) if !std::ptr::eq(Rc::as_ptr(running), self) => Some(Rc::clone(running)),
            _ => None,
        })
    }

    /// Creates a handle for other threads.
    pub(crate) fn remote(&self) -> Remote {
        Remote { inbox: Arc::clone(&self.inbox) }
    }

    /// Returns whether `remote` is a handle of this runtime.
    pub(crate) fn is(&self, remote: &Remote) -> bool {
        Arc::ptr_eq(&self.inbox, &remote.inbox)
    }

    /// Calls `use_it` with the I/O. Returns `None` after the shutdown, and in a forked child, where the
    /// operations belong to the parent.
    #[inline]
    pub(crate) fn with_io<R>(&self, use_it: impl FnOnce(&mut Io) -> R) -> Option<R> {
        if !self.origin.is_here() {
            return None;
        }
        self.io.borrow_mut().as_mut().map(use_it)
    }

    /// Calls `poll` with the I/O for a future of this runtime that is being polled; returns the reason if the
    /// I/O is not available.
    #[inline]
    pub(crate) fn poll_io<R>(
        &self,
        waker: &Waker,
        poll: impl FnOnce(&mut Io, &Caller<'_>) -> R,
    ) -> std::result::Result<R, NoIo> {
        let caller = match Packed::of(waker) {
            Some(task) if task.runtime() == self.number => Caller::ours(waker),
            _ => self.foreign_caller(waker)?,
        };
        self.with_io(|io| poll(io, &caller)).ok_or(NoIo::Gone)
    }

    /// Returns the caller of a poll with a waker that belongs to none of this runtime's tasks. Such a waker
    /// identifies nothing: a combinator may have wrapped it, or another executor polls. Decide by the runtime
    /// that runs on this thread instead.
    fn foreign_caller<'a>(&self, waker: &'a Waker) -> std::result::Result<Caller<'a>, NoIo> {
        match current() {
            Some(running) if running.number != self.number => {
                Err(NoIo::Elsewhere { home: self.number, here: running.number })
            }
            _ => Ok(Caller::any(waker)),
        }
    }

    #[inline]
    fn wake(&self, task: Packed, when: When) {
        self.queue(&mut self.tasks.borrow_mut(), &mut self.ready.borrow_mut(), task, when);
    }

    /// Puts a task in the queue, unless it is there or has ended.
    #[inline]
    fn queue(&self, tasks: &mut Tasks, ready: &mut VecDeque<u32>, task: Packed, when: When) {
        if task.index() == MAIN {
            self.main.set(match (self.main.get(), when) {
                (Main::Ready, _) | (Main::Waits, When::Soon) => Main::Ready,
                _ => Main::Yielded,
            });
            return;
        }
        if let Some(slot) = tasks.slot(task.index())
            && slot.generation as u16 == task.generation()
            && !slot.queued
            && matches!(slot.place, Place::Idle(_) | Place::Running { .. })
        {
            slot.queued = true;
            // A task that is woken while it runs has woken itself, which is a yield.
            if when == When::Soon && matches!(slot.place, Place::Idle(_)) {
                ready.push_back(task.index());
            } else {
                self.yielded.borrow_mut().push(task.index());
            }
        }
    }

    /// Runs after every poll: wakes and drops what the I/O has deferred, with nothing borrowed, and resets
    /// the budget of immediate results for the next task. Wakes deferred by a poll come from a task that has
    /// used up its budget, so they run in the next turn.
    #[inline]
    fn between_polls(&self, when: When) {
        {
            let mut io = self.io.borrow_mut();
            let Some(io) = io.as_mut() else { return };
            io.answers_left = ANSWERS_PER_POLL;
            if io.wakes.is_empty() && io.trash.is_empty() {
                return;
            }
        }
        self.flush_wakes(when);
    }

    fn flush_wakes(&self, when: When) {
        loop {
            let (mut wakes, trash) = {
                let mut io = self.io.borrow_mut();
                let Some(io) = io.as_mut() else { return };
                if io.wakes.is_empty() && io.trash.is_empty() {
                    return;
                }
                (std::mem::take(&mut io.wakes), std::mem::take(&mut io.trash))
            };
            let mut panics = Panics::default();
            let mut others = Vec::new();
            {
                let (mut tasks, mut ready) = (self.tasks.borrow_mut(), self.ready.borrow_mut());
                for waker in wakes.drain(..) {
                    match Packed::of(&waker) {
                        Some(task) if task.runtime() == self.number => {
                            self.queue(&mut tasks, &mut ready, task, when);
                            // A number, with nothing to drop.
                            std::mem::forget(waker);
                        }
                        // User code, which runs with nothing borrowed.
                        _ => others.push(waker),
                    }
                }
            }
            others.into_iter().for_each(|waker| panics.run(|| waker.wake()));
            trash.into_iter().for_each(|waker| panics.run(|| drop(waker)));
            // Reuse the memory, so that a turn allocates nothing.
            if let Some(io) = self.io.borrow_mut().as_mut()
                && io.wakes.capacity() == 0
            {
                io.wakes = wakes;
            }
            panics.resume();
        }
    }

    fn spawn<F>(self: Rc<Core>, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let (index, generation) = self.add(boxed(future));
        JoinHandle::new(self, index, generation)
    }

    /// Adds a task and queues it; returns its place. Without the type of the future: most of `spawn` is
    /// compiled once, and not for each future.
    fn add(&self, task: Task) -> (u32, u32) {
        let (index, generation) = self.tasks.borrow_mut().insert(task);
        self.ready.borrow_mut().push_back(index);
        (index, generation)
    }

    /// Polls one task from the queue. Returns `false` if the task has already ended.
    fn run_task(&self, index: u32) -> bool {
        let (mut task, generation) = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(slot) = tasks.slot(index).filter(|slot| slot.queued) else { return false };
            slot.queued = false;
            match std::mem::replace(&mut slot.place, Place::Running { cancelled: false }) {
                Place::Idle(task) => (task, slot.generation),
                other => {
                    slot.place = other;
                    return false;
                }
            }
        };
        let waker = Packed::new(self.number, index, generation as u16).waker();
        let mut context = Context::from_waker(&waker);
        // A task that panics ends alone: its own state is dropped, and the runtime's is not touched in
        // between.
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().run(&mut context)));
        let mut tasks = self.tasks.borrow_mut();
        let Some(slot) = tasks.slot(index) else { return true };
        let cancelled = matches!(slot.place, Place::Running { cancelled: true });
        let (place, keep) = match polled {
            Ok(Poll::Pending) if !cancelled => {
                slot.fill(Place::Idle(task));
                return true;
            }
            Ok(Poll::Pending) => (Place::Failed(JoinError::Cancelled), Some(task)),
            Ok(Poll::Ready(())) => (Place::Over(task), None),
            Err(why) => (Place::Failed(JoinError::Panicked(why)), Some(task)),
        };
        slot.fill(place);
        slot.queued = false;
        if slot.detached {
            let freed = tasks.free(index);
            drop(tasks);
            // Futures and outputs are user code: drop them while nothing is borrowed. No handle is left to
            // receive a panic.
            drop_quietly((keep, freed));
            return true;
        }
        match keep {
            None => Self::wake_joiner(tasks, index),
            Some(task) => {
                drop(tasks);
                self.end_failed(index, generation, task);
            }
        }
        true
    }

    /// Wakes the task that joins this one.
    #[inline]
    fn wake_joiner(mut tasks: RefMut<'_, Tasks>, index: u32) {
        let joiner = tasks.take_joiner(index);
        drop(tasks);
        if let Some(joiner) = joiner {
            // A task may be cancelled by a destructor.
            in_destructor(|| joiner.wake());
        }
    }

    /// Drops the rest of a task that has failed, and wakes the task that joins it.
    fn end_failed(&self, index: u32, generation: u32, task: Task) {
        let panicked = drop_caught(task).err();
        let mut tasks = self.tasks.borrow_mut();
        match (tasks.alive(index, generation), panicked) {
            (Some(slot), Some(payload)) if matches!(slot.place, Place::Failed(JoinError::Cancelled)) => {
                slot.place = Place::Failed(JoinError::Panicked(payload));
            }
            // The handle gets the task's first panic, or was dropped. The destructor of this payload may
            // panic too, so it is leaked.
            (_, Some(payload)) => std::mem::forget(payload),
            (_, None) => {}
        }
        if tasks.alive(index, generation).is_some() {
            Self::wake_joiner(tasks, index);
        }
    }

    fn cancel_task(&self, index: u32, generation: u32) {
        let mut tasks = self.tasks.borrow_mut();
        let Some(slot) = tasks.alive(index, generation) else { return };
        if slot.detached && matches!(slot.place, Place::Idle(_)) {
            // No handle is left that would free the slot, or receive a panic.
            let freed = tasks.free(index);
            drop(tasks);
            drop_quietly(freed);
            return;
        }
        let task = match &mut slot.place {
            Place::Idle(_) => match std::mem::replace(&mut slot.place, Place::Failed(JoinError::Cancelled)) {
                Place::Idle(task) => task,
                _ => return,
            },
            Place::Running { cancelled } => {
                *cancelled = true;
                return;
            }
            Place::Free { .. } | Place::Over(_) | Place::Failed(_) => return,
        };
        drop(tasks);
        self.end_failed(index, generation, task);
    }

    /// Runs tasks until `main` is ready.
    fn run<F: Future>(self: &Rc<Core>, main: F) -> Result<F::Output> {
        self.check_origin()?;
        // Dropped after the future: what that holds may spawn, send and wake while it is dropped.
        let _entered = Entered::new(self);
        let _runs = Runs::new(&self.identity);
        let mut main = pin!(main);
        let mut output = None;
        self.drive(&mut |context| main.as_mut().poll(context).map(|ready| output = Some(ready)))?;
        let Some(output) = output else { unreachable!("`drive` ends without an error when it is ready") };
        Ok(output)
    }

    /// Runs tasks until `poll_main` is ready, which is not polled again then. The loop is compiled once, and
    /// not for each future that `block_on` is given.
    fn drive(self: &Rc<Core>, poll_main: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>) -> Result<()> {
        let main_waker = Packed::new(self.number, MAIN, 0).waker();
        let mut messages = Vec::new();
        self.main.set(Main::Ready);
        loop {
            let mut counts = self.counts.get();
            counts.turns += 1;
            let began = counts.polls;
            let mut read = 0;
            // In rounds: a task that is woken in one round is polled in the next.
            loop {
                // A task may have forked. The child must not take the inbox's lock: another thread of the
                // parent may have held it, and then it is never released.
                self.check_origin()?;
                // After the wait, which a message may have ended: the task that it wakes runs in this turn.
                read += self.take_messages(&mut messages, &mut counts);
                if self.main.get() == Main::Ready {
                    counts.polls += 1;
                    self.main.set(Main::Running);
                    let polled = poll_main(&mut Context::from_waker(&main_waker));
                    if self.main.get() == Main::Running {
                        self.main.set(Main::Waits);
                    }
                    self.between_polls(When::NextTurn);
                    if polled.is_ready() {
                        self.counts.set(counts);
                        return Ok(());
                    }
                }
                let ready = self.ready.borrow().len().min(POLLS_PER_TURN);
                for _ in 0..ready {
                    let Some(index) = self.ready.borrow_mut().pop_front() else { break };
                    counts.polls += u64::from(self.run_task(index));
                    self.between_polls(When::NextTurn);
                }
                let is_short = counts.polls - began + read < POLLS_OF_SHORT_TURN as u64;
                let is_idle = self.ready.borrow().is_empty() && self.main.get() != Main::Ready;
                if !is_short || (is_idle && !self.inbox.has_mail()) {
                    break;
                }
            }
            self.counts.set(counts);
            self.check_origin()?;
            if let Err(why) = self.turn() {
                // Dump while the future still exists, so that the dump shows what it waits for.
                return Err(why.dumped(self.dump()));
            }
        }
    }

    /// Handles the messages of other threads; returns their number.
    #[inline]
    fn take_messages(&self, messages: &mut Vec<Message>, counts: &mut Counts) -> u64 {
        self.inbox.take(messages);
        let read = messages.len() as u64;
        for message in messages.drain(..) {
            match message {
                Message::Wake(task) => {
                    counts.remote_wakes += 1;
                    self.wake(Packed(task), When::Soon);
                }
                Message::Call(call) => call(),
            }
        }
        read
    }

    /// Polls the driver, waiting if no task is ready, and wakes tasks.
    fn turn(&self) -> Result<()> {
        self.ready.borrow_mut().extend(self.yielded.borrow_mut().drain(..));
        if self.main.get() == Main::Yielded {
            self.main.set(Main::Ready);
        }
        let busy = !self.ready.borrow().is_empty() || self.main.get() == Main::Ready;
        let until = if busy { Until::Now } else { self.until() };
        let asleep = until != Until::Now && self.inbox.fall_asleep();
        let until = if asleep { until } else { Until::Now };
        let turned = self.with_io(|io| {
            let turned = io.turn(until);
            self.timers.borrow_mut().advance(io.now, &mut io.wakes);
            turned
        });
        if asleep {
            self.inbox.wake_up();
        }
        self.between_polls(When::Soon);
        turned.unwrap_or(Ok(()))
    }

    /// Returns how long the driver may wait.
    fn until(&self) -> Until {
        let timer = self.timers.borrow().deadline();
        let parked = self.with_io(|io| io.deadline()).flatten();
        match timer.into_iter().chain(parked).min() {
            Some(deadline) => self.until_moment(deadline),
            None => Until::News,
        }
    }

    /// Reads the clock again: the tasks may have taken long, or the last reading may be from an earlier
    /// `block_on`, and the wait would be too long by that time. Needed only when there is a timer and no task
    /// is ready.
    fn until_moment(&self, deadline: Moment) -> Until {
        let now = self.with_io(|io| io.read_clock()).unwrap_or(deadline);
        if deadline > now { Until::For(deadline.since(now)) } else { Until::Now }
    }

    /// Returns the time of the runtime's clock as an instant.
    pub(crate) fn instant(&self) -> std::time::Instant {
        self.clock.instant()
    }

    pub(crate) fn set_timer(&self, span: Duration, waker: &Waker) -> TimerId {
        // Read the clock again, or a long turn would make a timer fire early.
        let now = self.with_io(|io| io.read_clock()).unwrap_or(Moment(0));
        let waker = waker.clone();
        self.timers.borrow_mut().set(now.after(span), waker)
    }

    pub(crate) fn poll_timer(&self, id: &TimerId, waker: &Waker) -> bool {
        let caller = if Packed::of(waker).is_some() { Caller::ours(waker) } else { Caller::any(waker) };
        let (fired, before) = self.timers.borrow_mut().poll(id, &caller);
        drop(before);
        fired
    }

    /// Returns the remaining time of a timer that has not fired.
    pub(crate) fn timer_left(&self, id: &TimerId) -> Duration {
        self.timers.borrow().due(id).since(self.clock.now())
    }

    pub(crate) fn drop_timer(&self, id: TimerId) {
        let waker = self.timers.borrow_mut().drop_timer(id);
        drop(waker);
    }

    /// Ends everything: tasks first, then operations in the kernel. Returns the number of leaked operations.
    ///
    /// The dropped values run user code and may panic. Such a panic ends only its task or waker, as while the
    /// runtime runs. It does not leave this function, which must still free or leak the kernel's memory.
    fn shut_down(self: &Rc<Core>, patience: Duration) -> u64 {
        if !self.origin.is_here() {
            self.forsake();
            return 0;
        }
        let _entered = Entered::new(self);
        let mut panics = Panics::default();
        let unread = self.inbox.close();
        unread.into_iter().for_each(|message| panics.run(|| drop(message)));
        self.drop_tasks(&mut panics);
        panics.run(|| self.flush_wakes(When::Soon));
        waker::unregister(self.number);
        let io = self.io.borrow_mut().take();
        let mut leaked = 0;
        if let Some(io) = io {
            let (count, wakers) = io.shut_down(patience);
            leaked = count;
            wakers.into_iter().for_each(|waker| panics.run(|| drop(waker)));
        }
        // Wakers are user code too, and may have spawned tasks while they were dropped.
        self.drop_tasks(&mut panics);
        panics.forget();
        leaked
    }

    /// In a forked child: closes the child's copies of the descriptors and drops the tasks. The driver, its
    /// threads and the operations in the kernel belong to the parent. Locks may be held by threads that do
    /// not exist here.
    #[cold]
    fn forsake(self: &Rc<Core>) {
        let _entered = Entered::new(self);
        if let Some(io) = self.io.borrow_mut().take() {
            io.forsake();
        }
        let mut panics = Panics::default();
        self.drop_tasks(&mut panics);
        panics.forget();
    }

    /// Refuses to run in a forked child.
    #[inline]
    fn check_origin(&self) -> Result<()> {
        if self.origin.is_here() { Ok(()) } else { Err(self.is_the_parents()) }
    }

    #[cold]
    fn is_the_parents(&self) -> Error {
        let why = io::Error::other("this process was forked from the one that made the runtime");
        Error::new("running a runtime", why).hint("make a runtime of its own in the child, after the fork")
    }

    /// Drops tasks in rounds, because dropping a task may spawn another.
    fn drop_tasks(&self, panics: &mut Panics) {
        loop {
            let dropped = self.tasks.borrow_mut().drain();
            if dropped.is_empty() {
                break;
            }
            for (place, joiner) in dropped {
                panics.run(|| drop(place));
                if let Some(joiner) = joiner {
                    panics.run(|| joiner.wake());
                }
            }
        }
        self.ready.borrow_mut().clear();
        self.yielded.borrow_mut().clear();
    }

    fn counters(&self) -> Counters {
        let counts = self.counts.get();
        let mut all = self.with_io(|io| io.counters()).unwrap_or_default();
        all.polls = counts.polls;
        all.turns = counts.turns;
        all.remote_wakes = counts.remote_wakes;
        all.leaked = counts.leaked;
        all
    }

    pub(crate) fn dump(&self) -> String {
        let mut text = String::new();
        let tasks = self.tasks.borrow().alive;
        let ready = self.ready.borrow().len() + self.yielded.borrow().len();
        let dumped = self.with_io(|io| io.dump(&mut text));
        text.push_str(&format!("{tasks} tasks, {ready} ready\n{}\n", self.counters()));
        match dumped {
            Some(_) => text,
            None => "the runtime is shut down\n".to_owned(),
        }
    }
}

/// Starts a task on the current runtime.
///
/// # Panics
/// Outside of a runtime.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    Core::current("spawn").spawn(future)
}

/// Returns whether a runtime runs on this thread, so that [`spawn`] is possible: for code that cleans up
/// when it is dropped, wherever that is.
pub fn is_in_runtime() -> bool {
    current().is_some()
}

/// Yields: all other ready tasks run and I/O is polled before this task continues.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::io::tests::stub;
    use std::future::poll_fn;

    const SECOND: u64 = 1_000_000_000;

    /// Sets the timer when it is called, not when it is polled.
    fn sleep(core: &Core, seconds: u64) -> impl Future<Output = ()> + '_ {
        let id = core.set_timer(Duration::from_secs(seconds), Waker::noop());
        poll_fn(move |context| match core.poll_timer(&id, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
    }

    #[test]
    fn a_task_woken_by_another_thread_runs_when_the_current_wait_ends() {
        let (driver, script) = stub();
        let runtime = Runtime { core: Core::new(driver).unwrap() };
        let asked: Rc<RefCell<Option<Waker>>> = Rc::default();
        let wake = |asked: &RefCell<Option<Waker>>| {
            let waker = asked.take().unwrap();
            std::thread::spawn(|| waker.wake()).join().unwrap();
        };
        let asked_in_wait = Rc::clone(&asked);
        script.in_wait.replace(Some(Box::new(move || wake(&asked_in_wait))));
        // Five wakes while it sleeps, then five before it would sleep.
        let mut polls = 0;
        let main = poll_fn(|context| {
            polls += 1;
            if polls > 10 {
                return Poll::Ready(());
            }
            asked.replace(Some(context.waker().clone()));
            if polls > 5 {
                wake(&asked);
            }
            Poll::Pending
        });
        runtime.block_on(main).unwrap();
        assert_eq!((script.waits.get(), runtime.counters().remote_wakes), (5, 10));
    }

    #[test]
    fn a_flood_of_messages_does_not_keep_the_runtime_from_its_wait() {
        let (driver, script) = stub();
        let runtime = Runtime { core: Core::new(driver).unwrap() };
        let remote = runtime.remote();
        // Each call sends the next, and none of them makes a task ready.
        fn send(remote: Remote) {
            let again = remote.clone();
            let _ = remote.call(move |_| send(again));
        }
        send(remote);
        let waits = Rc::clone(&script);
        let main = poll_fn(|context| {
            context.waker().wake_by_ref();
            if waits.waits.get() < 3 { Poll::Pending } else { Poll::Ready(()) }
        });
        runtime.block_on(main).unwrap();
    }

    #[test]
    fn a_wait_is_as_long_as_there_is_left_after_tasks_that_took_long() {
        let (driver, script) = stub();
        let runtime = Runtime { core: Core::new(driver).unwrap() };
        let long = |seconds| script.now.set(script.now.get() + seconds * SECOND);
        let main = runtime.block_on(async {
            let timer = sleep(&runtime.core, 100);
            long(60);
            timer.await;
        });
        main.unwrap();
        assert_eq!(script.now.get() / SECOND, 100);
        // The same for a timer set after a time in which the runtime did not run.
        long(1000);
        runtime.block_on(sleep(&runtime.core, 5)).unwrap();
        assert_eq!(script.now.get() / SECOND, 1105);
    }
}

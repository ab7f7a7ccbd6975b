//! The executor: one runtime on one thread.
//!
//! A turn: take in what other threads sent, run the tasks that are ready, then wait for news and fire timers, which
//! makes tasks ready again. One clock read and one wait per turn. Whom a task wakes runs in the same turn while that is
//! short, since a wait costs ten wakes; who yields runs in the next, after the I/O. Tasks never move to another thread;
//! for more cores make more runtimes, each in its thread, and speak to them through a [`Remote`].
//!
//! Start at [`Runtime`]; the loop is [`Core::run`]. How a runtime is made, `builder` says.

mod alarm;
mod builder;
mod inbox;
mod remote;
mod runtime;
mod task;
mod waker;

pub use builder::Builder;
pub use remote::{Gone, Remote};
pub use runtime::{Runtime, Stuck};
pub use task::{JoinError, JoinHandle};

use crate::caller::Caller;
use crate::clock::{Clock, Moment, Until};
use crate::counters::Counters;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::io::{ANSWERS_PER_POLL, Io};
use crate::wheel::{TimerId, Wheel};
use inbox::{Inbox, Message};
use std::cell::{Cell, RefCell};
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
use task::{Panics, Place, Task, Tasks, boxed, drop_caught};
use waker::Packed;
pub(crate) use waker::Who;

/// The future given to `block_on`, among the tasks.
const MAIN: u32 = u32::MAX;

/// Tasks polled per turn at most, so that I/O and timers get theirs.
const POLLS_PER_TURN: usize = 1024;

/// A turn with fewer polls goes on with whom they have woken, instead of looking at the I/O: so a wake from task to task
/// costs no system call, and the I/O waits for no more than it would behind so many connections.
const POLLS_OF_SHORT_TURN: usize = 64;

/// One runtime's insides. Handles (streams, timers, tasks) share it.
pub(crate) struct Core {
    io: RefCell<Option<Io>>,
    pub(self) tasks: RefCell<Tasks>,
    /// Tasks to be polled, each once.
    ready: RefCell<VecDeque<u32>>,
    /// The same, but not before the I/O was looked at: they have yielded.
    yielded: RefCell<Vec<u32>>,
    main: Cell<Main>,
    timers: RefCell<Wheel>,
    /// The driver's, which timers that leave ask when the driver may be gone.
    clock: Clock,
    inbox: Arc<Inbox>,
    number: u16,
    who: Arc<Who>,
    counts: Cell<Counts>,
}

/// Why a future cannot have the I/O it was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoIo {
    /// The runtime has been shut down.
    Gone,
    /// Another runtime is the one that runs here, and polls it: nobody would ever turn its I/O.
    Elsewhere { home: u16, here: u16 },
}

/// What `block_on`'s own future is at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Main {
    Waits,
    Ready,
    /// Ready when the I/O was looked at.
    Yielded,
    Running,
}

/// When a task that is woken is to run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// As soon as may be.
    Soon,
    /// After the I/O was looked at.
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
    /// The runtime that runs on this thread now. [`Entered`] takes out what it has put in, so nothing is left to be
    /// dropped with the thread; that it says so keeps it usable to the thread's very end, where a runtime in
    /// another thread local may shut down.
    static CURRENT: RefCell<ManuallyDrop<Option<Rc<Core>>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Wakes a task of the runtime that runs here. `false`: it is another's.
fn wake_here(task: Packed) -> bool {
    CURRENT.with(|current| match &**current.borrow() {
        Some(core) if core.number == task.runtime() => {
            core.wake(task, When::Soon);
            true
        }
        _ => false,
    })
}

/// The runtime that runs on this thread, if any.
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

/// Makes `core` the current runtime; gives out which was.
fn enter(core: Option<Rc<Core>>) -> Option<Rc<Core>> {
    ManuallyDrop::into_inner(CURRENT.with(|current| current.replace(ManuallyDrop::new(core))))
}

/// Says of a runtime that it runs, for as long as this lives.
struct Runs<'a>(&'a Who);

impl Runs<'_> {
    fn new(who: &Who) -> Runs<'_> {
        who.set_runs(true);
        Runs(who)
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.set_runs(false);
    }
}

/// Every runtime of this process, and a way to it.
pub(crate) fn everybody() -> Vec<(Arc<Who>, Remote)> {
    waker::everybody().into_iter().map(|(who, inbox)| (who, Remote { inbox })).collect()
}

impl Core {
    /// The insides of a runtime on this driver.
    fn new(driver: Box<dyn Driver>) -> Result<Rc<Core>> {
        let inbox = Arc::new(Inbox::new(alarm::of(driver.alarm())));
        let (number, who) = waker::enlist(&inbox, driver.name()).ok_or_else(|| {
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
            who,
            counts: Cell::new(Counts::default()),
        }))
    }

    /// The runtime that runs on this thread.
    pub(crate) fn current(what: &str) -> Rc<Core> {
        #[allow(clippy::panic, reason = "a mistake of the program, told where it is made")]
        current().unwrap_or_else(|| panic!("{what} outside of a runtime: call it inside `Runtime::block_on`"))
    }

    /// The runtime that runs on this thread, if it is this one.
    pub(crate) fn current_if(is: &Remote) -> Option<Rc<Core>> {
        current().filter(|core| core.is(is))
    }

    /// The runtime that runs on this thread, if it is another than this one. By number it may look the same: those of
    /// runtimes that are gone are given again.
    #[inline]
    pub(crate) fn instead_of_it(&self) -> Option<Rc<Core>> {
        CURRENT.with(|current| match &**current.borrow() {
            Some(running) if !std::ptr::eq(Rc::as_ptr(running), self) => Some(Rc::clone(running)),
            _ => None,
        })
    }

    /// A handle for other threads.
    pub(crate) fn remote(&self) -> Remote {
        Remote { inbox: Arc::clone(&self.inbox) }
    }

    /// Whether it is a handle of this runtime.
    pub(crate) fn is(&self, remote: &Remote) -> bool {
        Arc::ptr_eq(&self.inbox, &remote.inbox)
    }

    /// The I/O; gone when the runtime is.
    #[inline]
    pub(crate) fn with_io<R>(&self, use_it: impl FnOnce(&mut Io) -> R) -> Option<R> {
        self.io.borrow_mut().as_mut().map(use_it)
    }

    /// The I/O for a future of its that is polled; or why it cannot be had.
    #[inline]
    pub(crate) fn poll_io<R>(
        &self,
        waker: &Waker,
        poll: impl FnOnce(&mut Io, &Caller<'_>) -> R,
    ) -> std::result::Result<R, NoIo> {
        let caller = match Packed::of(waker) {
            Some(task) if task.runtime() == self.number => Caller::ours(waker),
            _ => self.stranger(waker)?,
        };
        self.with_io(|io| poll(io, &caller)).ok_or(NoIo::Gone)
    }

    /// Who polls, if it is not one of our tasks by its own waker. By whose waker says little: it may be wrapped, or
    /// somebody else's who waits for what a task of ours does. By which runtime runs here does.
    fn stranger<'a>(&self, waker: &'a Waker) -> std::result::Result<Caller<'a>, NoIo> {
        match current() {
            Some(running) if running.number != self.number => {
                Err(NoIo::Elsewhere { home: self.number, here: running.number })
            }
            _ => Ok(Caller::anybody(waker)),
        }
    }

    #[inline]
    fn wake(&self, task: Packed, when: When) {
        if task.index() == MAIN {
            self.main.set(match (self.main.get(), when) {
                (Main::Ready, _) | (Main::Waits, When::Soon) => Main::Ready,
                _ => Main::Yielded,
            });
            return;
        }
        let mut tasks = self.tasks.borrow_mut();
        if let Some(slot) = tasks.slot(task.index())
            && slot.generation as u16 == task.generation()
            && !slot.queued
            && matches!(slot.place, Place::Idle(_) | Place::Running { .. })
        {
            slot.queued = true;
            // Woken while it runs, it has woken itself: that is how a task yields.
            if when == When::Soon && matches!(slot.place, Place::Idle(_)) {
                self.ready.borrow_mut().push_back(task.index());
            } else {
                self.yielded.borrow_mut().push(task.index());
            }
        }
    }

    /// What is to be done after every poll: wakes and drops what the I/O has put aside, with nothing borrowed, and
    /// grants the next task its answers. What is put aside by a poll is no news yet: a task that has used its answers up.
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
            for waker in wakes.drain(..) {
                match Packed::of(&waker) {
                    Some(task) if task.runtime() == self.number => self.wake(task, when),
                    _ => panics.run(|| waker.wake()),
                }
            }
            trash.into_iter().for_each(|waker| panics.run(|| drop(waker)));
            // Its memory is used again, so that a turn allocates nothing.
            if let Some(io) = self.io.borrow_mut().as_mut()
                && io.wakes.capacity() == 0
            {
                io.wakes = wakes;
            }
            panics.go_on();
        }
    }

    fn spawn<F>(self: &Rc<Core>, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let (index, generation) = self.tasks.borrow_mut().insert(boxed(future));
        self.wake(Packed::new(self.number, index, generation as u16), When::Soon);
        JoinHandle::new(Rc::clone(self), index, generation)
    }

    /// Polls one task from the queue. `false`: it is over, and there was nothing to poll.
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
        // A task that panics ends alone. Its own state is dropped, and ours is not touched in between.
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().run(&mut context)));
        let mut tasks = self.tasks.borrow_mut();
        let Some(slot) = tasks.slot(index) else { return true };
        let cancelled = matches!(slot.place, Place::Running { cancelled: true });
        let (place, keep) = match polled {
            Ok(Poll::Pending) if !cancelled => {
                slot.place = Place::Idle(task);
                return true;
            }
            Ok(Poll::Pending) => (Place::Failed(JoinError::Cancelled), Some(task)),
            Ok(Poll::Ready(())) => (Place::Over(task), None),
            Err(why) => (Place::Failed(JoinError::Panicked(why)), Some(task)),
        };
        slot.place = place;
        slot.queued = false;
        if slot.detached {
            let freed = tasks.free(index);
            drop(tasks);
            // Futures and outputs are the user's: dropped when nothing is borrowed. Nobody asks how it ended.
            let _ = drop_caught((keep, freed));
            return true;
        }
        drop(tasks);
        self.end_task(index, generation, keep);
        true
    }

    /// Drops what is left of a task that has failed, and tells who waits for it.
    fn end_task(&self, index: u32, generation: u32, task: Option<Task>) {
        let panicked = drop_caught(task).err();
        let mut tasks = self.tasks.borrow_mut();
        let Some(slot) = tasks.alive(index, generation) else { return };
        if let Some(why) = panicked
            && matches!(slot.place, Place::Failed(JoinError::Cancelled))
        {
            slot.place = Place::Failed(JoinError::Panicked(why));
        }
        let joiner = tasks.take_joiner(index);
        drop(tasks);
        if let Some(joiner) = joiner {
            joiner.wake();
        }
    }

    fn cancel_task(&self, index: u32, generation: u32) {
        let mut tasks = self.tasks.borrow_mut();
        let Some(slot) = tasks.alive(index, generation) else { return };
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
        self.end_task(index, generation, Some(task));
    }

    /// Runs tasks until `main` is ready.
    fn run<F: Future>(self: &Rc<Core>, main: F) -> Result<F::Output> {
        let _entered = Entered::new(self);
        let _runs = Runs::new(&self.who);
        let mut main = pin!(main);
        let main_waker = Packed::new(self.number, MAIN, 0).waker();
        let mut messages = Vec::new();
        self.main.set(Main::Ready);
        loop {
            let mut counts = self.counts.get();
            counts.turns += 1;
            let began = counts.polls;
            let mut read = 0;
            // In rounds: who is woken in one has its turn in the next.
            loop {
                // Behind the wait, whose sleep a message has ended perhaps, so that whom it wakes need not wait for another.
                read += self.take_messages(&mut messages, &mut counts);
                if self.main.get() == Main::Ready {
                    counts.polls += 1;
                    self.main.set(Main::Running);
                    let polled = main.as_mut().poll(&mut Context::from_waker(&main_waker));
                    if self.main.get() == Main::Running {
                        self.main.set(Main::Waits);
                    }
                    self.between_polls(When::NextTurn);
                    if let Poll::Ready(output) = polled {
                        self.counts.set(counts);
                        return Ok(output);
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
            if let Err(why) = self.turn() {
                // While `main` is there, and what it waits for.
                return Err(why.dumped(self.dump()));
            }
        }
    }

    /// Takes in what other threads have sent: how many messages.
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

    /// Waits for news and takes it in.
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

    /// How long there is nothing to do but wait.
    fn until(&self) -> Until {
        let timer = self.timers.borrow().deadline();
        let parked = self.with_io(|io| io.deadline()).flatten();
        match timer.into_iter().chain(parked).min() {
            Some(deadline) => self.until_moment(deadline),
            None => Until::News,
        }
    }

    /// The clock is read anew: the tasks may have taken long, or it was another `block_on` that read it last, and the
    /// wait would be so much too long. Only here, where there is a timer and nothing else to do.
    fn until_moment(&self, deadline: Moment) -> Until {
        let now = self.with_io(|io| io.read_clock()).unwrap_or(deadline);
        if deadline > now { Until::For(deadline.since(now)) } else { Until::Now }
    }

    pub(crate) fn set_timer(&self, span: Duration, waker: &Waker) -> TimerId {
        // The time spent in this turn counts, so read it anew, or a long turn would make a timer early.
        let now = self.with_io(|io| io.read_clock()).unwrap_or(Moment(0));
        let waker = waker.clone();
        self.timers.borrow_mut().set(now.after(span), waker)
    }

    pub(crate) fn poll_timer(&self, id: &TimerId, waker: &Waker) -> bool {
        let caller = if Packed::of(waker).is_some() { Caller::ours(waker) } else { Caller::anybody(waker) };
        let (fired, before) = self.timers.borrow_mut().poll(id, &caller);
        drop(before);
        fired
    }

    /// For how long a timer that has not fired is still to wait.
    pub(crate) fn timer_left(&self, id: &TimerId) -> Duration {
        self.timers.borrow().due(id).since(self.clock.now())
    }

    pub(crate) fn drop_timer(&self, id: TimerId) {
        let waker = self.timers.borrow_mut().drop_timer(id);
        drop(waker);
    }

    /// Ends everything: tasks first, then what the kernel has.
    fn shut_down(self: &Rc<Core>, patience: Duration) -> u64 {
        let _entered = Entered::new(self);
        // What is dropped here is the user's and may panic. That is told when all is done: a runtime left half shut
        // down would free memory that the kernel may still touch.
        let mut panics = Panics::default();
        let unread = self.inbox.close();
        unread.into_iter().for_each(|message| panics.run(|| drop(message)));
        self.drop_tasks(&mut panics);
        panics.run(|| self.flush_wakes(When::Soon));
        waker::strike(self.number);
        let io = self.io.borrow_mut().take();
        let mut leaked = 0;
        if let Some(io) = io {
            let (count, wakers) = io.shut_down(patience);
            leaked = count;
            wakers.into_iter().for_each(|waker| panics.run(|| drop(waker)));
        }
        // Wakers are the user's too, and may have spawned while they were dropped.
        self.drop_tasks(&mut panics);
        panics.go_on();
        leaked
    }

    /// Dropping a task may spawn another; each round drops what is there.
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

/// Lets every other ready task run, and I/O be looked at, before this one goes on.
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

    /// Set when it is called, not when it is polled.
    fn sleep(core: &Core, seconds: u64) -> impl Future<Output = ()> + '_ {
        let id = core.set_timer(Duration::from_secs(seconds), Waker::noop());
        poll_fn(move |context| match core.poll_timer(&id, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
    }

    #[test]
    fn who_is_woken_by_another_thread_runs_when_the_wait_ends_and_not_a_wait_later() {
        let (driver, script) = stub();
        let runtime = Runtime { core: Core::new(driver).unwrap() };
        let asked: Rc<RefCell<Option<Waker>>> = Rc::default();
        let wake = |asked: &RefCell<Option<Waker>>| {
            let waker = asked.take().unwrap();
            std::thread::spawn(|| waker.wake()).join().unwrap();
        };
        let asked_in_wait = Rc::clone(&asked);
        script.in_wait.replace(Some(Box::new(move || wake(&asked_in_wait))));
        // Five that come while it sleeps, then five that come before it would.
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
        // Each call sends the next, and none of them makes anybody ready.
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
        // The same for one set late, after a time in which nobody ran the runtime.
        long(1000);
        runtime.block_on(sleep(&runtime.core, 5)).unwrap();
        assert_eq!(script.now.get() / SECOND, 1105);
    }
}

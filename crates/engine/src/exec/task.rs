//! Tasks: futures in a slab, with one allocation each, made by spawn.

use super::{Core, take_answer};
use pin_project_lite::pin_project;
use std::any::Any;
use std::cell::{Cell, RefMut};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pin_project! {
    /// A future, then its result.
    #[project = StageProjection]
    enum Stage<F: Future> {
        Running { #[pin] future: F },
        Over { output: Option<F::Output> },
    }
}

/// A task with its type erased.
pub(super) trait Run {
    /// Polls the task. `Ready`: it has ended, and holds its output.
    fn run(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()>;
    /// Returns an `Option<Output>`: `None` while the task runs, and after the output was taken.
    fn output(self: Pin<&mut Self>) -> Option<&mut dyn Any>;
}

impl<F> Run for Stage<F>
where
    F: Future,
    F::Output: 'static,
{
    fn run(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.as_mut().project() {
            StageProjection::Running { future } => match future.poll(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(output) => {
                    self.set(Stage::Over { output: Some(output) });
                    Poll::Ready(())
                }
            },
            StageProjection::Over { .. } => Poll::Ready(()),
        }
    }

    fn output(self: Pin<&mut Self>) -> Option<&mut dyn Any> {
        match self.project() {
            StageProjection::Running { .. } => None,
            StageProjection::Over { output } => Some(output),
        }
    }
}

/// A task in its box.
pub(super) type Task = Pin<Box<dyn Run>>;

/// The payload of a panic. Its destructor is user code and may panic again.
pub(super) type Payload = Box<dyn Any + Send>;

/// Drops a value of the user's type; returns the payload if its destructor panics.
pub(super) fn drop_caught<T>(value: T) -> Result<(), Payload> {
    catch_unwind(AssertUnwindSafe(|| drop(value)))
}

/// Drops a value of the user's type. A panic of its destructor is not returned: the panic hook has reported
/// it.
pub(super) fn drop_quietly<T>(value: T) {
    if let Err(payload) = drop_caught(value) {
        // Dropping the payload could panic again, here, where nothing catches it.
        std::mem::forget(payload);
    }
}

/// Runs user code piece by piece, so that a piece that panics does not keep the others from running.
///
/// INVARIANT: `run` never unwinds. It keeps the first payload and leaks the later ones, because a payload's
/// destructor is user code too and may panic out of `run`.
#[derive(Default)]
pub(super) struct Panics(Option<Payload>);

impl Panics {
    #[cold]
    pub(super) fn run(&mut self, code: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(code)) {
            match self.0 {
                None => self.0 = Some(payload),
                Some(_) => std::mem::forget(payload),
            }
        }
    }

    /// Resumes the first panic; not while this thread unwinds already, since a second panic would abort the
    /// process.
    #[inline]
    pub(super) fn resume(self) {
        if let Some(payload) = self.0 {
            if std::thread::panicking() {
                return std::mem::forget(payload);
            }
            resume_unwind(payload);
        }
    }

    /// Leaks the payload: the panic hook has reported the panic, and no caller receives it.
    pub(super) fn forget(self) {
        std::mem::forget(self.0);
    }
}

/// Runs user code (a waker, or the destructor of a value) in a destructor. A second panic while the thread
/// unwinds is caught, because it would abort the process.
#[inline]
pub(crate) fn in_destructor(code: impl FnOnce()) {
    if !std::thread::panicking() {
        return code();
    }
    let mut panics = Panics::default();
    panics.run(code);
    panics.forget();
}

/// The reason why a task ended without an output.
#[derive(Debug)]
pub enum JoinError {
    /// [`JoinHandle::cancel`], or the runtime was shut down.
    Cancelled,
    /// The task panicked with this payload, or the destructor of its remains did.
    Panicked(Box<dyn Any + Send>),
    /// A blocking call could not begin: no thread could be started (EAGAIN: a limit on threads).
    NoThread(std::io::Error),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Cancelled => f.write_str("the task was cancelled"),
            JoinError::NoThread(why) => {
                write!(f, "no thread for a blocking call: {why} (see `ulimit -u` and the cgroup's pids.max)")
            }
            JoinError::Panicked(why) => {
                let text = why.downcast_ref::<&str>().copied();
                let text = text.or_else(|| why.downcast_ref::<String>().map(String::as_str));
                write!(f, "the task panicked: {}", text.unwrap_or("(no message)"))
            }
        }
    }
}

impl std::error::Error for JoinError {}

impl JoinError {
    /// Returns whether the task was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, JoinError::Cancelled)
    }

    /// Returns whether the task panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self, JoinError::Panicked(_))
    }

    /// Returns the payload of the panic, for `std::panic::resume_unwind`.
    ///
    /// # Errors
    /// The task did not panic: the error is returned.
    #[doc(alias = "into_panic")]
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match self {
            JoinError::Panicked(payload) => Ok(payload),
            other => Err(other),
        }
    }
}

/// The content of a slot in the slab.
pub(super) enum Place {
    Free {
        next: u32,
    },
    /// Waiting to be polled.
    Idle(Task),
    /// Being polled: the executor has taken the task out.
    Running {
        cancelled: bool,
    },
    /// Ended; its handle has not taken the output yet.
    Over(Task),
    Failed(JoinError),
}

pub(super) struct Slot {
    pub(super) place: Place,
    pub(super) generation: u32,
    /// In the queue.
    pub(super) queued: bool,
    /// Its handle was dropped: the output will not be taken.
    pub(super) detached: bool,
}

const _: () = assert!(size_of::<Slot>() == 32);

impl Slot {
    /// Fills a place that has nothing to drop: it is free, or its task is being polled. An assignment would
    /// check the old value for a drop.
    #[inline]
    pub(super) fn fill(&mut self, place: Place) {
        let before = std::mem::replace(&mut self.place, place);
        debug_assert!(matches!(before, Place::Free { .. } | Place::Running { .. }));
        std::mem::forget(before);
    }
}

/// All tasks of a runtime.
pub(super) struct Tasks {
    slots: Vec<Slot>,
    free: u32,
    pub(super) alive: usize,
    /// Wakers of joining tasks, by the index of the joined task. Kept apart because most tasks are detached.
    joiners: HashMap<u32, Waker>,
}

const NONE: u32 = u32::MAX;

impl Tasks {
    pub(super) fn new() -> Tasks {
        Tasks { slots: Vec::new(), free: NONE, alive: 0, joiners: HashMap::new() }
    }

    /// Adds a task, which the caller puts in the queue.
    pub(super) fn insert(&mut self, task: Task) -> (u32, u32) {
        self.alive += 1;
        let index = self.free;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            if let Place::Free { next } = slot.place {
                self.free = next;
            }
            slot.fill(Place::Idle(task));
            slot.queued = true;
            slot.detached = false;
            return (index, slot.generation);
        }
        let index = self.slots.len() as u32;
        let place = Place::Idle(task);
        self.slots.push(Slot { place, generation: 0, queued: true, detached: false });
        (index, 0)
    }

    #[inline]
    pub(super) fn slot(&mut self, index: u32) -> Option<&mut Slot> {
        self.slots.get_mut(index as usize)
    }

    /// Returns the slot, if it still has this generation.
    pub(super) fn alive(&mut self, index: u32, generation: u32) -> Option<&mut Slot> {
        self.slots.get_mut(index as usize).filter(|slot| slot.generation == generation)
    }

    /// Returns whether the task has ended. Its output may not have been taken yet.
    pub(super) fn is_over(&self, index: u32, generation: u32) -> bool {
        let slot = self.slots.get(index as usize).filter(|slot| slot.generation == generation);
        slot.is_none_or(|slot| matches!(slot.place, Place::Over(_) | Place::Failed(_)))
    }

    /// Frees the slot; returns its content, for the caller to drop while nothing is borrowed.
    pub(super) fn free(&mut self, index: u32) -> (Place, Option<Waker>) {
        let next = self.free;
        self.free = index;
        self.alive -= 1;
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.queued = false;
        let place = std::mem::replace(&mut slot.place, Place::Free { next });
        (place, self.take_joiner(index))
    }

    /// Takes the waker of the task that joins this one, if there is one.
    #[inline]
    pub(super) fn take_joiner(&mut self, index: u32) -> Option<Waker> {
        if self.joiners.is_empty() { None } else { self.joiners.remove(&index) }
    }

    /// Removes and returns every task that is not being polled.
    pub(super) fn drain(&mut self) -> Vec<(Place, Option<Waker>)> {
        let held: Vec<u32> = (0..self.slots.len() as u32)
            .filter(|index| {
                !matches!(self.slots[*index as usize].place, Place::Free { .. } | Place::Running { .. })
            })
            .collect();
        held.into_iter().map(|index| self.free(index)).collect()
    }
}

/// Boxes a future.
pub(super) fn boxed<F>(future: F) -> Task
where
    F: Future + 'static,
    F::Output: 'static,
{
    Box::pin(Stage::Running { future })
}

/// A handle of a spawned task. Awaiting it returns the task's output; dropping it detaches the task.
#[must_use = "dropping the handle detaches the task; say so with `detach`"]
pub struct JoinHandle<T> {
    core: Rc<Core>,
    index: u32,
    generation: u32,
    /// The output has been returned.
    is_done: Cell<bool>,
    /// A handle is `Unpin` whatever the output is.
    output: PhantomData<fn() -> T>,
}

impl<T> JoinHandle<T> {
    pub(super) fn new(core: Rc<Core>, index: u32, generation: u32) -> JoinHandle<T> {
        JoinHandle { core, index, generation, is_done: Cell::new(false), output: PhantomData }
    }

    /// Detaches the task; its output is dropped.
    pub fn detach(self) {}

    /// Drops the task's future now, and cancels its operations. Memory that the kernel still uses is kept
    /// until the kernel has completed the operation. Has no effect on a task that has ended. Awaiting the
    /// handle then returns [`JoinError::Cancelled`], or the output if the task had ended.
    #[doc(alias = "abort")]
    pub fn cancel(&self) {
        self.core.cancel_task(self.index, self.generation);
    }

    /// Returns whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.core.tasks.borrow().is_over(self.index, self.generation)
    }

    /// Returns a handle that can only cancel the task; any number of them may exist. It also works after this
    /// one was awaited, moved or detached.
    #[doc(alias = "abort_handle")]
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle { core: Rc::clone(&self.core), index: self.index, generation: self.generation }
    }

    /// Returns the index and the generation of the task.
    pub(super) fn place(&self) -> (u32, u32) {
        (self.index, self.generation)
    }

    /// Returns the output, or the reason why there is none, if the task has ended and it was not returned
    /// before. It counts against no budget.
    pub(crate) fn try_output(&self) -> Option<Result<T, JoinError>>
    where
        T: 'static,
    {
        let tasks = self.core.tasks.borrow_mut();
        let is_there = tasks.is_over(self.index, self.generation) && !self.is_done.replace(true);
        is_there.then(|| Self::output_of(Core::take_ended(tasks, self.index, self.generation)))
    }
}

/// Cancels a task. Clones refer to the same task; dropping them has no effect on it. Made by
/// [`JoinHandle::cancel_handle`] and [`JoinSet::spawn`](crate::JoinSet::spawn).
///
/// ```
/// use ringroad_engine::{DriverName, Runtime, spawn, yield_now};
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let task = spawn(std::future::pending::<()>());
///     let handle = task.cancel_handle();
///     let waiting = spawn(task);
///     yield_now().await;
///     assert!(!handle.is_finished());
///     handle.cancel();
///     assert!(handle.is_finished());
///     assert!(waiting.await.unwrap().unwrap_err().is_cancelled());
/// })?;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "AbortHandle")]
pub struct CancelHandle {
    core: Rc<Core>,
    index: u32,
    generation: u32,
}

impl CancelHandle {
    /// Works as [`JoinHandle::cancel`].
    #[doc(alias = "abort")]
    pub fn cancel(&self) {
        self.core.cancel_task(self.index, self.generation);
    }

    /// Returns whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.core.tasks.borrow().is_over(self.index, self.generation)
    }
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CancelHandle({}.{})", self.index, self.generation)
    }
}

impl<T: 'static> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// # Panics
    /// When it is polled again after it returned the output.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.is_done.get(), "a JoinHandle was awaited again after it gave the task's output");
        let polled = self.poll_output(context);
        self.is_done.set(polled.is_ready());
        polled
    }
}

impl<T: 'static> JoinHandle<T> {
    fn poll_output(&self, context: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        self.core.poll_ended(self.index, self.generation, context).map(Self::output_of)
    }

    /// Returns the output of a task that has ended.
    fn output_of(ended: Result<Task, JoinError>) -> Result<T, JoinError> {
        let mut task = ended?;
        let output = task.as_mut().output().and_then(|output| output.downcast_mut::<Option<T>>());
        output.and_then(Option::take).ok_or(JoinError::Cancelled)
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        // Otherwise its slot is free, or belongs to another task.
        if !self.is_done.get() {
            self.core.detach(self.index, self.generation);
        }
    }
}

/// What a handle does with its task, compiled once for all types of output.
impl Core {
    /// Returns the task once it has ended, or the reason why it has no output, and frees its slot. Otherwise
    /// the caller is woken when it has.
    fn poll_ended(
        &self,
        index: u32,
        generation: u32,
        context: &mut Context<'_>,
    ) -> Poll<Result<Task, JoinError>> {
        let tasks = self.tasks.borrow_mut();
        if tasks.is_over(index, generation) {
            // The end of a task counts against the budget of the task that joins it; a wait does not.
            if take_answer() {
                return Poll::Ready(Self::take_ended(tasks, index, generation));
            }
            drop(tasks);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        drop(tasks);
        // Cloning a waker is user code: do it while nothing is borrowed.
        let waker = context.waker().clone();
        let before = self.tasks.borrow_mut().joiners.insert(index, waker);
        drop(before);
        Poll::Pending
    }

    /// Frees the slot of a task that has ended; returns the task, with its output.
    fn take_ended(mut tasks: RefMut<'_, Tasks>, index: u32, generation: u32) -> Result<Task, JoinError> {
        if tasks.alive(index, generation).is_none() {
            return Err(JoinError::Cancelled);
        }
        let (place, joiner) = tasks.free(index);
        drop(tasks);
        drop(joiner);
        match place {
            Place::Over(task) => Ok(task),
            Place::Failed(why) => Err(why),
            Place::Free { .. } | Place::Idle(_) | Place::Running { .. } => Err(JoinError::Cancelled),
        }
    }

    /// Leaves a task without a handle. One that has ended is dropped.
    fn detach(&self, index: u32, generation: u32) {
        let mut tasks = self.tasks.borrow_mut();
        let Some(slot) = tasks.alive(index, generation) else { return };
        let remains = match slot.place {
            Place::Over(_) | Place::Failed(_) => Some(tasks.free(index)),
            _ => {
                slot.detached = true;
                tasks.take_joiner(index).map(|joiner| (Place::Free { next: NONE }, Some(joiner)))
            }
        };
        drop(tasks);
        if remains.is_some() {
            // The output and a foreign waker are user code.
            in_destructor(|| drop(remains));
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinHandle({}.{})", self.index, self.generation)
    }
}

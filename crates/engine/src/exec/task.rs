//! Tasks: futures in a slab, one allocation each, made when they are spawned.

use super::Core;
use pin_project_lite::pin_project;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pin_project! {
    /// A future, then what it came to.
    #[project = StageProjection]
    enum Stage<F: Future> {
        Running { #[pin] future: F },
        Over { output: Option<F::Output> },
    }
}

/// A task without its type.
pub(super) trait Run {
    /// Ready: it is over, and its output lies in it.
    fn run(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()>;
    /// An `Option<Output>`; `None` while it runs, and once it is taken.
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

/// Drops what is the user's; a panic in that is the result.
pub(super) fn drop_caught<T>(what: T) -> std::thread::Result<()> {
    catch_unwind(AssertUnwindSafe(|| drop(what)))
}

/// Runs code of the user's piece by piece: one that panics keeps none of the others from being run. The first panic
/// goes on when all is done.
#[derive(Default)]
pub(super) struct Panics(Option<Box<dyn Any + Send>>);

impl Panics {
    #[cold]
    pub(super) fn run(&mut self, code: impl FnOnce()) {
        if let Err(why) = catch_unwind(AssertUnwindSafe(code)) {
            self.0.get_or_insert(why);
        }
    }

    #[inline]
    pub(super) fn go_on(self) {
        if let Some(why) = self.0 {
            resume_unwind(why);
        }
    }
}

/// How a task ended without an output.
#[derive(Debug)]
pub enum JoinError {
    /// [`JoinHandle::cancel`], or the runtime was shut down.
    Cancelled,
    /// It panicked with this, or what was left of it did when it was dropped.
    Panicked(Box<dyn Any + Send>),
    /// A blocking call could not begin: the system gives no thread (EAGAIN: a limit on threads).
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

/// What a place in the slab holds.
pub(super) enum Place {
    Free {
        next: u32,
    },
    /// Waiting to be polled.
    Idle(Task),
    /// Being polled: the task is with the executor.
    Running {
        cancelled: bool,
    },
    /// Over, and its handle has not asked yet.
    Over(Task),
    Failed(JoinError),
}

pub(super) struct Slot {
    pub(super) place: Place,
    pub(super) generation: u32,
    /// In the queue.
    pub(super) queued: bool,
    /// Nobody will ask for its output.
    pub(super) detached: bool,
}

const _: () = assert!(size_of::<Slot>() == 32);

/// All tasks of a runtime.
pub(super) struct Tasks {
    slots: Vec<Slot>,
    free: u32,
    pub(super) alive: usize,
    /// Who waits for a task's end, by index: apart, since most tasks are detached.
    joiners: HashMap<u32, Waker>,
}

const NONE: u32 = u32::MAX;

impl Tasks {
    pub(super) fn new() -> Tasks {
        Tasks { slots: Vec::new(), free: NONE, alive: 0, joiners: HashMap::new() }
    }

    pub(super) fn insert(&mut self, task: Task) -> (u32, u32) {
        self.alive += 1;
        let index = self.free;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            if let Place::Free { next } = slot.place {
                self.free = next;
            }
            slot.place = Place::Idle(task);
            slot.queued = false;
            slot.detached = false;
            return (index, slot.generation);
        }
        let index = self.slots.len() as u32;
        let place = Place::Idle(task);
        self.slots.push(Slot { place, generation: 0, queued: false, detached: false });
        (index, 0)
    }

    #[inline]
    pub(super) fn slot(&mut self, index: u32) -> Option<&mut Slot> {
        self.slots.get_mut(index as usize)
    }

    /// The slot in the life that `generation` means.
    pub(super) fn alive(&mut self, index: u32, generation: u32) -> Option<&mut Slot> {
        self.slots.get_mut(index as usize).filter(|slot| slot.generation == generation)
    }

    /// Gives the place up; what was in it is the caller's to drop, when nothing is borrowed.
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

    /// Who waits for this task's end, if anybody.
    #[inline]
    pub(super) fn take_joiner(&mut self, index: u32) -> Option<Waker> {
        if self.joiners.is_empty() { None } else { self.joiners.remove(&index) }
    }

    /// Everything that is not being polled, given up.
    pub(super) fn drain(&mut self) -> Vec<(Place, Option<Waker>)> {
        let held: Vec<u32> = (0..self.slots.len() as u32)
            .filter(|index| {
                !matches!(self.slots[*index as usize].place, Place::Free { .. } | Place::Running { .. })
            })
            .collect();
        held.into_iter().map(|index| self.free(index)).collect()
    }
}

/// Puts a future in its box.
pub(super) fn boxed<F>(future: F) -> Task
where
    F: Future + 'static,
    F::Output: 'static,
{
    Box::pin(Stage::Running { future })
}

/// A spawned task: await it for what it returns; dropping the handle lets it go on by itself.
#[must_use = "dropping the handle detaches the task; say so with `detach`"]
pub struct JoinHandle<T> {
    core: Rc<Core>,
    index: u32,
    generation: u32,
    output: PhantomData<T>,
}

impl<T> JoinHandle<T> {
    pub(super) fn new(core: Rc<Core>, index: u32, generation: u32) -> JoinHandle<T> {
        JoinHandle { core, index, generation, output: PhantomData }
    }

    /// Lets the task go on without anybody asking for its output.
    pub fn detach(self) {}

    /// Drops the task's future now, and with it whatever it waits for; what the kernel still has of it is kept
    /// until it lets go. A task that is over stays over. Awaiting the handle then gives
    /// [`JoinError::Cancelled`], or the output if it was there already.
    pub fn cancel(&self) {
        self.core.cancel_task(self.index, self.generation);
    }

    /// Whether the task is over.
    pub fn is_finished(&self) -> bool {
        let mut tasks = self.core.tasks.borrow_mut();
        let slot = tasks.alive(self.index, self.generation);
        !slot.is_some_and(|slot| matches!(slot.place, Place::Idle(_) | Place::Running { .. }))
    }
}

impl<T: 'static> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut tasks = self.core.tasks.borrow_mut();
        let Some(slot) = tasks.alive(self.index, self.generation) else {
            return Poll::Ready(Err(JoinError::Cancelled));
        };
        match &mut slot.place {
            Place::Over(task) => {
                let output = task.as_mut().output().and_then(|output| output.downcast_mut::<Option<T>>());
                let output = output.and_then(Option::take);
                let remains = tasks.free(self.index);
                drop(tasks);
                drop(remains);
                Poll::Ready(output.ok_or(JoinError::Cancelled))
            }
            Place::Failed(_) => {
                let (place, joiner) = tasks.free(self.index);
                drop(tasks);
                drop(joiner);
                match place {
                    Place::Failed(why) => Poll::Ready(Err(why)),
                    _ => Poll::Ready(Err(JoinError::Cancelled)),
                }
            }
            Place::Idle(_) | Place::Running { .. } | Place::Free { .. } => {
                drop(tasks);
                // Cloning is code of the waker's: with nothing borrowed.
                let waker = context.waker().clone();
                let before = self.core.tasks.borrow_mut().joiners.insert(self.index, waker);
                drop(before);
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        let mut tasks = self.core.tasks.borrow_mut();
        let Some(slot) = tasks.alive(self.index, self.generation) else { return };
        let remains = match slot.place {
            Place::Over(_) | Place::Failed(_) => Some(tasks.free(self.index)),
            _ => {
                slot.detached = true;
                tasks.take_joiner(self.index).map(|joiner| (Place::Free { next: NONE }, Some(joiner)))
            }
        };
        drop(tasks);
        drop(remains);
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinHandle({}.{})", self.index, self.generation)
    }
}

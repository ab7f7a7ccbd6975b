//! Wakers without memory: a task's number, and which runtime it is in, packed into the pointer's place.
//!
//! Cloning and dropping one is free, it needs no reference count, and it may be sent anywhere. On its runtime's
//! thread a wake puts the task's number in the queue; from elsewhere it goes through that runtime's inbox, found
//! in a registry. A waker that outlives its task, or its runtime, wakes nobody, or at worst somebody who then
//! finds nothing to do, which every future must bear.

use super::inbox::{Inbox, Message};
use crate::name::Name;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{RawWaker, RawWakerVTable, Waker};

/// A task: index in 32 bits, the low 16 of its generation, and the runtime's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed(pub(crate) u64);

impl Packed {
    #[inline]
    pub(crate) fn new(runtime: u16, index: u32, generation: u16) -> Packed {
        Packed((u64::from(runtime) << 48) | (u64::from(generation) << 32) | u64::from(index))
    }

    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(crate) fn generation(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline]
    pub(crate) fn runtime(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// As a waker.
    #[inline]
    pub(crate) fn waker(self) -> Waker {
        // SAFETY: the functions of VTABLE take the pointer for the number it is and never follow it, so they are
        // thread-safe and valid for ever; clone gives the same number with the same table.
        unsafe { Waker::new(std::ptr::without_provenance(self.0 as usize), &VTABLE) }
    }

    /// Back from a waker, if it is one of ours.
    #[inline]
    pub(crate) fn of(waker: &Waker) -> Option<Packed> {
        std::ptr::eq(waker.vtable(), &VTABLE).then(|| Packed(waker.data().addr() as u64))
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| RawWaker::new(data, &VTABLE),
    |data| wake(Packed(data.addr() as u64)),
    |data| wake(Packed(data.addr() as u64)),
    |_| {},
);

const _: () = assert!(size_of::<usize>() == 8, "a task's number takes 64 bits");

fn wake(task: Packed) {
    if !super::wake_here(task) {
        wake_elsewhere(task);
    }
}

#[cold]
fn wake_elsewhere(task: Packed) {
    // Held over the send, which runs nobody's code: who comes and goes waits for a call at most, and a wake is spared
    // the counting of who has the inbox.
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(enlisted) = registry.get(usize::from(task.runtime())).and_then(Option::as_ref) {
        // Refused by a runtime that is gone: there is nobody to wake.
        let _ = enlisted.inbox.send(Message::Wake(task.0));
    }
}

/// Which runtime it is, for a person.
#[derive(Debug)]
pub(crate) struct Who {
    number: u16,
    driver: Name,
    thread: Option<String>,
    /// As the kernel knows the thread.
    thread_id: i32,
    runs: AtomicBool,
}

impl Who {
    /// As the kernel knows the thread that made it, and runs it if anybody does.
    pub(crate) fn thread_id(&self) -> i32 {
        self.thread_id
    }

    /// Whether it is inside `block_on`. It may come or go at any time.
    pub(crate) fn runs(&self) -> bool {
        self.runs.load(Ordering::Relaxed)
    }

    pub(crate) fn set_runs(&self, runs: bool) {
        self.runs.store(runs, Ordering::Relaxed);
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Who { number, driver, thread, thread_id, .. } = self;
        write!(f, "runtime {number} ({driver}, thread {thread_id} {:?})", thread.as_deref().unwrap_or(""))
    }
}

struct Enlisted {
    inbox: Arc<Inbox>,
    who: Arc<Who>,
}

/// All runtimes of the process, by number.
static REGISTRY: RwLock<Vec<Option<Enlisted>>> = RwLock::new(Vec::new());

/// All runtimes of the process.
pub(super) fn everybody() -> Vec<(Arc<Who>, Arc<Inbox>)> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    registry.iter().flatten().map(|one| (Arc::clone(&one.who), Arc::clone(&one.inbox))).collect()
}

/// Gives a runtime of this thread its number, the lowest that is free; `None` past 65,535.
pub(crate) fn enlist(inbox: &Arc<Inbox>, driver: Name) -> Option<(u16, Arc<Who>)> {
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    let free = registry.iter().position(Option::is_none).unwrap_or(registry.len());
    let number = u16::try_from(free).ok()?;
    if free == registry.len() {
        registry.push(None);
    }
    let who = Arc::new(Who {
        number,
        driver,
        thread: std::thread::current().name().map(str::to_owned),
        thread_id: crate::sys::thread_id(),
        runs: AtomicBool::new(false),
    });
    if let Some(place) = registry.get_mut(free) {
        *place = Some(Enlisted { inbox: Arc::clone(inbox), who: Arc::clone(&who) });
    }
    Some((number, who))
}

/// The runtime is gone.
pub(crate) fn strike(number: u16) {
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = registry.get_mut(usize::from(number)) {
        *place = None;
    }
}

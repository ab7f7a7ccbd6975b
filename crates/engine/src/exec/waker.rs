//! Wakers without memory: a task's number and its runtime's number, packed into the data pointer.
//!
//! Cloning and dropping such a waker is free, it needs no reference count, and it may be sent to any thread.
//! On its runtime's thread a wake puts the task's number in the queue; from elsewhere it goes through that
//! runtime's inbox, found in a registry. A waker that outlives its task or its runtime has no effect, or at
//! worst wakes another task spuriously. Every future must tolerate that.

use super::inbox::{Inbox, Message};
use crate::fork::PerProcess;
use crate::name::DriverName;
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

    /// Returns a waker with this number.
    #[inline]
    pub(crate) fn waker(self) -> Waker {
        // SAFETY: the functions of VTABLE treat the pointer as a number and never dereference it, so they are
        // thread-safe and always valid; clone returns the same number with the same table.
        unsafe { Waker::new(std::ptr::without_provenance(self.0 as usize), &VTABLE) }
    }

    /// Unpacks a waker, if it belongs to a task of the engine.
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
    // Locked during the send, which runs no user code. So creating or dropping a runtime waits for one call
    // at most, and a wake needs no reference count of the inbox.
    let registry = registry().read().unwrap_or_else(PoisonError::into_inner);
    if let Some(registered) = registry.get(usize::from(task.runtime())).and_then(Option::as_ref) {
        // The runtime was dropped: there is nothing to wake.
        let _ = registered.inbox.send(Message::Wake(task.0));
    }
}

/// Describes a runtime, for messages.
#[derive(Debug)]
pub(crate) struct Identity {
    number: u16,
    driver: DriverName,
    thread: Option<String>,
    /// The kernel's thread id.
    thread_id: i32,
    runs: AtomicBool,
}

impl Identity {
    /// Returns the kernel's id of the thread that created the runtime, the only one that can run it.
    pub(crate) fn thread_id(&self) -> i32 {
        self.thread_id
    }

    /// Returns whether the runtime is inside `block_on`. May change at any time.
    pub(crate) fn runs(&self) -> bool {
        self.runs.load(Ordering::Relaxed)
    }

    pub(crate) fn set_runs(&self, runs: bool) {
        self.runs.store(runs, Ordering::Relaxed);
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { number, driver, thread, thread_id, .. } = self;
        write!(f, "runtime {number} ({driver}, thread {thread_id} {:?})", thread.as_deref().unwrap_or(""))
    }
}

struct Registered {
    inbox: Arc<Inbox>,
    identity: Arc<Identity>,
}

/// All runtimes of the process, by number.
type Registry = RwLock<Vec<Option<Registered>>>;

/// Returns the registry of this process. A forked child has its own, because the parent's may stay locked.
#[inline]
fn registry() -> &'static Registry {
    static REGISTRY: PerProcess<Registry> = PerProcess::new();
    REGISTRY.get(|_| RwLock::new(Vec::new()))
}

/// Returns all runtimes of the process.
pub(super) fn runtimes() -> Vec<(Arc<Identity>, Arc<Inbox>)> {
    let registry = registry().read().unwrap_or_else(PoisonError::into_inner);
    registry.iter().flatten().map(|one| (Arc::clone(&one.identity), Arc::clone(&one.inbox))).collect()
}

/// Assigns a runtime of this thread the lowest free number; `None` past 65,535.
pub(crate) fn register(inbox: &Arc<Inbox>, driver: DriverName) -> Option<(u16, Arc<Identity>)> {
    let mut registry = registry().write().unwrap_or_else(PoisonError::into_inner);
    let free = registry.iter().position(Option::is_none).unwrap_or(registry.len());
    let number = u16::try_from(free).ok()?;
    if free == registry.len() {
        registry.push(None);
    }
    let identity = Arc::new(Identity {
        number,
        driver,
        thread: std::thread::current().name().map(str::to_owned),
        thread_id: crate::sys::thread_id(),
        runs: AtomicBool::new(false),
    });
    if let Some(place) = registry.get_mut(free) {
        *place = Some(Registered { inbox: Arc::clone(inbox), identity: Arc::clone(&identity) });
    }
    Some((number, identity))
}

/// Removes a dropped runtime.
pub(crate) fn unregister(number: u16) {
    let mut registry = registry().write().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = registry.get_mut(usize::from(number)) {
        *place = None;
    }
}

//! State that the sessions of a worker share: one task that watches their deadlines, sends queued data of
//! other tasks, and closes the sessions when the server stops; and the compressor.
//!
//! A session is in one of [`SLOTS`] slots, by the second of its next check. An idle session costs one check
//! each time it may have to be pinged, and no timer. When a deadline comes nearer, the session is put into a
//! second slot; the older entry is skipped when its second comes.

use super::link::Link;
use crate::message::Stopping;
use ringroad_engine::{spawn, time};
use ringroad_wire::ws::Scratch;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// Number of seconds that have a slot. A later deadline is checked early, and the session is put into a slot
/// again.
const SLOTS: usize = 64;

/// Longest time until the next check of a session, in seconds.
const AHEAD_MAX: u32 = SLOTS as u32 - 4;

struct Keeper {
    slots: RefCell<Vec<Vec<Weak<Link>>>>,
    links: Cell<usize>,
    /// Seconds since this thread's first session.
    now: Cell<u32>,
    began: Cell<Option<Instant>>,
    /// Whether the task runs.
    runs: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    stopping: RefCell<Option<Pin<Box<Stopping>>>>,
    stopped: Cell<bool>,
    /// Sessions with queued data that was not sent.
    dirty: RefCell<Vec<Rc<Link>>>,
}

thread_local! {
    static KEEPER: Keeper = const {
        Keeper {
            slots: RefCell::new(Vec::new()),
            links: Cell::new(0),
            now: Cell::new(1),
            began: Cell::new(None),
            runs: Cell::new(false),
            waker: RefCell::new(None),
            stopping: RefCell::new(None),
            stopped: Cell::new(false),
            dirty: RefCell::new(Vec::new()),
        }
    };
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Calls `work` with the worker's compressor and scratch memory.
#[inline]
pub(super) fn with_scratch<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with(|scratch| work(&mut scratch.borrow_mut()))
}

/// Returns the current second, as the task last read it.
#[inline]
pub(super) fn now() -> u32 {
    KEEPER.try_with(|keeper| keeper.now.get()).unwrap_or_default()
}

/// Adds a session; `stopping` is its server's.
pub(super) fn join(link: &Rc<Link>, stopping: Option<Stopping>) {
    KEEPER.with(|keeper| {
        if !keeper.runs.replace(true) {
            keeper.stopped.set(false);
            keeper.stopping.borrow_mut().take();
            keeper.slots.borrow_mut().resize_with(SLOTS, Vec::new);
            keeper.set_clock();
            spawn(keep()).detach();
        }
        if let Some(stopping) = stopping
            && keeper.stopping.borrow().is_none()
        {
            *keeper.stopping.borrow_mut() = Some(Box::pin(stopping));
            keeper.wake();
        }
        keeper.links.set(keeper.links.get() + 1);
        link.begin(keeper.now.get());
        keeper.put(link);
        // The session was accepted while the server was stopping.
        if keeper.stopped.get() {
            link.go_away();
        }
    });
}

/// Removes a session that has ended.
pub(super) fn leave() {
    let _ = KEEPER.try_with(|keeper| {
        keeper.links.set(keeper.links.get().saturating_sub(1));
        if keeper.links.get() == 0 {
            keeper.wake();
        }
    });
}

/// Moves a session to an earlier slot: its deadline is nearer than before.
pub(super) fn hurry(link: &Rc<Link>) {
    let _ = KEEPER.try_with(|keeper| {
        if keeper.runs.get() {
            keeper.put(link);
        }
    });
}

/// Marks a session that has queued data. The data is sent when the tasks that are ready have run.
pub(super) fn flush_soon(link: &Rc<Link>) {
    let _ = KEEPER.try_with(|keeper| {
        if keeper.runs.get() {
            keeper.dirty.borrow_mut().push(Rc::clone(link));
            keeper.wake();
        }
    });
}

impl Keeper {
    fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn set_clock(&self) {
        let began = self.began.get().unwrap_or_else(Instant::now);
        self.began.set(Some(began));
        // Begins at one, because zero means "none".
        self.now.set(u32::try_from(began.elapsed().as_secs()).unwrap_or(u32::MAX).saturating_add(1));
    }

    /// Puts a session into the slot of its next deadline.
    fn put(&self, link: &Rc<Link>) {
        let now = self.now.get();
        let due = link.due().clamp(now + 1, now + AHEAD_MAX);
        if (1..=due).contains(&link.slot.get()) {
            return;
        }
        link.slot.set(due);
        if let Some(slot) = self.slots.borrow_mut().get_mut(due as usize % SLOTS) {
            slot.push(Rc::downgrade(link));
        }
    }

    /// Checks the sessions that are due.
    fn tick(&self) {
        let before = self.now.get();
        self.set_clock();
        let now = self.now.get();
        // After a long pause, each slot is checked once.
        let from = (before + 1).max(now.saturating_sub(SLOTS as u32 - 1));
        for second in from..=now {
            let due = self.slots.borrow_mut().get_mut(second as usize % SLOTS).map(std::mem::take);
            for link in due.unwrap_or_default().iter().filter_map(Weak::upgrade) {
                // Entries that were replaced are skipped.
                if link.slot.get() > now {
                    continue;
                }
                link.slot.set(0);
                if link.look(now) {
                    self.put(&link);
                }
            }
        }
    }

    fn flush_dirty(&self) {
        loop {
            let dirty = std::mem::take(&mut *self.dirty.borrow_mut());
            if dirty.is_empty() {
                return;
            }
            for link in &dirty {
                link.flush();
            }
            // Reuses the memory, unless more sessions were marked meanwhile.
            let mut dirty = dirty;
            dirty.clear();
            let mut place = self.dirty.borrow_mut();
            if place.is_empty() {
                *place = dirty;
                return;
            }
        }
    }

    fn poll_stopping(&self, context: &mut Context<'_>) {
        let stops = match &mut *self.stopping.borrow_mut() {
            Some(stopping) if !self.stopped.get() => stopping.as_mut().poll(context).is_ready(),
            _ => false,
        };
        if stops {
            self.stopped.set(true);
            let all: Vec<Rc<Link>> = self.slots.borrow().iter().flatten().filter_map(Weak::upgrade).collect();
            all.iter().for_each(|link| link.go_away());
        }
    }
}

/// Marks that the task runs; dropped with the task, however that ends.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        let _ = KEEPER.try_with(|keeper| {
            keeper.runs.set(false);
            drop(std::mem::take(&mut *keeper.slots.borrow_mut()));
            drop(std::mem::take(&mut *keeper.dirty.borrow_mut()));
            drop(keeper.stopping.borrow_mut().take());
            drop(keeper.waker.borrow_mut().take());
        });
    }
}

/// Runs while there are sessions, and a second longer.
async fn keep() {
    let _running = Running;
    loop {
        let mut second = pin!(time::sleep(Duration::from_secs(1)));
        poll_fn(|context| {
            KEEPER.with(|keeper| {
                *keeper.waker.borrow_mut() = Some(context.waker().clone());
                keeper.flush_dirty();
                keeper.poll_stopping(context);
                // Sends what the checks have queued.
                keeper.flush_dirty();
            });
            second.as_mut().poll(context)
        })
        .await;
        let is_over = KEEPER.with(|keeper| {
            keeper.tick();
            keeper.flush_dirty();
            keeper.links.get() == 0 && keeper.dirty.borrow().is_empty()
        });
        if is_over {
            return;
        }
    }
}

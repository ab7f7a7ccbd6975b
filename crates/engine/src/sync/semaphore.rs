//! A counter of permits; a task that needs more than are free waits in a line.
//!
//! The free permits are in one atomic word, with a bit that is set while tasks wait. While none waits, taking
//! and returning permits is one operation on that word. The bit changes only under the lock of the line. A
//! task that begins to wait sets the bit and reads the free permits in one operation. So it sees permits that
//! are returned, or their release sees the bit and checks the line.

use super::budget::poll_leaf;
use super::line::Line;
use crate::exec::in_destructor;
use crate::parked::block_on;
#[cfg(ringroad_loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};
use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(not(ringroad_loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};
use std::task::{Context, Poll, Waker};

/// The bit of the word that is set while tasks wait.
const WAITED_FOR: usize = 1;
/// One free permit in the word.
const PERMIT: usize = 2;

/// A counter of permits; a task that needs more than are free waits. Tasks get permits in order of arrival: a
/// task that wants many is not overtaken by others that want few.
///
/// ```
/// use ringroad_engine::{DriverName, Runtime, sync::Semaphore};
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let bytes_in_flight = Semaphore::new(64 * 1024);
///     let request = bytes_in_flight.acquire_many(48 * 1024).await;
///     assert!(bytes_in_flight.try_acquire_many(32 * 1024).is_none());
///     drop(request);
///     assert_eq!(bytes_in_flight.available_permits(), 64 * 1024);
/// })?;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
pub struct Semaphore {
    word: AtomicUsize,
    /// Waiting tasks, and how many permits each wants. Wakers are cloned, woken and dropped outside of this
    /// lock, because they are user code.
    line: Mutex<Line<usize>>,
}

impl Semaphore {
    /// The largest number of permits.
    pub const MAX_PERMITS: usize = usize::MAX / PERMIT;

    /// Creates a semaphore with `permits` free permits.
    ///
    /// # Panics
    /// `permits` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[cfg(not(ringroad_loom))]
    pub const fn new(permits: usize) -> Semaphore {
        assert!(permits <= Self::MAX_PERMITS, "more permits than a semaphore can count");
        Semaphore { word: AtomicUsize::new(permits * PERMIT), line: Mutex::new(Line::new()) }
    }

    /// Works as `new`; loom's atomics and locks cannot be made in constants.
    #[cfg(ringroad_loom)]
    pub fn new(permits: usize) -> Semaphore {
        Semaphore { word: AtomicUsize::new(permits * PERMIT), line: Mutex::new(Line::new()) }
    }

    /// Takes a permit until the guard is dropped; waits while there is none. Dropping the future gives up its
    /// place in the line.
    #[inline]
    pub fn acquire(&self) -> impl Future<Output = SemaphoreGuard<'_>> {
        self.acquire_many(1)
    }

    /// Takes `permits` permits at once until the guard is dropped. Waits while fewer are free; if the
    /// semaphore never has that many, it waits for ever. Dropping the future gives up its place in the line.
    #[inline]
    pub fn acquire_many(&self, permits: usize) -> impl Future<Output = SemaphoreGuard<'_>> {
        Acquire::new(self, permits, SemaphoreGuard::new)
    }

    /// Takes a permit if there is one and no task waits.
    #[inline]
    pub fn try_acquire(&self) -> Option<SemaphoreGuard<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes `permits` permits if they are free and no task waits.
    #[inline]
    pub fn try_acquire_many(&self, permits: usize) -> Option<SemaphoreGuard<'_>> {
        self.take(permits).then(|| SemaphoreGuard::new(self, permits))
    }

    /// Takes a permit on a thread without a runtime; blocks.
    pub fn acquire_blocking(&self) -> SemaphoreGuard<'_> {
        self.acquire_many_blocking(1)
    }

    /// Takes `permits` permits at once on a thread without a runtime; blocks.
    pub fn acquire_many_blocking(&self, permits: usize) -> SemaphoreGuard<'_> {
        self.try_acquire_many(permits).unwrap_or_else(|| {
            let mut acquire = Acquire::new(self, permits, SemaphoreGuard::new);
            block_on(|context| acquire.poll_uncounted(context))
        })
    }

    /// Takes a permit; the guard keeps the semaphore itself alive.
    #[doc(alias = "acquire_owned")]
    pub fn acquire_arc(self: &Arc<Self>) -> impl Future<Output = SemaphoreGuardArc> {
        self.acquire_many_arc(1)
    }

    /// Takes `permits` permits at once; the guard keeps the semaphore itself alive.
    #[doc(alias = "acquire_many_owned")]
    pub fn acquire_many_arc(self: &Arc<Self>, permits: usize) -> impl Future<Output = SemaphoreGuardArc> {
        Acquire::new(self, permits, |_, permits| SemaphoreGuardArc { semaphore: Arc::clone(self), permits })
    }

    /// Takes a permit if there is one and no task waits; the guard keeps the semaphore itself alive.
    #[doc(alias = "try_acquire_owned")]
    pub fn try_acquire_arc(self: &Arc<Self>) -> Option<SemaphoreGuardArc> {
        self.try_acquire_many_arc(1)
    }

    /// Takes `permits` permits if they are free and no task waits; the guard keeps the semaphore itself
    /// alive.
    #[doc(alias = "try_acquire_many_owned")]
    pub fn try_acquire_many_arc(self: &Arc<Self>, permits: usize) -> Option<SemaphoreGuardArc> {
        self.take(permits).then(|| SemaphoreGuardArc { semaphore: Arc::clone(self), permits })
    }

    /// Adds permits.
    ///
    /// # Panics
    /// The sum would exceed [`MAX_PERMITS`](Self::MAX_PERMITS).
    pub fn add_permits(&self, permits: usize) {
        let most = Self::MAX_PERMITS - self.available_permits();
        assert!(permits <= most, "more permits than a semaphore can count");
        self.give_back(permits);
    }

    /// Removes up to `permits` of the free permits permanently; returns how many.
    pub fn forget_permits(&self, permits: usize) -> usize {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let fewer = permits.min(word / PERMIT);
            let next = word - fewer * PERMIT;
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return fewer,
                Err(now) => word = now,
            }
        }
    }

    /// Returns the number of free permits.
    pub fn available_permits(&self) -> usize {
        self.word.load(Ordering::Acquire) / PERMIT
    }

    fn line(&self) -> MutexGuard<'_, Line<usize>> {
        // Only a failed allocation can panic under this lock, and the line is consistent then.
        self.line.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes permits if they are free and no task waits.
    #[inline]
    fn take(&self, permits: usize) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & WAITED_FOR != 0 || word / PERMIT < permits {
                return false;
            }
            let next = word - permits * PERMIT;
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Takes permits if they are free, even if tasks wait.
    fn take_before_others(&self, permits: usize) -> bool {
        let fewer = |word: usize| (word / PERMIT >= permits).then(|| word - permits * PERMIT);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).is_ok()
    }

    #[inline]
    fn give_back(&self, permits: usize) {
        let before = self.word.fetch_add(permits * PERMIT, Ordering::AcqRel);
        if before & WAITED_FOR != 0 {
            self.grant(self.line());
        }
    }

    /// Gives the free permits to the tasks that have waited longest, and wakes them.
    fn grant(&self, mut line: MutexGuard<'_, Line<usize>>) {
        let (mut one, mut others) = (None, Vec::new());
        // While the bit is set, permits are taken only by a holder of the lock, or by `forget_permits`.
        while line.first().is_some_and(|wanted| self.take_before_others(*wanted)) {
            let told = line.pop();
            if one.is_none() { one = told } else { others.extend(told) }
        }
        if line.is_empty() {
            self.word.fetch_and(!WAITED_FOR, Ordering::AcqRel);
        }
        drop(line);
        // Also called in destructors: of a guard, or of a dropped future.
        in_destructor(|| one.into_iter().chain(others).for_each(Waker::wake));
    }
}

/// Waits for permits. When it is ready, they are taken; `guard` makes the value that returns them.
struct Acquire<'a, F> {
    semaphore: &'a Semaphore,
    permits: usize,
    guard: F,
    /// Its number in the line, until it is ready.
    number: Option<NonZeroU64>,
}

/// No field is pinned.
impl<F> Unpin for Acquire<'_, F> {}

impl<'a, F> Acquire<'a, F> {
    #[inline]
    fn new<G>(semaphore: &'a Semaphore, permits: usize, guard: F) -> Acquire<'a, F>
    where
        F: Fn(&'a Semaphore, usize) -> G,
    {
        Acquire { semaphore, permits, guard, number: None }
    }

    #[inline]
    fn poll_uncounted<G>(&mut self, context: &mut Context<'_>) -> Poll<G>
    where
        F: Fn(&'a Semaphore, usize) -> G,
    {
        let is_taken = self.number.is_none() && self.semaphore.take(self.permits);
        if !is_taken && !self.wait(context) {
            return Poll::Pending;
        }
        Poll::Ready((self.guard)(self.semaphore, self.permits))
    }

    /// Joins the line. Returns `true` if the permits were taken meanwhile.
    fn wait(&mut self, context: &mut Context<'_>) -> bool {
        let mut waker = context.waker().clone();
        let mut line = self.semaphore.line();
        match self.number {
            Some(number) => match line.waker(number) {
                Some(before) => std::mem::swap(before, &mut waker),
                // Granting the permits removes it from the line.
                None => {
                    self.number = None;
                    return true;
                }
            },
            None => {
                if line.is_empty() {
                    let word = self.semaphore.word.fetch_or(WAITED_FOR, Ordering::AcqRel);
                    // Permits may have been returned since the first attempt.
                    if word / PERMIT >= self.permits && self.semaphore.take_before_others(self.permits) {
                        self.semaphore.word.fetch_and(!WAITED_FOR, Ordering::AcqRel);
                        return true;
                    }
                }
                self.number = line.join(self.permits, waker);
                return false;
            }
        }
        // The previous waker is dropped after the lock is released.
        drop(line);
        false
    }
}

impl<'a, G, F: Fn(&'a Semaphore, usize) -> G> Future for Acquire<'a, F> {
    type Output = G;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<G> {
        poll_leaf(context, |context| self.poll_uncounted(context))
    }
}

impl<F> Drop for Acquire<'_, F> {
    #[inline]
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.semaphore.leave(number, self.permits);
        }
    }
}

impl Semaphore {
    /// Removes a task from the line that does not wait any more.
    fn leave(&self, number: NonZeroU64, permits: usize) {
        let mut line = self.line();
        let own = line.leave(number);
        if own.is_none() {
            // Its permits were granted already.
            self.word.fetch_add(permits * PERMIT, Ordering::AcqRel);
        }
        // Tasks behind it may want fewer permits than it did.
        self.grant(line);
        in_destructor(|| drop(own));
    }
}

/// Returns its permits when it is dropped. Made by [`Semaphore::acquire`].
#[must_use = "dropping it gives the permits back"]
pub struct SemaphoreGuard<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

impl<'a> SemaphoreGuard<'a> {
    #[inline]
    fn new(semaphore: &'a Semaphore, permits: usize) -> SemaphoreGuard<'a> {
        SemaphoreGuard { semaphore, permits }
    }

    /// Returns the number of its permits.
    pub fn permits(&self) -> usize {
        self.permits
    }

    /// Removes the permits permanently; [`Semaphore::add_permits`] makes new ones.
    pub fn forget(mut self) {
        self.permits = 0;
    }
}

impl Drop for SemaphoreGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.semaphore.give_back(self.permits);
    }
}

/// Returns its permits when it is dropped, and keeps the semaphore alive. Made by [`Semaphore::acquire_arc`].
#[must_use = "dropping it gives the permits back"]
pub struct SemaphoreGuardArc {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

impl SemaphoreGuardArc {
    /// Returns the number of its permits.
    pub fn permits(&self) -> usize {
        self.permits
    }

    /// Removes the permits permanently; [`Semaphore::add_permits`] makes new ones.
    pub fn forget(mut self) {
        self.permits = 0;
    }
}

impl Drop for SemaphoreGuardArc {
    #[inline]
    fn drop(&mut self) {
        self.semaphore.give_back(self.permits);
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available_permits", &self.available_permits()).finish()
    }
}

impl fmt::Debug for SemaphoreGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SemaphoreGuard({})", self.permits)
    }
}

impl fmt::Debug for SemaphoreGuardArc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SemaphoreGuardArc({})", self.permits)
    }
}

#[cfg(all(test, ringroad_loom))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::model::{check_three_threads, waited};
    use super::*;
    use loom::thread;
    use std::pin::pin;

    fn wait<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        waited(|context| future.as_mut().poll(context))
    }

    #[test]
    fn one_permit_goes_through_every_task_and_is_held_by_one_at_a_time() {
        check_three_threads(|| {
            let semaphore = Arc::new(Semaphore::new(1));
            let held = Arc::new(AtomicUsize::new(0));
            let takes = |semaphore: Arc<Semaphore>, held: Arc<AtomicUsize>| {
                let _permit = wait(semaphore.acquire());
                assert_eq!(held.fetch_add(1, Ordering::Relaxed), 0);
                held.fetch_sub(1, Ordering::Relaxed);
            };
            let threads = [0, 1].map(|_| {
                let (semaphore, held) = (Arc::clone(&semaphore), Arc::clone(&held));
                thread::spawn(move || takes(semaphore, held))
            });
            takes(Arc::clone(&semaphore), Arc::clone(&held));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(semaphore.available_permits(), 1);
        });
    }

    #[test]
    fn a_wait_for_many_permits_that_is_given_up_at_any_time_lets_those_behind_it_through() {
        check_three_threads(|| {
            let semaphore = Arc::new(Semaphore::new(2));
            let held = semaphore.try_acquire().unwrap();
            let (gives_up, waits) = (Arc::clone(&semaphore), Arc::clone(&semaphore));
            let gives_up = thread::spawn(move || {
                let mut many = pin!(gives_up.acquire_many(2));
                drop(many.as_mut().poll(&mut Context::from_waker(Waker::noop())));
            });
            let waiting = thread::spawn(move || drop(wait(waits.acquire_many(2))));
            drop(held);
            gives_up.join().unwrap();
            waiting.join().unwrap();
            assert_eq!(semaphore.available_permits(), 2);
        });
    }
}

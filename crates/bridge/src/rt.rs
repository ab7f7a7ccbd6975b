//! The parts of a runtime that hyper needs besides I/O: an executor, and timers.

use crate::local::Local;
use hyper::rt::{Executor, Sleep, Timer};
use ringroad_engine::{is_in_runtime, spawn, time};
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Spawns hyper's tasks on the runtime of the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalExecutor;

impl<F> Executor<F> for LocalExecutor
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        spawn(future).detach();
    }
}

/// The engine's clock and timers for hyper. In a simulation they follow virtual time.
///
/// hyper wants sleeps that are `Send`. One of these panics when it is polled or dropped on a thread other
/// than that of its runtime, which a connection on the engine never does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Timer for Clock {
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Local::new(time::sleep(span)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }

    fn now(&self) -> Instant {
        // A connection pool may ask while the program ends, when the runtime no longer exists.
        if is_in_runtime() { time::now() } else { Instant::now() }
    }
}

impl Sleep for Local<time::Sleep> {}

//! What hyper asks of a runtime besides I/O: where tasks run, and timers.

use crate::local::Local;
use hyper::rt::{Executor, Sleep, Timer};
use ringroad_engine::{is_in_runtime, spawn, time};
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Runs hyper's tasks on the runtime of the thread that gives them.
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

/// The engine's clock and timers for hyper: in a simulation those of virtual time.
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
        // A pool of connections may ask on the way out, when there is no runtime any more.
        if is_in_runtime() { time::now() } else { Instant::now() }
    }
}

impl Sleep for Local<time::Sleep> {}

//! Functions that the code of the macros calls. They are not part of the public interface.

use pin_project_lite::pin_project;
use ringroad_engine::{Error, Features, Result, Runtime, choose};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::process::{ExitCode, Termination};
use std::task::{Context, Poll};

pub use ringroad_macros::{join_code, select_code, try_join_code};

/// Makes a runtime on the driver of this name.
fn runtime(driver: &str) -> Result<Runtime> {
    match driver.parse() {
        // `auto` is no driver.
        Err(_) => Runtime::auto(),
        Ok(driver) => {
            let features = choose::probe(driver).map_or_else(|_| Features::default(), |found| found.features);
            Runtime::builder(driver).features(features).build()
        }
    }
}

/// Runs the future of `#[ringroad::main]`.
///
/// # Panics
/// No runtime can be made, or its driver fails. `main` may return any type, so a panic is the only report.
pub fn main<F: Future>(driver: &str, future: F) -> F::Output {
    let ran: Result<F::Output> = runtime(driver).and_then(|runtime| runtime.block_on(future));
    ran.unwrap_or_else(|why| failed(&why))
}

#[cold]
#[allow(clippy::panic, reason = "documented: the attribute's function may return anything")]
fn failed(why: &Error) -> ! {
    panic!("{why}")
}

/// Runs a test of `#[ringroad::test]`. If the driver cannot be used on this machine, the test is skipped and
/// the reason is printed.
pub fn test<F>(driver: &str, test: impl FnOnce() -> F) -> ExitCode
where
    F: Future,
    F::Output: Termination,
{
    if let Ok(driver) = driver.parse()
        && let Err(refusal) = choose::probe(driver)
    {
        #[allow(clippy::print_stderr, reason = "a test that is skipped says why")]
        {
            eprintln!("skipped: {refusal}");
        }
        return ExitCode::SUCCESS;
    }
    main(driver, test()).report()
}

/// Returns the next number of a pseudo-random sequence (xorshift, the same sequence on each thread). It
/// selects the branch that `select!` polls first. With a counter, two tasks that are polled in turns could
/// each begin at the same branch for ever.
pub fn turn() -> usize {
    thread_local! {
        static TURN: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
    }
    TURN.with(|turn| {
        let mut bits = turn.get();
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        turn.set(bits);
        (bits >> 33) as usize
    })
}

/// Ends a `select!` without a branch to wait for.
///
/// # Panics
/// Always.
#[cold]
#[allow(clippy::panic, reason = "documented at `select!`")]
pub fn every_branch_is_disabled() -> ! {
    panic!("every branch of a `select!` is disabled, and it has no `else`")
}

pin_project! {
    /// A future, then its output until that is taken.
    #[project = MaybeDoneProjection]
    pub enum MaybeDone<F: Future> {
        Waits { #[pin] future: F },
        Done { output: Option<F::Output> },
    }
}

impl<F: Future> MaybeDone<F> {
    pub fn new(future: F) -> MaybeDone<F> {
        MaybeDone::Waits { future }
    }

    /// Polls the future; returns whether it has ended.
    pub fn poll_done(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> bool {
        let output = match self.as_mut().project() {
            MaybeDoneProjection::Waits { future } => match future.poll(context) {
                Poll::Ready(output) => output,
                Poll::Pending => return false,
            },
            MaybeDoneProjection::Done { .. } => return true,
        };
        self.set(MaybeDone::Done { output: Some(output) });
        true
    }

    /// Takes the output.
    ///
    /// # Panics
    /// The future has not ended, or its output was taken.
    pub fn take(self: Pin<&mut Self>) -> F::Output {
        let output = match self.project() {
            MaybeDoneProjection::Done { output } => output.take(),
            MaybeDoneProjection::Waits { .. } => None,
        };
        output.unwrap_or_else(|| unreachable!("taken once, after every future has ended"))
    }
}

impl<T, E, F: Future<Output = std::result::Result<T, E>>> MaybeDone<F> {
    /// Polls the future; returns whether it has ended, or its error.
    ///
    /// # Errors
    /// That of the future.
    pub fn poll_ok(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> std::result::Result<bool, E> {
        if !self.as_mut().poll_done(context) {
            return Ok(false);
        }
        if let MaybeDoneProjection::Done { output: Some(Ok(_)) } = self.as_mut().project() {
            return Ok(true);
        }
        match self.take() {
            Ok(_) => unreachable!("an error, by the line above"),
            Err(why) => Err(why),
        }
    }

    /// Takes the value.
    ///
    /// # Panics
    /// As [`take`](Self::take), or for an error.
    pub fn take_ok(self: Pin<&mut Self>) -> T {
        match self.take() {
            Ok(value) => value,
            Err(_) => unreachable!("errors have ended the wait"),
        }
    }
}

//! `select!`, `join!` and `try_join!`: the rules that parse their branches. `ringroad-macros` writes the
//! code.

/// Waits for several futures, and runs the branch of the first that is ready. The other futures are dropped.
///
/// ```
/// use ringroad::{net::TcpListener, select, sync::CancellationToken, time::sleep};
/// use std::time::Duration;
///
/// # ringroad::run(async {
/// let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
/// let stop = CancellationToken::new();
/// stop.cancel();
/// loop {
///     select! {
///         accepted = listener.accept() => drop(accepted?),
///         () = stop.cancelled() => break,
///         () = sleep(Duration::from_secs(60)) => println!("a quiet minute"),
///     }
/// }
/// # Ok::<(), ringroad::Error>(())
/// # }).unwrap().unwrap();
/// ```
///
/// A branch is `pattern = future => body`, or `pattern = future, if condition => body`. A branch with a false
/// condition is disabled; so is one with an output that does not match its pattern. `else => body` runs when
/// every branch is disabled; without it that is a panic. The value of `select!` is that of the body.
///
/// Which future is polled first is random, so that one that is always ready, or uses the budget of the task
/// ([`sync::budget`](crate::sync::budget)) up, does not starve the others. With `biased;` at the beginning
/// they are polled in order.
///
/// Every receive, accept and timer here may be dropped without loss (see
/// [`net`](crate::net#what-a-dropped-future-means)), so they can stand in a loop. A send that is dropped
/// half-way breaks its stream: send in the body, or in a task of its own.
///
/// # Panics
/// Every branch is disabled, and there is no `else`.
#[macro_export]
macro_rules! select {
    (biased; $($branches:tt)+) => { $crate::__select!(biased () $($branches)+) };
    ($($branches:tt)+) => { $crate::__select!(fair () $($branches)+) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    ($mode:ident ($($done:tt)*)) => {
        $crate::__private::select_code!([$crate] $mode () $($done)*)
    };
    ($mode:ident ($($done:tt)*) else => $body:expr $(,)?) => {
        $crate::__private::select_code!([$crate] $mode ($body) $($done)*)
    };
    ($mode:ident ($($done:tt)*) $pattern:pat = $future:expr, if $condition:expr => $body:block, $($rest:tt)*) => {
        $crate::__select!($mode ($($done)* { ($pattern) ($future) ($condition) ($body) }) $($rest)*)
    };
    ($mode:ident ($($done:tt)*) $pattern:pat = $future:expr, if $condition:expr => $body:block $($rest:tt)*) => {
        $crate::__select!($mode ($($done)* { ($pattern) ($future) ($condition) ($body) }) $($rest)*)
    };
    ($mode:ident ($($done:tt)*) $pattern:pat = $future:expr, if $condition:expr => $body:expr) => {
        $crate::__select!($mode ($($done)* { ($pattern) ($future) ($condition) ($body) }))
    };
    ($mode:ident ($($done:tt)*) $pattern:pat = $future:expr, if $condition:expr => $body:expr, $($rest:tt)*) => {
        $crate::__select!($mode ($($done)* { ($pattern) ($future) ($condition) ($body) }) $($rest)*)
    };
    ($mode:ident ($($done:tt)*) $pattern:pat = $future:expr => $body:block, $($rest:tt)*) => {
        $crate::__select!($mode ($($done)* { ($pattern) ($future) (true) ($body) }) $($rest)*)
    };
    ($mode:ident ($($done:tt)*) $pattern:pat = $future:expr => $body:block $($rest:tt)*) => {
        $crate::__select!($mode ($($done)* { ($pattern) ($future) (true) ($body) }) $($rest)*)
    };
    ($mode:ident ($($done:tt)*) $pattern:pat = $future:expr => $body:expr) => {
        $crate::__select!($mode ($($done)* { ($pattern) ($future) (true) ($body) }))
    };
    ($mode:ident ($($done:tt)*) $pattern:pat = $future:expr => $body:expr, $($rest:tt)*) => {
        $crate::__select!($mode ($($done)* { ($pattern) ($future) (true) ($body) }) $($rest)*)
    };
}

/// Waits for several futures, and returns their outputs as a tuple. They run in the calling task, and take
/// turns in being polled first.
///
/// ```
/// # ringroad::run(async {
/// let (one, two) = ringroad::join!(async { 1 }, async { "two" });
/// assert_eq!((one, two), (1, "two"));
/// # }).unwrap();
/// ```
#[macro_export]
macro_rules! join {
    ($($future:expr),* $(,)?) => { $crate::__private::join_code!([$crate] $(($future))*) };
}

/// Waits for several futures of results, and returns their values as a tuple, or the first error. The futures
/// that are left are dropped then.
///
/// ```
/// # ringroad::run(async {
/// let sum = async || {
///     let (one, two) = ringroad::try_join!(async { "1".parse::<u8>() }, async { "x".parse::<u8>() })?;
///     Ok::<u8, std::num::ParseIntError>(one + two)
/// };
/// assert!(sum().await.is_err());
/// # }).unwrap();
/// ```
#[macro_export]
macro_rules! try_join {
    ($($future:expr),* $(,)?) => { $crate::__private::try_join_code!([$crate] $(($future))*) };
}

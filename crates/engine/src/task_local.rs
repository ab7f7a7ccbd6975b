//! Values that belong to a task: set for a future, and found by whatever it calls.

use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::LocalKey;

/// Declares task-local values: `task_local! { static NAME: Type; }`, each a [`TaskLocal`].
///
/// ```
/// use ringroad_engine::{DriverName, Runtime, task_local};
///
/// task_local! {
///     static REQUEST: u64;
/// }
///
/// async fn log(text: &str) -> String {
///     format!("request {}: {text}", REQUEST.get())
/// }
///
/// let line = Runtime::new(DriverName::Epoll)?.block_on(REQUEST.scope(7, log("begun")))?;
/// assert_eq!(line, "request 7: begun");
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
#[macro_export]
macro_rules! task_local {
    ($($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty);+ $(;)?) => {$(
        $(#[$attribute])*
        $visible static $name: $crate::TaskLocal<$type> = {
            ::std::thread_local! {
                static VALUE: ::std::cell::RefCell<::std::option::Option<$type>> =
                    const { ::std::cell::RefCell::new(::std::option::Option::None) };
            }
            $crate::TaskLocal::new(&VALUE)
        };
    )+};
}

/// A value that is set for a future, by [`scope`](Self::scope). Tasks that the future spawns do not inherit
/// it. Made by [`task_local!`](crate::task_local).
pub struct TaskLocal<T: 'static> {
    value: &'static LocalKey<RefCell<Option<T>>>,
}

impl<T: 'static> TaskLocal<T> {
    #[doc(hidden)]
    pub const fn new(value: &'static LocalKey<RefCell<Option<T>>>) -> TaskLocal<T> {
        TaskLocal { value }
    }

    /// Runs `future` with this value. Scopes nest: the inner value counts until the inner future is ready.
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> Scope<T, F> {
        Scope { local: self, value: Some(value), future }
    }

    /// Runs `call` with this value.
    pub fn sync_scope<R>(&'static self, value: T, call: impl FnOnce() -> R) -> R {
        let mut value = Some(value);
        let _set = Set::new(self, &mut value);
        call()
    }

    /// Calls `read` with the value.
    ///
    /// # Panics
    /// Outside of a scope.
    pub fn with<R>(&'static self, read: impl FnOnce(&T) -> R) -> R {
        #[allow(clippy::panic, reason = "a mistake of the program, told where it is made")]
        self.try_with(read).unwrap_or_else(|| panic!("a task-local value was read outside of its scope"))
    }

    /// Calls `read` with the value; returns `None` outside of a scope.
    pub fn try_with<R>(&'static self, read: impl FnOnce(&T) -> R) -> Option<R> {
        self.value.with(|value| value.borrow().as_ref().map(read))
    }

    /// Returns a copy of the value.
    ///
    /// # Panics
    /// Outside of a scope.
    pub fn get(&'static self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }
}

impl<T> fmt::Debug for TaskLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskLocal")
    }
}

/// Has put a value in its place, and takes it back when it is dropped, also by a panic.
struct Set<'a, T: 'static> {
    local: &'static TaskLocal<T>,
    /// The scope's value while it is not in its place; the outer value while it is.
    other: &'a mut Option<T>,
}

impl<'a, T> Set<'a, T> {
    fn new(local: &'static TaskLocal<T>, other: &'a mut Option<T>) -> Set<'a, T> {
        let set = Set { local, other };
        set.local.value.with(|value| std::mem::swap(&mut *value.borrow_mut(), set.other));
        set
    }
}

impl<T> Drop for Set<'_, T> {
    fn drop(&mut self) {
        let Set { local, other } = self;
        local.value.with(|value| std::mem::swap(&mut *value.borrow_mut(), *other));
    }
}

pin_project! {
    /// Future of [`TaskLocal::scope`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct Scope<T: 'static, F> {
        local: &'static TaskLocal<T>,
        value: Option<T>,
        #[pin]
        future: F,
    }
}

impl<T, F: Future> Future for Scope<T, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _set = Set::new(this.local, this.value);
        this.future.poll(context)
    }
}

impl<T, F> fmt::Debug for Scope<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scope")
    }
}

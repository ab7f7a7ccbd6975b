//! A token that signals tasks to stop.

use super::budget::{counted, poll_counted};
use event_listener::{Event, listener};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

/// Signals tasks and threads to stop. Clones are the same token.
///
/// A cancel is permanent. [`child`](Self::child) makes a token that is cancelled with its parent, and that
/// can also be cancelled alone.
///
/// ```
/// use ringroad_engine::{DriverName, Runtime, spawn, sync::CancellationToken};
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let token = CancellationToken::new();
///     let seen = token.clone();
///     let task = spawn(async move { seen.run_until_cancelled(std::future::pending::<()>()).await });
///     token.cancel();
///     assert_eq!(task.await.unwrap(), None);
/// })?;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct CancellationToken {
    node: Arc<Node>,
}

#[derive(Default)]
struct Node {
    is_cancelled: AtomicBool,
    cancelled: Event,
    children: Mutex<Vec<Weak<Node>>>,
}

impl Node {
    fn children(&self) -> MutexGuard<'_, Vec<Weak<Node>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CancellationToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> CancellationToken {
        CancellationToken::default()
    }

    /// Creates a token that is cancelled with this one, or alone.
    pub fn child(&self) -> CancellationToken {
        let child = CancellationToken::new();
        {
            let mut children = self.node.children();
            // Dropped children leave the list before it grows, so the work per child is constant.
            if children.len() == children.capacity() {
                children.retain(|child| child.strong_count() > 0);
            }
            children.push(Arc::downgrade(&child.node));
        }
        // A cancel that missed the new child had set the flag before it took the list.
        if self.is_cancelled() {
            child.cancel();
        }
        child
    }

    /// Cancels this token and its children. A second call has no effect.
    pub fn cancel(&self) {
        // With a list instead of recursion, because a chain of tokens may be long.
        let mut nodes = vec![Arc::clone(&self.node)];
        while let Some(node) = nodes.pop() {
            if node.is_cancelled.swap(true, Ordering::AcqRel) {
                continue;
            }
            nodes.extend(node.children().drain(..).filter_map(|child| child.upgrade()));
            node.cancelled.notify(usize::MAX);
        }
    }

    /// Returns whether the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.node.is_cancelled.load(Ordering::Acquire)
    }

    /// Waits until the token is cancelled.
    pub async fn cancelled(&self) {
        counted(self.wait()).await;
    }

    async fn wait(&self) {
        while !self.is_cancelled() {
            listener!(self.node.cancelled => cancelled);
            // It may have been cancelled before the listener was registered.
            if !self.is_cancelled() {
                cancelled.await;
            }
        }
    }

    /// Runs `future` until it is ready, or until the token is cancelled: then drops it and returns `None`. If
    /// both happen in one poll, the output of the future is returned.
    pub async fn run_until_cancelled<F: Future>(&self, future: F) -> Option<F::Output> {
        // The budget is checked for the future only, so a future that uses it up in each poll can still be
        // cancelled.
        let (mut future, mut cancelled) = (pin!(future), pin!(self.wait()));
        poll_fn(|context| {
            poll_counted(context, |context| match future.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => cancelled.as_mut().poll(context).map(|()| None),
            })
        })
        .await
    }

    /// Returns a guard that cancels the token when it is dropped, including during a panic.
    pub fn drop_guard(self) -> CancelOnDrop {
        CancelOnDrop { token: Some(self) }
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancellationToken").field("is_cancelled", &self.is_cancelled()).finish()
    }
}

/// Cancels a token when it is dropped. See [`CancellationToken::drop_guard`].
#[derive(Debug)]
#[must_use = "dropping it cancels the token"]
pub struct CancelOnDrop {
    token: Option<CancellationToken>,
}

impl CancelOnDrop {
    /// Returns the token without cancelling it.
    pub fn disarm(mut self) -> CancellationToken {
        self.token.take().unwrap_or_default()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(token) = &self.token {
            token.cancel();
        }
    }
}

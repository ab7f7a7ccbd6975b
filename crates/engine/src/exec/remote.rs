//! The way to a runtime from other threads.
//!
//! Start at [`Remote`].

use super::inbox::{Inbox, Message};
use super::{Core, spawn};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

/// Reaches a runtime from other threads.
#[derive(Clone)]
pub struct Remote {
    pub(super) inbox: Arc<Inbox>,
}

impl Remote {
    /// Starts on the runtime's thread the task that `make` makes there.
    ///
    /// # Errors
    /// [`Gone`]: the runtime has been shut down; `make` is dropped here.
    pub fn spawn<M, F>(&self, make: M) -> std::result::Result<(), Gone>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        // Made inside the task, so that a panic in making it ends the task and nothing else.
        let call = Box::new(move || spawn(async move { make().await }).detach());
        self.inbox.send(Message::Call(call)).map_err(|_| Gone)
    }
}

impl Remote {
    /// Calls `work` on the runtime's thread, at its next turn.
    pub(crate) fn call(&self, work: impl FnOnce(&Core) + Send + 'static) -> std::result::Result<(), Gone> {
        // Messages are taken by the runtime that runs.
        let call = Box::new(move || work(&Core::current("a message")));
        self.inbox.send(Message::Call(call)).map_err(|_| Gone)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remote")
    }
}

/// The runtime has been shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the runtime has been shut down")
    }
}

impl std::error::Error for Gone {}

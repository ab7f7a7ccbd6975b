//! Handlers around handlers, for work that many routes share.
//!
//! A wrapper is a function that takes a handler and returns a closure `|request, state|`. The wrappers here
//! use the public interface only. [`layers`](super::layers) has the same for all routes of a router.

use super::route::{Handler, State, WithState};
use crate::message::{IntoResponse, Request, Response};
use ringroad_engine::time;
use ringroad_wire::{Method, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Limits a handler to `span`. Afterwards it is dropped, and the answer is 503.
///
/// ```
/// use ringroad_http::{Request, Server, get, wrap};
/// use std::time::Duration;
///
/// async fn report(_: Request) -> &'static str {
///     "…"
/// }
/// let server = Server::new().route("/report", get(wrap::timeout(Duration::from_secs(2), report)));
/// ```
pub fn timeout<S: 'static, K, H: Handler<S, K>>(span: Duration, handler: H) -> impl Handler<S, WithState> {
    move |request: Request, state: State<S>| {
        let answer = handler.call(request, &state);
        within(span, answer)
    }
}

/// Returns the answer, or 503 after `span`.
pub(super) async fn within(span: Duration, answer: impl Future<Output = Response>) -> Response {
    match time::timeout(span, answer).await {
        Ok(response) => response,
        Err(_) => (Status::SERVICE_UNAVAILABLE, "the answer took too long\n").into_response(),
    }
}

/// Limits the concurrent requests of a handler to `most`, for the whole server. Further requests are answered
/// 503 at once.
pub fn limit<S: 'static, K, H: Handler<S, K>>(most: usize, handler: H) -> impl Handler<S, WithState> {
    let gate = Gate::new(most);
    move |request: Request, state: State<S>| {
        let entered = gate.enter().map(|permit| (permit, handler.call(request, &state)));
        async move {
            match entered {
                Some((_permit, answer)) => answer.await,
                None => too_many(),
            }
        }
    }
}

/// Bounds the requests in progress. Clones count together.
#[derive(Clone)]
pub(super) struct Gate {
    inside: Arc<AtomicUsize>,
    most: usize,
}

impl Gate {
    pub(super) fn new(most: usize) -> Gate {
        Gate { inside: Arc::default(), most }
    }

    /// Lets one request in, until the permit is dropped. `None`: the bound is reached.
    pub(super) fn enter(&self) -> Option<Permit> {
        let permit = Permit(Arc::clone(&self.inside));
        // Relaxed: a counter, which orders nothing else.
        let before = self.inside.fetch_add(1, Ordering::Relaxed);
        (before < self.most).then_some(permit)
    }
}

/// Returns the answer to a request that a [`Gate`] does not let in.
pub(super) fn too_many() -> Response {
    (Status::SERVICE_UNAVAILABLE, "too many requests at a time\n").into_response()
}

/// Counts one request, until it is dropped.
pub(super) struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Facts of a request for a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Record {
    /// The method.
    pub method: Method,
    /// The target as it was sent: UTF-8 without spaces, control characters and `#`.
    pub target: String,
    /// The status of the answer.
    pub status: Status,
    /// Time from the request's head to the answer's.
    pub took: Duration,
}

/// The facts that are known before the answer.
pub(super) struct Asked {
    begun: Instant,
    method: Method,
    target: String,
}

impl Asked {
    pub(super) fn of(request: &Request) -> Asked {
        let target = request.head().target().to_owned();
        Asked { begun: Instant::now(), method: request.method(), target }
    }

    pub(super) fn answered(self, response: &Response) -> Record {
        let Asked { begun, method, target } = self;
        Record { method, target, status: response.status_code(), took: begun.elapsed() }
    }
}

/// Calls `sink` for each answered request. A request is not reported if its handler panics.
pub fn log<S, K, H, L>(sink: L, handler: H) -> impl Handler<S, WithState>
where
    S: 'static,
    H: Handler<S, K>,
    L: Fn(Record) + Clone + Send + 'static,
{
    move |request: Request, state: State<S>| {
        let asked = Asked::of(&request);
        let (answer, sink) = (handler.call(request, &state), sink.clone());
        async move {
            let response: Response = answer.await;
            sink(asked.answered(&response));
            response
        }
    }
}

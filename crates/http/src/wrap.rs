//! Handlers around handlers: what is the same for many routes is said once.
//!
//! There is nothing to learn but functions: one that takes a handler and returns a closure `|request, state|` is a
//! wrapper. Those here are written as anybody would write his own.

use crate::request::Request;
use crate::response::{IntoResponse, Response};
use crate::route::{Handler, State, WithState};
use ringroad_engine::time;
use ringroad_wire::{Method, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Gives a handler at most `span`; then it is dropped, and 503 is the answer.
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
        async move {
            match time::timeout(span, answer).await {
                Ok(response) => response,
                Err(_) => (Status::SERVICE_UNAVAILABLE, "the answer took too long\n").into_response(),
            }
        }
    }
}

/// Lets at most `most` requests of the whole server be with a handler at a time; to more it answers 503 at once.
pub fn limit<S: 'static, K, H: Handler<S, K>>(most: usize, handler: H) -> impl Handler<S, WithState> {
    let inside = Arc::new(AtomicUsize::new(0));
    move |request: Request, state: State<S>| {
        // Relaxed: it counts, and orders nothing else.
        let place = Place(Arc::clone(&inside));
        let before = inside.fetch_add(1, Ordering::Relaxed);
        let answer = (before < most).then(|| handler.call(request, &state));
        async move {
            let _place = place;
            match answer {
                Some(answer) => answer.await,
                None => (Status::SERVICE_UNAVAILABLE, "too many requests at a time\n").into_response(),
            }
        }
    }
}

/// One more is inside, until this is dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What there is to log of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Record {
    /// The method.
    pub method: Method,
    /// The target as it was sent: visible ASCII.
    pub target: String,
    /// The status of the answer.
    pub status: Status,
    /// From the request's head to the answer's.
    pub took: Duration,
}

/// Tells `sink` of each request when it is answered; a handler that panics is not told of.
pub fn log<S, K, H, L>(sink: L, handler: H) -> impl Handler<S, WithState>
where
    S: 'static,
    H: Handler<S, K>,
    L: Fn(Record) + Clone + Send + 'static,
{
    move |request: Request, state: State<S>| {
        let begun = Instant::now();
        let (method, target) = (request.method(), request.head().target().to_owned());
        let (answer, sink) = (handler.call(request, &state), sink.clone());
        async move {
            let response: Response = answer.await;
            sink(Record { method, target, status: response.status_code(), took: begun.elapsed() });
            response
        }
    }
}

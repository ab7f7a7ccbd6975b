//! Requests as spans of the `tracing` crate: the layer [`trace`].

use super::router::{Layer, Next};
use crate::message::Request;
use std::time::Instant;
use tracing::{Instrument as _, Level, field};

/// Opens a span for each request, with which everything behind this layer is recorded, and reports the answer
/// as an event in it.
///
/// The span `request` is of level INFO and target `ringroad_http`, with the fields `method`, `target` (path
/// and query as the client has sent them) and, once it is known, `status`. The event `answered` has `status`
/// and `took_us`, the microseconds up to the head of the answer; it is of level ERROR for a status of 500
/// and above, else INFO. A handler that panics has no event, unless
/// [`catch_panic`](super::layers::catch_panic) is behind this layer; one that is dropped because its client
/// has gone has none either.
///
/// Targets may hold secrets in their queries. A subscriber that must not see them filters the field.
///
/// ```
/// use ringroad_http::{Request, Router, get, layers};
///
/// async fn hello(_: Request) -> &'static str {
///     tracing::info!("this event is in the span of its request");
///     "hello"
/// }
/// let router: Router = Router::new().route("/", get(hello)).layer(layers::trace());
/// ```
pub fn trace<S: 'static>() -> impl Layer<S> {
    move |request: Request, next: Next<S>| {
        let begun = Instant::now();
        let method = request.method().name();
        let target = request.head().target();
        let span = tracing::info_span!(
            target: "ringroad_http", "request", method, target, status = field::Empty
        );
        let inside = span.clone();
        async move {
            let response = next.run(request).instrument(inside).await;
            let status = response.status_code().code();
            span.record("status", status);
            let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            span.in_scope(|| {
                if status >= 500 {
                    tracing::event!(target: "ringroad_http", Level::ERROR, status, took_us, "answered");
                } else {
                    tracing::event!(target: "ringroad_http", Level::INFO, status, took_us, "answered");
                }
            });
            response
        }
    }
}

//! Ends streams of events with the code that makes them.
//!
//! In development an open page would hold a worker with old code for as long as the page is open. So a
//! stream of events ends when another worker has the new code, as though the program had ended it: the page
//! asks again.

use ringroad_app::Ticket;
use ringroad_engine::sync::CancellationToken;
use ringroad_http::{Body, BoxError, Piece, Response, is_event_stream};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Ready when a worker's streams of events are to end.
type Parts = Pin<Box<dyn Future<Output = ()>>>;

/// Pieces of a body.
type Pieces = Pin<Box<dyn futures_core::Stream<Item = Result<Piece, BoxError>>>>;

/// A body of a worker.
struct Held {
    /// `None`: it is over.
    pieces: Option<Pieces>,
    parts: Option<Parts>,
    _ticket: Option<Ticket>,
}

/// Ends a response when `parting` is cancelled, if it is a stream of events. `ticket` is held until all of a
/// streamed response has come.
pub(crate) fn end_with_code(
    response: &mut Response,
    parting: Option<&CancellationToken>,
    ticket: Option<Ticket>,
) {
    if response.body().as_bytes().is_some() {
        return;
    }
    let size = response.body().size();
    let has_end = size.is_some() || !response.header_value("content-type").is_some_and(is_event_stream);
    let parting = parting.filter(|_| !has_end).cloned();
    if parting.is_none() && ticket.is_none() {
        return;
    }
    let held = Held {
        pieces: Some(response.take_body().into_pieces()),
        parts: parting.map(|parting| Box::pin(async move { parting.cancelled().await }) as Parts),
        _ticket: ticket,
    };
    response.set_body(match size {
        Some(size) => Body::stream_of(size, held),
        None => Body::stream(held),
    });
}

impl futures_core::Stream for Held {
    type Item = Result<Piece, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(parts) = &mut self.parts
            && parts.as_mut().poll(context).is_ready()
        {
            // As though the worker had ended it. The worker sees that its client has left.
            (self.parts, self.pieces) = (None, None);
        }
        match &mut self.pieces {
            Some(pieces) => pieces.as_mut().poll_next(context),
            None => Poll::Ready(None),
        }
    }
}

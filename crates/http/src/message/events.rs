//! Server-sent events: a response that is a stream of them (HTML standard, §9.2).

use super::{Body, Request, Response};
use futures_core::Stream;
use pin_project_lite::pin_project;
use ringroad_engine::time::{Sleep, sleep};
use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Pause after which a comment is sent. It keeps proxies from closing the connection, and detects a client
/// that has left.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Returns whether this `Content-Type` is that of an event stream, which has no end of its own, and which
/// clients request again.
pub fn is_event_stream(content_type: &[u8]) -> bool {
    const TYPE: &[u8] = b"text/event-stream";
    content_type.get(..TYPE.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(TYPE))
}

/// One event.
///
/// ```
/// use ringroad_http::SseEvent;
///
/// let event = SseEvent::new("two\nlines").name("news").id("7");
/// assert_eq!(event.to_string(), "event: news\nid: 7\ndata: two\ndata: lines\n\n");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    name: String,
    id: String,
    retry: Option<Duration>,
    data: String,
}

impl SseEvent {
    /// Makes an event with this text.
    pub fn new(data: impl Into<String>) -> SseEvent {
        SseEvent { data: data.into(), ..SseEvent::default() }
    }

    /// Sets the name of the event, which selects the listener. The name is cut at a line end.
    pub fn name(mut self, name: &str) -> SseEvent {
        self.name = one_line(name);
        self
    }

    /// Sets the id that the client repeats in `Last-Event-ID` when it connects again.
    pub fn id(mut self, id: &str) -> SseEvent {
        self.id = one_line(id);
        self
    }

    /// Sets how long the client waits before it connects again.
    pub fn retry(mut self, pause: Duration) -> SseEvent {
        self.retry = Some(pause);
        self
    }
}

/// Returns the text before its first line end, which would begin another field, and without zero bytes.
fn one_line(text: &str) -> String {
    text.split(['\r', '\n']).next().unwrap_or_default().replace('\0', "")
}

impl std::fmt::Display for SseEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.name.is_empty() {
            writeln!(f, "event: {}", self.name)?;
        }
        if !self.id.is_empty() {
            writeln!(f, "id: {}", self.id)?;
        }
        if let Some(pause) = self.retry {
            writeln!(f, "retry: {}", pause.as_millis())?;
        }
        // Any of the three line ends divides the data, since each would end a field.
        let data = self.data.replace("\r\n", "\n").replace('\r', "\n");
        for line in data.split('\n') {
            writeln!(f, "data: {line}")?;
        }
        f.write_char('\n')
    }
}

impl Response {
    /// Makes a response of server-sent events from the stream `events`. A receiver of
    /// [`ringroad_engine::sync::bounded`] is such a stream, and bounds what is queued for a slow client. The
    /// next event is taken when the one before was sent. After 15 s without an event a comment is sent. The
    /// response ends with the stream, when the client leaves, and when the server stops; each of these drops
    /// the stream.
    ///
    /// A client that reconnects names the last event that it received: [`Request::last_event_id`].
    ///
    /// ```
    /// use ringroad_http::{Request, Response, Server, SseEvent, get};
    /// use ringroad_engine::{spawn, sync};
    ///
    /// async fn count(_: Request) -> Response {
    ///     let (sender, receiver) = sync::bounded(1);
    ///     spawn(async move {
    ///         for number in 1..=3 {
    ///             if sender.send(SseEvent::new(number.to_string())).await.is_err() {
    ///                 break; // the client is gone
    ///             }
    ///         }
    ///     })
    ///     .detach();
    ///     Response::events(receiver)
    /// }
    /// let server = Server::new().route("/count", get(count));
    /// ```
    pub fn events(events: impl Stream<Item = SseEvent> + 'static) -> Response {
        Response::events_every(KEEP_ALIVE, events)
    }

    /// Makes a response of events, with this pause before a comment in place of 15 s.
    pub fn events_every(keep_alive: Duration, events: impl Stream<Item = SseEvent> + 'static) -> Response {
        let events = Events { events, keep_alive, pause: None };
        let mut response = Response::new(Body::stream(events));
        for (name, value) in [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")] {
            let set = response.set_header(name, value);
            debug_assert!(set.is_ok(), "both are lines");
        }
        response.ends_on_stop()
    }
}

impl Request {
    /// Returns the id of the last event that the client got before it connected again (`Last-Event-ID`).
    pub fn last_event_id(&self) -> Option<&str> {
        self.header("last-event-id").filter(|id| !id.is_empty())
    }
}

pin_project! {
    /// Encodes events, with comments in long pauses.
    struct Events<S> {
        #[pin]
        events: S,
        keep_alive: Duration,
        pause: Option<Sleep>,
    }
}

impl<S: Stream<Item = SseEvent>> Stream for Events<S> {
    type Item = Vec<u8>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        let this = self.project();
        if let Poll::Ready(next) = this.events.poll_next(context) {
            *this.pause = None;
            return Poll::Ready(next.map(|event| event.to_string().into_bytes()));
        }
        let pause = this.pause.get_or_insert_with(|| sleep(*this.keep_alive));
        match Pin::new(pause).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                *this.pause = None;
                Poll::Ready(Some(b":\n\n".to_vec()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_begin_a_field_of_its_own() {
        let event = SseEvent::new("a\r\nb\rid: 9\n").name("x\ndata: y").id("1\r2");
        assert_eq!(event.to_string(), "event: x\nid: 1\ndata: a\ndata: b\ndata: id: 9\ndata: \n\n");
        let pause = SseEvent::default().retry(Duration::from_secs(2));
        assert_eq!(pause.to_string(), "retry: 2000\ndata: \n\n");
    }
}

//! Mercure 1.0 over server-sent events: `GET ?match=a` subscribes, a form POST publishes.
//!
//! `match` and `match_exact` name a topic, `match_urlpattern` a URL pattern; `topic` is a topic too, or a URI
//! template where Mercure 0.x is spoken. A private message reaches only subscribers with a token that
//! covers one of its topics. Ids of publishers are checked and not used: the hub numbers messages itself.
//!
//! A client that comes back with `Last-Event-ID` gets all that came since. If some of that is gone it gets
//! nothing of it, and `Mercure-Last-Event-ID` of the response names another place than the one it asked for.

use crate::endpoint::{Endpoint, check_name, forbidden, refusal, wanted};
use crate::local::{Member, Membership, join};
use crate::matcher::Subject;
use crate::rights::Rights;
use crate::subscriptions::{self, Listed};
use crate::topics::{Hub, Id, Message, Publication, PublishError, Since};
use futures_core::Stream;
use ringroad_engine::time::{Sleep, sleep};
use ringroad_http::{Body, BoxError, Chunk, EncodeError, Method, Request, Response, Status};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

/// Returns a message as an event. Lines of the data are lines of the event.
pub(crate) fn event(publication: &Publication) -> Vec<u8> {
    let Publication { id, message, .. } = publication;
    let mut text = format!("id: #{id}\n");
    // Another machine that shares the hub may not have checked it.
    if let Some(kind) = message.kind.as_ref().filter(|kind| !kind.contains(char::is_control)) {
        text.push_str(&format!("event: {kind}\n"));
    }
    if let Some(retry) = message.retry {
        text.push_str(&format!("retry: {retry}\n"));
    }
    // Each of the three ends a line for a client (WHATWG HTML §9.2.5).
    for line in message.data.replace("\r\n", "\n").split(['\n', '\r']) {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    text.into_bytes()
}

/// Events are joined to so many bytes.
const JOINED_BYTES: usize = 16 * 1024;

/// What waits for a client.
struct Queue {
    hub: Hub,
    pieces: RefCell<VecDeque<Arc<[u8]>>>,
    /// So many pieces at the front are what the client has missed, which the history bounds.
    missed: Cell<usize>,
    /// Of the others.
    bytes: Cell<usize>,
    /// The client was too slow: the stream ends, and the client connects again.
    over: Cell<bool>,
    rights: Rights,
    waker: RefCell<Option<Waker>>,
}

impl Queue {
    /// Returns the next piece, which does not count any more.
    fn pop(&self, pieces: &mut VecDeque<Arc<[u8]>>) -> Option<Arc<[u8]>> {
        let piece = pieces.pop_front()?;
        match self.missed.get() {
            0 => self.bytes.set(self.bytes.get().saturating_sub(piece.len())),
            missed => self.missed.set(missed - 1),
        }
        Some(piece)
    }
}

impl Member for Queue {
    fn take(&self, publication: &Arc<Publication>, _: &str) -> bool {
        if self.over.get() || !may_read(&self.hub, &self.rights, publication) {
            return false;
        }
        let event = publication.event();
        let bytes = self.bytes.get() + event.len();
        let fits = bytes <= self.hub.settings().queue_bytes || self.bytes.get() == 0;
        if fits {
            self.bytes.set(bytes);
            self.pieces.borrow_mut().push_back(Arc::clone(event));
        } else {
            // What is queued is not sent: it comes again when the client does.
            self.over.set(true);
            self.pieces.borrow_mut().clear();
            self.hub.0.counts.closed_slow.fetch_add(1, Ordering::Relaxed);
        }
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
        fits
    }

    fn lost(&self) {
        self.over.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn ended(&self) {
        self.lost();
    }
}

/// Returns whether a client with these rights may read the message: it is not private, or they cover one of
/// its topics.
pub(crate) fn may_read(hub: &Hub, rights: &Rights, publication: &Publication) -> bool {
    let base = &hub.settings().url;
    let mut topics = publication.topics.iter();
    !publication.message.private || topics.any(|topic| rights.read.covers(&Subject::new(topic, base)))
}

/// The body of a subscription.
struct Events {
    queue: Rc<Queue>,
    silence: Pin<Box<Sleep>>,
    /// When the client's token expires: the stream ends, and the client comes back with another.
    until: Option<Pin<Box<Sleep>>>,
    _listed: Option<Listed>,
    _membership: Membership,
}

impl Stream for Events {
    type Item = Result<Chunk, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let queue = &this.queue;
        let is_expired = this.until.as_mut().is_some_and(|until| until.as_mut().poll(context).is_ready());
        if queue.over.get() || is_expired {
            return Poll::Ready(None);
        }
        // What has come in this turn goes together.
        let mut pieces = queue.pieces.borrow_mut();
        let mut next = queue.pop(&mut pieces).map(Chunk::from);
        if let (Some(first), Some(_)) = (&next, pieces.front()) {
            let mut joined = first.to_vec();
            while pieces.front().is_some_and(|piece| joined.len() + piece.len() <= JOINED_BYTES)
                && let Some(piece) = queue.pop(&mut pieces)
            {
                joined.extend_from_slice(&piece);
            }
            next = Some(Chunk::from(joined));
        }
        drop(pieces);
        if let Some(next) = next {
            this.silence.set(sleep(queue.hub.settings().heartbeat));
            return Poll::Ready(Some(Ok(next)));
        }
        if this.silence.as_mut().poll(context).is_ready() {
            this.silence.set(sleep(queue.hub.settings().heartbeat));
            // A comment, for proxies that close what is silent. The timer is polled with the next look.
            return Poll::Ready(Some(Ok(Chunk::from(b":\n".to_vec()))));
        }
        *queue.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Answers a request to subscribe.
///
/// # Errors
/// The refusal.
pub(crate) async fn subscribe(endpoint: &Endpoint, request: &Request) -> Result<Response, Response> {
    let hub = endpoint.hub();
    let bad = |why: &str| refusal(Status::BAD_REQUEST, why);
    let rights = endpoint.subscriber(request)?;
    let (wanted, matchers) = wanted(endpoint, request)?;
    let keys = ["last_event_id", "lastEventID", "Last-Event-ID"];
    let asked = request
        .header("last-event-id")
        .map(str::to_owned)
        .or_else(|| keys.iter().find_map(|key| request.query_value(key)).map(|id| id.into_owned()));
    let after = match asked.as_deref() {
        None => None,
        Some("earliest") => Some(Since::Earliest),
        // Not one of ours: it is from another life.
        Some(id) => Some(Since::Id(id.parse().unwrap_or(Id { epoch: 0, offset: 0 }))),
    };
    let head = |response: Response| -> Result<Response, EncodeError> {
        response
            .header("Content-Type", "text/event-stream")?
            .header("Cache-Control", "private, no-store")?
            // nginx would keep events back.
            .header("X-Accel-Buffering", "no")
    };
    if request.method() == Method::Head {
        return head(Response::new(Body::left_out(None))).map_err(|_| bad("hub"));
    }
    let until = match rights.until.map(|until| until.duration_since(SystemTime::now())) {
        None => None,
        Some(Ok(left)) => Some(Box::pin(sleep(left))),
        Some(Err(_)) => return Err(crate::endpoint::unauthorized(Some("invalid_token"))),
    };
    if hub.reach(after).await.is_err() {
        return Err(crate::endpoint::unavailable("hub: its server does not answer; try again"));
    }
    let queue = Rc::new(Queue {
        hub: hub.clone(),
        pieces: RefCell::default(),
        missed: Cell::new(0),
        bytes: Cell::new(0),
        over: Cell::new(false),
        rights,
        waker: RefCell::default(),
    });
    let Some((membership, found)) = join(hub, wanted, after, &queue) else {
        return Err(refusal(Status::SERVICE_UNAVAILABLE, "hub: too many topics"));
    };
    let place = match after {
        Some(Since::Earliest) => "earliest".to_owned(),
        Some(Since::Id(id)) if found.recovered => format!("#{id}"),
        _ if found.last.offset == 0 => "earliest".to_owned(),
        _ => format!("#{}", found.last),
    };
    let mut missed = found.missed;
    missed.retain(|publication| may_read(hub, &queue.rights, publication));
    let delivered = missed.len() as u64;
    queue.missed.set(missed.len());
    queue.pieces.borrow_mut().extend(missed.iter().map(|publication| Arc::clone(publication.event())));
    hub.0.counts.delivered.fetch_add(delivered, Ordering::Relaxed);
    // Listed behind the join, so that a subscriber of subscriptions hears of itself as well.
    let listed = endpoint.place().subscriptions.then(|| subscriptions::list(hub, &matchers, &queue.rights));
    let silence = Box::pin(sleep(hub.settings().heartbeat));
    let events = Events { queue, silence, until, _listed: listed, _membership: membership };
    head(Response::new(Body::stream(events)))
        .and_then(|response| response.header("Mercure-Last-Event-ID", place))
        .map_err(|_| bad("hub"))
}

/// Answers a request to publish: the id of the message.
///
/// # Errors
/// The refusal.
pub(crate) async fn publish(endpoint: &Endpoint, request: &mut Request) -> Result<String, Response> {
    let hub = endpoint.hub();
    let bad = |why: &str| refusal(Status::BAD_REQUEST, why);
    let rights = endpoint.publisher(request)?;
    const FORM: &str = "application/x-www-form-urlencoded";
    let kind = request.header("content-type").unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(FORM) {
        return Err(refusal(Status::UNSUPPORTED_MEDIA_TYPE, &format!("hub: expected {FORM}")));
    }
    // Escapes take three bytes for one.
    let most = hub.settings().message_bytes.saturating_mul(3).saturating_add(16 << 10);
    let form = request.bytes(most).await.map_err(|why| refusal(why.status(), &format!("hub: {why}")))?;
    let (mut topics, mut message) = (Vec::new(), Message::default());
    let is_plain = |text: &str| !text.contains(char::is_control);
    for (key, value) in form_urlencoded::parse(&form) {
        match &*key {
            "topic" => topics.push(value.into_owned()),
            "data" => message.data = value.into_owned(),
            "type" if is_own_kind(&value) => {
                return Err(bad(
                    "hub: type: `mercure` and `pusher_internal:` are for events of the hub itself",
                ));
            }
            "type" if !is_plain(&value) => return Err(bad("hub: type: expected no control characters")),
            "type" if value.is_empty() => {}
            "type" => message.kind = Some(value.into_owned()),
            "retry" => {
                let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let retry = is_number.then(|| value.parse().ok()).flatten();
                message.retry = Some(retry.ok_or_else(|| bad("hub: retry: expected milliseconds"))?);
            }
            "id" if value.starts_with('#') || value == "earliest" || !is_plain(&value) => {
                return Err(bad(
                    "hub: id: expected no `#` at its beginning, not `earliest`, no control characters",
                ));
            }
            "private" => message.private = true,
            _ => {}
        }
    }
    match topics.len() {
        0 => return Err(bad("hub: no topic")),
        1..=TOPICS_MAX => {}
        _ => return Err(refusal(Status::CONTENT_TOO_LARGE, "hub: more than 16 topics")),
    }
    let base = &hub.settings().url;
    for topic in &topics {
        check_name(topic)?;
        let subject = Subject::new(topic, base);
        if is_reserved(&subject, base.path()) {
            return Err(bad("hub: topic: `*` and what is below the hub's own path are the hub's"));
        }
        if !rights.publish.covers(&subject) {
            return Err(forbidden());
        }
    }
    let length = message.data.len();
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    match hub.send(&names, message).await {
        Ok(id) => Ok(format!("#{id}")),
        Err(PublishError::TooLong) => {
            Err(refusal(Status::CONTENT_TOO_LARGE, &format!("hub: a message of {length} bytes is too long")))
        }
        Err(PublishError::BadType) => Err(bad("hub: type: expected no control characters")),
        Err(PublishError::TooManyTopics) => Err(refusal(Status::SERVICE_UNAVAILABLE, "hub: too many topics")),
        Err(PublishError::Unavailable) => {
            Err(crate::endpoint::unavailable("hub: its server takes nothing now; try again"))
        }
    }
}

/// Returns whether events of this type are the hub's own: of subscriptions, or of Pusher's protocol.
pub(crate) fn is_own_kind(kind: &str) -> bool {
    kind == subscriptions::KIND || kind.starts_with(crate::pusher::INTERNAL)
}

/// Most topics of a message.
const TOPICS_MAX: usize = 16;

/// Returns whether the topic is the hub's own: `*`, its path, or below that whatever the host. Escapes are
/// decoded first.
pub(crate) fn is_reserved(topic: &Subject<'_>, own: &str) -> bool {
    let own = own.trim_end_matches('/');
    let is_below = topic.url().is_some_and(|url| {
        let path = crate::subscriptions::decoded(url.path());
        let rest = path.strip_prefix(own).filter(|_| !own.is_empty());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    topic.text() == "*" || is_below
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::topics::Settings;

    #[test]
    fn a_stream_that_is_always_a_little_behind_is_not_too_slow() {
        let hub = Hub::new(Settings { queue_bytes: 10_000, history_messages: 1, ..Settings::default() });
        let publication = || {
            hub.publish("a", Message { data: "x".repeat(2_000), ..Message::default() }).unwrap();
            hub.last_of("a").unwrap()
        };
        let queue = Queue {
            hub: hub.clone(),
            pieces: RefCell::new([Arc::clone(publication().event())].into()),
            missed: Cell::new(1),
            bytes: Cell::new(0),
            over: Cell::new(false),
            rights: Rights::default(),
            waker: RefCell::default(),
        };
        for _ in 0..100 {
            assert!(queue.take(&publication(), "a"));
            assert!(queue.pop(&mut queue.pieces.borrow_mut()).is_some());
        }
        // What waits is bounded as before: one piece and four more.
        assert_eq!((0..10).take_while(|_| queue.take(&publication(), "a")).count(), 3);
        assert!(queue.over.get());
    }
}

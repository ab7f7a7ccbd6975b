//! Plain WebSocket topics: `GET ?topic=a&topic=b`, and a JSON text for each message.
//!
//! First comes `{"subscribed":["a","b"],"id":"EPOCH-OFFSET","recovered":true}`, then
//! `{"topic":"a","id":"EPOCH-OFFSET","data":"…"}` with a `type` if the message has one. A client that comes
//! back with `after=ID` of its last message gets all that came since; `recovered` is false if some of that is
//! gone, and then it gets nothing of it. `after=earliest` asks for all that is kept. A client that may
//! publish sends `{"topic":"a","data":"…"}`.

use crate::endpoint::{Endpoint, check_name, refusal, wanted};
use crate::local::{Member, Membership, join};
use crate::matcher::{Matcher, Subject};
use crate::mercure::{is_own_kind, is_reserved, may_read};
use crate::rights::{Grant, Rights};
use crate::topics::{Hub, Id, Message, Publication, PublishError, Since, Wanted};
use ringroad_engine::time::timeout;
use ringroad_http::ws::{CloseCode, Frame, Options, Sender, WebSocket};
use ringroad_http::{Request, Response, Status};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

/// A slow member is closed with this: it comes back with the last message that it has.
const TOO_SLOW: CloseCode = CloseCode::new(4008);
const TOO_SLOW_TEXT: &str = "too slow: connect again with the id of the last message";

/// The hub's server does not answer now.
const UNAVAILABLE: CloseCode = CloseCode::TRY_AGAIN;

/// A client publishes something wrong, or without being allowed to.
const REFUSED: CloseCode = CloseCode::POLICY;

/// The client's token has expired: it comes back with another.
const EXPIRED: CloseCode = CloseCode::new(4009);

/// The hub's server has lost messages: the client comes back, and learns whether it has missed any.
const LOST: CloseCode = CloseCode::new(4010);

#[derive(Serialize)]
struct Subscribed<'a> {
    subscribed: &'a [&'a str],
    id: String,
    recovered: bool,
}

#[derive(Serialize)]
struct Told<'a> {
    topic: &'a str,
    id: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    data: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    topic: String,
    data: String,
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// Returns a message as a text frame.
pub(crate) fn frame(publication: &Publication) -> Frame {
    let Publication { id, message, .. } = publication;
    let topic = publication.topic();
    let told = Told { topic, id: id.to_string(), kind: message.kind.as_deref(), data: &message.data };
    // Text is always JSON's.
    Frame::text(&serde_json::to_string(&told).unwrap_or_default())
}

/// A session as a member.
struct Socket {
    exit: Exit,
    hub: Hub,
    rights: Rights,
}

impl Member for Socket {
    fn take(&self, publication: &Arc<Publication>, _: &str) -> bool {
        use ringroad_http::ws::SendError;
        if !may_read(&self.hub, &self.rights, publication) {
            return false;
        }
        match self.exit.sender.send_frame(publication.frame()) {
            Ok(()) => true,
            Err(SendError::Full) => {
                self.hub.0.counts.closed_slow.fetch_add(1, Ordering::Relaxed);
                self.exit.close_now(TOO_SLOW, TOO_SLOW_TEXT);
                false
            }
            Err(SendError::Closed) => false,
        }
    }

    fn lost(&self) {
        self.exit.close_now(LOST, "messages are missing: connect again with the id of the last one");
    }

    fn ended(&self) {
        self.exit.close_now(CloseCode::GOING_AWAY, "the hub has ended: connect again");
    }
}

/// Answers a request to subscribe.
///
/// # Errors
/// The refusal.
pub(crate) fn session(endpoint: &Endpoint, request: &Request) -> Result<Response, Response> {
    let mut rights = endpoint.subscriber(request)?;
    // Its publishing rights may come from other credentials.
    if endpoint.place().publish.is_some() {
        if let Ok(publisher) = endpoint.publisher(request) {
            rights.publish = publisher.publish;
            // The session ends with the first of both: what has ended publishes no more.
            rights.until = rights.until.into_iter().chain(publisher.until).min();
        } else {
            rights.publish = Grant::None;
        }
    }
    let (wanted, matchers) = wanted(endpoint, request)?;
    let after = match request.query_value("after").as_deref() {
        None => None,
        Some("earliest") => Some(Since::Earliest),
        Some(id) => match id.parse::<Id>() {
            Ok(id) => Some(Since::Id(id)),
            Err(()) => {
                return Err(refusal(
                    Status::BAD_REQUEST,
                    "hub: after: expected an id, as 12ab-77, or earliest",
                ));
            }
        },
    };
    let hub = endpoint.hub().clone();
    let options = options(&hub).origins(endpoint.place().origins.clone());
    let subscribes = Subscribes { wanted, matchers, after, rights };
    Ok(options.accept(request, move |socket| serve(hub, subscribes, socket)))
}

/// Returns what sessions of a hub are held to.
pub(crate) fn options(hub: &Hub) -> Options {
    let settings = hub.settings();
    let limits = ringroad_http::ws::Limits {
        message_bytes: u32::try_from(settings.message_bytes.saturating_mul(2)).unwrap_or(u32::MAX),
        ..Default::default()
    };
    Options::new()
        .limits(limits)
        .queue_bytes(settings.queue_bytes)
        .ping(Some((settings.heartbeat, Duration::from_secs(10))))
}

/// The sending side of a session, by which the hub closes it.
pub(crate) struct Exit {
    pub(crate) sender: Sender,
    /// The session's task, while it waits for its client.
    waker: RefCell<Option<Waker>>,
}

impl Exit {
    pub(crate) fn new(socket: &WebSocket) -> Exit {
        Exit { sender: socket.sender(), waker: RefCell::default() }
    }

    /// Closes the session, drops what waits for its client, and has the session let go what it holds.
    pub(crate) fn close_now(&self, code: CloseCode, reason: &str) {
        self.sender.close_now(code, reason);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Returns the next message of a client; `None` once the session ends. That is known when the client has
/// closed or broken the protocol, or the hub has closed the session, and its connection may stay for seconds:
/// what the client holds is let go before, and then the session is heard out ([`heard_out`]).
pub(crate) fn poll_said(
    socket: &mut WebSocket,
    exit: &Exit,
    context: &mut Context<'_>,
) -> Poll<Option<ringroad_http::ws::Message>> {
    // What still comes from a client that was closed is not taken.
    if exit.sender.is_closed() {
        return Poll::Ready(None);
    }
    match socket.poll_recv(context) {
        Poll::Ready(received) => Poll::Ready(received.ok().flatten()),
        Poll::Pending if exit.sender.is_closed() => Poll::Ready(None),
        Poll::Pending => {
            let mut waker = exit.waker.borrow_mut();
            match &mut *waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            Poll::Pending
        }
    }
}

/// Waits until a session that has ended is over: without that its client might not get the close frame.
pub(crate) async fn heard_out(mut socket: WebSocket) {
    while let Ok(Some(_)) = socket.recv().await {}
}

struct Subscribes {
    wanted: Wanted,
    matchers: Vec<Matcher>,
    after: Option<Since>,
    rights: Rights,
}

/// A session waits for messages most of its life, and the future is small for that: all else is in a box
/// for as long as it takes.
async fn serve(hub: Hub, subscribes: Subscribes, mut socket: WebSocket) {
    let Some(until) = subscribes.rights.until else {
        let begun = Box::pin(begin(&hub, subscribes, &mut socket)).await;
        let Some((member, membership)) = begun else { return };
        talk(&hub, &member, &mut socket).await;
        drop(membership);
        return Box::pin(heard_out(socket)).await;
    };
    Box::pin(serve_until(until, hub, subscribes, socket)).await;
}

/// A session that ends with its token, also while it gets what it missed.
async fn serve_until(until: SystemTime, hub: Hub, subscribes: Subscribes, mut socket: WebSocket) {
    let sender = socket.sender();
    let left = until.duration_since(SystemTime::now()).unwrap_or_default();
    let whole = async {
        if let Some((member, membership)) = begin(&hub, subscribes, &mut socket).await {
            talk(&hub, &member, &mut socket).await;
            drop(membership);
        }
    };
    if timeout(left, whole).await.is_err() {
        sender.close(EXPIRED, "the token has expired: connect again with another");
    }
    heard_out(socket).await;
}

/// Makes the session a member once it has got what it missed. `None`: it is over.
async fn begin(
    hub: &Hub,
    subscribes: Subscribes,
    socket: &mut WebSocket,
) -> Option<(Rc<Socket>, Membership)> {
    let Subscribes { wanted, matchers, mut after, rights } = subscribes;
    let member = Rc::new(Socket { exit: Exit::new(socket), hub: hub.clone(), rights });
    let rights = &member.rights;
    let mut is_first = true;
    if hub.reach(after).await.is_err() {
        let _ = socket.close(UNAVAILABLE, "the hub's server does not answer: connect again").await;
        return None;
    }
    // What was missed is sent no faster than the client takes it. Meanwhile more may come, which is missed
    // then: the session is a member once it has everything.
    loop {
        let Some((membership, found)) = join(hub, wanted.clone(), after, &member) else {
            // It is over either way.
            let _ = socket.close(CloseCode::TRY_AGAIN, "too many topics").await;
            return None;
        };
        if std::mem::take(&mut is_first) {
            let id = found.last.to_string();
            let names: Vec<&str> = matchers.iter().map(Matcher::text).collect();
            let head = Subscribed { subscribed: &names, id, recovered: found.recovered };
            // Queued before anything that comes from now on: nothing is waited for in between.
            if member.exit.sender.send(serde_json::to_string(&head).unwrap_or_default()).is_err() {
                return None;
            }
        } else if !found.recovered {
            // So slow that the history has gone on without it.
            let _ = socket.close(TOO_SLOW, TOO_SLOW_TEXT).await;
            return None;
        }
        let Some(last) = found.missed.last() else { return Some((member, membership)) };
        after = Some(Since::Id(last.id));
        drop(membership);
        let mut count = 0;
        for publication in found.missed.iter().filter(|one| may_read(hub, rights, one)) {
            count += 1;
            if socket.send_frame(publication.frame()).await.is_err() {
                while let Ok(Some(_)) = socket.recv().await {}
                return None;
            }
        }
        hub.0.counts.delivered.fetch_add(count, Ordering::Relaxed);
    }
}

/// Takes what the client publishes, until the session ends.
async fn talk(hub: &Hub, member: &Socket, socket: &mut WebSocket) {
    while let Some(message) = poll_fn(|context| poll_said(socket, &member.exit, context)).await {
        if !Box::pin(take(hub, member, message)).await {
            return;
        }
    }
}

/// Publishes what the client has sent. False: the session was closed instead.
async fn take(hub: &Hub, member: &Socket, message: ringroad_http::ws::Message) -> bool {
    let Socket { exit: Exit { sender, .. }, rights, .. } = member;
    if matches!(rights.publish, Grant::None) {
        sender.close(REFUSED, "publishing is not allowed here");
        return false;
    }
    let said = message.as_text().and_then(|text| serde_json::from_str::<Said>(text).ok());
    let said = said.filter(|said| check_name(&said.topic).is_ok());
    let base = &hub.settings().url;
    let covers = |said: &Said| {
        let topic = Subject::new(&said.topic, base);
        rights.publish.covers(&topic)
            && !is_reserved(&topic, base.path())
            && !said.kind.as_deref().is_some_and(is_own_kind)
    };
    if said.as_ref().is_some_and(|said| !covers(said)) {
        sender.close(REFUSED, "the token does not cover this topic");
        return false;
    }
    let published = match said {
        Some(said) => {
            let message = Message { data: said.data, kind: said.kind, ..Message::default() };
            hub.send(&[&said.topic], message).await.map_err(Some)
        }
        None => Err(None),
    };
    if published == Err(Some(PublishError::Unavailable)) {
        sender.close(UNAVAILABLE, "the hub's server takes nothing now");
        return false;
    }
    if published.is_err() {
        let why = "expected {\"topic\":…,\"data\":…}, not longer than the hub allows";
        sender.close(REFUSED, why);
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_waits_in_three_quarters_of_a_kilobyte() {
        fn bytes<Fut>(_: fn(Hub, Subscribes, WebSocket) -> Fut) -> usize {
            std::mem::size_of::<Fut>()
        }
        let waits = bytes(serve);
        assert!(waits <= 768, "{waits}");
    }
}

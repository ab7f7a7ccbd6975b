//! WebSockets of applications: the worker decides on the offer, then messages go both ways.
//!
//! This server speaks the protocol with the client: frames, pings, the closing handshake. The application
//! gets whole messages, and each side waits when the other is slow: the worker by its credit, the client
//! because nothing is received from it.

use crate::answer::{Answer, AnsweredBy, Tally, Watch};
use crate::app::{AppPlace, Asked, OF_THE_HOP, count, failure, hand_back, is_one_of, key, unavailable};
use crate::app_repeat::Repeats;
use crate::page;
use ringroad_app::{Links, Opening, Said, Settings, Socket};
use ringroad_engine::sync::budget::Turns;
use ringroad_engine::time;
use ringroad_gate::flow;
use ringroad_http::ws::{self, CloseCode, Kind, Message, Options, Origins, WebSocket, WebSocketError};
use ringroad_http::{EncodeError, Method, Request, Status};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Beyond this the next message of the worker waits until the client has taken some.
const QUEUED_BYTES: usize = 64 << 10;
/// How long the end of a session may take to reach the worker.
const FLUSH: Duration = Duration::from_secs(1);

/// Lines that this server writes into its side of the handshake.
const OF_THE_HANDSHAKE: &[&str] =
    &["sec-websocket-accept", "sec-websocket-extensions", "sec-websocket-protocol", "sec-websocket-version"];

/// Returns whether a request offers a WebSocket, rightly or not.
pub(crate) fn is_offer(request: &Request) -> bool {
    let names = |value: &[u8]| {
        value.split(|byte| *byte == b',').any(|name| name.trim_ascii().eq_ignore_ascii_case(b"websocket"))
    };
    request.method() == Method::Get
        && request.head().upgrade()
        && request.headers().get_all("upgrade").any(names)
}

/// Offers a WebSocket to a worker and answers with what becomes of that. `None`: the application takes no
/// WebSockets, and gets the request as any other.
pub(crate) async fn answer(
    links: &Links,
    place: &Rc<AppPlace>,
    request: &mut Request,
    asking: &flow::Context,
) -> Result<Option<Answer>, EncodeError> {
    let pool = Arc::clone(&place.pool);
    if pool.speaks_http() {
        return Ok(None);
    }
    let settings = pool.settings();
    let begun = Instant::now();
    let options = options(&settings);
    if let Some(refused) = options.refusal(request) {
        count(&pool, refused.status_code().code(), begun);
        return Ok(Some(Answer::plain(refused)));
    }
    let key = pool.sticks().then(|| key(&settings.dispatch, request, asking)).flatten();
    let asked = Asked::of(place, request, asking);
    // The offer of a WebSocket is a GET.
    let mut repeats = Repeats::new(&pool, key, &settings, true);
    let (opening, slot) = loop {
        let ticket = match repeats.ticket().await {
            Ok(ticket) => ticket,
            Err(refused) => {
                count(&pool, 503, begun);
                return unavailable(&settings.name, settings.dev, &refused, asking).map(Some);
            }
        };
        if !ticket.worker().takes_sockets() {
            return Ok(None);
        }
        let worker = Arc::clone(ticket.worker());
        let mut incoming = asked.incoming(place, request, &settings.root_path, None);
        let offered = request.headers().get_all("sec-websocket-protocol");
        let lists = offered.filter_map(|list| str::from_utf8(list).ok());
        let names = lists.flat_map(|list| list.split(',')).map(str::trim).filter(|name| !name.is_empty());
        incoming.socket = Some(names.collect());
        let opened = match links.open_socket(ticket, &incoming) {
            Ok(exchange) => match time::timeout(settings.timeout, exchange.opening()).await {
                Ok(opened) => opened,
                Err(_) => {
                    count(&pool, 504, begun);
                    asking.fault(format!("app {}: no answer within {:?}", settings.name, settings.timeout));
                    let what = "The application took too long.";
                    return Ok(Some(page::refusal(Status::GATEWAY_TIMEOUT, asking, what)));
                }
            },
            Err(failed) => Err(failed),
        };
        match opened {
            Ok(opening) => break (opening, worker.slot()),
            Err(failed) => {
                if repeats.again(&failed, &worker, asking) {
                    continue;
                }
                return Ok(Some(failure(&pool, &failed, worker.slot(), begun, asking)));
            }
        }
    };
    asking.answered_by(AnsweredBy {
        address: format!("app:{}:{slot}", settings.name).into(),
        took: begun.elapsed(),
    });
    match opening {
        Opening::Refused => {
            count(&pool, 403, begun);
            let what = "The application does not accept this WebSocket.";
            Ok(Some(page::refusal(Status::FORBIDDEN, asking, what)))
        }
        Opening::Answered(answered, exchange) => {
            count(&pool, answered.status, begun);
            hand_back(place, answered, exchange.into_body(), Method::Get, asking).await.map(Some)
        }
        Opening::Accepted(socket, lines, protocol) => {
            count(&pool, 101, begun);
            let tally = Tally::new();
            let counted = Rc::clone(&tally);
            let name = settings.name.clone();
            let options = if protocol.is_empty() { options } else { options.protocols([protocol]) };
            let mut response = options.accept(request, move |client| async move {
                Session { client, socket, tally: counted, name }.run().await;
            });
            for (name, value) in &lines {
                if !is_one_of(name, OF_THE_HOP) && !is_one_of(name, OF_THE_HANDSHAKE) {
                    response = response.header(name, value)?;
                }
            }
            for (name, value) in place.route.steps.lines() {
                response = response.header(name, value)?;
            }
            Ok(Some(Answer { response, watch: Watch::Tunnel(tally) }))
        }
    }
}

/// Which pages may connect is the application's to say: it gets `Origin`.
fn options(settings: &Settings) -> Options {
    let message_bytes = settings.socket_message_bytes;
    // Parts of 1 KiB on average, as by default: some clients send long messages in parts of 4 KiB.
    let fragments = ws::Limits::default().fragments.max(message_bytes >> 10);
    let ping = settings.socket_ping;
    Options::new()
        .limits(ws::Limits { message_bytes, fragments })
        .ping((!ping.is_zero()).then_some((ping, ping)))
        .queue_bytes(usize::MAX)
        .compress(settings.socket_compress)
        .origins(Origins::Any)
}

/// What happens next in a session.
enum Next {
    FromClient(Result<Option<Message>, WebSocketError>),
    FromWorker(Said),
    Room,
    /// The client has closed or broken a rule, and its connection has not ended yet.
    Ending(CloseCode),
}

/// Waits until the client has taken some of what was sent.
type Room = Pin<Box<dyn Future<Output = Result<(), WebSocketError>>>>;

/// A WebSocket between a client and a worker.
struct Session {
    client: WebSocket,
    socket: Socket,
    tally: Rc<Tally>,
    name: String,
}

impl Session {
    async fn run(mut self) {
        let sender = self.client.sender();
        let mut room: Option<Room> = None;
        let mut turns = Turns::default();
        loop {
            let Session { client, socket, .. } = &mut self;
            let next = poll_fn(|context| {
                for polls_worker in turns.round() {
                    match &mut room {
                        _ if !polls_worker => {
                            if socket.poll_credit(context).is_pending() {
                                continue;
                            }
                            if let Poll::Ready(received) = client.poll_recv(context) {
                                return Poll::Ready(Next::FromClient(received));
                            }
                            if let Some(code) = client.ending() {
                                return Poll::Ready(Next::Ending(code));
                            }
                        }
                        Some(waiting) => {
                            if waiting.as_mut().poll(context).is_ready() {
                                return Poll::Ready(Next::Room);
                            }
                        }
                        None => {
                            if let Poll::Ready(said) = socket.poll_said(context) {
                                return Poll::Ready(Next::FromWorker(said));
                            }
                        }
                    }
                }
                Poll::Pending
            })
            .await;
            match next {
                // A session that failed meanwhile is told by receiving.
                Next::Room => room = None,
                Next::FromClient(Ok(Some(message))) => {
                    self.socket.give(message.kind() == Kind::Text, message.as_bytes());
                }
                Next::FromClient(ended) => return self.client_ended(ended.err()).await,
                // The application is told at once: the end of the connection may be seconds away.
                Next::Ending(code) => {
                    let reason = self.client.closed().map(|closed| closed.reason).unwrap_or_default();
                    self.socket.ended(code, &reason);
                    self.socket.flush(FLUSH).await;
                    if let Err(why) = self.client.recv().await {
                        self.tally.fault(&why.to_string());
                    }
                    return;
                }
                Next::FromWorker(said) => {
                    let (message, bytes) = match said {
                        Said::Text(text) => {
                            let bytes = text.len();
                            (Message::text(text), bytes)
                        }
                        Said::Binary(bytes) => {
                            let count = bytes.len();
                            (Message::binary(bytes), count)
                        }
                        Said::Closed(code, reason) => return self.close(code, &reason).await,
                        Said::Failed(why) => {
                            let told = why.to_string();
                            let line = told.lines().last().unwrap_or_default();
                            self.tally.fault(&format!("app {}: {line}", self.name));
                            return self.close(CloseCode::INTERNAL, "the application failed").await;
                        }
                    };
                    self.tally.add(bytes as u64);
                    // Closed: receiving tells how.
                    let _ = sender.send(message);
                    self.socket.took(bytes);
                    if sender.queued_bytes() > QUEUED_BYTES {
                        let sender = sender.clone();
                        room = Some(Box::pin(async move { sender.room().await }));
                    }
                }
            }
        }
    }

    /// The worker closes: so does this side, and waits a little for the client.
    async fn close(mut self, code: CloseCode, reason: &str) {
        // How the client takes it is of no use to the application any more.
        let _ = self.client.close(code, reason).await;
    }

    /// The client has closed, or is gone: the worker is told how.
    async fn client_ended(self, why: Option<WebSocketError>) {
        match (why, self.client.closed()) {
            (None, Some(closed)) => self.socket.ended(closed.code, &closed.reason),
            (None, None) => self.socket.ended(CloseCode::ABNORMAL, ""),
            (Some(why), _) => {
                let code = why.code();
                if !matches!(why, WebSocketError::Lost | WebSocketError::Connection(_)) {
                    self.tally.fault(&why.to_string());
                }
                self.socket.ended(code, "");
            }
        }
        self.socket.flush(FLUSH).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Dropped while it goes on: the server stops, and has told the client so, or could not.
        if self.client.sender().is_closed() {
            self.socket.ended(CloseCode::GOING_AWAY, "the server stops");
        }
    }
}

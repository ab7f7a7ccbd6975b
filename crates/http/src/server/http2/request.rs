//! The beginning of an HTTP/2 request: from its head to a handler, or to an answer without one.

use super::stream::{self, Stream};
use super::{Connection, Life, tunnel};
use crate::counters::add;
use crate::h2::Part;
use crate::h2::head::{Unfit, is_tunnel, request_text};
use crate::message::{ConnectionId, Incoming, Request, Response, give_head, refusal, take_head};
use crate::pool;
use crate::server::connection::{panicked, watch};
use crate::server::refused::Reason;
use crate::server::route::{Matched, Started};
use ::h2::server::SendResponse;
use ::h2::{Reason as Code, RecvStream};
use ringroad_wire::{Body, Event, Method, Requests, Status};
use std::rc::Rc;
use std::task::Context;
use std::time::Instant;

/// A stream's place with its worker, until this is dropped.
pub(super) struct PlaceGuard {
    pub(super) connection: Rc<Connection>,
    pub(super) id: ConnectionId,
}

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        let worker = self.connection.worker();
        drop(worker.interims.take(self.id));
        worker.places.leave(self.id);
        worker.wake_place(self.id);
    }
}

/// Begins a request. If its answer is ready, it is given to the HTTP/2 machine; otherwise the stream gets a
/// task.
pub(super) fn begin(
    connection: &Rc<Connection>,
    request: ::http::Request<RecvStream>,
    mut respond: SendResponse<Part>,
    context: &mut Context<'_>,
) {
    let worker = connection.worker();
    let settings = &connection.settings;
    if connection.is_full() || connection.heads.get() >= settings.heads_bytes {
        connection.charge();
        add(&worker.counts().refused, 1);
        worker.tell_refused(connection.seat(), None, Reason::TooManyStreams, &[]);
        respond.send_reset(Code::REFUSED_STREAM);
        return;
    }
    let life = Life::new(connection);
    let (parts, recv) = request.into_parts();
    let tunnels = is_tunnel(&parts);
    let has_body = !tunnels && !recv.is_end_stream();
    let method = if tunnels { Method::Get } else { Method::new(parts.method.as_str().as_bytes()) };

    let mut text = pool::buffer();
    let lines_max = worker.scratch.borrow().limits().fields.into();
    let written = request_text(&mut text, &parts, lines_max);
    drop(parts);
    let answer = |response: Response, reason: Reason, text: &[u8]| {
        connection.charge();
        add(&worker.counts().refused, 1);
        worker.tell_refused(connection.seat(), Some(response.status_code()), reason, text);
        response
    };
    if let Err(why) = written {
        let (status, why) = match why {
            Unfit::TwoHosts => (Status::BAD_REQUEST, "Host and :authority differ"),
            Unfit::Blank => (Status::BAD_REQUEST, "a value begins or ends with a blank"),
            Unfit::Lines => (Status::HEADER_FIELDS_TOO_LARGE, "too many lines"),
            Unfit::Connect => (Status::NOT_IMPLEMENTED, "CONNECT"),
            Unfit::Protocol => (Status::NOT_IMPLEMENTED, "CONNECT for a protocol other than websocket"),
            Unfit::Length => (Status::BAD_REQUEST, "Content-Length with :protocol"),
        };
        let response = answer(refusal(status), Reason::Http2Head(why), &text);
        pool::give_buffer(text);
        return stream::send_now(connection, respond, recv, method, response, life);
    }

    let mut copy = take_head();
    let mut scratch = worker.scratch.borrow_mut();
    let read = Requests::new().next(&mut scratch, &text, &mut 0);
    let head = match read {
        Ok(Some(Event::Head(head))) => Ok(head.over_http2(has_body, tunnels)),
        // A head that is encoded as a whole is valid.
        Ok(_) => Err(None),
        Err(why) => Err(Some(why)),
    };
    let head = match head {
        Ok(head) => head,
        Err(why) => {
            drop(scratch);
            give_head(copy);
            let response = match why {
                Some(why) => answer(refusal(why.status()), Reason::Protocol(why), &text),
                None => answer(refusal(Status::BAD_REQUEST), Reason::Http2Head("it has no end"), &text),
            };
            pool::give_buffer(text);
            return stream::send_now(connection, respond, recv, method, response, life);
        }
    };
    copy.clear();
    let found = match worker.router.find(&head, &mut copy.params) {
        Matched::Route(route, names) => {
            copy.copy(&head, route, names);
            Ok(route)
        }
        Matched::Answer(response) => Err(response),
    };
    // The parser has verified that the value is `100-continue`.
    let expects_continue = has_body && head.fields().get("expect").is_some();
    let length = match head.body() {
        Body::Length(length) => Some(length),
        _ => None,
    };
    let head_bytes = text.len() + head.fields().len() * 8;
    let body_bytes_max = scratch.limits().body_bytes;
    drop(scratch);
    pool::give_buffer(text);
    let route = match found {
        Ok(route) => route,
        Err(response) => {
            give_head(copy);
            return stream::send_now(connection, respond, recv, method, response, life);
        }
    };
    let body_bytes_max = body_bytes_max.min(worker.router.body_bytes_max(route));
    if length.is_some_and(|length| length > body_bytes_max) {
        give_head(copy);
        let reason = Reason::Http2Head("the body is longer than it may be");
        let response = answer(refusal(Status::CONTENT_TOO_LARGE), reason, &[]);
        return stream::send_now(connection, respond, recv, method, response, life);
    }

    // The bytes of a tunnel are not a body.
    let (recv, offered) = if tunnels { (None, Some(recv)) } else { (Some(recv), None) };
    let incoming = has_body.then(|| Incoming::new(length));
    let place = PlaceGuard { connection: Rc::clone(connection), id: worker.places.take(connection.seat()) };
    let request = Request::new(copy, incoming.clone(), worker, place.id);
    let mut pump = incoming.zip(recv).map(|(incoming, recv)| {
        incoming.limit(body_bytes_max);
        let respond = expects_continue;
        stream::Pump::new(connection, recv, incoming, respond)
    });
    if let Some(pump) = &mut pump {
        // Received bytes of the body are available when the handler first runs.
        pump.poll(&mut respond, context);
    }
    let response = match worker.router.route(route).start(request, context) {
        Started::Running(running) => {
            life.hold_head(head_bytes);
            let began = Instant::now();
            let connection = Rc::clone(connection);
            Stream { connection, place, pump, offered, respond, method, began, life }.run(running);
            return;
        }
        Started::Done(response) => response,
        Started::Panicked => panicked(worker, connection.seat()),
    };
    stream::send_interims(worker, place.id, &mut respond);
    let response = match offered {
        Some(recv) if response.switches() => {
            life.hold_head(head_bytes);
            return tunnel::begin(connection, &mut respond, response, recv, place, None, life);
        }
        Some(_) => tunnel::refused(response),
        None => response,
    };
    if response.streams() || response.is_file() {
        let began = Instant::now();
        life.hold_head(head_bytes);
        let connection = Rc::clone(connection);
        Stream { connection, place, pump, offered: None, respond, method, began, life }.finish(response);
        return;
    }
    drop(place);
    stream::send_whole(connection, &mut respond, method, response, None, life);
    stream::let_go(pump);
}

/// Takes the sent-callback out of a response.
pub(super) fn watched(
    response: &mut Response,
    method: Method,
    began: Option<Instant>,
) -> Option<Box<crate::message::Watched>> {
    let mut watched = watch(response, method, began);
    if let Some(watched) = &mut watched {
        // Counted while it is sent.
        watched.body_bytes = 0;
    }
    watched
}

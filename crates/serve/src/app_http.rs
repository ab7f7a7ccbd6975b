//! Requests to HTTP workers: the pool chooses the worker, the proxy does the rest.
//!
//! Each worker has its own Unix socket. For the proxy it is a group of one server, made at the worker's first
//! request from this thread.

use crate::answer::{Answer, Watch};
use crate::app::{AppPlace, Outgoing, count, unavailable};
use crate::app_parting::end_with_code;
use crate::app_repeat::{Repeats, is_idempotent};
use crate::config::{Kind, Member, Proxy, Route, Speaks, Timing, Upstream};
use crate::proxy::{Proxies, ProxyRoute};
use ringroad_app::{Failed, Settings, Ticket};
use ringroad_gate::flow;
use ringroad_gate::upstream::{Address, Balance, Group, Guards, Server};
use ringroad_http::{EncodeError, Request, RequestBody, SentSoFar, Status};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of workers that this thread remembers; the oldest are dropped beyond it.
const KNOWN_MAX: usize = 256;

/// Routes to workers, by worker.
#[derive(Default)]
pub(crate) struct Workers(RefCell<HashMap<u64, Rc<ProxyRoute>>>);

impl Workers {
    fn route(&self, place: &AppPlace, ticket: &Ticket, socket: &Path, settings: &Settings) -> Rc<ProxyRoute> {
        let mut known = self.0.borrow_mut();
        let id = ticket.worker().id();
        if let Some(route) = known.get(&id) {
            return Rc::clone(route);
        }
        if known.len() >= KNOWN_MAX
            && let Some(oldest) = known.keys().min().copied()
        {
            known.remove(&oldest);
        }
        let name = format!("app:{}:{}", settings.name, ticket.worker().slot());
        let address = Address::Unix(socket.to_owned());
        let timing = Timing {
            connect: Duration::from_secs(5),
            answer: settings.timeout,
            tunnel: Duration::from_secs(3600),
            keep: 64,
            keep_for: Duration::from_secs(30),
        };
        let servers = vec![Server::new(address.clone(), 1)];
        let group = Group::new(name.clone(), servers, Balance::default(), Guards::default(), None);
        let to = Upstream {
            name,
            servers: vec![Member::new(address)],
            balance: Balance::default(),
            timing,
            guards: Guards::default(),
            speaks: Speaks::default(),
        };
        let proxy = Proxy {
            to: Arc::new(to),
            path: None,
            host: None,
            trust_forwarded: false,
            map_locations: true,
            buffer: place.settings().buffer.clone(),
        };
        let route = Route {
            when: place.route.when.clone(),
            name: place.route.name.clone(),
            logged: place.route.logged,
            steps: place.route.steps.clone(),
            kind: Kind::Proxy(proxy),
        };
        let route = Rc::new(ProxyRoute {
            route: Arc::new(route),
            group: Arc::new(group),
            subject: place.subject.clone(),
            parting: Some(ticket.worker().parting().clone()),
        });
        known.insert(id, Rc::clone(&route));
        route
    }
}

/// Answers a request with a worker, or with another one if that has died.
#[allow(clippy::too_many_arguments, reason = "one request's parts, each used once")]
pub(crate) async fn answer(
    proxies: &Rc<Proxies>,
    place: &AppPlace,
    mut body: Outgoing,
    key: Option<u64>,
    settings: &Settings,
    request: &mut Request,
    asking: &flow::Context,
    begun: Instant,
) -> Result<Answer, EncodeError> {
    let pool = &place.pool;
    let mut repeats = Repeats::new(pool, key, settings, is_idempotent(request.method()));
    loop {
        let ticket = match repeats.ticket().await {
            Ok(ticket) => ticket,
            Err(refused) => {
                count(pool, 503, begun);
                return unavailable(&settings.name, settings.dev, &refused, asking);
            }
        };
        let worker = Arc::clone(ticket.worker());
        // The proxy sends the body, from memory, from its file, or as it arrives.
        let at_hand = match &mut body {
            Outgoing::Whole(bytes) => {
                request.replace_body(RequestBody::from(bytes.clone()));
                true
            }
            Outgoing::Kept(all) => {
                request.replace_body(all.body());
                true
            }
            Outgoing::Once(rest) => {
                request.replace_body(rest.take().unwrap_or_else(RequestBody::empty));
                false
            }
        };
        let mut unanswered = None;
        let answer = exchange(proxies, place, ticket, settings, request, asking, &mut unanswered).await?;
        if let Some(sent) = unanswered {
            let failed = Failed::Died { unseen: sent == SentSoFar::Nothing };
            if at_hand && repeats.again(&failed, &worker, asking) {
                asking.forgive();
                continue;
            }
            // The error that the proxy recorded names the worker's socket.
            let why = asking.error().unwrap_or_else(|| failed.to_string());
            asking.fault(format!("app {}[{}]: {why}", settings.name, worker.slot()));
        }
        count(pool, answer.response.status_code().code(), begun);
        return Ok(answer);
    }
}

/// Answers a request with the worker of a ticket, which is held until the whole answer was received.
/// `unanswered`: the worker has not begun to answer, and may have this much of the request.
async fn exchange(
    proxies: &Rc<Proxies>,
    place: &AppPlace,
    ticket: Ticket,
    settings: &Settings,
    request: &mut Request,
    asking: &flow::Context,
    unanswered: &mut Option<SentSoFar>,
) -> Result<Answer, EncodeError> {
    let Some(socket) = ticket.worker().http_socket().map(Path::to_owned) else {
        return Ok(crate::page::refusal(Status::BAD_GATEWAY, asking, "The application did not answer."));
    };
    let route = place.workers.route(place, &ticket, &socket, settings);
    let answer = proxies.answer_or(&route, request, asking, unanswered).await?;
    let Answer { mut response, watch } = answer;
    if !matches!(watch, Watch::Tunnel(_)) {
        let worker = Arc::clone(ticket.worker());
        end_with_code(&mut response, Some(worker.parting()), Some(ticket));
    }
    Ok(Answer { response, watch })
}

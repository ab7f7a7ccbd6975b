//! Endpoints: they answer at the end of a route's chain.
//!
//! Each kind of a route is one arm of [`Target`]'s `answer`. The futures of all kinds lie in the one of the
//! request, so that an endpoint costs no allocation.

use crate::answer::Answer;
use crate::app::{self, AppPlace};
use crate::config::{Kind, Redirect, Respond, Route, Static};
use crate::files;
use crate::metrics::{self, RouteCounts};
use crate::page;
use crate::php::{self, Php};
use crate::proxy::ProxyRoute;
use crate::status;
use crate::upload;
use crate::worker::{Site, Worker};
use ringroad_engine::spawn_blocking;
use ringroad_gate::chain::{Chain, Endpoint, Later, reach};
use ringroad_gate::flow::{Behind, Chosen, Flow};
use ringroad_gate::path::{self, Spellings};
use ringroad_gate::words::after_http;
use ringroad_http::{ContentType, EncodeError, Method, Response, Shared, State, Status};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A route on one worker: its steps, and what answers behind them.
pub(crate) struct Target {
    pub(crate) route: Arc<Route>,
    pub(crate) chosen: Rc<Chosen>,
    pub(crate) chain: Chain,
    /// A step of it asks the endpoint by itself.
    pub(crate) asks_again: bool,
    /// The longest body, where the protocol layer's limit is larger.
    pub(crate) body_bytes: Option<u64>,
    /// Its counts, if it has a name.
    pub(crate) counts: Option<Rc<RouteCounts>>,
    /// The upstream servers of a proxy.
    pub(crate) proxy: Option<Rc<ProxyRoute>>,
    /// The application that answers.
    pub(crate) app: Option<Rc<AppPlace>>,
    /// The fixed answer.
    pub(crate) fixed: Option<Shared>,
    /// What executes scripts.
    pub(crate) php: Option<Rc<Php>>,
}

/// Answers at the end of the chain of a target.
pub(crate) struct End<'s> {
    pub(crate) site: &'s Site,
    pub(crate) worker: &'s Worker,
    pub(crate) target: &'s Target,
}

impl Endpoint for End<'_> {
    async fn answer(&self, flow: &mut Flow) -> Response {
        match self.reply(flow).await {
            Ok(Answer { response, watch }) => {
                flow.context.watch = watch;
                response
            }
            Err(why) => {
                flow.context.fault(format!("writing the answer: {why}"));
                page::broken()
            }
        }
    }
}

/// What lies behind the steps of a route, for one that asks it without a client's request.
pub(crate) struct Again {
    pub(crate) site: Rc<Site>,
    pub(crate) worker: State<Worker>,
    pub(crate) target: Rc<Target>,
}

impl Behind for Again {
    fn answer(self: Rc<Self>, mut flow: Flow) -> Later<'static, (Flow, Response)> {
        Box::pin(async move {
            let end = End { site: &self.site, worker: &self.worker, target: &self.target };
            let response = reach(&mut flow, &end).await;
            (flow, response)
        })
    }
}

impl End<'_> {
    async fn reply(&self, flow: &mut Flow) -> Result<Answer, EncodeError> {
        let End { site, worker, target } = self;
        let route = &*target.route;
        match &route.kind {
            Kind::Proxy(_) => {
                flow.see_client();
                let Some(proxy) = &target.proxy else {
                    let status = Status::SERVICE_UNAVAILABLE;
                    return Ok(page::refusal(status, &flow.context, "There is no server for this request."));
                };
                if flow.is_rewritten() && str::from_utf8(&decoded(flow.request.path())).is_err() {
                    let refused = page::bad_path(path::BadPath::NotUtf8, &flow.context);
                    return Ok(Answer::plain(refused));
                }
                site.proxies.answer(proxy, &mut flow.request, &flow.context).await
            }
            Kind::App(settings) => {
                if let Some(files) = &settings.files {
                    match Box::pin(is_beside(files, flow)).await {
                        Ok(true) => return site.files.answer(route, files, flow).await,
                        Ok(false) => {}
                        Err(why) => return Ok(files::refusal(why, &flow.context)),
                    }
                }
                flow.see_client();
                let Some(place) = &target.app else {
                    let status = Status::SERVICE_UNAVAILABLE;
                    return Ok(page::refusal(status, &flow.context, "There is no such application."));
                };
                let answer =
                    app::answer(&site.links, &site.proxies, place, &mut flow.request, &flow.context).await?;
                if settings.sendfile.is_empty() {
                    return Ok(answer);
                }
                Box::pin(app::with_ordered_file(&site.files, route, settings, flow, answer)).await
            }
            Kind::Php(_) => {
                let Some(php) = &target.php else {
                    let status = Status::SERVICE_UNAVAILABLE;
                    return Ok(page::refusal(status, &flow.context, "There is no such application."));
                };
                // Apart: its future is large, and others would carry it.
                Box::pin(php.answer(&site.fastcgi, &site.files, flow)).await
            }
            Kind::Static(settings) => site.files.answer(route, settings, flow).await,
            // Apart: others would carry its future.
            Kind::Upload(settings) => Box::pin(upload::answer(route, settings, flow)).await,
            Kind::Respond(respond) => Ok(Answer::plain(match &target.fixed {
                Some(fixed) => Response::shared(fixed),
                None => fixed(route, respond)?,
            })),
            Kind::Redirect(redirect) => {
                redirected(redirect, flow)?.with(|response| with_lines(route, response))
            }
            Kind::Hub(hub) => {
                let response = hub.endpoint().answer(&mut flow.request).await;
                Ok(Answer::plain(with_lines(route, response)?))
            }
            Kind::Health => health(worker)?.with(|response| with_lines(route, response)),
            Kind::Status => {
                let shared = &worker.shared;
                let wanted = flow.request.header("accept").unwrap_or_default();
                let answer = if wanted.contains("application/json") {
                    let kind = ContentType::Json;
                    Answer::plain(Response::new(format!("{}\n", status::json(shared))).content_type(kind))
                } else {
                    page::html(Status::OK, status::page(shared))?
                };
                answer.with(|response| {
                    with_lines(route, response.header("Cache-Control", "no-store")?.header("Vary", "Accept")?)
                })
            }
            Kind::Metrics(_) => {
                let shared = Arc::clone(&worker.shared);
                match spawn_blocking(move || metrics::text(&shared)).await {
                    Ok(text) => Answer::of(text).with(|response| {
                        let kind = "text/plain; version=0.0.4; charset=utf-8";
                        with_lines(route, response.header("Content-Type", kind)?)
                    }),
                    Err(_) => {
                        let status = Status::SERVICE_UNAVAILABLE;
                        Ok(page::refusal(status, &flow.context, "The server is busy."))
                    }
                }
            }
        }
    }
}

/// Returns whether a request is for a file that is sent without asking the application.
async fn is_beside(settings: &Static, flow: &Flow) -> Result<bool, files::Refused> {
    if !matches!(flow.request.method(), Method::Get | Method::Head) {
        return Ok(false);
    }
    let Ok(spelled) = Spellings::of_request(&flow.request) else { return Ok(false) };
    if spelled.hides_slash {
        return Ok(false);
    }
    let relative = spelled.decoded.get(flow.context.below()..).unwrap_or_default().to_vec();
    files::look(&settings.root, files::second(flow.context.began));
    let may_be = files::is_servable(&relative, false) && !php::is_source(&relative);
    Ok(may_be && files::is_file(&settings.root, &relative).await?)
}

fn decoded(path: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(path).collect()
}

/// Returns the response with the constant lines of its route.
fn with_lines(route: &Route, mut response: Response) -> Result<Response, EncodeError> {
    for (name, value) in route.steps.lines() {
        response = response.header(name, value)?;
    }
    Ok(response)
}

fn fixed(route: &Route, respond: &Respond) -> Result<Response, EncodeError> {
    let mut response = Response::new(Arc::clone(&respond.body)).status(respond.status);
    if !respond.body.is_empty() {
        response.add_header("Content-Type", &respond.content_type)?;
    }
    with_lines(route, response)
}

/// Returns the fixed answer of a route, written once: all answers of all workers share its body. `None` where
/// the route has none.
pub(crate) fn prepared(route: &Route) -> Option<Shared> {
    let Kind::Respond(respond) = &route.kind else { return None };
    Shared::new(fixed(route, respond).ok()?).ok()
}

fn redirected(redirect: &Redirect, flow: &Flow) -> Result<Answer, EncodeError> {
    let request = &flow.request;
    let target = match redirect.to.as_text() {
        Some(to) if redirect.appends => {
            let behind = path::behind(request.path(), flow.context.below());
            // What comes from the client must not make another host of a path; what is configured may name
            // one.
            let behind = if to == "/" { behind.trim_start_matches(['/', '\\']) } else { behind };
            with_query(&format!("{to}{behind}"), request.query())
        }
        Some(to) => with_query(to, request.query()),
        None => {
            let target = String::from_utf8_lossy(&redirect.to.render(flow)).into_owned();
            // A path that the client has sent may begin with two slashes, which names another host.
            if target.starts_with("//") || target.starts_with("/\\") {
                path::location(&target, None)
            } else {
                target
            }
        }
    };
    if names_no_host(&target) {
        let what = "The request names no host, so there is no address to lead to.";
        return Ok(page::refusal(Status::BAD_REQUEST, &flow.context, what));
    }
    let status = redirect.status.unwrap_or_else(|| page::moved(request.method()));
    Ok(Answer::plain(Response::redirect(status, &target)?))
}

/// Returns whether a URL has nothing where its host stands, as of a request of HTTP/1.0 that names none.
/// Clients take the first part of the path for it.
fn names_no_host(place: &str) -> bool {
    after_http(place).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#', ':', '\\']))
}

/// Returns the place with the query of the request, where it has none of its own. It stands before a
/// fragment.
fn with_query(place: &str, query: Option<&str>) -> String {
    let (place, fragment) = place.split_at(place.find('#').unwrap_or(place.len()));
    match query.filter(|_| !place.contains('?')) {
        Some(query) => format!("{place}?{query}{fragment}"),
        None => format!("{place}{fragment}"),
    }
}

/// Returns whether more requests should come here.
fn health(worker: &Worker) -> Result<Answer, EncodeError> {
    let stopping = worker.shared.stopping.load(Ordering::Relaxed);
    let (status, text) =
        if stopping { (Status::SERVICE_UNAVAILABLE, "stopping\n") } else { (Status::OK, "ok\n") };
    Answer::of(text).with(|response| {
        response.status(status).content_type(ContentType::Text).header("Cache-Control", "no-store")
    })
}

/// Refuses a path that a step has written and that means no place, or several.
pub(crate) fn spelled(flow: &Flow) -> Result<Spellings<'_>, Box<Answer>> {
    Spellings::of_request(&flow.request)
        .map_err(|why| Box::new(Answer::plain(page::bad_path(why, &flow.context))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::config::Config;
    use std::path::Path;

    #[test]
    fn a_query_goes_to_a_place_that_has_none_of_its_own() {
        for (place, query, expected) in [
            ("/new", Some("a=b"), "/new?a=b"),
            ("/new", Some(""), "/new?"),
            ("/new", None, "/new"),
            ("/new?own", Some("a=b"), "/new?own"),
            ("/new#part", Some("a?b"), "/new?a?b#part"),
            ("/new#what?", Some("a"), "/new?a#what?"),
        ] {
            assert_eq!(with_query(place, query), expected, "{place} {query:?}");
        }
    }

    #[test]
    fn answers_of_a_fixed_route_share_the_body_of_the_configuration() {
        let text = format!(
            "[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"{}\"\nheaders = {{ X-A = \"1\" }}\n",
            "x".repeat(20_000)
        );
        let config = Config::parse(&text, Path::new("ringroad.toml")).unwrap();
        let route = config.routes.first().unwrap();
        let Kind::Respond(respond) = &route.kind else { panic!("another kind") };
        // One for each of two workers, and two answers of one.
        let workers = [prepared(route).unwrap(), prepared(route).unwrap()];
        for shared in [&workers[0], &workers[0], &workers[1]] {
            let mut response = Response::shared(shared);
            assert_eq!(response.header_value("x-a"), Some(b"1".as_slice()));
            let sent = response.body().as_bytes().unwrap();
            assert!(std::ptr::eq(sent, &*respond.body), "the body was copied");
        }
    }
}

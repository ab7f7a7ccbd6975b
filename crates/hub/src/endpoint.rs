//! What answers requests for a hub: each protocol that is spoken there, and the client's rights.

use crate::matcher::{Kind, Matcher};
use crate::pusher::{self, App};
use crate::rights::{Checked, Credentials, Rights};
use crate::topics::Wanted;
use crate::{Channels, Hub, centrifugo, mercure, plain, subscriptions};
use ringroad_http::ws::{Options, Origins};
use ringroad_http::{Method, Request, Response, Status};
use std::sync::Arc;

/// A protocol of a hub's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speak {
    /// Mercure: server-sent events, and publishing by a form.
    Mercure,
    /// WebSocket with topics in the URL.
    WebSocket,
    /// Pusher, protocol 7: WebSocket below `/app/`, and its HTTP API below `/apps/`.
    Pusher,
    /// Centrifugo's: JSON over WebSocket at `connection/websocket`, and its HTTP API below `api/`.
    Centrifugo,
}

/// What a place of a hub speaks, and with which clients.
#[derive(Clone, Debug)]
pub struct Place {
    /// The protocols.
    pub speak: Vec<Speak>,
    /// Pages that may connect.
    pub origins: Origins,
    /// How publishers are known; without it nothing is published from outside.
    pub publish: Option<Arc<dyn Credentials>>,
    /// How subscribers are known; without it none may read private messages.
    pub subscribe: Option<Arc<dyn Credentials>>,
    /// Subscribers without credentials get what is not private.
    pub anonymous: bool,
    /// The cookie in which browsers present a token.
    pub cookie: String,
    /// Speaks Mercure 0.x as well.
    pub before_one: bool,
    /// Publishes when a subscription begins or ends, and lists those that there are.
    pub subscriptions: bool,
    /// The application of Pusher's clients.
    pub app: Option<Arc<App>>,
    /// What channels offer to Centrifugo's clients.
    pub channels: Channels,
}

impl Default for Place {
    /// Speaks Mercure and WebSocket with pages of its own host. Nothing can be published.
    fn default() -> Place {
        Place {
            speak: vec![Speak::Mercure, Speak::WebSocket],
            origins: Origins::Same,
            publish: None,
            subscribe: None,
            anonymous: true,
            cookie: "__Secure-mercure_access_token".to_owned(),
            before_one: false,
            subscriptions: false,
            app: None,
            channels: Channels::default(),
        }
    }
}

/// A hub and what is spoken with it in one place. Clones share memory.
#[derive(Clone, Debug)]
pub struct Endpoint {
    hub: Hub,
    place: Arc<Place>,
}

/// Most topics of one member.
const TOPICS_MAX: usize = 64;

/// Most bytes of a topic's name.
const NAME_BYTES_MAX: usize = 1024;

impl Endpoint {
    /// Makes the endpoint of the hub at this place.
    pub fn new(hub: Hub, place: Place) -> Endpoint {
        Endpoint { hub, place: Arc::new(place) }
    }

    /// Returns the hub.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Answers a request.
    pub async fn answer(&self, request: &mut Request) -> Response {
        let speaks = |one| self.place.speak.contains(&one);
        if !self.hub.is_ready() && request.method() != Method::Post {
            return unavailable("hub: its server has not answered yet");
        }
        if speaks(Speak::Pusher)
            && let Some(app) = &self.place.app
            && let Some(asked) = pusher::asked(request.path())
        {
            return pusher::answer(&self.hub, app, asked, request, &self.place.origins).await;
        }
        if speaks(Speak::Centrifugo)
            && let Some(asked) = centrifugo::asked(request.path())
        {
            return centrifugo::answer(self, asked, request).await;
        }
        if self.place.subscriptions
            && request.method() == Method::Get
            && let Some(rest) = subscriptions::asked(request.path())
        {
            return self.subscriptions(request, &rest).unwrap_or_else(|refused| refused);
        }
        // An offer of another protocol, as of `h2c`, may be passed over (RFC 9110 §7.8): clients make it with
        // each request.
        let upgrades = request.head().upgrade() && names_websocket(request);
        match request.method() {
            Method::Get if speaks(Speak::WebSocket) && (upgrades || !speaks(Speak::Mercure)) => {
                plain::session(self, request).unwrap_or_else(|refused| refused)
            }
            Method::Get | Method::Head if speaks(Speak::Mercure) => {
                mercure::subscribe(self, request).await.unwrap_or_else(|refused| refused)
            }
            Method::Post if speaks(Speak::Mercure) || speaks(Speak::WebSocket) => {
                match mercure::publish(self, request).await {
                    Ok(id) => Response::text(id),
                    Err(refused) => refused,
                }
            }
            _ => {
                let refused = refusal(Status::METHOD_NOT_ALLOWED, "hub: GET subscribes, POST publishes");
                refused
                    .header("Allow", "GET, POST")
                    .unwrap_or_else(|_| Response::empty(Status::METHOD_NOT_ALLOWED))
            }
        }
    }

    /// Returns the rights of a publisher.
    ///
    /// # Errors
    /// Nothing can be published here, or the client has no valid credentials: the refusal.
    pub(crate) fn publisher(&self, request: &Request) -> Result<Rights, Response> {
        let Some(credentials) = &self.place.publish else {
            return Err(refusal(Status::FORBIDDEN, "hub: publishing is not allowed here"));
        };
        let rights = self.rights(&**credentials, request)?;
        if !rights.presented {
            return Err(unauthorized(None));
        }
        Ok(rights)
    }

    /// Returns the rights of a subscriber.
    ///
    /// # Errors
    /// The client's credentials are wrong, or it has none and has to: the refusal.
    pub(crate) fn subscriber(&self, request: &Request) -> Result<Rights, Response> {
        let rights = match &self.place.subscribe {
            Some(credentials) => self.rights(&**credentials, request)?,
            None => Rights::default(),
        };
        if !rights.presented && !self.place.anonymous {
            return Err(unauthorized(None));
        }
        Ok(rights)
    }

    fn rights(&self, credentials: &dyn Credentials, request: &Request) -> Result<Rights, Response> {
        let header = request.header("authorization");
        let bearer = header.and_then(|value| {
            let (scheme, token) = value.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case("bearer ").then(|| token.trim().to_owned())
        });
        let query = || {
            let key = self.place.before_one.then_some("authorization")?;
            request.query_value(key).map(|token| token.into_owned())
        };
        let by_cookie = || {
            let names = [self.place.cookie.as_str(), "mercureAuthorization"];
            let names = if self.place.before_one { &names[..] } else { &names[..1] };
            names.iter().find_map(|name| cookie(request, name))
        };
        let (token, is_cookie) = match header {
            Some(_) => (bearer, false),
            None => match query() {
                Some(token) => (Some(token), false),
                None => (by_cookie(), true),
            },
        };
        // A browser sends its cookies with the requests of every page.
        if is_cookie && token.is_some() {
            let is_safe = request.method() != Method::Post || request.header("origin").is_some();
            if !is_safe || !Options::new().origins(self.place.origins.clone()).allows_origin(request) {
                return Err(refusal(Status::FORBIDDEN, "hub: pages of this origin may not use the cookie"));
            }
        }
        match credentials.check(request, token.as_deref()) {
            Checked::Missing => Ok(Rights::default()),
            Checked::Wrong => Err(unauthorized(Some("invalid_token"))),
            Checked::Every => Ok(Rights::every()),
            Checked::Claims(typ, claims) => {
                let base = &self.hub.settings().url;
                Rights::of_claims(typ.as_deref(), &claims, base, self.place.before_one)
                    .map_err(|_| unauthorized(Some("invalid_token")))
            }
        }
    }

    fn subscriptions(&self, request: &Request, rest: &[String]) -> Result<Response, Response> {
        let rights = match &self.place.subscribe {
            Some(credentials) => self.rights(&**credentials, request)?,
            None => Rights::default(),
        };
        if !rights.presented {
            return Err(unauthorized(None));
        }
        subscriptions::answer(&self.hub, &rights, rest)
    }
}

/// Returns whether the client offers to speak WebSocket.
fn names_websocket(request: &Request) -> bool {
    request.headers().get_all("upgrade").any(|value| {
        let mut names = value.split(|byte| *byte == b',');
        names.any(|name| name.trim_ascii().eq_ignore_ascii_case(b"websocket"))
    })
}

/// Returns the value of a cookie.
fn cookie(request: &Request, name: &str) -> Option<String> {
    let lines = request.headers().get_all("cookie");
    lines.filter_map(|line| str::from_utf8(line).ok()).find_map(|line| {
        line.split(';').find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            (key.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
        })
    })
}

/// Returns a refusal with its reason.
pub(crate) fn refusal(status: Status, why: &str) -> Response {
    Response::text(format!("{why}\n")).status(status)
}

/// Returns the refusal of a request that should have offered WebSocket.
pub(crate) fn upgrade_required(why: &str) -> Response {
    let refused = Response::text(format!("{why}\n")).upgrade_required("websocket");
    refused.unwrap_or_else(|_| Response::empty(Status::UPGRADE_REQUIRED))
}

/// Returns the refusal while the server of a shared hub does not answer.
pub(crate) fn unavailable(why: &str) -> Response {
    let refused = refusal(Status::SERVICE_UNAVAILABLE, why).header("Retry-After", "1");
    refused.unwrap_or_else(|_| Response::empty(Status::SERVICE_UNAVAILABLE))
}

/// Returns the refusal of a client without valid credentials (RFC 6750 §3).
pub(crate) fn unauthorized(error: Option<&str>) -> Response {
    let challenge = match error {
        None => "Bearer".to_owned(),
        Some(error) => format!("Bearer error=\"{error}\""),
    };
    let refused = refusal(Status::UNAUTHORIZED, "hub: a key or a token is needed here");
    refused.header("WWW-Authenticate", challenge).unwrap_or_else(|_| Response::empty(Status::UNAUTHORIZED))
}

/// Returns the refusal of credentials that do not cover what is asked for.
pub(crate) fn forbidden() -> Response {
    let refused = refusal(Status::FORBIDDEN, "hub: the token does not cover this topic");
    refused
        .header("WWW-Authenticate", "Bearer error=\"insufficient_scope\"")
        .unwrap_or_else(|_| Response::empty(Status::FORBIDDEN))
}

/// Returns the topics that a request names, without those that it names twice: as the members of exact
/// topics, or as matchers where one of them is a pattern.
///
/// # Errors
/// There are none, or too many, or they are not well-formed: the refusal.
pub(crate) fn wanted(endpoint: &Endpoint, request: &Request) -> Result<(Wanted, Vec<Matcher>), Response> {
    let bad = |why: &str| refusal(Status::BAD_REQUEST, why);
    let base = &endpoint.hub().settings().url;
    let mut matchers: Vec<Matcher> = Vec::new();
    for (key, value) in request.query_pairs() {
        let kind = match &*key {
            "match" | "match_exact" | "matchExact" => Kind::Exact,
            "match_urlpattern" | "matchURLPattern" => Kind::UrlPattern,
            "topic" if endpoint.place().before_one => Kind::Template,
            "topic" => Kind::Exact,
            other if other.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("match")) => {
                return Err(bad(&format!("hub: {other}: expected match, match_exact or match_urlpattern")));
            }
            _ => continue,
        };
        check_name(&value)?;
        let matcher = Matcher::new(kind, &value, base)
            .ok_or_else(|| bad(&format!("hub: {key}: this is no well-formed pattern")))?;
        if !matchers.iter().any(|one| one.kind() == kind && one.text() == matcher.text()) {
            matchers.push(matcher);
        }
    }
    match matchers.len() {
        0 => return Err(bad("hub: no topic (expected ?match=TOPIC or ?topic=TOPIC)")),
        1..=TOPICS_MAX => {}
        _ => return Err(bad("hub: more than 64 topics")),
    }
    let names: Option<Vec<String>> =
        matchers.iter().map(|matcher| matcher.name().map(str::to_owned)).collect();
    let wanted = match names {
        Some(mut names) => {
            names.sort();
            names.dedup();
            Wanted::Names(names)
        }
        None => Wanted::Matching(matchers.clone()),
    };
    Ok((wanted, matchers))
}

/// Checks the name of a topic.
///
/// # Errors
/// It is empty, too long, or has control characters: the refusal.
pub(crate) fn check_name(name: &str) -> Result<(), Response> {
    let is_one = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(char::is_control);
    is_one.then_some(()).ok_or_else(|| {
        refusal(Status::BAD_REQUEST, "hub: a topic has 1 to 1024 bytes and no control characters")
    })
}

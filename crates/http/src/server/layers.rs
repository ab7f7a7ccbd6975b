//! Layers for a [`Router`](crate::Router): authentication, CORS, timing, deadlines, panics.
//!
//! Each returns an `impl Layer<S>` for a state of any type. A layer of your own is an async function of
//! [`Request`] and [`Next`]. These layers use the public interface only, except for the table of routes.

#[cfg(feature = "tracing")]
pub use super::spans::trace;

use super::router::{Layer, Next};
use super::wrap::{Asked, Gate, Record, too_many, within};
use crate::message::{IntoResponse, Request, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringroad_wire::{EncodeError, Method, Status};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The user that [`basic_auth`] has let in, in the request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicUser(pub String);

/// Lets requests in with a name and a password that `check` accepts (RFC 7617), and answers others 401. The
/// handler finds the name as [`BasicUser`] in the extensions.
///
/// Compare secrets with [`same_secret`], and keep passwords as hashes of a slow function. Passwords travel in
/// the clear: use TLS.
///
/// ```
/// use ringroad_http::layers::{self, BasicUser};
/// use ringroad_http::{Extension, Router, get};
///
/// async fn hello(Extension(BasicUser(name)): Extension<BasicUser>) -> String {
///     format!("hello {name}")
/// }
/// let check = |name: &str, password: &str| name == "ada" && layers::same_secret(password, "lovelace");
/// let router: Router = Router::new().route("/", get(hello)).layer(layers::basic_auth("inside", check));
/// ```
pub fn basic_auth<S: 'static>(
    realm: &str,
    check: impl Fn(&str, &str) -> bool + Clone + Send + 'static,
) -> impl Layer<S> {
    let realm = realm.replace(['"', '\\'], "'");
    let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
    move |mut request: Request, next: Next<S>| {
        let user = credentials(&request, "basic").and_then(|text| {
            let text = String::from_utf8(STANDARD.decode(text).ok()?).ok()?;
            let (name, password) = text.split_once(':')?;
            check(name, password).then(|| BasicUser(name.to_owned()))
        });
        let challenge = user.is_none().then(|| challenge.clone());
        async move {
            match (user, challenge) {
                (Some(user), _) => {
                    request.extensions_mut().insert(user);
                    next.run(request).await
                }
                (None, challenge) => unauthorized(&challenge.unwrap_or_default()),
            }
        }
    }
}

/// Lets requests in with a token that `check` accepts (RFC 6750), and answers others 401. What `check`
/// returns is in the request's extensions: the user that the token stands for.
///
/// ```
/// use ringroad_http::layers;
/// use ringroad_http::{Extension, Router, get};
///
/// #[derive(Clone)]
/// struct User(u32);
///
/// async fn hello(Extension(user): Extension<User>) -> String {
///     format!("hello {}", user.0)
/// }
/// let check = |token: &str| layers::same_secret(token, "f81d4fae").then_some(User(7));
/// let router: Router = Router::new().route("/", get(hello)).layer(layers::bearer_auth(check));
/// ```
pub fn bearer_auth<S: 'static, U: 'static>(
    check: impl Fn(&str) -> Option<U> + Clone + Send + 'static,
) -> impl Layer<S> {
    move |mut request: Request, next: Next<S>| {
        let token = credentials(&request, "bearer");
        let was_sent = token.is_some();
        let user = token.and_then(&check);
        async move {
            match user {
                Some(user) => {
                    request.extensions_mut().insert(user);
                    next.run(request).await
                }
                None if was_sent => unauthorized("Bearer error=\"invalid_token\""),
                None => unauthorized("Bearer"),
            }
        }
    }
}

/// Returns the credentials of a request for this scheme. Letter case does not matter (RFC 9110 §11.1).
fn credentials<'r>(request: &'r Request, scheme: &str) -> Option<&'r str> {
    let (told, rest) = request.header("authorization")?.split_once(' ')?;
    told.eq_ignore_ascii_case(scheme).then(|| rest.trim())
}

fn unauthorized(challenge: &str) -> Response {
    let mut response = (Status::UNAUTHORIZED, "401 Unauthorized\n").into_response();
    // A realm with control characters is invalid: the challenge is left out.
    let _ = response.set_header("WWW-Authenticate", challenge);
    response
}

/// Compares two secrets in a time that depends on their lengths only.
pub fn same_secret(left: impl AsRef<[u8]>, right: impl AsRef<[u8]>) -> bool {
    let (left, right) = (left.as_ref(), right.as_ref());
    let differing = left.iter().zip(right).fold(0, |bits, (left, right)| bits | (left ^ right));
    left.len() == right.len() && std::hint::black_box(differing) == 0
}

/// Adds `Server-Timing: total;dur=…` to each response: the milliseconds up to its head. Browsers show it.
pub fn server_timing<S: 'static>() -> impl Layer<S> {
    move |request: Request, next: Next<S>| async move {
        let begun = Instant::now();
        let mut response = next.run(request).await;
        let value = format!("total;dur={:.3}", begun.elapsed().as_secs_f64() * 1e3);
        // A number is a valid value.
        let _ = response.add_header("Server-Timing", value);
        response
    }
}

/// Calls `sink` with the facts of each answered request. A request is not reported if its handler panics,
/// unless [`catch_panic`] is within this layer.
pub fn log<S: 'static>(sink: impl Fn(Record) + Clone + Send + 'static) -> impl Layer<S> {
    move |request: Request, next: Next<S>| {
        let (asked, sink) = (Asked::of(&request), sink.clone());
        async move {
            let response = next.run(request).await;
            sink(asked.answered(&response));
            response
        }
    }
}

/// Limits the layers and handler within it to `span`. Afterwards they are dropped, and the answer is 503.
pub fn timeout<S: 'static>(span: Duration) -> impl Layer<S> {
    move |request: Request, next: Next<S>| within(span, next.run(request))
}

/// Limits the concurrent requests within it to `most`, for the whole server. Further requests are answered
/// 503 at once.
pub fn limit<S: 'static>(most: usize) -> impl Layer<S> {
    let gate = Gate::new(most);
    move |request: Request, next: Next<S>| {
        let permit = gate.enter();
        async move {
            match permit {
                Some(_permit) => next.run(request).await,
                None => too_many(),
            }
        }
    }
}

/// Answers with `answer` if a layer or handler within it panics. Without it the answer is 500 as well, and
/// the connection continues, but the panic passes the outer layers, which cannot log it or add lines to the
/// answer.
///
/// ```
/// use ringroad_http::{Request, Response, Router, Status, get, layers};
///
/// async fn broken(_: Request) -> &'static str {
///     panic!("a mistake")
/// }
/// let sorry = || Response::json(&"our mistake").status(Status::INTERNAL_SERVER_ERROR);
/// let router: Router = Router::new().route("/", get(broken)).layer(layers::catch_panic(sorry));
/// ```
pub fn catch_panic<S: 'static>(answer: impl Fn() -> Response + Clone + Send + 'static) -> impl Layer<S> {
    move |request: Request, next: Next<S>| {
        let answer = answer.clone();
        async move {
            let mut answering = pin!(next.run(request));
            let answered = poll_fn(|context| {
                // A future that has panicked is dropped, and not polled again.
                match catch_unwind(AssertUnwindSafe(|| answering.as_mut().poll(context))) {
                    Ok(Poll::Pending) => Poll::Pending,
                    Ok(Poll::Ready(response)) => Poll::Ready(Some(response)),
                    Err(payload) => {
                        // Its destructor may panic too.
                        std::mem::forget(payload);
                        Poll::Ready(None)
                    }
                }
            });
            answered.await.unwrap_or_else(answer)
        }
    }
}

/// Which pages of other origins may read answers (CORS, the Fetch standard §3.2), as a layer: see
/// [`Cors::layer`].
///
/// ```
/// use ringroad_http::layers::Cors;
/// use ringroad_http::{Method, Request, Router, get};
///
/// let cors = Cors::new()
///     .origin("https://app.example")
///     .methods([Method::Get, Method::Put])
///     .headers(["content-type", "x-token"])
///     .credentials(true);
/// let router: Router = Router::new().route("/", get(async |_: Request| "")).layer(cors.layer()?);
/// # Ok::<(), ringroad_http::EncodeError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it is a layer after `layer`"]
pub struct Cors {
    origins: Vec<String>,
    any_origin: bool,
    methods: Vec<&'static str>,
    headers: Vec<String>,
    any_header: bool,
    exposed: Vec<String>,
    credentials: bool,
    max_age: Option<Duration>,
}

impl Cors {
    /// Makes rules that allow nothing.
    pub fn new() -> Cors {
        Cors::default()
    }

    /// Allows pages of this origin: scheme, host and port as a browser writes them, `https://app.example`.
    pub fn origin(mut self, origin: &str) -> Cors {
        self.origins.push(origin.trim_end_matches('/').to_owned());
        self
    }

    /// Allows pages of every origin, without credentials.
    pub fn any_origin(mut self) -> Cors {
        self.any_origin = true;
        self
    }

    /// Allows these methods besides GET, HEAD and POST, which need no permission.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Cors {
        self.methods.extend(methods.into_iter().map(Method::name));
        self
    }

    /// Allows these header lines of requests, besides those that need no permission.
    pub fn headers<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Cors {
        self.headers.extend(names.into_iter().map(Into::into));
        self
    }

    /// Allows all header lines of requests that a page asks for.
    pub fn any_header(mut self) -> Cors {
        self.any_header = true;
        self
    }

    /// Lets pages read these header lines of responses.
    pub fn expose<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Cors {
        self.exposed.extend(names.into_iter().map(Into::into));
        self
    }

    /// Lets pages of the listed origins send cookies and passwords.
    pub fn credentials(mut self, credentials: bool) -> Cors {
        self.credentials = credentials;
        self
    }

    /// Sets how long a browser may cache the answer to a preflight request.
    pub fn max_age(mut self, age: Duration) -> Cors {
        self.max_age = Some(age);
        self
    }

    /// Makes the layer. It answers preflight requests (OPTIONS with `Access-Control-Request-Method`) itself,
    /// and adds its lines to every other answer, including 404 and 405. Put it outside layers that refuse
    /// requests.
    ///
    /// # Errors
    /// A name or an origin has bytes that are not allowed in a header line.
    pub fn layer<S: 'static>(self) -> Result<impl Layer<S>, EncodeError> {
        let mut check = Response::empty(Status::OK);
        for text in [self.headers.join(", "), self.exposed.join(", "), self.origins.join(", ")] {
            check.add_header("Check", text)?;
        }
        let cors = Arc::new(self);
        Ok(move |request: Request, next: Next<S>| {
            let cors = Arc::clone(&cors);
            async move {
                let origin = request.header("origin").map(str::to_owned);
                let asks = request.method() == Method::Options
                    && origin.is_some()
                    && request.header("access-control-request-method").is_some();
                let mut response = if asks {
                    let wanted = request.header("access-control-request-headers").map(str::to_owned);
                    cors.answer(origin.as_deref(), wanted.as_deref())
                } else {
                    next.run(request).await
                };
                cors.mark(&mut response, origin.as_deref(), asks);
                response
            }
        })
    }

    fn allows(&self, origin: Option<&str>) -> bool {
        origin.is_some_and(|origin| self.any_origin || self.origins.iter().any(|known| known == origin))
    }

    /// Returns the answer to a preflight request.
    fn answer(&self, origin: Option<&str>, wanted: Option<&str>) -> Response {
        let mut response = Response::empty(Status::NO_CONTENT);
        if !self.allows(origin) {
            return response;
        }
        let headers = if self.any_header { wanted.map(str::to_owned) } else { Some(self.headers.join(", ")) };
        let lines = [
            ("Access-Control-Allow-Methods", Some(self.methods.join(", "))),
            ("Access-Control-Allow-Headers", headers),
            ("Access-Control-Max-Age", self.max_age.map(|age| age.as_secs().to_string())),
        ];
        for (name, value) in lines {
            // A value from a header line of the request is valid in a response.
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                let _ = response.add_header(name, value);
            }
        }
        response
    }

    /// Adds the lines that every answer gets.
    fn mark(&self, response: &mut Response, origin: Option<&str>, asks: bool) {
        let listed = origin.filter(|origin| self.origins.iter().any(|known| known == origin));
        let allowed = listed.or(if self.any_origin { Some("*") } else { None });
        if !self.origins.is_empty() {
            let _ = response.add_header("Vary", "Origin");
        }
        let Some(allowed) = allowed else { return };
        // An origin from a header line of the request is valid in a response.
        let _ = response.set_header("Access-Control-Allow-Origin", allowed);
        if self.credentials && listed.is_some() {
            let _ = response.set_header("Access-Control-Allow-Credentials", "true");
        }
        if !asks && !self.exposed.is_empty() {
            let _ = response.set_header("Access-Control-Expose-Headers", self.exposed.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_the_same_or_not() {
        assert!(same_secret("abc", b"abc"));
        assert!(!same_secret("abc", "abd") && !same_secret("abc", "abcd") && !same_secret("", "a"));
        assert!(same_secret("", ""));
    }
}

//! Automatic steps of a client around an exchange: repeats, redirects, cookies.
//!
//! Each is off by default. All of them together have the client's one time limit ([`Client::timeout`]).

use super::location;
use super::{Client, ClientError, ClientRequest, ClientResponse, CookieJar, Failure, Target};
use crate::message::{Body, Inner};
use crate::random::random;
use ringroad_engine::time;
use ringroad_wire::{Method, Status};
use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

/// The body of an answer that is not the last one is read up to this length, so that its connection can be
/// reused.
const SKIPPED_BYTES_MAX: usize = 16 * 1024;

/// Number of repeats of a request, and their pauses: see [`Client::retries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retries {
    /// Maximum number of repeats of one request.
    pub count: u32,
    /// Upper bound of the pause before the first repeat. It doubles with each repeat; the actual pause is
    /// random below it (exponential back-off with full jitter).
    pub base: Duration,
    /// Maximum pause, even if the server asks for a longer one with `Retry-After`.
    pub longest: Duration,
}

impl Retries {
    /// Repeats up to `count` times, with pauses from 100 ms up to 5 s.
    pub fn new(count: u32) -> Retries {
        Retries { count, base: Duration::from_millis(100), longest: Duration::from_secs(5) }
    }

    /// Returns the pause before repeat `number`, counted from 0.
    fn pause(self, number: u32) -> Duration {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let random = u64::from_le_bytes(random());
        Duration::from_nanos(ringroad_policy::backoff::wait(
            number,
            nanos(self.base),
            nanos(self.longest),
            random,
        ))
    }
}

/// The automatic steps of a client.
#[derive(Clone, Default)]
pub(super) struct Follow {
    redirects: u32,
    retries: Option<Retries>,
    jar: Option<CookieJar>,
}

impl Follow {
    /// Returns whether all steps are off.
    pub(super) fn is_off(&self) -> bool {
        self.redirects == 0 && self.retries.is_none() && self.jar.is_none()
    }
}

impl Client {
    /// Follows up to `count` redirects: 301, 302, 303, 307 and 308 with a `Location`. A POST becomes a GET
    /// except after 307 and 308, as in browsers. `Authorization` and `Cookie` lines of the request are sent
    /// only to the origin that they were written for. If a redirect would need a streamed body again, the
    /// redirect itself is returned.
    #[must_use]
    pub fn redirects(mut self, count: u32) -> Client {
        self.follow.redirects = count;
        self
    }

    /// Repeats requests of which nothing was sent. Requests with an idempotent method (RFC 9110 §9.2.2) are
    /// also repeated if no byte of an answer arrived, or if the answer is 429, 502, 503 or 504. A streamed
    /// body is never repeated.
    ///
    /// ```
    /// use ringroad_http::{Client, Retries};
    ///
    /// let client = Client::new().retries(Retries::new(3)).redirects(10);
    /// ```
    #[must_use]
    pub fn retries(mut self, retries: Retries) -> Client {
        self.follow.retries = Some(retries);
        self
    }

    /// Keeps the cookies that servers set in this jar, and sends them.
    #[must_use]
    pub fn cookies(mut self, jar: &CookieJar) -> Client {
        self.follow.jar = Some(jar.clone());
        self
    }
}

impl ClientRequest {
    /// Adds the name and password of basic authentication.
    pub fn basic_auth(self, name: &str, password: &str) -> ClientRequest {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
        self.header("Authorization", format!("Basic {text}"))
    }

    /// Adds a bearer token.
    pub fn bearer_auth(self, token: &str) -> ClientRequest {
        self.header("Authorization", format!("Bearer {token}"))
    }

    /// Sends the request, with the automatic steps.
    pub(super) async fn send_following(
        self,
        deadline: Option<Instant>,
        reached: &Cell<(super::FailedAt, super::SentSoFar)>,
    ) -> Result<ClientResponse, Failure> {
        let follow = self.client.follow.clone();
        if follow.is_off() {
            return self.send_by(deadline, reached).await;
        }
        let mut asking = self;
        let (mut redirects, mut repeats) = (0, 0);
        loop {
            let target = Target::new(&asking.url).map_err(Failure::of_request)?;
            let (attempt, spare) = asking.twice();
            // A line that the caller wrote is not extended: a request has one (RFC 6265 §5.4).
            let jar = follow.jar.as_ref().filter(|_| attempt.fields.get("cookie").is_none());
            let attempt = match jar.and_then(|jar| jar.value(&target)) {
                Some(cookies) => attempt.header("Cookie", cookies),
                None => attempt,
            };
            let method = attempt.method;
            let answered = attempt.send_by(deadline, reached).await;
            if let (Some(jar), Ok(response)) = (&follow.jar, &answered) {
                jar.take(&target, response.headers().get_all("set-cookie"));
            }
            let Some(spare) = spare else { return answered };
            let retries = follow.retries.filter(|retries| repeats < retries.count);
            match (answered, retries) {
                (Err(why), Some(retries)) if why.at.may_repeat(why.sent, method) => {
                    time::sleep(retries.pause(repeats)).await;
                    repeats += 1;
                    asking = spare;
                }
                (Ok(mut response), Some(retries)) if may_pass(method, response.status()) => {
                    let asked = retry_after(response.header("retry-after"));
                    let pause =
                        asked.map_or_else(|| retries.pause(repeats), |asked| asked.min(retries.longest));
                    // A longer body costs more than a new connection.
                    let _ = response.bytes(SKIPPED_BYTES_MAX).await;
                    drop(response);
                    time::sleep(pause).await;
                    repeats += 1;
                    asking = spare;
                }
                (Ok(mut response), _) if follow.redirects > 0 => {
                    let Some(next) = spare.redirected(&response, &target)? else { return Ok(response) };
                    if redirects == follow.redirects {
                        let why = format!("more than {redirects} redirects");
                        return Err(Failure::of_request(ClientError::Url { url: next.url, why }));
                    }
                    // A longer body costs more than a new connection.
                    let _ = response.bytes(SKIPPED_BYTES_MAX).await;
                    redirects += 1;
                    asking = next;
                }
                (answered, _) => return answered,
            }
        }
    }

    /// Makes two copies of the request, if the body can be sent twice.
    fn twice(self) -> (ClientRequest, Option<ClientRequest>) {
        let body = match &self.body.0 {
            Inner::Empty => Body::empty(),
            Inner::Whole(chunk) => Body(Inner::Whole(chunk.duplicate())),
            Inner::File(_) | Inner::Stream(_) | Inner::Switch(_) => return (self, None),
        };
        let spare = ClientRequest {
            client: self.client.clone(),
            method: self.method,
            url: self.url.clone(),
            fields: self.fields.clone(),
            body,
            wrong: self.wrong,
        };
        (self, Some(spare))
    }

    /// Returns the request that a redirect asks for; `None` if the response is not a redirect.
    fn redirected(
        mut self,
        response: &ClientResponse,
        target: &Target,
    ) -> Result<Option<ClientRequest>, Failure> {
        let status = response.status();
        let keeps_method = match status {
            Status::TEMPORARY_REDIRECT | Status::PERMANENT_REDIRECT => true,
            Status::SEE_OTHER => self.method == Method::Head,
            Status::MOVED_PERMANENTLY | Status::FOUND => self.method != Method::Post,
            _ => return Ok(None),
        };
        let Some(location) = response.header("location") else { return Ok(None) };
        self.url = location::resolve(&self.url, location);
        if !keeps_method {
            self.method = Method::Get;
            self.body = Body::empty();
            for name in ["content-type", "content-encoding", "content-language", "content-location"] {
                self.fields.remove(name);
            }
        }
        let next = Target::new(&self.url).map_err(Failure::of_request)?;
        if !location::same_origin(target, &next) {
            for name in ["authorization", "cookie", "proxy-authorization"] {
                self.fields.remove(name);
            }
        }
        Ok(Some(self))
    }
}

/// Returns whether a repeat may succeed and is harmless.
fn may_pass(method: Method, status: Status) -> bool {
    let idempotent = !matches!(method, Method::Post | Method::Patch | Method::Connect | Method::Other);
    let passing = [
        Status::TOO_MANY_REQUESTS,
        Status::BAD_GATEWAY,
        Status::SERVICE_UNAVAILABLE,
        Status::GATEWAY_TIMEOUT,
    ];
    idempotent && passing.contains(&status)
}

/// Returns the pause that the server asks for: seconds, or a date.
fn retry_after(line: Option<&str>) -> Option<Duration> {
    let line = line?.trim();
    if let Ok(seconds) = line.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(line).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(feature = "json")]
mod values {
    use super::{ClientError, ClientRequest};
    use serde::Serialize;

    impl ClientRequest {
        /// Adds the fields of a value to the query of the URL.
        ///
        /// # Errors
        /// The value cannot be serialised.
        pub fn query(mut self, value: &impl Serialize) -> Result<ClientRequest, ClientError> {
            let text = written(value)?;
            if text.is_empty() {
                return Ok(self);
            }
            // The fragment is not sent.
            let url = self.url.split('#').next().unwrap_or_default();
            let joint = if url.contains('?') { '&' } else { '?' };
            self.url = format!("{url}{joint}{text}");
            Ok(self)
        }

        /// Sets the body to this value as a form (`application/x-www-form-urlencoded`).
        ///
        /// # Errors
        /// The value cannot be serialised.
        pub fn form(self, value: &impl Serialize) -> Result<ClientRequest, ClientError> {
            let text = written(value)?;
            Ok(self.header("Content-Type", "application/x-www-form-urlencoded").body(text))
        }
    }

    fn written(value: &impl Serialize) -> Result<String, ClientError> {
        serde_html_form::to_string(value).map_err(|why| ClientError::Body(Box::new(why)))
    }
}

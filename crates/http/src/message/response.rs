//! Responses as handlers return them, and the conversions to them.
//!
//! Framing, persistence of the connection and the date are decided when a response is encoded
//! (`h1/encode.rs`).

use super::body::{Body, Inner};
use super::chunk::Chunk;
use super::error::BodyError;
use super::sent::{OnSent, Sent, Watched};
use super::upgrade::{Switch, Takeover, Upgraded};
use crate::pool;
use ringroad_wire::{EncodeError, Field, FieldBlock, Status};
#[cfg(feature = "json")]
use serde::Serialize;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::convert::Infallible;
use std::fmt::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

/// Media types with a header line that needs no check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// `text/html`; the document declares its charset.
    Html,
    /// `text/plain; charset=utf-8`
    Text,
    /// `application/json`
    Json,
    /// `application/octet-stream`
    Bytes,
}

impl ContentType {
    pub(crate) const ALL: [ContentType; 4] =
        [ContentType::Html, ContentType::Text, ContentType::Json, ContentType::Bytes];

    /// Returns the value of the header line.
    pub const fn as_str(self) -> &'static str {
        match self {
            ContentType::Html => "text/html",
            ContentType::Text => "text/plain; charset=utf-8",
            ContentType::Json => "application/json",
            ContentType::Bytes => "application/octet-stream",
        }
    }
}

/// A response.
///
/// ```
/// use ringroad_http::{Response, Status};
///
/// let closed = Response::text("gone fishing\n").status(Status::SERVICE_UNAVAILABLE);
/// let response = closed.header("Retry-After", "120")?;
/// # Ok::<(), ringroad_http::EncodeError>(())
/// ```
pub struct Response {
    pub(crate) status: Status,
    pub(crate) content_type: Option<ContentType>,
    /// Whether the connection is closed after it.
    pub(crate) close: bool,
    /// Whether the body ends when the server stops.
    pub(crate) ends_on_stop: bool,
    pub(crate) fields: FieldBlock,
    pub(crate) body: Body,
    /// Status, type, body and lines of a shared response; `fields` are additional lines.
    pub(crate) shared: Option<Rc<Prepared>>,
    /// The owner that gets a report of its end.
    pub(crate) on_sent: Option<Box<Watched>>,
}

impl Response {
    /// Makes a response with this body, status 200 and the mandatory header lines.
    #[inline]
    pub fn new(body: impl Into<Body>) -> Response {
        Response {
            status: Status::OK,
            content_type: None,
            close: false,
            ends_on_stop: false,
            fields: FieldBlock::new(),
            body: body.into(),
            shared: None,
            on_sent: None,
        }
    }

    /// Makes a response with a status and no body.
    #[inline]
    pub fn empty(status: Status) -> Response {
        Response::new(Body::empty()).status(status)
    }

    /// Makes a response of `text/plain`.
    #[inline]
    pub fn text(text: impl Into<Body>) -> Response {
        Response::new(text).content_type(ContentType::Text)
    }

    /// Makes a response of `text/html`.
    #[inline]
    pub fn html(page: impl Into<Body>) -> Response {
        Response::new(page).content_type(ContentType::Html)
    }

    /// Makes a response of this value as JSON; 500 if it cannot be serialised.
    #[cfg(feature = "json")]
    pub fn json(value: &(impl Serialize + ?Sized)) -> Response {
        let mut text = pool::buffer();
        match serde_json::to_writer(&mut text, value) {
            Ok(()) => Response::new(text).content_type(ContentType::Json),
            Err(why) => {
                pool::give_buffer(text);
                Response::text(format!("not to be written as JSON: {why}\n"))
                    .status(Status::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// Makes a redirect: 301, 302, 303, 307 or 308. Bytes that a URI cannot have (spaces, control characters,
    /// bytes beyond ASCII) are escaped in the location.
    ///
    /// # Errors
    /// None today: an escaped location is always a value that [`header`](Self::header) takes.
    pub fn redirect(status: Status, location: &str) -> Result<Response, EncodeError> {
        Response::empty(status).header("Location", as_uri(location).as_bytes())
    }

    /// Accepts the client's offer of another protocol: sends 101, and hands the connection to `takeover`. Its
    /// future runs to its end on the worker. A panic ends it, and is counted.
    ///
    /// The handler must check that [`Request::head`](crate::Request::head) offers an
    /// [`upgrade`](crate::RequestHead::upgrade), and to which protocol. A client that offers none gets 426.
    /// The request's body must have been read to its end; otherwise the answer is 500.
    ///
    /// # Errors
    /// `protocol` is empty or has control characters.
    pub fn upgrade<F, Fut>(protocol: &str, takeover: F) -> Result<Response, EncodeError>
    where
        F: FnOnce(Upgraded) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        if protocol.is_empty() {
            return Err(EncodeError::Value);
        }
        FieldBlock::new().push(b"Protocol", protocol.as_bytes())?;
        let takeover: Takeover = Box::new(|upgraded| Box::pin(takeover(upgraded)));
        let switch = Box::new(Switch { protocol: protocol.into(), takeover });
        Ok(Response::new(Body(Inner::Switch(switch))).status(Status::SWITCHING_PROTOCOLS))
    }

    /// Makes a response from one that was prepared before.
    #[inline]
    pub fn shared(shared: &Shared) -> Response {
        let mut response = Response::empty(shared.0.status);
        response.shared = Some(Rc::clone(&shared.0));
        response
    }

    /// Sets the status.
    #[inline]
    pub fn status(mut self, status: Status) -> Response {
        self.own();
        self.status = status;
        self
    }

    /// Sets `Content-Type`.
    #[inline]
    pub fn content_type(mut self, content_type: ContentType) -> Response {
        self.own();
        self.content_type = Some(content_type);
        self
    }

    /// Adds a header line.
    ///
    /// # Errors
    /// The name is not a token, the value has control characters, or the line is one that follows from the
    /// body and the connection (`Content-Length`, `Connection`, …). So a value from a client cannot become a
    /// header line of its own.
    pub fn header(
        mut self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Response, EncodeError> {
        self.add_header(name, value)?;
        Ok(self)
    }

    /// Adds a header line after those of its name.
    ///
    /// # Errors
    /// As [`header`](Self::header).
    pub fn add_header(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), EncodeError> {
        let (name, value) = (name.as_ref(), value.as_ref());
        let is_type = name.eq_ignore_ascii_case(b"content-type");
        if is_type {
            self.own();
        }
        if self.fields.bytes().is_empty() {
            self.fields = pool::block();
        }
        self.fields.push(name, value)?;
        if is_type {
            self.content_type = None;
        }
        Ok(())
    }

    /// Makes it a 426 that names the required protocols, as that status demands (RFC 9110 §15.5.22). Over
    /// HTTP/2, which has no upgrade, they are left out.
    ///
    /// # Errors
    /// `protocols` is empty or has control characters.
    pub fn upgrade_required(mut self, protocols: impl AsRef<[u8]>) -> Result<Response, EncodeError> {
        self.own();
        self.status = Status::UPGRADE_REQUIRED;
        self.remove_header("Upgrade");
        self.fields.push_upgrade(protocols.as_ref())?;
        Ok(self)
    }

    /// Adds checked header lines after the present ones. If the first line of a response is a `Date`, the
    /// server adds no date: that is for answers of another origin.
    pub fn add_lines(&mut self, lines: &FieldBlock) {
        self.own();
        if self.fields.bytes().is_empty() {
            self.fields = pool::block();
        }
        self.fields.append(lines);
        if self.content_type.is_some() && lines.get("content-type").is_some() {
            self.content_type = None;
        }
    }

    /// Replaces all header lines of this name by one.
    ///
    /// # Errors
    /// As [`header`](Self::header).
    pub fn set_header(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), EncodeError> {
        if self.header_value(name).is_some() {
            // An invalid line changes nothing.
            FieldBlock::new().push(name.as_bytes(), value.as_ref())?;
            self.remove_header(name);
        }
        self.add_header(name, value)
    }

    /// Removes all header lines of this name, in any case; returns whether there was one.
    pub fn remove_header(&mut self, name: &str) -> bool {
        if self.header_value(name).is_none() {
            return false;
        }
        self.own();
        self.fields.remove(name);
        if name.eq_ignore_ascii_case("content-type") {
            self.content_type = None;
        }
        true
    }

    /// Returns the value of the first header line of this name, in any case. Lines that follow from the body
    /// and the connection are not present yet.
    pub fn header_value(&self, name: &str) -> Option<&[u8]> {
        if let Some(kind) = self.own_content_type()
            && name.eq_ignore_ascii_case("content-type")
        {
            return Some(kind.as_str().as_bytes());
        }
        let shared = self.shared.as_deref().and_then(|shared| shared.fields.get(name));
        shared.or_else(|| self.fields.get(name))
    }

    /// Returns the content type, if it has no header line of its own.
    fn own_content_type(&self) -> Option<ContentType> {
        self.shared.as_deref().map_or(self.content_type, |shared| shared.content_type)
    }

    /// Returns the header lines, except those that follow from the body and the connection.
    pub fn headers(&self) -> impl Iterator<Item = Field<'_>> {
        let shared = self.shared.as_deref();
        let of_type = self
            .own_content_type()
            .map(|kind| Field { name: b"Content-Type", value: kind.as_str().as_bytes() });
        of_type
            .into_iter()
            .chain(shared.into_iter().flat_map(|shared| shared.fields.iter()))
            .chain(self.fields.iter())
    }

    /// Copies a shared response, so that it can be changed. Only the bytes of the body stay shared.
    #[inline]
    fn own(&mut self) {
        if self.shared.is_some() {
            self.own_shared();
        }
    }

    #[cold]
    fn own_shared(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        let lines = std::mem::replace(&mut self.fields, shared.fields.clone());
        for line in lines.iter() {
            // These lines were valid before.
            let _ = self.fields.push(line.name, line.value);
        }
        self.status = shared.status;
        self.content_type = shared.content_type;
        self.close |= shared.close;
        self.body =
            shared.body.as_ref().map_or_else(Body::empty, |body| Body(Inner::Whole(body.duplicate())));
    }

    /// Returns the body.
    pub fn body(&mut self) -> &Body {
        self.own();
        &self.body
    }

    /// Takes the body out, and leaves an empty one.
    pub fn take_body(&mut self) -> Body {
        self.own();
        std::mem::replace(&mut self.body, Body::empty())
    }

    /// Replaces the body.
    pub fn set_body(&mut self, body: impl Into<Body>) {
        self.own();
        self.body = body.into();
    }

    /// Calls `tell` once, when the kernel has all of the response, or when no more of it will be sent.
    ///
    /// The handler has ended long before, so this is the place to count and log what was sent. It costs one
    /// allocation. A second call replaces the first.
    #[must_use]
    pub fn on_sent(self, tell: impl FnOnce(&Sent) + 'static) -> Response {
        self.report_to(Box::new(tell))
    }

    /// Reports the end to `owner`, as [`on_sent`](Self::on_sent) does, without an allocation.
    #[must_use]
    pub fn report_to(mut self, owner: Box<dyn OnSent>) -> Response {
        self.on_sent = Some(Watched::new(owner));
        self
    }

    /// Ends the body when the server stops, as if its stream had ended: for an event stream, which has no end
    /// of its own. A body of the type `text/event-stream` does so by default.
    #[must_use]
    pub fn ends_on_stop(mut self) -> Response {
        self.ends_on_stop = true;
        self
    }

    /// Closes the connection after the response.
    pub fn close(mut self) -> Response {
        self.close = true;
        self
    }

    /// Returns whether the body is a stream.
    #[inline]
    pub(crate) fn streams(&self) -> bool {
        matches!(self.body.0, Inner::Stream(_))
    }

    /// Returns the length of the body, if all of it is in memory. A shared response stays shared.
    pub(crate) fn body_len(&self) -> u64 {
        let chunk = match (&self.shared, &self.body.0) {
            (Some(shared), _) => shared.body.as_ref(),
            (None, Inner::Whole(chunk)) => Some(chunk),
            (None, _) => None,
        };
        chunk.map_or(0, |chunk| chunk.len() as u64)
    }

    /// Returns whether the body is a part of a file.
    #[inline]
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.body.0, Inner::File(_))
    }

    /// Returns the body of a response that is neither a stream nor a file: taken out, or another reference to
    /// a shared one.
    pub(crate) fn whole_body(&mut self) -> Option<Chunk> {
        if let Some(shared) = &self.shared {
            return shared.body.as_ref().map(Chunk::duplicate);
        }
        match std::mem::replace(&mut self.body, Body::empty()).0 {
            Inner::Whole(chunk) => Some(chunk),
            _ => None,
        }
    }

    /// Returns whether the connection is handed over after it.
    #[inline]
    pub(crate) fn switches(&self) -> bool {
        matches!(self.body.0, Inner::Switch(_))
    }

    /// Returns the response. It is replaced by an error if it accepts an offer that was not made (`offered`),
    /// or accepts it before the request is `complete`.
    #[cold]
    pub(crate) fn if_it_may_switch(self, offered: bool, complete: bool) -> Response {
        match (offered, complete) {
            (true, true) => self,
            // The answer names the protocol (RFC 9110 §15.5.22).
            (false, _) => self.status(Status::UPGRADE_REQUIRED),
            // A bug of the handler.
            (true, false) => refusal(Status::INTERNAL_SERVER_ERROR),
        }
    }

    /// Returns whether the response has a date of its own.
    #[inline]
    pub(crate) fn is_dated(fields: &FieldBlock) -> bool {
        fields.bytes().starts_with(b"Date: ")
    }

    /// Returns the status.
    pub fn status_code(&self) -> Status {
        // A shared response has the same status.
        self.status
    }
}

/// Returns a location in which bytes that a URI cannot have (RFC 3986 §2) are escaped. Clients send some of
/// them nevertheless, and a program may put in any.
pub fn as_uri(location: &str) -> Cow<'_, str> {
    let is_odd = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'<' | b'>');
    if !location.bytes().any(is_odd) {
        return Cow::Borrowed(location);
    }
    let mut escaped = String::with_capacity(location.len() + 32);
    for byte in location.bytes() {
        if is_odd(byte) {
            // Writing to a string does not fail.
            let _ = write!(escaped, "%{byte:02X}");
        } else {
            escaped.push(char::from(byte));
        }
    }
    Cow::Owned(escaped)
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).field("body", &self.body).finish()
    }
}

/// A response that is made once and sent many times: make it in a worker's state, and answer
/// [`Response::shared`].
///
/// The encoded response is kept with it (without a large body), so sending it again copies ready bytes, and
/// inserts the date and the lines of the single response.
#[derive(Clone, Debug)]
pub struct Shared(pub(crate) Rc<Prepared>);

impl Shared {
    /// Prepares the response. A stream, which can be sent only once, and a file, which is sent from the page
    /// cache, are refused.
    ///
    /// # Errors
    /// Returns the response unchanged.
    pub fn new(response: Response) -> Result<Shared, Response> {
        if response.shared.is_some() || response.on_sent.is_some() {
            return Err(response);
        }
        let Response { status, content_type, close, ends_on_stop, fields, body, .. } = response;
        let body = match body.0 {
            Inner::Whole(chunk) => Some(chunk.into_shared()),
            Inner::Empty => None,
            once => {
                let mut response = Response::new(Body(once)).status(status);
                response.fields = fields;
                response.content_type = content_type;
                (response.close, response.ends_on_stop) = (close, ends_on_stop);
                return Err(response);
            }
        };
        let ready = OnceCell::new();
        Ok(Shared(Rc::new(Prepared { status, content_type, fields, body, close, ready })))
    }
}

/// The parts of a shared response.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) status: Status,
    pub(crate) content_type: Option<ContentType>,
    pub(crate) fields: FieldBlock,
    /// The body: static or shared bytes.
    pub(crate) body: Option<Chunk>,
    pub(crate) close: bool,
    /// The response as it was encoded before, without a large body.
    pub(crate) ready: OnceCell<ReadyHead>,
}

/// A head, and a small body after it, as a protocol encodes them. The parts they were made from keep it.
#[derive(Debug)]
pub(crate) struct ReadyHead {
    pub(crate) text: Vec<u8>,
    /// Position at which header lines of the single response are inserted.
    pub(crate) lines_at: usize,
}

/// Makes the answer to invalid or late requests.
pub(crate) fn refusal(status: Status) -> Response {
    let text = match status {
        Status::BAD_REQUEST => "400 Bad Request\n",
        Status::REQUEST_TIMEOUT => "408 Request Timeout\n",
        Status::CONTENT_TOO_LARGE => "413 Content Too Large\n",
        Status::URI_TOO_LONG => "414 URI Too Long\n",
        Status::EXPECTATION_FAILED => "417 Expectation Failed\n",
        Status::HEADER_FIELDS_TOO_LARGE => "431 Request Header Fields Too Large\n",
        Status::INTERNAL_SERVER_ERROR => "500 Internal Server Error\n",
        Status::NOT_IMPLEMENTED => "501 Not Implemented\n",
        Status::SERVICE_UNAVAILABLE => "503 Service Unavailable\n",
        Status::HTTP_VERSION_NOT_SUPPORTED => "505 HTTP Version Not Supported\n",
        Status::NOT_FOUND => "404 Not Found\n",
        Status::METHOD_NOT_ALLOWED => "405 Method Not Allowed\n",
        _ => "",
    };
    Response::new(if text.is_empty() { Body::empty() } else { Body::from_static(text.as_bytes()) })
        .status(status)
        .content_type(ContentType::Text)
}

/// Types that a handler may return.
pub trait IntoResponse {
    /// Converts it into a response.
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    #[inline]
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for Status {
    fn into_response(self) -> Response {
        Response::empty(self)
    }
}

impl IntoResponse for () {
    fn into_response(self) -> Response {
        Response::empty(Status::NO_CONTENT)
    }
}

impl IntoResponse for Infallible {
    fn into_response(self) -> Response {
        match self {}
    }
}

macro_rules! into_response {
    ($($type:ty => $content_type:ident;)*) => {$(
        impl IntoResponse for $type {
            #[inline]
            fn into_response(self) -> Response {
                Response::new(self).content_type(ContentType::$content_type)
            }
        }
    )*};
}
into_response! {
    &'static str => Text;
    String => Text;
    &'static [u8] => Bytes;
    Vec<u8> => Bytes;
    Rc<[u8]> => Bytes;
    Arc<[u8]> => Bytes;
    Body => Bytes;
}

impl<T: IntoResponse> IntoResponse for (Status, T) {
    fn into_response(self) -> Response {
        self.1.into_response().status(self.0)
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    #[inline]
    fn into_response(self) -> Response {
        match self {
            Ok(response) => response.into_response(),
            Err(response) => response.into_response(),
        }
    }
}

impl IntoResponse for &Shared {
    fn into_response(self) -> Response {
        Response::shared(self)
    }
}

impl IntoResponse for EncodeError {
    /// Makes a 500; the client does not get the reason.
    fn into_response(self) -> Response {
        Response::empty(Status::INTERNAL_SERVER_ERROR)
    }
}

/// A page.
#[derive(Clone, Debug)]
pub struct Html<T>(pub T);

impl<T: Into<Body>> IntoResponse for Html<T> {
    #[inline]
    fn into_response(self) -> Response {
        Response::html(self.0)
    }
}

/// A value as JSON: of a response, or of a request as a handler's argument.
#[cfg(feature = "json")]
#[derive(Clone, Debug)]
pub struct Json<T>(pub T);

#[cfg(feature = "json")]
impl<T: Serialize> IntoResponse for Json<T> {
    #[inline]
    fn into_response(self) -> Response {
        Response::json(&self.0)
    }
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        // The client need not know why the server cannot store a file.
        let text = match &self {
            BodyError::Store(_) => "500 Internal Server Error\n".to_owned(),
            other => format!("{other}\n"),
        };
        (self.status(), text).into_response()
    }
}

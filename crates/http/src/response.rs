//! A response, as a handler gives it, and what can be made one.
//!
//! How it is framed, whether the connection goes on, the date: all that is decided when it is encoded
//! (`encode.rs`).

use crate::body::{Body, Inner};
use crate::encode::{Encoded, refusal};
use crate::pool;
use crate::upgrade::{Switch, Takeover, Upgraded};
use ringroad_wire::{EncodeError, Encoder, FieldBlock, ReplyTo, Status};
use serde::Serialize;
use std::convert::Infallible;
use std::fmt;
use std::rc::Rc;

/// The types of content that are said without checking their line each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// `text/html`; the document says its charset.
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

    /// The value of the header line.
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
/// let response = Response::text("gone fishing\n").status(Status::SERVICE_UNAVAILABLE).header("Retry-After", "120")?;
/// # Ok::<(), ringroad_http::EncodeError>(())
/// ```
pub struct Response {
    pub(crate) status: Status,
    pub(crate) content_type: Option<ContentType>,
    /// The connection is closed behind it.
    pub(crate) close: bool,
    pub(crate) fields: FieldBlock,
    pub(crate) body: Body,
    /// It was encoded before; the rest of this is not looked at.
    pub(crate) shared: Option<Rc<Encoded>>,
}

impl Response {
    /// With this body, 200, and no header lines but those that HTTP asks for.
    #[inline]
    pub fn new(body: impl Into<Body>) -> Response {
        Response {
            status: Status::OK,
            content_type: None,
            close: false,
            fields: FieldBlock::new(),
            body: body.into(),
            shared: None,
        }
    }

    /// Nothing but a status.
    #[inline]
    pub fn empty(status: Status) -> Response {
        Response::new(Body::empty()).status(status)
    }

    /// `text/plain`.
    #[inline]
    pub fn text(text: impl Into<Body>) -> Response {
        Response::new(text).content_type(ContentType::Text)
    }

    /// `text/html`.
    #[inline]
    pub fn html(page: impl Into<Body>) -> Response {
        Response::new(page).content_type(ContentType::Html)
    }

    /// The value as JSON; 500 if it cannot be written as such.
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

    /// Elsewhere: 302, 303, 307 or 308.
    ///
    /// # Errors
    /// The location has control characters in it.
    pub fn redirect(status: Status, location: &str) -> Result<Response, EncodeError> {
        Response::empty(status).header("Location", location)
    }

    /// Takes the client's offer to speak another protocol: 101, and then the connection is `takeover`'s, whose future
    /// runs to its end on the worker. What it panics with ends it, and is counted.
    ///
    /// It is for the handler to see that [`Request::head`](crate::Request::head) offers an
    /// [`upgrade`](crate::RequestHead::upgrade), and to which protocol; a client that offers none is told 426. The
    /// request's body must have been read to its end, or 500 is answered.
    ///
    /// # Errors
    /// `protocol` is empty or has control characters in it.
    pub fn upgrade<F, Fut>(protocol: &str, takeover: F) -> Result<Response, EncodeError>
    where
        F: FnOnce(Upgraded) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        Encoder::response(&mut Vec::new(), Status::SWITCHING_PROTOCOLS, ReplyTo::refused())
            .upgrade(protocol)?;
        let takeover: Takeover = Box::new(|upgraded| Box::pin(takeover(upgraded)));
        let switch = Box::new(Switch { protocol: protocol.into(), takeover });
        Ok(Response::new(Body(Inner::Switch(switch))).status(Status::SWITCHING_PROTOCOLS))
    }

    /// One that was encoded before.
    #[inline]
    pub fn shared(shared: &Shared) -> Response {
        let mut response = Response::empty(shared.0.status());
        response.shared = Some(Rc::clone(&shared.0));
        response
    }

    /// The same with this status.
    #[inline]
    pub fn status(mut self, status: Status) -> Response {
        self.status = status;
        self
    }

    /// The same with this `Content-Type`.
    #[inline]
    pub fn content_type(mut self, content_type: ContentType) -> Response {
        self.content_type = Some(content_type);
        self
    }

    /// The same with one more header line.
    ///
    /// # Errors
    /// The name is not a token, the value has control characters in it, or the line is one that follows from the
    /// body and the connection (`Content-Length`, `Connection`, …). So nobody's words become somebody's headers.
    pub fn header(
        mut self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Response, EncodeError> {
        let (name, value) = (name.as_ref(), value.as_ref());
        if self.fields.bytes().is_empty() {
            self.fields = pool::block();
        }
        self.fields.push(name, value)?;
        if name.eq_ignore_ascii_case(b"content-type") {
            self.content_type = None;
        }
        Ok(self)
    }

    /// The same, and the connection is closed behind it.
    pub fn close(mut self) -> Response {
        self.close = true;
        self
    }

    /// Whether its body is made while it is sent.
    #[inline]
    pub(crate) fn streams(&self) -> bool {
        matches!(self.body.0, Inner::Stream(_))
    }

    /// Whether the connection is handed over behind it.
    #[inline]
    pub(crate) fn switches(&self) -> bool {
        matches!(self.body.0, Inner::Switch(_))
    }

    /// The same, unless it takes an offer that was not made (`offered`), or before the request is `complete`.
    #[cold]
    pub(crate) fn if_it_may_switch(self, offered: bool, complete: bool) -> Response {
        match (offered, complete) {
            (true, true) => self,
            // Which protocol it could be is told (RFC 9110 §15.5.22).
            (false, _) => self.status(Status::UPGRADE_REQUIRED),
            // The handler's mistake.
            (true, false) => refusal(Status::INTERNAL_SERVER_ERROR),
        }
    }

    /// Its status, to look at.
    pub fn status_code(&self) -> Status {
        self.status
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).field("body", &self.body).finish()
    }
}

/// A response encoded once and sent many times: make it in a worker's state, and answer [`Response::shared`].
///
/// To GET from an HTTP/1.1 client it is a copy of ready bytes with the date put in; to others it is encoded anew
/// from its parts.
#[derive(Clone, Debug)]
pub struct Shared(pub(crate) Rc<Encoded>);

impl Shared {
    /// Encodes it. A body that is a stream can be sent only once, and a file is sent from where it is: they are refused.
    ///
    /// # Errors
    /// The response is given back.
    pub fn new(response: Response) -> Result<Shared, Response> {
        Encoded::new(response).map(|encoded| Shared(Rc::new(encoded)))
    }
}

/// What a handler may return.
pub trait IntoResponse {
    /// The response it means.
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
    /// 500: the handler's mistake, which is not told to the client.
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

/// A value as JSON.
#[derive(Clone, Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    #[inline]
    fn into_response(self) -> Response {
        Response::json(&self.0)
    }
}

//! Requests as handlers get them: owned, so that they may be kept across awaits.
//!
//! The head and the positions of its fields are copied into a box from the worker's pool, so an ordinary
//! request allocates nothing. The query and parameters are decoded only on demand.

use super::connection::{
    ClientGone, ConnectionHost, ConnectionId, ConnectionInfo, GoneRule, OnClientGone, Remembered, Stopping,
};
use super::error::BodyError;
use super::extensions::Extensions;
use super::incoming::Incoming;
use super::interim::Interim;
use super::request_body::RequestBody;
#[cfg(feature = "json")]
use crate::pool;
use percent_encoding::percent_decode_str;
use ringroad_wire::{
    BodySize, EncodeError, Encoder, Event, FieldBlock, Fields, Form, HeadEdit, Limits, Method, RequestHead,
    RequestMeta, Requests, Scratch, Slot, Status, Version,
};
#[cfg(feature = "json")]
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::rc::Rc;

/// A copied head.
#[derive(Default)]
pub(crate) struct Head {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    meta: Option<RequestMeta>,
    /// Position of each parameter in the path, in the order of the pattern.
    pub(crate) params: Vec<(u16, u16)>,
    names: Option<Rc<[Box<str>]>>,
    /// The handler that answers it.
    route: HeadRoute,
    /// The [`RequestHead::stamp`] of the copied head.
    stamp: Option<NonZeroU64>,
    connection: ConnectionId,
    /// The owner of the connection. It stays when the head is reused, so a request does not change its
    /// reference count.
    host: Option<Rc<dyn ConnectionHost>>,
    /// Whether it belongs to no worker's connection, and is not reused.
    detached: bool,
    extensions: Extensions,
}

/// The number of a handler in its router.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadRoute(pub(crate) u32);

/// Maximum number of heads kept for reuse.
const HEADS_KEPT: usize = 64;

thread_local! {
    /// Heads that are not in use. A worker is a thread, so this is the worker's.
    #[allow(clippy::vec_box, reason = "a request holds its head by its box, which is what is used again")]
    static HEADS: RefCell<Vec<Box<Head>>> = const { RefCell::new(Vec::new()) };
    /// The head that was returned last, which is usually taken next.
    static HOT: Cell<Option<Box<Head>>> = const { Cell::new(None) };
}

/// Takes a head to be filled; it still has its previous content.
#[inline]
pub(crate) fn take_head() -> Box<Head> {
    HOT.try_with(Cell::take).ok().flatten().unwrap_or_else(take_cold_head)
}

#[cold]
fn take_cold_head() -> Box<Head> {
    HEADS.try_with(|heads| heads.borrow_mut().pop()).ok().flatten().unwrap_or_default()
}

/// Keeps a head for reuse.
#[inline]
pub(crate) fn give_head(mut head: Box<Head>) {
    head.extensions.clear();
    if head.bytes.capacity() > KEPT_BYTES_MAX || head.detached {
        return;
    }
    // Fails while the thread ends.
    if let Ok(Some(before)) = HOT.try_with(|hot| hot.replace(Some(head))) {
        give_cold_head(before);
    }
}

#[cold]
fn give_cold_head(head: Box<Head>) {
    // A head that is not kept is dropped after the borrow has ended.
    let mut head = Some(head);
    let _ = HEADS.try_with(|heads| {
        let mut heads = heads.borrow_mut();
        if heads.len() < HEADS_KEPT {
            heads.extend(head.take());
        }
    });
}

/// Drops the unused heads of this thread, and what they hold of its worker.
pub(crate) fn forget_heads() {
    drop(HOT.try_with(Cell::take));
    drop(HEADS.try_with(|heads| std::mem::take(&mut *heads.borrow_mut())));
}

/// A head with more memory than this is not kept.
const KEPT_BYTES_MAX: usize = 8 * 1024;

impl Head {
    /// Clears the head.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
        self.params.clear();
        self.names = None;
        self.stamp = None;
    }

    /// Returns the handler of `head`, if this is a copy of it already.
    #[inline]
    pub(crate) fn route_of(&self, head: &RequestHead<'_>) -> Option<HeadRoute> {
        self.route_by(head.stamp())
    }

    /// Returns its handler, if it is a copy of the head with this stamp.
    #[inline]
    pub(crate) fn route_by(&self, stamp: Option<NonZeroU64>) -> Option<HeadRoute> {
        (self.stamp.is_some() && self.stamp == stamp).then_some(self.route)
    }

    /// Copies `head` into this one; the positions of the parameters are set already.
    #[inline]
    pub(crate) fn copy(&mut self, head: &RequestHead<'_>, route: HeadRoute, names: Option<&Rc<[Box<str>]>>) {
        self.bytes.extend_from_slice(head.bytes());
        self.slots.extend_from_slice(head.fields().slots());
        self.meta = Some(head.meta());
        self.names = names.map(Rc::clone);
        (self.route, self.stamp) = (route, head.stamp());
    }

    /// Changes the head. It is then not a copy of a received head any more, and positions of parameters are
    /// invalid.
    fn edit<T>(
        &mut self,
        change: impl FnOnce(&mut HeadEdit<'_>) -> Result<T, EncodeError>,
    ) -> Result<T, EncodeError> {
        let meta = self.meta.as_mut().ok_or(EncodeError::Target)?;
        self.stamp = None;
        change(&mut HeadEdit::new(&mut self.bytes, &mut self.slots, meta))
    }

    fn view(&self) -> Option<RequestHead<'_>> {
        Some(RequestHead::from_parts(&self.bytes, &self.slots, self.meta?))
    }
}

/// A request.
pub struct Request {
    /// `None` only while the request is dropped.
    head: Option<Box<Head>>,
    body: RequestBody,
}

impl Request {
    /// Makes a request of the content of a copied head.
    #[inline]
    pub(crate) fn new(
        mut copy: Box<Head>,
        body: Option<Rc<Incoming>>,
        host: &Rc<impl ConnectionHost + 'static>,
        connection: ConnectionId,
    ) -> Request {
        copy.connection = connection;
        // A thread has one host after another, and drops the heads of the previous one.
        if copy.host.is_none() {
            copy.host = Some(Rc::clone(host) as Rc<dyn ConnectionHost>);
        }
        Request { head: Some(copy), body: RequestBody::received(body) }
    }

    /// Makes a request without a connection: for tests of handlers, and for steps that call another handler
    /// or change the client's request. `target` is a path with its query, `authority` the host with its port.
    ///
    /// # Errors
    /// The method is not a token, the target or the authority is invalid, or they are longer than 64 KiB in
    /// all.
    ///
    /// ```
    /// use ringroad_http::{FieldBlock, Request, RequestBody};
    ///
    /// let lines = FieldBlock::of([("X-Token", "1")])?;
    /// let body = RequestBody::from("text");
    /// let request = Request::from_parts("POST", "/notes?draft", "example.org", &lines, body)?;
    /// assert_eq!((request.path(), request.header("x-token")), ("/notes", Some("1")));
    /// # Ok::<(), ringroad_http::EncodeError>(())
    /// ```
    pub fn from_parts(
        method: &str,
        target: &str,
        authority: &str,
        lines: &FieldBlock,
        body: RequestBody,
    ) -> Result<Request, EncodeError> {
        let mut bytes = Vec::new();
        let mut head = Encoder::request_named(&mut bytes, method, target, authority)?;
        head.block(lines);
        let _ = head.finish(body.bytes_left().map_or(BodySize::Unknown, BodySize::Known));
        let limits = Limits {
            start_line_bytes: u16::MAX,
            field_line_bytes: u16::MAX,
            header_bytes: u16::MAX.into(),
            body_bytes: u64::MAX,
            extension_methods: true,
            ..Limits::default()
        };
        let mut scratch = Scratch::new(limits);
        let mut copy = take_head();
        copy.clear();
        copy.host = None;
        match Requests::new().next(&mut scratch, &bytes, &mut 0) {
            Ok(Some(Event::Head(head))) => copy.copy(&head, HeadRoute::default(), None),
            // Too long, or with too many lines.
            _ => return Err(EncodeError::Target),
        }
        // The stored handler belongs to another table.
        copy.stamp = None;
        Ok(Request { head: Some(copy), body })
    }

    /// Makes a copy of the request without its body and its extensions, for a step that calls an endpoint
    /// itself. It keeps the connection's facts after the end of the connection, and has no client that could
    /// leave.
    #[must_use]
    pub fn again(&self) -> Request {
        let mut copy = Box::<Head>::default();
        copy.copy(&self.head(), HeadRoute::default(), None);
        copy.stamp = None;
        copy.detached = true;
        copy.host = self
            .connection()
            .map(|info| Rc::new(Remembered { info, local: self.local_addr() }) as Rc<dyn ConnectionHost>);
        Request { head: Some(copy), body: RequestBody::empty() }
    }

    /// Returns the head.
    pub fn head(&self) -> RequestHead<'_> {
        let head = self.head.as_deref().and_then(Head::view);
        #[allow(clippy::expect_used, reason = "it is there until the request is dropped")]
        head.expect("a request has its head until it is dropped")
    }

    fn host(&self) -> Option<&Rc<dyn ConnectionHost>> {
        self.head.as_deref()?.host.as_ref()
    }

    /// Returns the scheme of its connection: `https` over TLS, `http` otherwise.
    pub fn scheme(&self) -> &'static str {
        let is_secure = self.connection().is_some_and(|info| info.tls.is_some());
        if is_secure { "https" } else { "http" }
    }

    fn connection_id(&self) -> ConnectionId {
        self.head.as_deref().map(|head| head.connection).unwrap_or_default()
    }

    /// Returns the client's address: the other end of the connection, or the address in a PROXY line from a
    /// [trusted](crate::Server::proxy_from) address. The system is asked once for each connection, at the
    /// first call. `None` after the end of the connection, and for a Unix socket without a PROXY line.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.connection()?.client
    }

    /// Returns the address that the client connected to: the one in a PROXY line from a
    /// [trusted](crate::Server::proxy_from) address, or the connection's own. Each call asks the system.
    /// `None` after the end of the connection, and for a Unix socket without a PROXY line.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let told = self.connection().and_then(|info| info.server);
        told.or_else(|| self.host()?.local(self.connection_id()))
    }

    /// Returns facts about the connection; `None` when it has ended.
    pub fn connection(&self) -> Option<ConnectionInfo> {
        self.host()?.info(self.connection_id())
    }

    /// Becomes ready when the client has left, or the connection has ended: an answer would not arrive. A
    /// client has left when it has reset the connection or the stream, or when its sending side has been
    /// ended for [`Deadlines::half_close`](crate::Deadlines::half_close).
    ///
    /// This is detected while the handler waits and the body of the request was received.
    /// [`Server::on_client_gone`](crate::Server::on_client_gone) decides what else happens: by default the
    /// handler of a GET is dropped.
    pub fn client_gone(&self) -> ClientGone {
        ClientGone::new(self.host().map(Rc::clone), self.connection_id())
    }

    /// Returns the status of the answer that replaces the handler's response, because the request's body
    /// breaks the protocol or a limit. It is set during the last poll of the handler, and while the handler
    /// is dropped.
    pub fn refused_with(&self) -> Option<Status> {
        self.host()?.refusing(self.connection_id())
    }

    /// Sets what happens to this request's handler when the client leaves, in place of
    /// [`Server::on_client_gone`](crate::Server::on_client_gone). It holds until the request is dropped.
    pub fn set_on_client_gone(&mut self, what: OnClientGone) {
        // An earlier rule is dropped first: its drop would remove this one.
        drop(self.extensions_mut().remove::<GoneRule>());
        if let Some(host) = self.host() {
            let rule = GoneRule::new(host, self.connection_id(), what);
            self.extensions_mut().insert(rule);
        }
    }

    /// Sends an interim head before the response, such as 103 (Early Hints) with `Link` lines: when the
    /// handler waits next, or just before its response. For handlers, not for tasks that they spawn, nor for
    /// the body of a response. Returns `false` if it is not sent: the client uses HTTP/1.0, the status is not
    /// one of 102 to 199, or 16 such heads are unsent.
    pub fn inform(&self, status: u16, lines: FieldBlock) -> bool {
        self.version() != Version::Http10
            && Interim::may_have(status)
            && self.host().is_some_and(|host| host.inform(self.connection_id(), Interim { status, lines }))
    }

    /// Becomes ready when the server stops: for a handler with an answer that has no end of its own.
    pub fn stopping(&self) -> Stopping {
        Stopping::new(self.host().map(Rc::clone))
    }

    /// Returns the values that earlier steps have stored with this request, by type.
    pub fn extensions(&self) -> &Extensions {
        #[allow(clippy::expect_used, reason = "it is there until the request is dropped")]
        let head = self.head.as_deref().expect("a request has its head until it is dropped");
        &head.extensions
    }

    /// Returns the values of earlier steps for a change.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        #[allow(clippy::expect_used, reason = "it is there until the request is dropped")]
        let head = self.head.as_deref_mut().expect("a request has its head until it is dropped");
        &mut head.extensions
    }

    fn edit<T>(
        &mut self,
        change: impl FnOnce(&mut HeadEdit<'_>) -> Result<T, EncodeError>,
    ) -> Result<T, EncodeError> {
        self.head.as_deref_mut().ok_or(EncodeError::Target)?.edit(change)
    }

    /// Replaces the path and query, for a step that changes what later steps see. Parameters of the route's
    /// pattern are removed.
    ///
    /// # Errors
    /// It does not begin with `/`, has a space, a control character or `#`, or is too long.
    pub fn set_target(&mut self, target: &str) -> Result<(), EncodeError> {
        self.edit(|head| head.set_target(target))?;
        if let Some(head) = &mut self.head {
            head.params.clear();
            head.names = None;
        }
        Ok(())
    }

    /// Replaces all header lines of this name by one.
    ///
    /// # Errors
    /// The line is invalid, or decides the framing, the host or the connection; or there are too many lines.
    pub fn set_header(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), EncodeError> {
        self.edit(|head| head.set(name, value.as_ref()))
    }

    /// Adds a header line after the others.
    ///
    /// # Errors
    /// As [`set_header`](Self::set_header).
    pub fn add_header(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), EncodeError> {
        self.edit(|head| head.add(name.as_bytes(), value.as_ref()))
    }

    /// Removes all header lines of this name, in any case; returns whether there was one. Lines that decide
    /// the framing, the host or the connection stay.
    pub fn remove_header(&mut self, name: &str) -> bool {
        self.headers().get(name).is_some() && self.edit(|head| head.remove(name)).is_ok_and(|count| count > 0)
    }

    /// Returns the method.
    pub fn method(&self) -> Method {
        self.head().method()
    }

    /// Returns the method as it was sent.
    pub fn method_name(&self) -> &str {
        self.head().method_name()
    }

    /// Returns the version.
    pub fn version(&self) -> Version {
        self.head().version()
    }

    /// Returns the path as it was sent, with its escapes.
    pub fn path(&self) -> &str {
        self.head().path()
    }

    /// Returns the path without its escapes. Bytes that are not UTF-8 are replaced.
    pub fn decoded_path(&self) -> Cow<'_, str> {
        percent_decode_str(self.head().path()).decode_utf8_lossy()
    }

    /// Returns the query as it was sent, without its question mark.
    pub fn query(&self) -> Option<&str> {
        self.head().query()
    }

    /// Returns path and query as they were sent, without the host that an absolute target has before them
    /// (RFC 9112 §3.2.2).
    pub fn path_and_query(&self) -> Cow<'_, str> {
        match (self.head().form(), self.query()) {
            (Form::Origin, _) => Cow::Borrowed(self.head().target()),
            (_, None) => Cow::Borrowed(self.path()),
            (_, Some(query)) => Cow::Owned(format!("{}?{query}", self.path())),
        }
    }

    /// Returns the names and values of the query, decoded.
    pub fn query_pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        form_urlencoded::parse(self.query().unwrap_or_default().as_bytes())
    }

    /// Returns the first value of this name in the query, decoded.
    pub fn query_value(&self, name: &str) -> Option<Cow<'_, str>> {
        self.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns the value of `{name}` or `{*name}` of the route's pattern in the path, decoded.
    pub fn param(&self, name: &str) -> Option<Cow<'_, str>> {
        let head = self.head.as_deref()?;
        let place = head.names.as_ref()?.iter().position(|known| **known == *name)?;
        let (from, to) = *head.params.get(place)?;
        let text = self.path().get(usize::from(from)..usize::from(to))?;
        Some(percent_decode_str(text).decode_utf8_lossy())
    }

    /// Returns the parameters of the path in the order of its pattern: names and values, decoded.
    pub fn params(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        let head = self.head.as_deref();
        let names = head.and_then(|head| head.names.as_deref()).unwrap_or_default();
        let places = head.map_or(&[][..], |head| &head.params);
        names.iter().zip(places).filter_map(|(name, (from, to))| {
            let text = self.path().get(usize::from(*from)..usize::from(*to))?;
            Some((&**name, percent_decode_str(text).decode_utf8_lossy()))
        })
    }

    /// Takes the list of parameter positions, emptied, for reuse.
    pub(crate) fn take_params(&mut self) -> Vec<(u16, u16)> {
        let Some(head) = &mut self.head else { return Vec::new() };
        head.names = None;
        let mut params = std::mem::take(&mut head.params);
        params.clear();
        params
    }

    /// Sets the positions of the parameters, and their names.
    pub(crate) fn set_params(&mut self, params: Vec<(u16, u16)>, names: Option<&Rc<[Box<str>]>>) {
        if let Some(head) = &mut self.head {
            (head.params, head.names) = (params, names.map(Rc::clone));
        }
    }

    /// Removes the parameters of an earlier look-up.
    pub(crate) fn forget_params(&mut self) {
        if let Some(head) = &mut self.head {
            head.params.clear();
            head.names = None;
        }
    }

    /// Returns the header lines.
    pub fn headers(&self) -> Fields<'_> {
        self.head().fields()
    }

    /// Returns the first header line of this name, in any case, if it is ASCII or UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name).and_then(|value| str::from_utf8(value).ok())
    }

    /// Returns the host of the request, with its port if one was given.
    pub fn authority(&self) -> Option<&str> {
        self.head().authority()
    }

    /// Returns the body, piece by piece.
    pub fn body(&mut self) -> &mut RequestBody {
        &mut self.body
    }

    /// Returns the body, to be read by another task or forwarded.
    pub fn into_body(mut self) -> RequestBody {
        std::mem::take(&mut self.body)
    }

    /// Replaces the body, and returns the previous one.
    pub fn replace_body(&mut self, body: RequestBody) -> RequestBody {
        std::mem::replace(&mut self.body, body)
    }

    /// Returns all of the body, if it is not longer than `bytes_max`.
    ///
    /// # Errors
    /// As [`RequestBody::next`]; [`BodyError::TooLong`].
    pub async fn bytes(&mut self, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        self.body.bytes(bytes_max).await
    }

    /// Reads the body as JSON into a value. The server's limits bound its length.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); [`BodyError::Json`]. Each error is also a response:
    /// `let value = request.json().await?` in a handler that returns a `Result` answers 400, 408, 413 or 422.
    #[cfg(feature = "json")]
    pub async fn json<T: DeserializeOwned>(&mut self) -> Result<T, BodyError> {
        let bytes = self.body.bytes(usize::MAX).await?;
        let value = serde_json::from_slice(&bytes).map_err(BodyError::Json);
        pool::give_buffer(bytes);
        value
    }
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        if let Some(head) = self.head.take() {
            give_head(head);
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head().fmt(f)
    }
}

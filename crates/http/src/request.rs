//! A request, as a handler gets it: owned, so that it may be kept across anything that waits.
//!
//! Head and header places are copied into a box that the worker's pool lends out and takes back, so that an
//! ordinary request allocates nothing. What is rarely asked for (the query, parameters) is decoded when it is.

use crate::chunk::Chunk;
use crate::error::BodyError;
use crate::incoming::Incoming;
use crate::pool;
use crate::route::RouteId;
use crate::server::seats::SeatId;
use crate::server::worker;
use futures_core::Stream;
use percent_encoding::percent_decode_str;
use ringroad_wire::{Fields, Method, RequestHead, RequestMeta, Slot, Version};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A head that was copied.
#[derive(Default)]
pub(crate) struct Head {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    meta: Option<RequestMeta>,
    /// Where in the path each parameter lies, in the order of its pattern.
    pub(crate) params: Vec<(u16, u16)>,
    names: Option<Rc<[Box<str>]>>,
    /// Who answers it.
    route: RouteId,
    /// Of what was copied: [`RequestHead::stamp`].
    stamp: Option<NonZeroU64>,
    /// Where its connection sits.
    seat: SeatId,
}

/// More memory than this is given up with the head.
const KEPT_BYTES_MAX: usize = 8 * 1024;

impl Head {
    /// Forgets what it says.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
        self.params.clear();
        self.names = None;
        self.stamp = None;
    }

    /// Whether it is worth keeping. What it says stays, for the next request may well be the same.
    pub(crate) fn is_small(&self) -> bool {
        self.bytes.capacity() <= KEPT_BYTES_MAX
    }

    /// Who answers `head`, if this is a copy of it already.
    #[inline]
    pub(crate) fn route_of(&self, head: &RequestHead<'_>) -> Option<RouteId> {
        let same = self.stamp.is_some() && self.stamp == head.stamp();
        same.then_some(self.route)
    }

    /// Becomes a copy of `head`, whose parameters' places it has.
    #[inline]
    pub(crate) fn copy(&mut self, head: &RequestHead<'_>, route: RouteId, names: Option<&Rc<[Box<str>]>>) {
        self.bytes.extend_from_slice(head.bytes());
        self.slots.extend_from_slice(head.fields().slots());
        self.meta = Some(head.meta());
        self.names = names.map(Rc::clone);
        (self.route, self.stamp) = (route, head.stamp());
    }

    fn view(&self) -> Option<RequestHead<'_>> {
        Some(RequestHead::from_parts(&self.bytes, &self.slots, self.meta?))
    }
}

/// A request.
pub struct Request {
    /// `None` only while it is dropped.
    head: Option<Box<Head>>,
    body: RequestBody,
}

impl Request {
    /// Of a head that was copied.
    #[inline]
    pub(crate) fn new(mut copy: Box<Head>, body: Option<Rc<Incoming>>, seat: SeatId) -> Request {
        copy.seat = seat;
        Request { head: Some(copy), body: RequestBody(body) }
    }

    /// The head, with everything it says.
    pub fn head(&self) -> RequestHead<'_> {
        let head = self.head.as_deref().and_then(Head::view);
        #[allow(clippy::expect_used, reason = "it is there until the request is dropped")]
        head.expect("a request has its head until it is dropped")
    }

    /// The address of who sent it: of the other end of its connection, which may be a proxy. The system is asked
    /// once for each connection, when somebody wants to know. `None` when the connection is gone.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        worker::here()?.seats.peer(self.head.as_deref()?.seat)
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.head().method()
    }

    /// The method as it was sent.
    pub fn method_name(&self) -> &str {
        self.head().method_name()
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.head().version()
    }

    /// The path as it was sent, with its escapes.
    pub fn path(&self) -> &str {
        self.head().path()
    }

    /// The path without its escapes; what is not UTF-8 in it is replaced.
    pub fn decoded_path(&self) -> Cow<'_, str> {
        percent_decode_str(self.head().path()).decode_utf8_lossy()
    }

    /// The query as it was sent, without its question mark.
    pub fn query(&self) -> Option<&str> {
        self.head().query()
    }

    /// Names and values of the query, decoded.
    pub fn query_pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        form_urlencoded::parse(self.query().unwrap_or_default().as_bytes())
    }

    /// The first value of this name in the query, decoded.
    pub fn query_value(&self, name: &str) -> Option<Cow<'_, str>> {
        self.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// What the path has in the place of `{name}` or `{*name}` of the route's pattern, decoded.
    pub fn param(&self, name: &str) -> Option<Cow<'_, str>> {
        let head = self.head.as_deref()?;
        let place = head.names.as_ref()?.iter().position(|known| **known == *name)?;
        let (from, to) = *head.params.get(place)?;
        let text = self.path().get(usize::from(from)..usize::from(to))?;
        Some(percent_decode_str(text).decode_utf8_lossy())
    }

    /// The header lines.
    pub fn headers(&self) -> Fields<'_> {
        self.head().fields()
    }

    /// The first header line of this name, in any case, if it is ASCII or UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name).and_then(|value| str::from_utf8(value).ok())
    }

    /// The host it is for, with its port if one was given.
    pub fn authority(&self) -> Option<&str> {
        self.head().authority()
    }

    /// The body, piece by piece.
    pub fn body(&mut self) -> &mut RequestBody {
        &mut self.body
    }

    /// The body by itself, to be read by another task or sent on.
    pub fn into_body(mut self) -> RequestBody {
        std::mem::replace(&mut self.body, RequestBody(None))
    }

    /// All of the body, if it is not longer than `bytes_max`.
    ///
    /// # Errors
    /// As [`RequestBody::next`]; [`BodyError::TooLong`].
    pub async fn bytes(&mut self, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        self.body.bytes(bytes_max).await
    }

    /// The body, which is JSON, as a value; at most as long as the server's limits allow.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); [`BodyError::Json`]. Each is a response: `let value = request.json().await?`
    /// in a handler that returns a `Result` answers 400, 408 or 413 by itself.
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
            pool::give_head(head);
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head().fmt(f)
    }
}

/// The body of a request: pieces, received as they are asked for.
///
/// Dropped unread, the rest is thrown away, or the connection closed if there is too much of it. Read by another
/// task, it ends with an error when its request is answered before.
#[derive(Debug)]
pub struct RequestBody(Option<Rc<Incoming>>);

impl RequestBody {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// It breaks the protocol or its limits, comes too slowly, or the connection ended before it.
    pub async fn next(&mut self) -> Option<Result<Chunk, BodyError>> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Chunk, BodyError>>> {
        match &self.0 {
            Some(incoming) => incoming.poll_next(context),
            None => Poll::Ready(None),
        }
    }

    /// Bytes still to come, where that is known.
    pub fn bytes_left(&self) -> Option<u64> {
        self.0.as_ref().map_or(Some(0), |incoming| incoming.left())
    }

    /// Lines that came behind the body, once it has ended.
    pub fn trailers(&mut self) -> Vec<(String, Vec<u8>)> {
        self.0.as_ref().map(|incoming| incoming.trailers()).unwrap_or_default()
    }

    /// All of it, if it is not longer than `bytes_max`.
    ///
    /// # Errors
    /// As [`next`](Self::next); [`BodyError::TooLong`].
    pub async fn bytes(&mut self, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        if self.bytes_left().is_some_and(|left| left > bytes_max as u64) {
            return Err(BodyError::TooLong(bytes_max));
        }
        let mut all = Vec::new();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            if piece.len() > bytes_max - all.len() {
                return Err(BodyError::TooLong(bytes_max));
            }
            if all.is_empty() {
                all = piece.into_vec();
            } else {
                all.extend_from_slice(&piece);
            }
        }
        Ok(all)
    }
}

impl Stream for RequestBody {
    type Item = Result<Chunk, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}

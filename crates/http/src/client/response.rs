//! The response to a client's request.

use super::connection::{Connection, Part};
use super::kept::keep_for;
use super::{Client, IDLE_AGE_MAX, Server};
use crate::message::{BodyError, Chunk};
use ringroad_engine::time;
use ringroad_wire::{Body, Fields, KeptHead, Status, Version};
#[cfg(feature = "json")]
use serde::de::DeserializeOwned;
use std::fmt;
use std::time::{Duration, Instant};

/// A response: its head, and its body as it is read.
///
/// When it was read to its end, its connection is kept for the next request. If it is dropped before, the
/// connection is closed.
pub struct ClientResponse {
    head: KeptHead,
    client: Client,
    /// The server of its connection, if that may be kept.
    server: Option<Server>,
    /// `None` after the end of the body.
    connection: Option<Connection>,
    /// `None`: no deadline.
    deadline: Option<Instant>,
    trailers: Vec<(String, Vec<u8>)>,
}

impl ClientResponse {
    pub(super) async fn new(
        client: Client,
        server: Option<Server>,
        connection: Connection,
        head: KeptHead,
        deadline: Option<Instant>,
    ) -> ClientResponse {
        let ended = head.view().body() == Body::Empty;
        let mut response = ClientResponse {
            head,
            client,
            server,
            connection: Some(connection),
            deadline,
            trailers: Vec::new(),
        };
        if ended {
            response.end().await;
        }
        response
    }

    /// Returns the status.
    pub fn status(&self) -> Status {
        self.head.view().status()
    }

    /// Returns the version.
    pub fn version(&self) -> Version {
        self.head.view().version()
    }

    /// Returns the header lines.
    pub fn headers(&self) -> Fields<'_> {
        self.head.view().fields()
    }

    /// Returns the first header line of this name, in any case, if it is ASCII or UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name).and_then(|value| str::from_utf8(value).ok())
    }

    /// Returns the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// The connection ended before the body, the body breaks the protocol, or the client's timeout has
    /// passed.
    pub async fn next(&mut self) -> Option<Result<Chunk, BodyError>> {
        let connection = self.connection.as_mut()?;
        let left = self
            .deadline
            .map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        let scratch = &self.client.shared.scratch;
        let part = time::timeout(left, connection.part(scratch)).await;
        match part.unwrap_or(Err(BodyError::TooSlow)) {
            Ok(Part::Data(chunk)) => Some(Ok(chunk)),
            Ok(Part::End(trailers)) => {
                self.trailers = trailers;
                self.end().await;
                None
            }
            Err(why) => {
                self.connection = None;
                Some(Err(why))
            }
        }
    }

    /// Releases the connection.
    async fn end(&mut self) {
        let status = self.status();
        if let Some(connection) = &mut self.connection {
            connection.settle(status).await;
        }
        let stream = self.connection.take().and_then(Connection::into_idle);
        if let (Some(stream), Some(server)) = (stream, self.server.take()) {
            let span = keep_for(self.headers().get("keep-alive"), IDLE_AGE_MAX);
            self.client.shared.kept.keep(server, stream, span);
        }
    }

    /// Returns the trailers, once the body has ended.
    pub fn trailers(&self) -> &[(String, Vec<u8>)] {
        &self.trailers
    }

    /// Reads the rest of the body, if it is not longer than `bytes_max`.
    ///
    /// # Errors
    /// As [`next`](Self::next); [`BodyError::TooLong`].
    pub async fn bytes(&mut self, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            if piece.len() > bytes_max - all.len() {
                self.connection = None;
                return Err(BodyError::TooLong(bytes_max));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// Reads the body as text, of at most 64 MiB.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); [`BodyError::NotText`].
    pub async fn text(&mut self) -> Result<String, BodyError> {
        let bytes = self.bytes(WHOLE_BYTES_MAX).await?;
        String::from_utf8(bytes).map_err(|_| BodyError::NotText)
    }

    /// Reads the body as JSON into a value, of at most 64 MiB.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); [`BodyError::Json`].
    #[cfg(feature = "json")]
    pub async fn json<T: DeserializeOwned>(&mut self) -> Result<T, BodyError> {
        let bytes = self.bytes(WHOLE_BYTES_MAX).await?;
        serde_json::from_slice(&bytes).map_err(BodyError::Json)
    }
}

/// Maximum size of a body that is read whole without a limit of the caller.
const WHOLE_BYTES_MAX: usize = 64 << 20;

impl fmt::Debug for ClientResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head.view().fmt(f)
    }
}

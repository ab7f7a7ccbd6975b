//! Limits and deadlines of a session.

use super::Limits;
use std::sync::Arc;
use std::time::Duration;

/// Pages that may open a session. A browser sends a user's cookies with the requests of any page, and lets
/// the page read what the session receives. A server that identifies users by cookies must therefore check
/// the origin. Clients other than browsers send no `Origin` and are not affected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origins {
    /// Pages of the host that the request is for.
    #[default]
    Same,
    /// Pages of the host that the request is for, and these origins: `https://example.org`.
    Listed(Vec<String>),
    /// All pages: for public data.
    Any,
}

/// Limits and deadlines of a session. Clones share memory until one is changed.
#[derive(Clone, Debug)]
pub struct Options(pub(super) Arc<Settings>);

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) limits: Limits,
    /// Seconds; 0: never.
    pub(super) ping: u32,
    pub(super) pong: u32,
    pub(super) close: u32,
    pub(super) send: u32,
    pub(super) queue_bytes: usize,
    pub(super) compress: bool,
    pub(super) origins: Origins,
    pub(super) protocols: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

/// Whole seconds, at least one.
fn seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX).max(1)
}

impl Options {
    /// Makes options with these defaults: messages of at most 1 MiB in at most 1,024 frames; a ping after 25
    /// s of silence, and 10 s for its answer; 5 s for the peer to close; 30 s for it to take any sent data;
    /// at most 1 MiB queued; no compression; pages of the same host.
    pub fn new() -> Options {
        Options(Arc::new(Settings {
            limits: Limits::default(),
            ping: 25,
            pong: 10,
            close: 5,
            send: 30,
            queue_bytes: 1 << 20,
            compress: false,
            origins: Origins::Same,
            protocols: Vec::new(),
        }))
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Options {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Sets how much the peer may send.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Options {
        self.with(|settings| settings.limits = limits)
    }

    /// Sets how long the peer may be silent before it is pinged, and how long it has to answer. With `None`
    /// no ping is sent, and the loss of a peer goes unnoticed until something is sent.
    #[must_use]
    pub fn ping(self, spans: Option<(Duration, Duration)>) -> Options {
        self.with(|settings| {
            (settings.ping, settings.pong) =
                spans.map_or((0, 0), |(ping, pong)| (seconds(ping), seconds(pong)));
        })
    }

    /// Sets how long the peer has to answer a close frame.
    #[must_use]
    pub fn close_timeout(self, span: Duration) -> Options {
        self.with(|settings| settings.close = seconds(span))
    }

    /// Sets how long the peer may take none of the sent data.
    #[must_use]
    pub fn send_timeout(self, span: Duration) -> Options {
        self.with(|settings| settings.send = seconds(span))
    }

    /// Sets how many bytes may be queued. A single message may be longer if the queue is empty.
    #[must_use]
    pub fn queue_bytes(self, bytes: usize) -> Options {
        self.with(|settings| settings.queue_bytes = bytes)
    }

    /// Sets whether to agree to compression (permessage-deflate without context takeover). It saves bytes and
    /// costs CPU time. If a message holds both a secret and an attacker's text, its compressed length reveals
    /// information about the secret.
    #[must_use]
    pub fn compress(self, compress: bool) -> Options {
        self.with(|settings| settings.compress = compress)
    }

    /// Sets the pages that may open a session.
    #[must_use]
    pub fn origins(self, origins: Origins) -> Options {
        self.with(|settings| settings.origins = origins)
    }

    /// Sets the subprotocols. A server takes the first offered by the client that is among them; a client
    /// offers them.
    #[must_use]
    pub fn protocols<P: Into<String>>(self, protocols: impl IntoIterator<Item = P>) -> Options {
        self.with(|settings| settings.protocols = protocols.into_iter().map(Into::into).collect())
    }

    pub(crate) fn offered_protocols(&self) -> &[String] {
        &self.0.protocols
    }

    pub(crate) fn offers_compression(&self) -> bool {
        self.0.compress
    }
}

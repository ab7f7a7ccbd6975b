//! Limits of an HTTP/2 peer.

/// Settings of HTTP/2 on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Maximum number of concurrent streams of one connection. A stream counts until its handler has ended
    /// and its answer was sent, whatever its client does; more are refused (`REFUSED_STREAM`).
    pub streams: u32,
    /// Bytes of one request's body that its client may send ahead of the handler. No more are held for it.
    pub stream_window: u32,
    /// The same for all streams of a connection together; at least 65,535, the initial value of the protocol.
    pub connection_window: u32,
    /// Budget for frames that cost the server more than the client.
    pub misbehaviour: Misbehaviour,
    /// Maximum size of a head: names, values and 32 bytes for each line. A larger one is answered 431.
    pub header_list_bytes: u32,
    /// Maximum bytes of heads that waiting requests of one connection hold together; further requests are
    /// refused (`REFUSED_STREAM`).
    pub heads_bytes: usize,
    /// Whether clients may open WebSocket sessions (RFC 8441). Each counts as a stream. It may have a
    /// `stream_window` of unread bytes in addition to the connection's, so that a slow session does not stop
    /// the others.
    pub websocket: bool,
}

impl Default for Http2 {
    fn default() -> Http2 {
        Http2 {
            streams: 100,
            stream_window: 64 * 1024,
            connection_window: 256 * 1024,
            misbehaviour: Misbehaviour::default(),
            header_list_bytes: 32 * 1024,
            heads_bytes: 256 * 1024,
            websocket: true,
        }
    }
}

/// A budget for frames that cost the receiver more than the sender. Resets, pings, settings, priorities,
/// empty data, unknown frames and refused requests cost one token each, a window update a quarter. A kilobyte
/// of bodies moved in either direction returns one token, and so does an answered request. Each piece of a
/// body that was sent pays for two window updates. A client that has spent its budget gets GOAWAY with
/// `ENHANCE_YOUR_CALM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misbehaviour {
    /// Size of the bucket, in tokens.
    pub burst: u32,
    /// Tokens added per second.
    pub per_second: u32,
}

impl Default for Misbehaviour {
    fn default() -> Misbehaviour {
        Misbehaviour { burst: 200, per_second: 20 }
    }
}

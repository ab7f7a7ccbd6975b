//! What an HTTP/2 peer may have and do.

/// How a server speaks HTTP/2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Streams of one connection at a time. A stream counts until its handler has ended and its answer is
    /// sent, whatever its client does meanwhile; more are refused (`REFUSED_STREAM`).
    pub streams: u32,
    /// Bytes of one request's body that its client may send ahead of the handler, and no more than so many
    /// are held for it.
    pub stream_window: u32,
    /// The same for all streams of a connection together; at least 65,535, with which a connection begins.
    pub connection_window: u32,
    /// What a client may do that costs the server more than the client.
    pub misbehaviour: Misbehaviour,
    /// Longest head: names, values and 32 bytes for each line (431).
    pub header_list_bytes: u32,
    /// Bytes of heads that waiting requests of one connection may hold together; beyond that requests are
    /// refused (`REFUSED_STREAM`).
    pub heads_bytes: usize,
    /// Clients may open WebSocket sessions (RFC 8441). Each counts as a stream, and may have a
    /// `stream_window` of unread bytes besides the connection's, so that a slow one does not stop the others.
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

/// A budget for frames that cost the receiver more than the sender: resets, pings, settings, priorities,
/// empty data, unknown frames, refused requests; one each, and a quarter for each window update. A kilobyte
/// of bodies moved, in either direction, gives one back, and so does a request that is answered. Each piece
/// of a body that was sent pays for two window updates. A client that has spent it gets GOAWAY with
/// `ENHANCE_YOUR_CALM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misbehaviour {
    /// So many at once.
    pub burst: u32,
    /// So many more each second.
    pub per_second: u32,
}

impl Default for Misbehaviour {
    fn default() -> Misbehaviour {
        Misbehaviour { burst: 200, per_second: 20 }
    }
}

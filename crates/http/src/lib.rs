//! HTTP servers and clients on the engine, with HTTP/1.1, HTTP/2 and WebSocket, the same on every driver.
//!
//! ```no_run
//! use ringroad_http::{Html, Request, Server, get};
//!
//! async fn hello(_: Request) -> Html<&'static str> {
//!     Html("<h1>Hello World</h1>")
//! }
//!
//! Server::new().bind("127.0.0.1:8080")?.route("/", get(hello)).serve()?;
//! # Ok::<(), ringroad_http::ServerError>(())
//! ```
//!
//! A handler is an `async fn` from a [`Request`] to any type that is a [response](IntoResponse). It runs on
//! one of the server's workers; each is a thread with a runtime, a listener and a state of its own. A handler
//! may keep the request across awaits. Limits and deadlines are on by default ([`Limits`], [`Deadlines`]).
//!
//! # Features
//! - `json` (on by default): JSON, forms, queries and parameters of paths as values of serde.
//! - `tls` (on by default): TLS for servers and clients. Without it `https://` and `wss://` are errors that
//!   name the feature, no argument of [`Server::tls`] and [`Client::tls`] can be made, and nothing of rustls
//!   and aws-lc-rs is compiled.
//! - `multipart`: forms with files, which are stored on the disk.
//! - `tracing`: requests as spans of the crate `tracing`.
//!
//! [`ringroad_wire`] implements the protocol; [`ringroad_engine`] does the I/O.
//! The layers are `message` (no protocol in it), `transport`, `h1`, `ws`, then `server` and `client`. Start
//! reading at `server/connection.rs`.
#![forbid(unsafe_code)]

mod client;
mod counters;
mod h1;
mod h2;
mod message;
#[cfg(any(test, not(feature = "tls")))]
mod no_tls;
mod pool;
mod random;
mod server;
mod transport;
pub mod ws;

pub use client::{
    Client, ClientError, ClientRequest, ClientResponse, CookieJar, FailedAt, Failure, Http2Connection,
    Http2Request, Http2Response, KeptConnections, ReadError, ResponseReader, Retries, SentSoFar,
    WebSocketRequest, addresses, keep_for,
};
pub use counters::Counters;
pub use h1::gather;
pub use h2::{Http2, Misbehaviour};
#[cfg(feature = "json")]
pub use message::Json;
pub use message::{
    Body, BodyError, BoxError, Chunk, ClientGone, ConnectionInfo, ContentType, Cookie, Extensions, Html,
    IntoPiece, IntoResponse, OnClientGone, OnSent, Outcome, Piece, Rejection, Request, RequestBody,
    RequestBuilder, Response, SameSite, Sent, Shared, SseEvent, Stopping, Upgraded, as_uri, is_event_stream,
};
#[cfg(feature = "multipart")]
pub use message::{FormData, FormLimits, Upload};
pub use ringroad_wire::{
    Deadlines, EncodeError, Field, FieldBlock, Fields, Limits, Method, RequestHead, Status, Version,
};
pub use server::{
    Answering, Cookies, Extension, Extracted, FromRequest, Handle, Handler, Layer, Listens, LocalServer,
    Methods, Network, Next, PerAddress, Plain, Reason, Refused, Released, Router, Server, ServerError,
    Sockets, State, Stats, WithState, any, delete, get, layers, options, patch, post, put, wrap,
};
#[cfg(feature = "json")]
pub use server::{Form, Path, Query};
pub use transport::{
    Bound, HandshakeError, ListenAt, ReadTransport, Receive, TlsSend, TlsStream, Transport,
    TransportCanceller, TransportSend, TunnelSend, TunnelStream, WriteTransport,
};

#[cfg(not(feature = "tls"))]
pub(crate) use no_tls as tls;
#[cfg(feature = "tls")]
pub(crate) use ringroad_tls as tls;

//! HTTP/1.1 servers and clients on the engine, the same on every driver.
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
//! A handler is an `async fn` from a [`Request`] to anything that is a [response](IntoResponse). It runs on one of
//! the server's workers, each a thread with a runtime, a listener and a state of its own; it may keep the request
//! across whatever it waits for. Limits and deadlines are on from the start ([`Limits`], [`Deadlines`]).
//!
//! What is said on the wire is decided in [`ringroad_wire`]; where bytes come from, in [`ringroad_engine`]. Start
//! reading at `server/connection.rs`.
#![forbid(unsafe_code)]

mod body;
mod chunk;
mod client;
mod counters;
mod encode;
mod error;
mod file;
mod incoming;
mod pool;
mod request;
mod response;
mod route;
mod server;
mod upgrade;
pub mod wrap;

pub use body::{Body, IntoPiece, Piece};
pub use chunk::Chunk;
pub use client::{Client, ClientRequest, ClientResponse, ReadError, Receive, ResponseReader, gather};
pub use counters::Counters;
pub use error::{BodyError, BoxError, ClientError, ServerError};
pub use request::{Request, RequestBody};
pub use response::{ContentType, Html, IntoResponse, Json, Response, Shared};
pub use ringroad_wire::{
    Deadlines, EncodeError, Field, FieldBlock, Fields, Limits, Method, RequestHead, Status, Version,
};
pub use route::{
    Answering, Handler, Methods, Plain, State, WithState, any, delete, get, options, patch, post, put,
};
pub use server::{Handle, Server, Stats};
pub use upgrade::Upgraded;

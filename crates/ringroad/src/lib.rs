//! Network programs on one completion-based I/O engine: the same code on io_uring, epoll and the others, chosen
//! when the program starts.
//!
//! ```no_run
//! use ringroad::http::{Html, Request, Server, get};
//!
//! async fn hello(_: Request) -> Html<&'static str> {
//!     Html("<h1>Hello World</h1>")
//! }
//!
//! Server::new().bind("127.0.0.1:8080")?.route("/", get(hello)).serve()?;
//! # Ok::<(), ringroad::http::ServerError>(())
//! ```
//!
//! This crate only names what others do: [`http`] is `ringroad-http`, everything else `ringroad-engine`.
#![forbid(unsafe_code)]

pub use ringroad_engine::{
    AnyBuf, Builder, Counters, Error, IoBuf, IoBufMut, JoinError, JoinHandle, Lease, Name, Remote, Result,
    Runtime, choose, driver_info, fs, net, signal, sync, time,
};

/// HTTP/1.1: servers and clients.
pub use ringroad_http as http;

/// Tasks: futures that run by themselves on the runtime they were spawned on, and calls on threads of their own.
pub mod task {
    pub use ringroad_engine::{Remote, spawn, spawn_blocking, yield_now};
}

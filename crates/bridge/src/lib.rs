//! Adapters from the engine's streams to the I/O traits of hyper, tokio and futures. Crates written for those
//! traits run on the engine through them.
//!
//! Those traits lend a buffer for one poll. A completion engine owns a buffer until the kernel has finished
//! with it. [`Io`] stands between them: it lends received bytes out of the engine's buffer, and sends from
//! memory of its own when a send cannot complete at once. Dropping a read or a write loses nothing and needs
//! no cancellation, because nothing in flight belongs to the caller.
//!
//! ```
//! use ringroad_bridge::{Clock, Io, LocalExecutor};
//! # use hyper::{Request, Response, body::Incoming, service::service_fn};
//! # async fn hello(_: Request<Incoming>) -> Result<Response<String>, std::convert::Infallible> {
//! #     Ok(Response::new("hello".to_owned()))
//! # }
//! # async fn serve(stream: ringroad_engine::net::TcpStream) -> Result<(), hyper::Error> {
//! hyper::server::conn::http2::Builder::new(LocalExecutor)
//!     .timer(Clock)
//!     .serve_connection(Io::gathering(stream), service_fn(hello))
//!     .await
//! # }
//! ```
//!
//! [`Io`] works on every [`Duplex`]: TCP and Unix streams, and streams layered on them. Halves are bridged
//! one by one ([`ReadIo`], [`WriteIo`]). Everything stays on the thread of its runtime. [`LocalExecutor`]
//! spawns there, and [`Local`] wraps values for crates that ask for `Send`.
//!
//! # Which crates run
//! A crate runs if it takes a connected stream and leaves the spawning to its caller. The examples of this
//! crate are tests on every driver: hyper, axum, tonic, tokio-tungstenite, tokio-postgres, redis. A crate
//! that calls `tokio::spawn`, `tokio::time` or `tokio::net` by itself panics outside of a runtime of tokio.
//! The page `docs/learn/bridge.md` has both lists, and the way to bring another crate:
//!
//! ```
//! use ringroad_bridge::Io;
//! use ringroad_engine::{net::UnixStream, run, spawn};
//! use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
//!
//! let line = run(async {
//!     let (here, there) = UnixStream::pair()?;
//!     spawn(async move { Io::new(there).write_all(b"hello\n").await }).detach();
//!     let mut line = String::new();
//!     Io::new(here).read_line(&mut line).await?;
//!     Ok::<_, std::io::Error>(line)
//! })??;
//! assert_eq!(line, "hello\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//! - `client`: `Connector`, by which the pooled client of hyper-util opens its connections.
//!
//! Start reading at [`duplex`](crate::Duplex), then `io.rs`.
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
mod connector;
mod duplex;
mod inbox;
mod io;
mod local;
mod outbox;
mod rt;

#[cfg(feature = "client")]
pub use connector::Connector;
pub use duplex::{Duplex, Sink, Source};
pub use io::{Io, ReadIo, WriteIo};
pub use local::Local;
pub use rt::{Clock, LocalExecutor};

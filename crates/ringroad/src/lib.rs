//! Network programs on one completion-based I/O engine: the same code on io_uring, epoll and the others,
//! chosen when the program starts.
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
//! Below HTTP ([`http`]) are sockets ([`net`]), files ([`fs`]), buffered I/O and codecs ([`io`]), timers
//! ([`time`]), channels and locks ([`sync`]), signals ([`signal`]) and tasks ([`task`]):
//!
//! ```
//! use ringroad::{net::{TcpListener, TcpStream}, task::spawn};
//!
//! #[ringroad::main]
//! async fn main() -> ringroad::Result<()> {
//!     let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
//!     let address = listener.local_addr()?;
//!     let echo = spawn(async move {
//!         let mut stream = listener.accept().await?;
//!         let bytes = stream.recv().await?;
//!         stream.write_all(bytes).await.0
//!     });
//!     let mut stream = TcpStream::connect(address).await?;
//!     stream.write_all("hello").await.0?;
//!     assert_eq!(&*stream.recv().await?, b"hello");
//!     echo.await.unwrap()
//! }
//! ```
//!
//! The pages of [`guide`] teach the rest: the model, the owner of a buffer, what a dropped future means,
//! errors, drivers, several cores, tests.
//!
//! This crate only gives names: [`http`] is `ringroad-http`, [`io`] is `ringroad-io`, [`tls`] is
//! `ringroad-tls`, everything else `ringroad-engine`. Crates that are written for the traits of tokio,
//! futures or hyper run on the engine through `ringroad-bridge`.
//!
//! # Features
//! - `json` (on by default): JSON, forms, queries and parameters of paths as values of serde.
//! - `tls` (on by default): TLS for servers and clients, and the module `tls`. Without it nothing of rustls
//!   and aws-lc-rs is compiled, and `https://` is an error.
//! - `multipart`: forms with files, which are stored on the disk.
//! - `tracing`: requests as spans of the crate of that name ([`http`]`::layers::trace`).
//! - `sim`: the simulated kernel, for tests. Programs for users are built without it.
#![forbid(unsafe_code)]

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
pub mod guide;
mod macros;

/// The examples of the page for users of axum, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/learn/http.md")]
struct BesideAxum;

#[cfg(feature = "sim")]
pub use ringroad_engine::sim;
pub use ringroad_engine::{
    AnyBuf, Builder, CancelHandle, Counters, DriverName, Error, Features, FilePart, Gone, IoBuf, IoBufMut,
    JoinError, JoinHandle, JoinSet, Lease, Pages, PollFd, Remote, RemoteTask, Result, Runtime, Scope, Stuck,
    TaskLocal, UnknownDriver, ZeroCopy, blocking, choose, driver_info, fs, net, run, signal, sync,
    task_local, time, workers,
};

/// Runs an async `main` on a runtime: `#[ringroad::main]`, or `#[ringroad::main(epoll)]` for one driver.
///
/// Without an argument the driver is chosen as by [`Runtime::auto`]. The function may return what any `main`
/// may. For settings of the runtime use [`Builder`].
///
/// # Panics
/// The program panics with the reason if there is no driver.
pub use ringroad_macros::main;

/// Runs an async test on a runtime: `#[ringroad::test]`, or with a list of drivers, each a test of its own.
///
/// ```
/// # #[cfg(test)]
/// #[ringroad::test(epoll, io_uring)]
/// async fn a_sum_is_right() {
///     assert_eq!(1 + 1, 2);
/// }
/// ```
///
/// `all` stands for every driver of the kernel. `sim`, which needs the feature of that name, runs in virtual
/// time. A driver that cannot be used on this machine skips its test and prints the reason.
pub use ringroad_macros::test;

/// HTTP: servers and clients.
#[doc(inline)]
pub use ringroad_http as http;

/// I/O traits over owned buffers: buffered readers and writers, copies, codecs, pipes, descriptors over Unix
/// sockets.
#[doc(inline)]
pub use ringroad_io as io;

/// Child processes: their pipes as streams, and their end as a future.
#[doc(inline)]
pub use ringroad_io::process;

#[cfg(feature = "tls")]
pub mod tls;

/// Tasks: futures that run by themselves on the runtime they were spawned on, and calls on threads of their
/// own.
pub mod task {
    pub use ringroad_engine::blocking::Blocking;
    pub use ringroad_engine::{
        CancelHandle, JoinError, JoinHandle, JoinSet, Remote, RemoteTask, Scope, TaskLocal, is_in_runtime,
        spawn, spawn_blocking, task_local, yield_now,
    };
}

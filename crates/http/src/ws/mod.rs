//! WebSocket sessions, of servers and of clients, the same on every driver.
//!
//! ```no_run
//! use ringroad_http::{Request, Response, Server, get, ws};
//!
//! async fn echo(request: Request) -> Response {
//!     ws::accept(&request, |mut socket| async move {
//!         while let Ok(Some(message)) = socket.recv().await {
//!             if socket.send(message).await.is_err() {
//!                 break;
//!             }
//!         }
//!     })
//! }
//!
//! Server::new().bind("127.0.0.1:8080")?.route("/echo", get(echo)).serve()?;
//! # Ok::<(), ringroad_http::ServerError>(())
//! ```
//!
//! A session answers pings, sends its own pings, and ends a connection that does not answer. It closes with
//! 1001 when the server stops. It bounds what the peer may send and what may be queued ([`Options`]). A
//! [`Sender`] lets other tasks of the worker send. A waiting session holds no buffer and no timer: one task
//! per worker (`keeper.rs`) watches deadlines, to within a second.
//!
//! Start at `session.rs`; the send queue is in `link.rs`. The bytes of the protocol are in
//! [`ringroad_wire::ws`].

mod accept;
mod error;
mod keeper;
mod link;
mod message;
mod options;
mod session;

pub use accept::accept;
pub use error::{SendError, WebSocketError};
pub use link::Sender;
pub use message::{Frame, Message};
pub use options::{Options, Origins};
pub use ringroad_wire::ws::{CloseCode, Kind, Limits};
pub use session::{Closed, WebSocket};

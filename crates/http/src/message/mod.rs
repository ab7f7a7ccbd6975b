//! Messages without a protocol: requests, responses, their header lines and bodies.
//!
//! Nothing here depends on how a message is written on a connection. So a handler works the same with every
//! protocol, and messages can be made, changed and tested without a socket. Start at [`Request`] and
//! [`Response`].

mod body;
mod builder;
mod chunk;
mod connection;
mod cookie;
mod error;
mod events;
mod extensions;
mod file;
mod incoming;
mod interim;
#[cfg(feature = "multipart")]
mod multipart;
#[cfg(feature = "json")]
mod params;
mod reject;
mod request;
mod request_body;
mod response;
mod sent;
mod typed;
mod upgrade;

pub use body::{Body, IntoPiece, Piece};
pub use builder::RequestBuilder;
pub use chunk::Chunk;
pub use connection::{ClientGone, ConnectionInfo, OnClientGone, Stopping};
pub use cookie::{Cookie, SameSite};
pub use error::{BodyError, BoxError};
pub use events::{SseEvent, is_event_stream};
pub use extensions::Extensions;
#[cfg(feature = "multipart")]
pub use multipart::{FormData, FormLimits, Upload};
pub use reject::Rejection;
pub use request::Request;
pub use request_body::RequestBody;
#[cfg(feature = "json")]
pub use response::Json;
pub use response::{ContentType, Html, IntoResponse, Response, Shared, as_uri};
pub use sent::{OnSent, Outcome, Sent};
pub use upgrade::Upgraded;

pub(crate) use body::{Inner, Pieces};
pub(crate) use chunk::ALONE_BYTES_MIN;
pub(crate) use connection::{ConnectionHost, ConnectionId};
pub(crate) use file::FileBody;
pub(crate) use incoming::{Incoming, Trailers};
pub(crate) use interim::Interim;
pub(crate) use request::{Head, HeadRoute, forget_heads, give_head, take_head};
pub(crate) use response::{Prepared, ReadyHead, refusal};
pub(crate) use sent::{Watched, WatchedList};
pub(crate) use upgrade::{Switch, Takeover};

//! HTTP/1.1, both directions, as state machines: bytes in, events out.
//!
//! No I/O, no clock, no threads, and no memory for an ordinary message: a head is a view of the caller's
//! bytes, and the caller presents unused bytes again. Clients and servers use the same reader and writer, so
//! each end understands what the other sends.
//!
//! It is strict, because lenient parsers are attacked: input that two readers could understand differently is
//! refused, with the status that answers it. [`Problem`] lists the rules, [`Limits`] the sizes.
//!
//! Start at [`Requests`] and [`Encoder`], a server's two halves:
//!
//! ```
//! use ringroad_wire::{BodySize, Encoder, Event, ReplyTo, Requests, Scratch, Status};
//!
//! let mut scratch = Scratch::default(); // one per worker
//! let mut requests = Requests::new(); // one per connection
//! let mut out = Vec::new();
//! let bytes = b"GET /a?b HTTP/1.1\r\nHost: example.org\r\n\r\nGET /c";
//! let mut at = 0;
//! while let Some(event) = requests.next(&mut scratch, bytes, &mut at)? {
//!     if let Event::Head(head) = event {
//!         assert_eq!((head.path(), head.query()), ("/a", Some("b")));
//!         let mut answer = Encoder::response(&mut out, Status::OK, ReplyTo::from(&head));
//!         answer.field("Content-Type", "text/plain")?;
//!         let mut body = answer.finish(BodySize::Known(5));
//!         body.data(&mut out, b"hello")?;
//!         body.end(&mut out)?;
//!     }
//! }
//! // What is left is the beginning of the next request: keep it, and read more behind it.
//! assert_eq!(&bytes[at..], b"GET /c");
//! assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`ws`] has WebSocket, [`proxy`] the PROXY header. [`rwp`], [`fcgi`] and [`goridge`] are protocols of
//! application workers, [`resp`] is Redis's, [`nats`] is that of NATS.
//!
//! Left to the caller: deadlines (their lengths are in [`Deadlines`]), dispatch, decoding of paths, content
//! codings.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod body;
mod body_encode;
mod edit;
mod encode;
mod error;
pub mod fcgi;
mod fields;
pub mod goridge;
mod head;
mod limits;
mod message;
pub mod nats;
pub mod proxy;
mod request;
mod request_head;
pub mod resp;
mod response;
pub mod rwp;
mod scan;
mod sha1;
mod status;
mod target;
pub mod ws;

pub use body::is_forbidden_trailer;
pub use body_encode::BodyEncoder;
pub use edit::HeadEdit;
pub use encode::{BodySize, CONTINUE, DateLine, EncodeError, Encoder, FieldBlock, ReplyTo, put_decimal};
pub use error::{Error, Problem};
pub use fields::{Field, Fields, Scratch, Slot};
pub use limits::{ANSWER_HEAD_BYTES_MAX, Deadlines, FIELDS_MAX, HEAD_BYTES_MAX, Limits};
pub use message::{Body, Method, Phase, Version};
pub use request::{Event, Requests};
pub use request_head::{RequestHead, RequestMeta};
pub use response::{Asked, KeptHead, ResponseEvent, ResponseHead, ResponseMeta, Responses};
pub use sha1::sha1;
pub use status::Status;
pub use target::{Form, after_scheme, is_host};

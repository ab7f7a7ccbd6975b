//! WebSocket (RFC 6455) and permessage-deflate (RFC 7692) without I/O: bytes in, events out.
//!
//! [`Frames`] parses the frames of one connection and keeps no payload: a message is returned in pieces,
//! unmasked in place. [`Messages`] joins the pieces, inflates them and enforces the [`Limits`]; a message
//! that arrives in one piece is not copied. [`FrameEnds`] only finds the ends of frames. [`put_frame`]
//! writes. [`handshake`] has the header values of the upgrade, [`deflate`] the compression.
//!
//! ```
//! use ringroad_wire::ws::{Event, Limits, Messages, Opcode, Role, Scratch, put_frame};
//!
//! let mut bytes = Vec::new();
//! put_frame(&mut bytes, Opcode::Text, b"hello", Some([1, 2, 3, 4]));
//! let mut scratch = Scratch::default(); // one per worker
//! let mut messages = Messages::new(Role::Server, Limits::default()); // one per connection
//! let mut at = 0;
//! let event = messages.next(&mut scratch, &mut bytes, &mut at)?;
//! assert!(matches!(event, Some(Event::Message { bytes: b"hello", .. })));
//! assert_eq!(at, 11);
//! # Ok::<(), ringroad_wire::ws::Error>(())
//! ```
//!
//! Left to the caller: deadlines, timely pings, the order of the closing handshake, queues.

mod close;
pub mod deflate;
mod ends;
mod error;
mod frame;
pub mod handshake;
mod mask;
mod messages;
mod utf8;

pub use close::CloseCode;
pub use ends::FrameEnds;
pub use error::{Error, Problem};
pub use frame::{
    FrameEvent, Frames, HEAD_BYTES_MAX, Kind, Opcode, Role, put_close, put_frame, put_frame_as, put_head,
};
pub use mask::apply_mask;
pub use messages::{Event, Limits, Messages, Scratch};
pub use utf8::Utf8;

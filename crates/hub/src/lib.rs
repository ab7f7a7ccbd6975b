//! A hub: topics, and members that get what is published to them, over WebSocket and server-sent events.
//!
//! A [`Hub`] is shared by all workers of a server. A message gets an offset in its topic, is kept in the
//! topic's history, and reaches each worker once; a worker hands the same encoded bytes to all of its
//! members. A member that comes back names the last message it has, and gets all that came since, or learns
//! that some of it is gone. A member that is too slow is closed, and can come back in the same way.
//!
//! [`topics`] is the core, [`matcher`] how topics are chosen, [`rights`] what a client may do. [`plain`],
//! [`mercure`], [`pusher`] and [`centrifugo`] are what clients speak;
//! [`shared`] is a hub of several processes, [`endpoint`] chooses between them. Start at [`Hub`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod centrifugo;
mod endpoint;
mod local;
mod matcher;
mod mercure;
mod plain;
mod presence;
mod pusher;
mod rights;
mod roster;
mod shared;
mod subscriptions;
mod topics;

pub use centrifugo::Channels;
pub use endpoint::{Endpoint, Place, Speak};
pub use pusher::App;
pub use rights::{Checked, Credentials, Grant, Rights};
pub use shared::{Server, ServerState, Sharing};
pub use topics::{Counts, Hub, Id, Message, Publication, PublishError, Settings};
pub use url::Url;

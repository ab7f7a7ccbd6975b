//! Groups of servers behind this one: which there are, and which is next.

mod group;
mod guard;
mod room;
mod server;
mod spool;

pub use group::{Balance, Group, HashBy, Pick, hash};
pub use guard::{Admitted, Bulkhead, CHECK_EVERY_MIN, Check, Guards, Hedge, Refusal, Retry};
pub use room::{Permit, Room};
pub use server::{Address, BadAddress, Server, State};
pub use spool::{Abandoned, CollectError, Collected, Limits as SpoolLimits, Reader as SpoolReader, Spool};

//! A load generator whose numbers can be believed, and which says so when they cannot.
//!
//! A [`Plan`] is data: what is sent where, over how many connections, closed or open loop. [`run()`] puts it on: a
//! thread per core, each an engine runtime with its own connections, so the driver is whichever the engine has. What
//! comes back is an [`Outcome`]: counts and histograms, added exactly. [`verdict`] judges it, [`report`] makes it a
//! record, [`require`] holds it against what was demanded. A harness with clocks of its own has a closed loop
//! [`watched`]. This crate neither prints nor reads arguments.
//!
//! Three latencies are kept apart, since each answers another question: *response*, from the time a request was meant
//! to be sent, is what a user waits; *service*, from the time it was sent, is what the server takes; *lag* is the
//! difference. That a slow server cannot slow down the asking is seen to in [`schedule`].
//!
//! Start at [`plan`], then `worker.rs` and `connection.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod answer;
mod connection;
mod course;
pub mod direct;
mod error;
mod handshake;
pub mod hold;
pub mod knee;
mod layer;
mod pace;
pub mod plan;
pub mod processes;
pub mod report;
pub mod require;
mod retry;
mod run;
pub mod schedule;
pub mod source;
mod tally;
mod target;
pub mod tls;
pub mod verdict;
pub mod watched;
mod worker;

pub use error::Error;
pub use plan::{Message, Plan};
pub use run::{Client, Event, Outcome, Point, Stage, run};
pub use tally::{Counts, Latencies, Tally};
pub use target::{Scheme, Target};

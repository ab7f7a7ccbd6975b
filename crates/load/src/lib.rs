//! A load generator with results that can be trusted. It reports when they cannot.
//!
//! A [`Plan`] is data: what is sent where, over how many connections, closed or open loop. [`run()`] carries
//! it out: one thread per core, each an engine runtime with its own connections, on any driver of the engine.
//! The result is an [`Outcome`]: counts and histograms, merged exactly. [`verdict`] judges it, [`report`]
//! makes a record of it, [`require`] checks it against demands, [`ask`] sends one request before. A harness
//! with clocks of its own runs a closed loop with [`watched`]. This crate neither prints nor reads arguments.
//!
//! Three latencies are kept apart, since each answers another question: *response*, from the scheduled time
//! of a request, is what a user waits; *service*, from the time it was sent, is what the server takes; *lag*
//! is the difference. [`schedule`] ensures that a slow server does not slow down an open loop.
//!
//! Start at [`plan`], then `worker.rs` and `connection.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod answer;
pub mod ask;
pub mod broadcast;
pub mod clock;
mod connection;
mod course;
pub mod direct;
mod error;
mod foreign;
mod handshake;
pub mod hold;
mod http2;
pub mod knee;
mod layer;
mod pace;
pub mod parts;
pub mod plan;
pub mod processes;
pub mod report;
pub mod require;
mod retry;
mod run;
pub mod schedule;
mod share;
pub mod site;
pub mod source;
mod statuses;
mod tally;
mod target;
mod template;
pub mod tls;
mod turns;
pub mod verdict;
pub mod watched;
mod websocket;
mod worker;

pub use error::Error;
pub use plan::{Message, Plan, Split};
pub use run::{Client, Event, Outcome, Point, Stage, run};
pub use statuses::Statuses;
pub use tally::{Counts, Latencies, OfUrl, Tally};
pub use target::{Scheme, Target};
pub use template::Table;
pub use worker::settle;

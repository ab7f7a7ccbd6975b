//! The lab: runs programs side by side under the same load and says what each costs, and how far to believe it.
//!
//! A [`Suite`] is data: programs to start and loads to put on them. [`runner::run`] starts every program fresh,
//! pinned apart from the client, in randomised interleaved blocks, and returns a [`Record`]. What is measured
//! is never linked here: servers and the client run as child processes. This crate neither prints nor exits; it
//! tells an [`Observer`] what happens.
//!
//! Data moves one way: [`suite`] → [`plan`] → [`run`] (with [`program`] and [`client`]) → [`verdict`] →
//! [`collect`] → the record, from which [`page`] and [`table`] draw, [`advise`] advises and [`compare`] tells two apart.
//! Beside it [`journal`] keeps what was done, so that a run that was stopped can go on, and `identity` knows which programs
//! their names stood for. Start at [`runner::run`].
#![forbid(unsafe_code)]

pub mod advise;
pub mod client;
pub mod collect;
pub mod compare;
mod copies;
pub mod dataset;
pub mod error;
pub mod event;
mod identity;
mod job;
pub mod journal;
pub mod page;
pub mod pin;
pub mod plan;
pub mod program;
pub mod run;
pub mod runner;
pub mod sources;
pub mod suite;
pub mod table;
mod turns;
pub mod verdict;
pub mod wrk;

pub use error::Error;
pub use event::{Event, Observer};
pub use ringroad_measure::Record;
pub use runner::RunOptions;
pub use suite::Suite;

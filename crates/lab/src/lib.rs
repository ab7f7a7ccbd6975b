//! The lab: measures programs side by side under the same load: what each costs, and how reliable that is.
//!
//! A [`Suite`] is data: programs to start and loads to put on them. [`runner::run`] starts every program
//! fresh, pinned apart from the client, in randomised interleaved blocks, and returns a [`Record`]. This
//! crate links nothing that it measures: servers and clients are child processes. It neither prints nor
//! exits; an [`Observer`] gets its events.
//!
//! Data moves one way: [`suite`] → [`plan`] → [`run`] (with [`program`], `ask` and [`client`]) → [`verdict`]
//! → [`collect`] → the record. [`page`], [`table`] and [`export`] print a record, [`advise`] recommends from
//! it, [`compare`] compares two. [`journal`] keeps every run, so that an interrupted suite can be resumed;
//! `identity` records which files a program's name stood for. Start at [`runner::run`].
#![forbid(unsafe_code)]

pub mod advise;
mod ask;
pub mod client;
pub mod collect;
pub mod compare;
mod copies;
pub mod dataset;
pub mod error;
pub mod event;
pub mod export;
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
pub mod traffic;
mod turns;
pub mod verdict;
pub mod wrk;

pub use error::Error;
pub use event::{Event, Observer};
pub use ringroad_measure::Record;
pub use runner::RunOptions;
pub use suite::Suite;

//! Copying trees of files: the library under `ringroad cp`.
//!
//! [`copy`] takes sources, a [`Destination`] and [`Options`] (GNU `cp`'s, and ours beyond them), tells an
//! [`Observer`] what happens, can be watched and stopped through a [`Control`], and returns a [`Report`] whose
//! totals account for every entry. It prints nothing, reads no arguments and no environment.
//!
//! # What holds
//! - Everything below an operand is opened relative to its directory's descriptor, one component at a time and
//!   without following links: nothing is resolved twice, and paths can be of any length.
//! - At no moment is a copy more readable than its source. Owner first, then access lists, then the mode, times
//!   last.
//! - A new file is written under its name and removed when it cannot be finished. An existing one is replaced by
//!   rename, unless something about it must stay.
//! - A source that changed while it was read is read again, and told if it changed again.
//! - `scanned == copied + skipped + failed`.
//! - Memory does not grow with the tree: names are held for one window of each directory on the way down.
//!
//! # Reading order
//! `plan.rs` (what happens to an entry, as a pure function), `worker.rs`, `walk.rs`, `directory.rs`, `entry.rs` and `file.rs` (one
//! entry), `content.rs` (bytes), `metadata.rs`, `dir.rs` and `queue.rs` (what is held meanwhile).
#![cfg(target_os = "linux")]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod choose;
mod clock;
mod content;
mod dir;
mod directory;
mod entry;
mod error;
mod exclude;
mod file;
mod flight;
mod lease;
mod leftover;
mod links;
mod manifest;
mod metadata;
mod operand;
mod options;
mod place;
mod plan;
mod progress;
mod queue;
mod report;
mod ring;
mod run;
mod sample;
mod splice;
mod sys;
mod verify;
mod walk;
mod worker;
mod writers;

pub use error::{Error, ErrorKind, Refusal};
pub use options::{
    Backup, BackupKind, Demand, Dereference, Destination, Durability, Engine, Link, Options, Order, Preserve,
    Reflink, Sparse, Update,
};
pub use report::{
    Choice, Control, Event, Holes, Kind, Means, Method, Observer, Phase, Report, Skip, Totals, Underway,
};
pub use run::copy;

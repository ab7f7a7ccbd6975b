//! Copying trees of files: the library under `ringroad cp`.
//!
//! [`copy`] takes sources, a [`Destination`] and [`Options`] (those of GNU `cp` and more). It reports events
//! to an [`Observer`], can be watched and stopped through a [`Control`], and returns a [`Report`]. Its totals
//! account for every entry. The crate prints nothing and reads neither arguments nor the environment.
//!
//! # Guarantees
//! - Everything below an operand is opened relative to its directory's descriptor, one component at a time
//!   and without following links: nothing is resolved twice, and paths can be of any length.
//! - A copy is never more readable than its source: the owner is set first, then access lists, then the mode,
//!   and the times last.
//! - A new file is written under its name, and removed if it cannot be finished. An existing one is
//!   overwritten in place, or replaced by rename with [`Options::atomic`] and [`Options::resume`].
//! - What `verify` and a manifest report was read in this run, except for files that `update_from_manifest`
//!   keeps: a manifest has them from the earlier one.
//! - With `resume`, a file has its source's time only after its data is on the disk.
//! - `scanned == copied + skipped + failed`.
//! - Memory does not grow with the tree: names are held for one window of each directory on the way down.
//!
//! # Reading order
//! `plan.rs` (what happens to an entry, as a pure function), `worker.rs`, `walk.rs`, `directory.rs`,
//! `entry.rs` and `file.rs` (one entry), `content.rs` and `prefetch.rs` (bytes), `kept.rs` (files that are
//! not copied again), `marks.rs` (times after the data), `metadata.rs`, `dir.rs` and `queue.rs` (state in
//! between), `rehearse.rs` (dry runs). Datasets: `listing.rs` and `feed.rs` (lists instead of directories),
//! `journal.rs`, `known.rs` (what an earlier manifest says), `delete.rs`, `rate.rs`.
#![cfg(target_os = "linux")]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod again;
mod attributes;
mod choose;
mod clock;
mod combine;
mod content;
mod delete;
mod dir;
mod directory;
mod entry;
mod error;
mod exclude;
mod feed;
mod file;
mod flight;
mod journal;
mod kept;
mod known;
mod lease;
mod leftover;
mod links;
pub mod listing;
pub mod lists;
mod manifest;
mod marks;
mod metadata;
mod missing;
mod operand;
mod options;
pub mod pack;
mod parts;
mod place;
mod plan;
mod prefetch;
mod progress;
mod queue;
mod rate;
mod rehearse;
mod report;
mod ring;
mod run;
mod sample;
mod sorted;
mod splice;
mod sys;
mod threads;
mod verify;
mod walk;
mod worker;
mod writers;

pub use error::{Error, ErrorKind, Refusal};
pub use missing::Missing;
pub use options::{
    Backup, BackupKind, Demand, Dereference, Destination, Durability, Engine, FilesFrom, Link, Options,
    Order, Preserve, Reflink, Sparse, Update,
};
pub use parts::Part;
pub use report::{
    Choice, Control, Event, Holes, Kind, Means, Method, Observer, Phase, Report, Skip, Totals, Underway,
};
pub use run::copy;
pub use sys::descriptors;

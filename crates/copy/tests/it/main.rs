//! The copier from outside: every engine on every kind of tree, and faults beneath and beside it.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(
    clippy::disallowed_methods,
    reason = "trees are made and read as files are, not as a library pretends"
)]

mod child;
#[allow(dead_code, reason = "the command line's tests share it and look at other aspects")]
mod compare;
mod crash;
mod denied;
mod engines;
mod extras;
mod faults;
mod fifo;
mod fuse;
mod fuse_faults;
mod image;
mod leases;
mod listed;
#[path = "../../../http/tests/it/over.rs"]
mod over;
mod progress;
mod races;
mod replacing;
mod resume;
mod support;
mod tree;

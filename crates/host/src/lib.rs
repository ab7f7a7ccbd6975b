//! Facts about this machine and the cost of a process on it, read without changing anything.
//!
//! Every reader takes its files from a [`Root`], so that a test can present another machine. A fact that the
//! kernel or a container hides is `None`, never 0: nothing is guessed. `measure` judges the facts, `cli`
//! shows them, and `lab` pins processes.
//!
//! Start at [`facts()`] for the machine, at [`cpu`] for the cost of a process.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod capacity;
pub mod cgroup;
pub mod connect;
pub mod cpu;
pub mod facts;
pub mod gate;
pub mod input;
pub mod listener;
pub mod memory;
pub mod open_files;
pub mod process;
pub mod standard;
pub mod syscalls;
pub mod topology;
pub mod words;

mod root;

pub use facts::{Facts, facts};
pub use root::Root;

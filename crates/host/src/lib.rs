//! What this machine is and what a process costs on it, read without changing anything.
//!
//! Every reader takes its files from a [`Root`], so that a test can show it another machine. A fact the
//! kernel or a container hides is `None`, never 0: nothing here guesses. Judging the facts is `measure`'s
//! part, showing them `cli`'s, and pinning processes `lab`'s.
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

//! Numbers with units and doubt: what a measurement is worth, told by types.
//!
//! Everything here is a pure function of its arguments: no I/O, no clock, no other crate of ours. Reading the
//! machine is `host`'s part, running programs is `lab`'s, drawing is the page's.
//!
//! Start at [`record`], the one serialised form; a number in it comes from [`histogram`] or [`summary`], a
//! claim about two numbers from [`compare`], and the reasons not to believe it from [`caveat`]. [`merge`] makes one
//! record of several.
#![forbid(unsafe_code)]

pub mod caveat;
pub mod claim;
pub mod compare;
pub mod histogram;
pub mod merge;
pub mod rank;
pub mod ratios;
pub mod record;
pub mod summary;
pub mod units;

#[cfg(test)]
mod random;

pub use caveat::{Caveat, Level, Verdict};
pub use claim::Claim;
pub use compare::{Comparison, Finding};
pub use histogram::Histogram;
pub use record::{Interval, Record};

//! Measurements with units and reasons for doubt, as types.
//!
//! Everything here is a pure function of its arguments: no I/O, no clock, no other crate of this repository.
//! Reading the machine is `host`'s part, running programs `lab`'s, drawing the page's.
//!
//! Start at [`record`], the one serialised form. Its numbers come from [`histogram`] and [`summary`], claims
//! about two numbers from [`compare`], reasons against a number from [`caveat`]. [`merge`] makes one record
//! of several.
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

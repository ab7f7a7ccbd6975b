//! The tests of `wire`. Start at [`bad_inputs`], the contract for what must be refused; [`checks`] holds what
//! is true of any bytes, and is what the fuzz targets run too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod allocations;
mod bad_inputs;
mod checks;
mod differential;
mod encode;
mod properties;
mod proxy;
mod replay;
mod requests;
mod responses;
mod server;
mod ws;

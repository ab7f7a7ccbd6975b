//! Behaviour of the engine, through its public face. One body of scenarios for every driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
mod support;
mod apart;
mod choose;
mod contract;
mod counts;
mod memory;
mod peer;
mod seeds;
mod sim;
mod workers;

//! The web server as a tool: files, proxies, fixed answers, redirects, health, metrics, described by a file.
//!
//! [`Config`] is what a server is to be, checked whole before anything happens; [`Service`] is one that runs, takes
//! another configuration while it does, and stops without losing anybody. What is said on the wire is
//! [`ringroad_http`]'s and below. This crate prints nothing: what is worth saying goes to a [`Voice`].
//!
//! A request's way: `worker.rs` finds its route, `files/` (or what else the route is) makes the answer, `answer.rs`
//! sees to what is recorded of it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod answer;
pub mod config;
mod date;
mod event;
mod files;
mod log;
mod metrics;
mod page;
mod path;
mod proxy;
mod service;
mod worker;

pub use config::{Config, ConfigError, Mistake};
pub use event::{Event, Voice};
pub use service::{Overrides, Service, Source, StartError, load};

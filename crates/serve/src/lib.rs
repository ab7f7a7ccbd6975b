//! The web server as a tool: files, proxies, fixed answers, redirects, health, metrics, described by a file.
//!
//! [`Config`] describes a server; it is checked as a whole before the server starts. [`Service`] is a running
//! server: it can load another configuration, and it stops without losing a request. The protocol is in
//! [`ringroad_http`] and below. This crate prints nothing: it reports events to an [`EventSink`].
//!
//! The path of a request: `worker.rs` chooses its route, the route's chain (`ringroad_gate::chain`) runs the
//! steps, `endpoint.rs` answers, and `answer.rs` records it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod acme;
mod answer;
mod app;
mod app_goridge;
mod app_http;
mod app_parting;
mod app_repeat;
mod app_ws;
mod by_driver;
pub mod config;
mod control;
mod endpoint;
mod event;
mod files;
mod json;
mod log;
mod metrics;
mod ordered;
mod page;
mod php;
mod proxy;
mod service;
mod status;
mod tending;
mod upload;
mod worker;

pub use config::{Config, ConfigError, Mistake};
pub use event::{Event, EventSink, Refreshed, ServerChange};
/// The address that a text means: `8080`, `:8080`, `localhost:8080`, `[::1]:8080`.
pub use ringroad_settings::value::address_of;
pub use service::{
    Crew, Move, MoveError, ONLY_AT_START, Overrides, OwnTls, Service, Source, StartError, load,
};

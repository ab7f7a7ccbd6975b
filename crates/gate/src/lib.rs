//! The way of a request through a gateway: the reading of its path, the route that answers it, the steps on
//! the way, and the groups of servers behind.
//!
//! Start at [`flow`] for one request, [`chain`] for the way, [`feature`] for what is configured, and
//! [`filter`] for the features that there are: one file each, one line in its table each.
#![forbid(unsafe_code)]

pub mod auth;
pub mod cache;
pub mod chain;
pub mod client;
pub mod coding;
pub mod date;
pub mod feature;
pub mod filter;
pub mod flow;
pub mod groups;
pub mod health;
pub mod media;
pub mod metrics;
pub mod page;
pub mod path;
pub mod routes;
pub mod stage;
pub mod steps;
pub mod store;
pub mod template;
pub mod upstream;
pub mod words;

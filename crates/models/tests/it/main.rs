//! Behaviour of the reference servers, seen from outside: over sockets, against a server in a process of its
//! own.
//!
//! `protocol` feeds the protocol without sockets; `scenarios` is one body per behaviour, run on every model;
//! `limits` has what only some models or only exhausted machines show; `server` starts and stops the child.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod client;
mod limits;
mod protocol;
mod scenarios;
mod server;

//! Certificates from an authority by ACME (RFC 8555): obtained, kept on disk, and renewed in time.
//!
//! [`Keeper`] is a task of the engine that holds the certificates of one server: it asks the authority for
//! those that are missing, renews them at two thirds of their life or when the authority's renewal
//! information says so (RFC 9773), and waits longer after each failure. What answers the authority's
//! challenges and takes the certificates is a [`Site`], which the server implements.
//!
//! Names are proved by HTTP-01 (RFC 8555 §8.3) or TLS-ALPN-01 (RFC 8737). This crate prints nothing: it
//! reports [`Event`]s.
//!
//! Start at `keeper.rs`; an order is in `order.rs`, a request to the authority in `authority.rs`.
#![forbid(unsafe_code)]
#![allow(unexpected_cfgs, reason = "`cargo xtask fuzz` sets `fuzzing`")]
#![cfg_attr(not(any(test, fuzzing)), deny(clippy::indexing_slicing))]

mod authority;
// Built for the fuzz targets too, which see only what is public.
#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used)]
#[doc(hidden)]
pub mod checks;
mod failure;
mod keeper;
mod key;
mod order;
mod progress;
mod renewal;
mod settings;
mod site;
mod state;

pub use failure::{Failure, FailureKind};
pub use keeper::{Keeper, Work};
pub use progress::{CertificateProgress, Progress};
pub use settings::{ChallengeKind, DEFAULT_DIRECTORY, External, Settings};
pub use site::{Challenge, Event, Site};
pub use state::{StateError, Stored, stored};

//! The tests of `measure` that need files from outside the crate: the published schema. Start at [`record`].
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod merging;
mod record;
mod schema;

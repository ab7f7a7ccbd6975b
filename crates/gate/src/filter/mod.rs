//! The features of the request chain: one file each, and one line in the table below.
//!
//! From the table follow the order of steps within a stage, the keys of a configuration, what `--check`
//! reports, the key reference (`docs/CONFIG.md`) and the metrics. A feature's file has its settings, their
//! reading, its steps, its metrics, its tests, and its `DECLARATION`. `cargo xtask tidy` checks that no other
//! file names a feature.

use crate::feature::Declaration;

macro_rules! features {
    ($($name:ident,)*) => {
        $(mod $name;)*

        /// Every feature, in the order of the table.
        pub static ALL: &[&Declaration] = &[$(&$name::DECLARATION,)*];
    };
}

// Of one stage, the feature that is written first takes the request first and the answer last.
features! {
    request_id,
    trace,
    client_gone,
    bandwidth,
    compress,
    headers,
    secure_headers,
    cors,
    errors,
    access,
    shed,
    limit,
    auth,
    limits,
    timeouts,
    rewrite,
    mirror,
    fallback,
    cache,
}

//! The suites that are part of the program, by name, in the order in which a reader meets them.
//!
//! They are files like any other (`crates/lab/suites`), embedded, so that an installed binary needs nothing
//! beside it. Start at [`names`].

/// Name and text of each.
const ALL: &[(&str, &str)] = &[
    ("quick", include_str!("../../suites/quick.toml")),
    ("models", include_str!("../../suites/models.toml")),
    ("active-share", include_str!("../../suites/active-share.toml")),
    ("payload", include_str!("../../suites/payload.toml")),
    ("pipeline", include_str!("../../suites/pipeline.toml")),
    ("churn", include_str!("../../suites/churn.toml")),
    ("idle", include_str!("../../suites/idle.toml")),
    ("work", include_str!("../../suites/work.toml")),
    ("experiments", include_str!("../../suites/experiments.toml")),
    ("files", include_str!("../../suites/files.toml")),
    ("scale", include_str!("../../suites/scale.toml")),
    ("peers", include_str!("../../suites/peers.toml")),
];

/// Returns their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// Returns the text of one of them.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

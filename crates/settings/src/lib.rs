//! Settings in TOML, read key by key, so that every mistake is reported with its file, line and key.
//!
//! A [`Document`] is one file with the files that it includes and with environment variables filled in. A
//! [`Section`] is one table of it. A feature describes the keys of its table ([`Table`], [`Key`]) and reads
//! them from a section with the functions of [`value`]: each returns the value, or says what was expected.
//! What is read and not described, or written and not described, is a mistake. Start at [`Document::load`].
//!
//! `serde` is not used here: its errors stop at the first one, lose the place inside of tables that are
//! selected by a key (`kind`), and cannot say what a misspelt key was meant to be.
#![forbid(unsafe_code)]

mod document;
mod elsewhere;
mod mistake;
mod reference;
mod section;
pub mod value;

pub use document::Document;
pub use ipnet::IpNet;
pub use mistake::{Mistake, NOTED, SettingsError};
pub use reference::{Key, Table, markdown, markdown_of};
pub use section::Section;
/// One value of a document, as its parser gives it.
pub use toml::de::DeValue as Value;

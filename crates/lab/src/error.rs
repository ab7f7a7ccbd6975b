//! Errors that prevent a whole suite. A program that fails *in* a suite is a cell with a verdict, not an
//! error.
//!
//! Start at [`Error`].

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The reason why there is no record.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No suite of that name or path; carries what was asked for and where it was looked for.
    NoSuchSuite {
        /// As given by the user.
        name: String,
        /// The files that were tried.
        tried: Vec<PathBuf>,
    },
    /// The suite file could not be read.
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The suite says something that cannot be done.
    Suite(SuiteError),
    /// A program that was added by hand cannot be one.
    With {
        /// As given by the user.
        text: String,
        /// What is wrong, with what would be right.
        how: String,
    },
    /// A URL to measure cannot be one.
    Url {
        /// As given by the user.
        text: String,
        /// What is wrong, with what would be right.
        how: String,
    },
    /// An option that changes a suite does not fit it.
    Option {
        /// Its name.
        option: &'static str,
        /// As given by the user.
        text: String,
        /// What is wrong, with what would be right.
        how: String,
    },
    /// The journal of a run cannot be read, written, or gone on with.
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong, with what would be right.
        how: String,
    },
    /// The machine refused something every run needs.
    Machine {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The client program could not be started or did not answer with a report: no cell can be measured.
    Client {
        /// What was seen, as a clause.
        how: String,
    },
}

/// A mistake in a suite: where, at which key, what is wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuiteError {
    /// The file, or the name of a built-in suite.
    pub file: String,
    /// The line, from 1, where the parser or the checks could tell.
    pub line: Option<usize>,
    /// The key, as `server.ready`, where known.
    pub key: Option<String>,
    /// What is wrong, with what would be right.
    pub message: String,
}

impl fmt::Display for SuiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoSuchSuite { name, tried } => {
                let known: Vec<&str> = crate::suite::built_in::names().collect();
                write!(f, "suite {name}: not built in (available: {})", known.join(", "))?;
                for (nth, path) in tried.iter().enumerate() {
                    write!(f, "{}{}", if nth == 0 { ", and no file " } else { " or " }, path.display())?;
                }
                Ok(())
            }
            Error::Read { path, source } => write!(f, "read suite {}: {source}", path.display()),
            Error::Suite(error) => write!(f, "suite {error}"),
            Error::With { text, how } => write!(f, "--with {text:?}: {how}"),
            Error::Url { text, how } => {
                write!(f, "--url {text}: {how} (examples: http://localhost:8080/, new=http://10.0.0.7/)")
            }
            Error::Option { option, text, how } => write!(f, "{option} {text}: {how}"),
            Error::Journal { path, how } => write!(f, "journal {}: {how}", path.display()),
            Error::Machine { what, source } => write!(f, "{what}: {source}"),
            Error::Client { how } => write!(f, "the load client failed: {how}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Read { source, .. } | Error::Machine { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<SuiteError> for Error {
    fn from(error: SuiteError) -> Self {
        Error::Suite(error)
    }
}

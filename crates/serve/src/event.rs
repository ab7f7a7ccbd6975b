//! What a server says while it runs: events, for whoever started it to print.

use crate::config::ConfigError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Something worth a line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The configuration was read again and is in force; what of it waits for the next start.
    Reloaded {
        /// Keys whose new values need workers that are not there yet.
        waiting: Vec<&'static str>,
    },
    /// The new configuration is wrong; the old one stays in force.
    ReloadRefused(ConfigError),
    /// The new configuration is right and cannot be had; the old one stays in force.
    ReloadFailed(String),
    /// The log cannot be written.
    LogFailed {
        /// The file.
        target: String,
        /// What the system said.
        why: String,
    },
    /// A request was answered with a server's error.
    Fault {
        /// Its id, method and target.
        request: String,
        /// What went wrong.
        why: String,
    },
    /// More of them, in the same second, about which no more is said.
    MoreFaults(u64),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Reloaded { waiting } if waiting.is_empty() => {
                f.write_str("configuration: read again, in force")
            }
            Event::Reloaded { waiting } => write!(
                f,
                "configuration: read again, in force but for what needs new workers ({}): restart for that",
                waiting.join(", ")
            ),
            Event::ReloadRefused(why) => write!(f, "{why}\nconfiguration: the old one stays in force"),
            Event::ReloadFailed(why) => write!(f, "{why} (the old configuration stays in force)"),
            Event::LogFailed { target, why } => {
                write!(f, "write, on {target}: {why} (lines of the access log are lost until it works again)")
            }
            Event::Fault { request, why } => write!(f, "{request}: {why}"),
            Event::MoreFaults(count) => write!(f, "and {count} more failed requests within that second"),
        }
    }
}

/// Takes bytes for standard output.
type Stdout = dyn Fn(&[u8]) -> io::Result<()> + Send + Sync;

/// Where events go, and bytes for standard output: a library does not print.
#[derive(Clone)]
pub struct Voice {
    say: Arc<dyn Fn(Event) + Send + Sync>,
    stdout: Arc<Stdout>,
}

impl Voice {
    /// One that says events with `say`, and writes a log that goes to standard output with `stdout`.
    pub fn new(
        say: impl Fn(Event) + Send + Sync + 'static,
        stdout: impl Fn(&[u8]) -> io::Result<()> + Send + Sync + 'static,
    ) -> Voice {
        Voice { say: Arc::new(say), stdout: Arc::new(stdout) }
    }

    pub(crate) fn say(&self, event: Event) {
        (self.say)(event);
    }

    pub(crate) fn write_stdout(&self, bytes: &[u8]) -> io::Result<()> {
        (self.stdout)(bytes)
    }
}

impl fmt::Debug for Voice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Voice")
    }
}

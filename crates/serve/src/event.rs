//! Events that a running server reports, for the program that started it to print.

use crate::config::ConfigError;
use crate::service::Move;
use ringroad_engine::DriverName;
use ringroad_policy::breaker::{Change, Opening};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// An event that is worth a line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The configuration was read again and is in force, except for keys that need a restart.
    Reloaded {
        /// Keys with new values that take effect only after a restart, each with the reason.
        waiting: Vec<String>,
    },
    /// A server without a configuration has looked again at what it serves.
    Refreshed(Refreshed),
    /// The new configuration is wrong; the old one stays in force.
    ReloadRefused(ConfigError),
    /// The new configuration is valid but cannot be put in force; the old one stays.
    ReloadFailed(String),
    /// New certificates, or other files of TLS, are in force.
    CertificatesTaken,
    /// Files of TLS cannot be used: the previous ones stay in force.
    CertificateRefused(ringroad_tls::BadPair),
    /// Files of TLS cannot be used, and there are no previous ones.
    CertificateUnusable(ringroad_tls::BadPair),
    /// Something in force has expired.
    CertificateExpired(ringroad_tls::Expired),
    /// A certificate was obtained from an authority, or taken from the state folder.
    CertificateObtained(ringroad_acme::Event),
    /// A certificate could not be obtained, or not be kept; it will be tried again.
    CertificateNotObtained(ringroad_acme::Event),
    /// Nothing can be written into the state folder of ACME. Its certificates are in force.
    StateNotWritable(Arc<ringroad_acme::StateError>),
    /// The log cannot be written.
    LogFailed {
        /// The file.
        target: String,
        /// What the system said.
        why: String,
    },
    /// The log cannot be opened anew; the file that is open goes on.
    LogNotReopened {
        /// The file.
        target: String,
        /// What the system said.
        why: String,
    },
    /// A line of an application, or about it.
    App(String),
    /// The control socket asks for the server's end.
    StopAsked,
    /// The control socket asks for workers on another driver:
    /// [`Service::move_asked`](crate::Service::move_asked) does it and answers.
    MoveAsked(Move),
    /// Workers were moved to another driver.
    Moved {
        /// The driver that they were on.
        from: DriverName,
        /// The driver that they are on.
        to: DriverName,
        /// Threads of each address.
        workers: usize,
    },
    /// The breaker of a group of upstream servers lets more or fewer requests through.
    Breaker {
        /// The group's name.
        upstream: String,
        /// The change.
        change: Change,
        /// How the request ended that made it: its server, and the status or the failure.
        by: String,
    },
    /// A server of a group of upstream servers gets no requests from now on, or gets them again.
    Server {
        /// The group's name.
        upstream: String,
        /// The server's address.
        server: String,
        /// What has changed.
        change: ServerChange,
    },
    /// A change that a feature of routes tells, as a limit of its store.
    Notice(String),
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
                "configuration: read again, in force except {}: restart for that",
                waiting.join(", ")
            ),
            Event::Refreshed(what) => what.fmt(f),
            Event::ReloadRefused(why) => write!(f, "{why}\nconfiguration: the old one stays in force"),
            Event::ReloadFailed(why) => write!(f, "{why} (the old configuration stays in force)"),
            Event::CertificatesTaken => f.write_str("certificates: read again, in force"),
            Event::CertificateRefused(bad) => write!(f, "{bad} (not taken: what was in use stays in use)"),
            Event::CertificateUnusable(bad) => write!(f, "{bad} (it is not used)"),
            Event::CertificateExpired(what) => what.fmt(f),
            Event::CertificateObtained(event) | Event::CertificateNotObtained(event) => event.fmt(f),
            Event::StateNotWritable(why) => {
                write!(f, "{why} (its certificates are in force; none is renewed until it can be written)")
            }
            Event::LogFailed { target, why } => {
                write!(f, "write, on {target}: {why} (lines of the access log are lost until it works again)")
            }
            Event::LogNotReopened { target, why } => {
                write!(f, "open, on {target}: {why} (the access log goes on in the file that is open)")
            }
            Event::App(line) | Event::Notice(line) => f.write_str(line),
            Event::StopAsked => f.write_str("asked over the control socket to stop"),
            Event::MoveAsked(asked) => {
                write!(f, "asked over the control socket to move workers from {} to {}", asked.from, asked.to)
            }
            Event::Moved { from, to, workers } => {
                let s = if *workers == 1 { "" } else { "s" };
                write!(f, "{workers} worker{s} of each address moved from {from} to {to}")
            }
            Event::Breaker { upstream, change, by } => {
                write!(f, "upstream {upstream}: breaker ")?;
                match *change {
                    Change::Opened(span, Opening::Share { failed, all, window }) => {
                        let (span, window) = (Duration::from_nanos(span), Duration::from_nanos(window));
                        write!(
                            f,
                            "opened for {span:?}: {failed} of {all} requests failed within {window:?}, the last one at {by}"
                        )
                    }
                    Change::Opened(span, Opening::Probe) => {
                        write!(
                            f,
                            "opened for {:?}: a request that tried failed at {by}",
                            Duration::from_nanos(span)
                        )
                    }
                    Change::Probing(1) => f.write_str("half-open: one request tries"),
                    Change::Probing(most) => write!(f, "half-open: up to {most} requests try"),
                    Change::Closed(1) => f.write_str("closed: a request that tried succeeded"),
                    Change::Closed(count) => write!(f, "closed: {count} requests that tried succeeded"),
                }
            }
            Event::Server { upstream, server, change } => {
                write!(f, "upstream {upstream}: {server} ")?;
                match change {
                    ServerChange::Down(why) => write!(f, "is down: {why}"),
                    ServerChange::Up => f.write_str("is up: its checks are good again"),
                    ServerChange::Ejected(span, why) => {
                        write!(
                            f,
                            "is left out for {span:.1?}: too many requests in a row failed, the last one: {why}"
                        )
                    }
                }
            }
            Event::Fault { request, why } => write!(f, "{request}: {why}"),
            Event::MoreFaults(count) => write!(f, "and {count} more failed requests within that second"),
        }
    }
}

/// What has changed for a server of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerChange {
    /// Its checks fail, for this reason.
    Down(String),
    /// Its checks are good again.
    Up,
    /// Requests failed at it in a row: it gets none for so long. The reason is that of the last one.
    Ejected(Duration, String),
}

/// What a server without a configuration serves, and has looked at again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refreshed {
    /// The files of this folder.
    Folder(PathBuf),
    /// An application, which begins to reload.
    App(String),
}

impl fmt::Display for Refreshed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refreshed::Folder(path) => write!(
                f,
                "no configuration to read again: looked again at folder {}, certificates and access log",
                path.display()
            ),
            Refreshed::App(name) => write!(
                f,
                "no configuration to read again: application {name} reloads; looked again at certificates and access log"
            ),
        }
    }
}

/// Takes bytes for standard output.
type Stdout = dyn Fn(&[u8]) -> io::Result<()> + Send + Sync;

/// Where events go, and bytes for standard output: a library does not print.
#[derive(Clone)]
pub struct EventSink {
    report: Arc<dyn Fn(Event) + Send + Sync>,
    stdout: Arc<Stdout>,
}

impl EventSink {
    /// Takes events with `report`, and writes a log that goes to standard output with `stdout`.
    pub fn new(
        report: impl Fn(Event) + Send + Sync + 'static,
        stdout: impl Fn(&[u8]) -> io::Result<()> + Send + Sync + 'static,
    ) -> EventSink {
        EventSink { report: Arc::new(report), stdout: Arc::new(stdout) }
    }

    pub(crate) fn report(&self, event: Event) {
        (self.report)(event);
    }

    pub(crate) fn write_stdout(&self, bytes: &[u8]) -> io::Result<()> {
        (self.stdout)(bytes)
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}

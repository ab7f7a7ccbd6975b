//! What went wrong: the operation, its target, what the system said, and on which driver.

use crate::name::Name;
use std::borrow::Cow;
use std::fmt;
use std::io;

/// Shorthand for what this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation that failed.
///
/// One word, so that a result is as small as its value; the rest is made only when something fails.
#[derive(Debug)]
pub struct Error(Box<Details>);

#[derive(Debug)]
struct Details {
    operation: &'static str,
    target: Option<String>,
    driver: Option<Name>,
    source: io::Error,
    hint: Option<Cow<'static, str>>,
    is_driver_limit: bool,
    dump: Option<String>,
}

impl Error {
    /// `operation` by its kernel name, or what was being done.
    #[cold]
    pub(crate) fn new(operation: &'static str, source: io::Error) -> Error {
        Error(Box::new(Details {
            operation,
            target: None,
            driver: None,
            source,
            hint: None,
            is_driver_limit: false,
            dump: None,
        }))
    }

    #[cold]
    pub(crate) fn errno(operation: &'static str, errno: i32) -> Error {
        Error::new(operation, io::Error::from_raw_os_error(errno))
    }

    pub(crate) fn on(mut self, target: impl fmt::Display) -> Error {
        self.0.target = Some(target.to_string());
        self
    }

    pub(crate) fn by(mut self, driver: Name) -> Error {
        self.0.driver = Some(driver);
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    pub(crate) fn dumped(mut self, dump: String) -> Error {
        self.0.dump = Some(dump);
        self
    }

    /// When the driver itself has failed: every operation that was there at that moment, as
    /// [`Runtime::dump`](crate::Runtime::dump) tells them. Afterwards they are gone with the future that waited.
    pub fn dump(&self) -> Option<&str> {
        self.0.dump.as_deref()
    }

    /// It met a limit of the driver's own, which `explanation` tells.
    pub(crate) fn driver_limit(mut self, explanation: String) -> Error {
        self.0.is_driver_limit = true;
        self.hint(explanation)
    }

    /// The operation that failed, by its kernel name (`connect`, `recv`, …).
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The driver it ran on, if it got that far.
    pub fn driver(&self) -> Option<Name> {
        self.0.driver
    }

    /// What the system said, as a kind.
    pub fn kind(&self) -> io::ErrorKind {
        self.0.source.kind()
    }

    /// What the system said, as its number.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.source.raw_os_error()
    }

    /// Whether a limit of the driver itself was met, and not one of the machine: on select a descriptor whose number has
    /// no bit in its sets, on threads the number of workers. Others are not affected, and an accept may be tried again: on
    /// select it has closed what came, and waits from then on until there is room.
    pub fn is_driver_limit(&self) -> bool {
        self.0.is_driver_limit
    }

    /// Whether the operation was cancelled, and had no effect.
    pub fn is_cancelled(&self) -> bool {
        self.raw_os_error() == Some(libc::ECANCELED)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { operation, target, driver, source, hint, .. } = &*self.0;
        f.write_str(operation)?;
        if let Some(target) = target {
            write!(f, ", on {target}")?;
        }
        write!(f, ": {source}")?;
        if let Some(driver) = driver {
            write!(f, " (driver {driver})")?;
        }
        if let Some(hint) = hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.source)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_operation_target_errno_driver_and_what_to_do() {
        let error = Error::errno("connect", libc::ECONNREFUSED)
            .on("127.0.0.1:1")
            .by(Name::Epoll)
            .hint("nothing listens there");
        assert_eq!(
            error.to_string(),
            "connect, on 127.0.0.1:1: Connection refused (os error 111) (driver epoll) (nothing listens there)"
        );
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}

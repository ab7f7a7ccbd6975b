//! Errors: the operation, its target, the system's error, the driver and a hint.

use crate::name::DriverName;
use ringroad_host::words;
use std::borrow::Cow;
use std::fmt;
use std::io;

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation that failed.
///
/// One word in size, so that results stay small; the details are allocated only on failure.
#[derive(Debug)]
pub struct Error(Box<Details>);

#[derive(Debug)]
struct Details {
    operation: &'static str,
    target: Option<String>,
    driver: Option<DriverName>,
    source: io::Error,
    hint: Option<Cow<'static, str>>,
    is_driver_limit: bool,
    dump: Option<String>,
}

impl Error {
    /// Returns an error of `operation`: its kernel name, or a description.
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

    /// Returns an error of a protocol that is laid over a stream, so that code above has one type of errors:
    /// `operation` by its kernel name, and why it failed in the protocol's words or by a number of the
    /// system's.
    #[cold]
    pub fn layered(operation: &'static str, source: io::Error) -> Error {
        Error::new(operation, source)
    }

    #[cold]
    pub(crate) fn errno(operation: &'static str, errno: i32) -> Error {
        Error::new(operation, io::Error::from_raw_os_error(errno))
    }

    pub(crate) fn on(mut self, target: impl fmt::Display) -> Error {
        self.0.target = Some(target.to_string());
        self
    }

    pub(crate) fn by(mut self, driver: DriverName) -> Error {
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

    /// Returns the operations in flight at the moment when the driver itself failed, in the form of
    /// [`Runtime::dump`](crate::Runtime::dump). `None` for other errors.
    pub fn dump(&self) -> Option<&str> {
        self.0.dump.as_deref()
    }

    /// Marks the error as a limit of the driver, with an explanation.
    pub(crate) fn driver_limit(mut self, explanation: String) -> Error {
        self.0.is_driver_limit = true;
        self.hint(explanation)
    }

    /// Returns the operation that failed, by its kernel name (`connect`, `recv`, …).
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Returns the driver, if the operation reached one.
    pub fn driver(&self) -> Option<DriverName> {
        self.0.driver
    }

    /// Returns the kind of the system's error.
    pub fn kind(&self) -> io::ErrorKind {
        self.0.source.kind()
    }

    /// Returns the system's error.
    pub(crate) fn system(&self) -> &io::Error {
        &self.0.source
    }

    /// Returns the errno, if the system reported one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.source.raw_os_error()
    }

    /// Returns whether a limit of the driver was reached, not one of the machine: on select a descriptor
    /// number without a bit in its sets, on threads the number of workers. Other descriptors are not
    /// affected, and an accept may be repeated: select has closed the connection, and from then on accepting
    /// waits until a low number is free.
    pub fn is_driver_limit(&self) -> bool {
        self.0.is_driver_limit
    }

    /// Returns whether the operation was cancelled, and had no effect.
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
        let driver = driver.map(|driver| format!("driver {driver}"));
        let notes: Vec<&str> = [hint.as_deref(), driver.as_deref()].into_iter().flatten().collect();
        write!(f, ": {}", words::with_notes(source, &notes))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.source)
    }
}

/// So that `?` takes errors of the standard library too. An error of this crate that was converted into an
/// `io::Error` is itself again; another one has the operation `I/O`.
impl From<io::Error> for Error {
    #[cold]
    fn from(error: io::Error) -> Error {
        error.downcast::<Error>().unwrap_or_else(|other| Error::new("I/O", other))
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_error_goes_through_the_standard_librarys_and_comes_back_as_it_was() {
        fn connect() -> io::Result<()> {
            Err(Error::errno("connect", libc::ECONNREFUSED).hint("nothing listens there"))?
        }
        fn both() -> Result<()> {
            connect()?;
            Ok(())
        }
        let told = both().unwrap_err();
        assert_eq!((told.operation(), told.raw_os_error()), ("connect", Some(libc::ECONNREFUSED)));
        assert!(told.to_string().ends_with("(os error 111; nothing listens there)"), "{told}");
        let foreign = Error::from(io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!((foreign.operation(), foreign.kind()), ("I/O", io::ErrorKind::NotFound));
    }

    #[test]
    fn an_error_prints_operation_target_errno_driver_and_hint() {
        let error = Error::errno("connect", libc::ECONNREFUSED)
            .on("127.0.0.1:1")
            .by(DriverName::Epoll)
            .hint("nothing listens there");
        assert_eq!(
            error.to_string(),
            "connect, on 127.0.0.1:1: Connection refused (os error 111; nothing listens there; driver epoll)"
        );
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}

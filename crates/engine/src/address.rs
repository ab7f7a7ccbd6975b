//! Socket addresses: `SocketAddr` of the standard library for IP sockets, [`UnixAddr`] for Unix sockets.
//!
//! The kernel's form is `SockAddr` of `socket2`. Only this file converts between the two.

use socket2::SockAddr;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum length of a Unix socket's name in bytes. `sun_path` has 108 bytes; one is the zero before an
/// abstract name or after a path (`unix(7)`).
pub const UNIX_NAME_BYTES_MAX: usize = 107;

/// The address of a Unix socket (`unix(7)`): a file, an abstract name, or none.
///
/// A path converts into it (`"/run/app.sock".into()`). It is displayed as the path, or as `@` and the
/// abstract name, like in `ss(8)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnixAddr(Name);

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Name {
    Unnamed,
    Path(PathBuf),
    Abstract(Box<[u8]>),
}

impl UnixAddr {
    /// The address of a socket that was never bound: most clients, and both ends of a pair. Binding to it
    /// makes the kernel choose a free abstract name.
    pub const UNNAMED: UnixAddr = UnixAddr(Name::Unnamed);

    /// Returns the address of a file: at most [`UNIX_NAME_BYTES_MAX`] bytes, none of them zero.
    pub fn path(path: impl Into<PathBuf>) -> UnixAddr {
        UnixAddr(Name::Path(path.into()))
    }

    /// Returns an abstract address: at most [`UNIX_NAME_BYTES_MAX`] bytes of any value, in a table of the
    /// network namespace. It has no file and no permissions, and disappears with its socket. Linux only.
    pub fn abstract_name(name: impl AsRef<[u8]>) -> UnixAddr {
        UnixAddr(Name::Abstract(name.as_ref().into()))
    }

    /// Returns the path, if the address is a file.
    pub fn as_path(&self) -> Option<&Path> {
        match &self.0 {
            Name::Path(path) => Some(path),
            Name::Unnamed | Name::Abstract(_) => None,
        }
    }

    /// Returns the abstract name, if the address is one.
    pub fn as_abstract_name(&self) -> Option<&[u8]> {
        match &self.0 {
            Name::Abstract(name) => Some(name),
            Name::Unnamed | Name::Path(_) => None,
        }
    }

    /// Returns whether the address is empty.
    pub fn is_unnamed(&self) -> bool {
        self.0 == Name::Unnamed
    }

    /// Converts to the kernel's form.
    ///
    /// # Errors
    /// ENAMETOOLONG; EINVAL for a path that is empty or contains a zero byte.
    pub(crate) fn to_kernel(&self) -> Result<SockAddr, i32> {
        let bytes = match &self.0 {
            Name::Unnamed => Vec::new(),
            Name::Path(path) => {
                let bytes = path.as_os_str().as_bytes();
                if bytes.is_empty() || bytes.contains(&0) {
                    return Err(libc::EINVAL);
                }
                bytes.to_vec()
            }
            Name::Abstract(name) => [&[0], &**name].concat(),
        };
        let zero = usize::from(self.as_abstract_name().is_some());
        if bytes.len() > UNIX_NAME_BYTES_MAX + zero {
            return Err(libc::ENAMETOOLONG);
        }
        SockAddr::unix(Path::new(OsStr::from_bytes(&bytes))).map_err(|_| libc::EINVAL)
    }
}

impl From<PathBuf> for UnixAddr {
    fn from(path: PathBuf) -> UnixAddr {
        UnixAddr::path(path)
    }
}

impl From<&Path> for UnixAddr {
    fn from(path: &Path) -> UnixAddr {
        UnixAddr::path(path)
    }
}

impl From<&PathBuf> for UnixAddr {
    fn from(path: &PathBuf) -> UnixAddr {
        UnixAddr::path(path)
    }
}

impl From<&str> for UnixAddr {
    fn from(path: &str) -> UnixAddr {
        UnixAddr::path(path)
    }
}

impl From<&UnixAddr> for UnixAddr {
    fn from(address: &UnixAddr) -> UnixAddr {
        address.clone()
    }
}

impl fmt::Display for UnixAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Name::Unnamed => f.write_str("an unnamed socket"),
            Name::Path(path) => path.display().fmt(f),
            Name::Abstract(name) => write!(f, "@{}", name.escape_ascii()),
        }
    }
}

/// An address of either family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Inet(SocketAddr),
    Unix(UnixAddr),
}

impl Address {
    /// Converts from the kernel's form. `None`: another address family, or no address.
    pub(crate) fn of_kernel(address: &SockAddr) -> Option<Address> {
        if let Some(address) = address.as_socket() {
            return Some(Address::Inet(address));
        }
        if let Some(path) = address.as_pathname() {
            return Some(Address::Unix(UnixAddr::path(path)));
        }
        if let Some(name) = address.as_abstract_namespace() {
            return Some(Address::Unix(UnixAddr::abstract_name(name)));
        }
        address.is_unnamed().then_some(Address::Unix(UnixAddr::UNNAMED))
    }

    /// Converts to the kernel's form. Errors as [`UnixAddr::to_kernel`].
    pub(crate) fn to_kernel(&self) -> Result<SockAddr, i32> {
        match self {
            Address::Inet(address) => Ok(SockAddr::from(*address)),
            Address::Unix(address) => address.to_kernel(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Inet(address) => address.fmt(f),
            Address::Unix(address) => address.fmt(f),
        }
    }
}

/// Converts an address that the kernel reported; an error for another address family.
pub(crate) fn named(address: &SockAddr) -> io::Result<Address> {
    Address::of_kernel(address).ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_is_the_same_after_the_kernels_form() {
        let long = "n".repeat(UNIX_NAME_BYTES_MAX);
        for address in [
            UnixAddr::UNNAMED,
            UnixAddr::from("/run/app.sock"),
            UnixAddr::from(long.as_str()),
            UnixAddr::abstract_name("app"),
            UnixAddr::abstract_name(b"zero \0 inside"),
            UnixAddr::abstract_name(""),
            UnixAddr::abstract_name(&long),
        ] {
            let kernel = address.to_kernel().unwrap();
            assert_eq!(Address::of_kernel(&kernel), Some(Address::Unix(address)));
        }
        let inet = Address::Inet("[::1]:7".parse().unwrap());
        assert_eq!(Address::of_kernel(&inet.to_kernel().unwrap()), Some(inet));
    }

    #[test]
    fn a_name_that_cannot_be_one_is_refused() {
        let long = "n".repeat(UNIX_NAME_BYTES_MAX + 1);
        let refused = |address: UnixAddr| address.to_kernel().unwrap_err();
        assert_eq!(refused(UnixAddr::from(long.as_str())), libc::ENAMETOOLONG);
        assert_eq!(refused(UnixAddr::abstract_name(&long)), libc::ENAMETOOLONG);
        assert_eq!(refused(UnixAddr::from("")), libc::EINVAL);
        assert_eq!(refused(UnixAddr::from("a\0b")), libc::EINVAL);
    }

    #[test]
    fn addresses_are_shown_as_ss_shows_them() {
        assert_eq!(UnixAddr::from("/run/app.sock").to_string(), "/run/app.sock");
        assert_eq!(UnixAddr::abstract_name("a\0\n").to_string(), "@a\\x00\\n");
        assert_eq!(UnixAddr::UNNAMED.to_string(), "an unnamed socket");
    }
}

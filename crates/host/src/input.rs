//! Reads files that settings or arguments name. Special files do not block the reader, and the amount read is
//! limited.
//!
//! Opening a FIFO without a writer never returns, a terminal waits for its user, and `/dev/zero` has no end.
//! So the file type is checked before a byte is read, and the size is limited. Start at [`read`].

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Maximum size of a file that [`read`] returns: lists of revoked certificates have tens of millions of
/// bytes.
const BYTES_MAX: u64 = 256 << 20;

/// Opens a regular file. Anything else is refused without waiting.
///
/// # Errors
/// The system's error, or the type of the file if it is not a regular one.
pub fn open(path: &Path) -> io::Result<File> {
    // Opening a device may have an effect on it, so the type is checked first. The opened file is checked
    // again.
    regular(&path.metadata()?)?;
    // Without O_NONBLOCK, opening a FIFO waits for its writer, and opening a leased file for the lease
    // holder.
    let options = |flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match options(libc::O_NONBLOCK | libc::O_NOCTTY) {
        // Another program has a lease on the file. This attempt notifies it, so the wait ends.
        Err(why) if why.raw_os_error() == Some(libc::EWOULDBLOCK) => options(libc::O_NOCTTY)?,
        opened => opened?,
    };
    regular(&file.metadata()?)?;
    wait(&file)?;
    Ok(file)
}

/// Reads a regular file of at most 256 MiB, as [`open`] opens it.
///
/// # Errors
/// The system's error, the type of the file if it is not a regular one, or the limit if it is larger.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    bounded(open(path)?, BYTES_MAX)
}

/// Reads a regular file as a text.
///
/// # Errors
/// As [`read`], or it is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    text(read(path)?)
}

/// Reads the file of an argument, which may be a pipe. A regular file is read whole; from anything else at
/// most 256 MiB are read.
///
/// # Errors
/// The system's error, or more than that.
pub fn read_any(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let most = if file.metadata()?.is_file() { u64::MAX } else { BYTES_MAX };
    bounded(file, most)
}

/// Reads the file of an argument as text.
///
/// # Errors
/// As [`read_any`], or it is not UTF-8.
pub fn read_any_text(path: &Path) -> io::Result<String> {
    text(read_any(path)?)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

fn bounded(file: File, most: u64) -> io::Result<Vec<u8>> {
    let about = file.metadata()?;
    let mut bytes = Vec::new();
    if about.is_file() {
        // A size beyond this machine's memory is an error; it does not end the program.
        bytes.try_reserve_exact(usize::try_from(about.len().min(most)).unwrap_or(usize::MAX))?;
    }
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("longer than {} MiB, the most that is read of it", most >> 20),
        ));
    }
    Ok(bytes)
}

fn regular(about: &Metadata) -> io::Result<()> {
    let of = about.file_type();
    let kind = if of.is_file() {
        return Ok(());
    } else if of.is_dir() {
        "a folder"
    } else if of.is_fifo() {
        "a FIFO or pipe"
    } else if of.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(io::Error::other(format!("{kind}, and a regular file is expected")))
}

/// Clears O_NONBLOCK: some file systems apply it to reads too.
fn wait(file: &File) -> io::Result<()> {
    // SAFETY: asks for and sets flags of an open descriptor; no memory is involved.
    let set = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        flags != -1 && libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) != -1
    };
    if set { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_regular_file_is_read_and_anything_else_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        assert_eq!(read(&at("file")).unwrap(), b"text");
        assert_eq!(read_text(&at("link")).unwrap(), "text");
        let fifo = CString::new(at("fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: a path that ends in zero.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let told = |path: &Path| read(path).unwrap_err().to_string();
        assert_eq!(told(&at("fifo")), "a FIFO or pipe, and a regular file is expected");
        assert_eq!(told(folder.path()), "a folder, and a regular file is expected");
        assert_eq!(told(Path::new("/dev/zero")), "a device, and a regular file is expected");
        assert!(read(&at("socket")).is_err() && read(&at("none")).is_err());
        drop(socket);
    }

    #[test]
    fn what_has_no_end_is_read_to_the_most() {
        let why = read_any(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(why.to_string(), "longer than 256 MiB, the most that is read of it");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("exact");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        assert_eq!(bounded(File::open(&path).unwrap(), 1 << 20).unwrap().len(), 1 << 20);
        assert!(bounded(File::open(&path).unwrap(), (1 << 20) - 1).is_err());
        let sparse = folder.path().join("sparse");
        File::create(&sparse).unwrap().set_len(BYTES_MAX + 1).unwrap();
        assert_eq!(read(&sparse).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}

//! Operations of several system calls, which the standard library does on a thread of the blocking pool.
//!
//! Dropping one of these futures does not end the operation once it has begun.

use crate::blocking::spawn_blocking;
use crate::error::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};

/// Runs `work` with the path on a thread of the pool.
async fn on_pool<T: Send + 'static>(
    call: &'static str,
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let own = path.to_owned();
    let done = spawn_blocking(move || work(&own)).await;
    let done = done.unwrap_or_else(|why| Err(io::Error::other(why.to_string())));
    done.map_err(|why| Error::new(call, why).on(path.display()))
}

/// Returns the absolute path, without symbolic links, `.` and `..`.
///
/// # Errors
/// As realpath(3): ENOENT.
///
/// # Panics
/// Outside of a runtime.
pub async fn canonicalize(path: impl AsRef<Path>) -> Result<PathBuf> {
    on_pool("realpath", path.as_ref(), |path| path.canonicalize()).await
}

/// Copies the content and the permissions of a file, replacing an existing target; returns the number of
/// bytes.
///
/// # Errors
/// As [`std::fs::copy`]; a part may have been written.
///
/// # Panics
/// Outside of a runtime.
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
    let to = to.as_ref().to_owned();
    let told = to.display().to_string();
    let copied = on_pool("copy", from.as_ref(), move |from| std::fs::copy(from, to)).await;
    copied.map_err(|why| why.hint(format!("to {told}")))
}

/// Removes a directory with all that is in it. A symbolic link is removed, and not followed.
///
/// # Errors
/// As unlinkat(2); what was removed before the error is gone.
///
/// # Panics
/// Outside of a runtime.
pub async fn remove_dir_all(path: impl AsRef<Path>) -> Result<()> {
    on_pool("unlinkat", path.as_ref(), |path| std::fs::remove_dir_all(path)).await
}

/// Sets the permissions of a file or directory, following symbolic links.
///
/// # Errors
/// As chmod(2): EPERM.
///
/// # Panics
/// Outside of a runtime.
pub async fn set_permissions(path: impl AsRef<Path>, permissions: std::fs::Permissions) -> Result<()> {
    on_pool("chmod", path.as_ref(), move |path| std::fs::set_permissions(path, permissions)).await
}

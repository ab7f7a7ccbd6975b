//! Which files processes hold open, as `/proc/PID/fd` and `/proc/PID/fdinfo` tell (proc(5)).

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;

/// Bits of `flags` that tell how a file is open: `O_ACCMODE`; 0 is for reading.
const ACCESS: u32 = 0o3;

/// Returns whether the process `pid` has the file of `facts` open for writing.
///
/// `false` if the process has ended, or if this one may not look at it (ptrace(2), `PTRACE_MODE_READ`).
pub fn writes(pid: u32, facts: &Metadata) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let is_this = fs::metadata(entry.path())
            .is_ok_and(|open| (open.dev(), open.ino()) == (facts.dev(), facts.ino()));
        is_this && is_open_for_writing(pid, &entry.file_name().to_string_lossy())
    })
}

fn is_open_for_writing(pid: u32, descriptor: &str) -> bool {
    let Ok(told) = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")) else { return false };
    let flags = told.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & ACCESS != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::{File, OpenOptions};

    #[test]
    fn a_file_that_is_open_for_writing_is_told_from_one_that_is_read_or_closed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("a"), folder.path().join("b"));
        let pid = std::process::id();
        let written = File::create(&path).unwrap();
        let other = File::create(other).unwrap();
        let facts = fs::metadata(&path).unwrap();
        assert!(writes(pid, &facts));
        drop(written);
        assert!(!writes(pid, &facts) && writes(pid, &other.metadata().unwrap()));
        let read = File::open(&path).unwrap();
        assert!(!writes(pid, &facts));
        drop(read);
        let both = OpenOptions::new().read(true).append(true).open(&path).unwrap();
        assert!(writes(pid, &facts));
        drop(both);
        assert!(!writes(u32::MAX, &facts), "no such process");
    }
}

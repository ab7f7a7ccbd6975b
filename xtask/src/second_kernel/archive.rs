//! An archive in the format that Linux takes as its initial RAM file system.
//!
//! Source: `Documentation/driver-api/early-userspace/buffer-format.rst` of Linux 6.1 (form "newc" of cpio):
//! each entry is a head of hexadecimal numbers with a name that ends with NUL, padded to a multiple of four
//! bytes, and the content, padded likewise. Links hold their target as content.

use std::collections::BTreeSet;
use std::io::{self, Write};

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// Writes entries. Folders above an entry are made before it.
pub(super) struct Archive<W: Write> {
    out: W,
    folders: BTreeSet<String>,
    /// Numbers that tell files apart.
    entries: u32,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Archive<W> {
        Archive { out, folders: BTreeSet::new(), entries: 0 }
    }

    pub(super) fn folder(&mut self, name: &str) -> io::Result<()> {
        if name.is_empty() || !self.folders.insert(name.to_owned()) {
            return Ok(());
        }
        self.entry(name, FOLDER, b"")
    }

    /// Adds a file that may be executed.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.entry(name, FILE, content)
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, name: &str, target: &str) -> io::Result<()> {
        self.entry(name, LINK, target.as_bytes())
    }

    /// Writes the entry that ends an archive.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.put("TRAILER!!!", 0, b"")?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let above = name.rsplit_once('/').map_or("", |(above, _)| above);
        self.folder(above)?;
        self.entries += 1;
        self.put(name.trim_start_matches('/'), mode, content)
    }

    fn put(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let bytes = u32::try_from(content.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let name_bytes = name.len() as u32 + 1;
        // Number, mode, owner, group, links, time, bytes, two device numbers twice, bytes of the name, sum.
        let fields = [self.entries, mode, 0, 0, 1, 0, bytes, 0, 0, 0, 0, name_bytes, 0];
        write!(self.out, "070701")?;
        for field in fields {
            write!(self.out, "{field:08X}")?;
        }
        write!(self.out, "{name}\0")?;
        self.pad(6 + 8 * fields.len() + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, bytes: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..bytes.wrapping_neg() % 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_follow_their_folders_and_begin_at_multiples_of_four() -> io::Result<()> {
        let mut archive = Archive::new(Vec::new());
        archive.file("/lib/x86/c.so", b"12345")?;
        archive.file("/lib/x86/d.so", b"")?;
        archive.link("/bin/sh", "busybox")?;
        let bytes = archive.finish()?;
        let (mut at, mut found) = (0, Vec::new());
        let number = |at: usize| {
            let text = std::str::from_utf8(&bytes[at..at + 8]).unwrap_or_default();
            usize::from_str_radix(text, 16).map_err(io::Error::other)
        };
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (mode, length, name_length) = (number(at + 14)?, number(at + 54)?, number(at + 94)?);
            let name = String::from_utf8_lossy(&bytes[at + 110..at + 110 + name_length]).into_owned();
            let content = (at + 110 + name_length).next_multiple_of(4);
            let text = String::from_utf8_lossy(&bytes[content..content + length]).into_owned();
            found.push((name, mode >> 12, text));
            at = (content + length).next_multiple_of(4);
        }
        let entry = |name: &str, kind, text: &str| (format!("{name}\0"), kind, text.to_owned());
        let expected = [
            entry("lib", 4, ""),
            entry("lib/x86", 4, ""),
            entry("lib/x86/c.so", 8, "12345"),
            entry("lib/x86/d.so", 8, ""),
            entry("bin", 4, ""),
            entry("bin/sh", 10, "busybox"),
            entry("TRAILER!!!", 0, ""),
        ];
        assert_eq!(found, expected);
        Ok(())
    }
}

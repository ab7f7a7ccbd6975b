//! The blocks of a tar archive: POSIX ustar headers, with pax records where a field does not fit.
//!
//! What is written depends on the arguments alone: no time of writing, no name of a machine or a process.
//! What is read may come from other programs: ustar, pax and the long names of GNU tar. Start at [`header`]
//! and [`Reader`].

use std::io::{self, Read};

pub(super) const BLOCK: usize = 512;
/// Bytes of a pax header or a long name that are read.
const RECORDS_MAX: u64 = 1 << 20;
/// The largest numbers that the octal fields of 12 and of 8 bytes hold.
const LONG_MAX: u64 = 0o777_7777_7777;
const SHORT_MAX: u64 = 0o777_7777;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    /// Another name of a file before it.
    HardLink,
    Symlink,
    Directory,
}

/// One entry without its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Of a directory with a slash behind it.
    pub(super) path: Vec<u8>,
    /// Where a link leads.
    pub(super) link: Vec<u8>,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) size: u64,
    /// Seconds and nanoseconds.
    pub(super) mtime: (i64, u32),
}

/// Bytes that follow `size` bytes to fill their last block.
pub(super) fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

/// Returns where a path is cut into the fields `prefix` and `name`; `None`: it does not fit.
fn cut(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.len() <= 100 {
        return Some((&[], path));
    }
    let slash = |at: &usize| path.get(*at) == Some(&b'/');
    let from = path.len().checked_sub(101)?;
    let at = (from..path.len().min(156)).find(slash)?;
    let (prefix, name) = (path.get(..at)?, path.get(at + 1..)?);
    (!name.is_empty() && !prefix.is_empty()).then_some((prefix, name))
}

/// A pax record: its length counts itself.
fn record(records: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} {key}=").as_bytes());
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// Appends the header of an entry.
pub(super) fn header(head: &Head, out: &mut Vec<u8>) {
    let mut records = Vec::new();
    let fits = cut(&head.path);
    if fits.is_none() {
        record(&mut records, "path", &head.path);
    }
    if head.link.len() > 100 {
        record(&mut records, "linkpath", &head.link);
    }
    if head.size > LONG_MAX {
        record(&mut records, "size", head.size.to_string().as_bytes());
    }
    for (key, number) in [("uid", head.uid), ("gid", head.gid)] {
        if number > SHORT_MAX {
            record(&mut records, key, number.to_string().as_bytes());
        }
    }
    let (seconds, nanos) = head.mtime;
    let plain = u64::try_from(seconds).ok().filter(|seconds| nanos == 0 && *seconds <= LONG_MAX);
    if plain.is_none() {
        record(&mut records, "mtime", time(seconds, nanos).as_bytes());
    }
    if !records.is_empty() {
        let base = head.path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty()).unwrap_or_default();
        let name = [b"PaxHeaders/".as_slice(), base.get(..80).unwrap_or(base)].concat();
        let own = Head {
            kind: Kind::File,
            path: Vec::new(),
            link: Vec::new(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: records.len() as u64,
            mtime: (0, 0),
        };
        block(&own, (&[], &name), b'x', out);
        out.extend_from_slice(&records);
        out.resize(out.len() + padding(records.len() as u64), 0);
    }
    let flag = match head.kind {
        Kind::File => b'0',
        Kind::HardLink => b'1',
        Kind::Symlink => b'2',
        Kind::Directory => b'5',
    };
    let cut_off = head.path.get(..100).unwrap_or(&head.path);
    block(head, fits.unwrap_or((&[], cut_off)), flag, out);
}

fn time(seconds: i64, nanos: u32) -> String {
    match (seconds, nanos) {
        (seconds, 0) => seconds.to_string(),
        (seconds, nanos) if seconds >= 0 => format!("{seconds}.{nanos:09}"),
        // -0.3 s is -1 s and 700,000,000 ns.
        (seconds, nanos) => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanos),
    }
}

/// One block. What does not fit into a field is in a record before it.
fn block(head: &Head, (prefix, name): (&[u8], &[u8]), flag: u8, out: &mut Vec<u8>) {
    let start = out.len();
    let mut field = |bytes: &[u8], width: usize| {
        let bytes = bytes.get(..width).unwrap_or(bytes);
        out.extend_from_slice(bytes);
        out.resize(out.len() + width - bytes.len(), 0);
    };
    let octal = |number: u64, width: usize| format!("{number:0width$o}\0").into_bytes();
    field(name, 100);
    field(&octal(u64::from(head.mode & 0o7777), 7), 8);
    field(&octal(if head.uid > SHORT_MAX { 0 } else { head.uid }, 7), 8);
    field(&octal(if head.gid > SHORT_MAX { 0 } else { head.gid }, 7), 8);
    field(&octal(if head.size > LONG_MAX { 0 } else { head.size }, 11), 12);
    let seconds = u64::try_from(head.mtime.0).unwrap_or(0).min(LONG_MAX);
    field(&octal(seconds, 11), 12);
    field(b"        ", 8);
    field(&[flag], 1);
    field(&head.link, 100);
    field(b"ustar\x0000", 8);
    // Names of users are other people's on another machine.
    field(b"", 64);
    field(&octal(0, 7), 8);
    field(&octal(0, 7), 8);
    field(prefix, 155);
    field(b"", 12);
    let sum: u64 = out.get(start..).unwrap_or_default().iter().map(|byte| u64::from(*byte)).sum();
    if let Some(place) = out.get_mut(start + 148..start + 156) {
        place.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

/// Reads entries one after the other. The contents of a file are read from [`Reader::input`] in between.
#[derive(Debug)]
pub(super) struct Reader<R> {
    pub(super) input: R,
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Returns a number in octal, or in base 256 as GNU tar writes large ones.
fn number(field: &[u8]) -> Option<u64> {
    if field.first().is_some_and(|first| first & 0x80 != 0) {
        let (first, rest) = field.split_first()?;
        return rest.iter().try_fold(u64::from(first & 0x7f), |sum, byte| {
            sum.checked_mul(256)?.checked_add(u64::from(*byte))
        });
    }
    let text = std::str::from_utf8(field).ok()?;
    let text = text.trim_matches(['\0', ' ']);
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    field.get(..end).unwrap_or_default()
}

/// What pax records and long names say of the next entry.
#[derive(Debug, Default)]
struct Told {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<(i64, u32)>,
}

impl Told {
    fn records(&mut self, mut records: &[u8]) -> Option<()> {
        while !records.is_empty() {
            let space = records.iter().position(|byte| *byte == b' ')?;
            let length: usize = std::str::from_utf8(records.get(..space)?).ok()?.parse().ok()?;
            let record = records.get(space + 1..length.checked_sub(1)?)?;
            if records.get(length - 1) != Some(&b'\n') {
                return None;
            }
            let equals = record.iter().position(|byte| *byte == b'=')?;
            let (key, value) = (record.get(..equals)?, record.get(equals + 1..)?);
            let number = || std::str::from_utf8(value).ok()?.parse().ok();
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(number()?),
                b"uid" => self.uid = Some(number()?),
                b"gid" => self.gid = Some(number()?),
                b"mtime" => self.mtime = Some(time_of(std::str::from_utf8(value).ok()?)?),
                // A file in pieces: the contents of the entry are not its bytes.
                _ if key.starts_with(b"GNU.sparse.") => return None,
                _ => {}
            }
            records = records.get(length..)?;
        }
        Some(())
    }
}

fn time_of(text: &str) -> Option<(i64, u32)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = part.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    match (text.starts_with('-'), nanos) {
        (true, 1..) => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos)),
        _ => Some((seconds, nanos)),
    }
}

impl<R: Read> Reader<R> {
    fn block(&mut self) -> io::Result<[u8; BLOCK]> {
        let mut block = [0; BLOCK];
        self.input.read_exact(&mut block).map_err(|why| match why.kind() {
            io::ErrorKind::UnexpectedEof => broken("the archive was cut off"),
            _ => why,
        })?;
        Ok(block)
    }

    fn contents(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > RECORDS_MAX {
            return Err(broken("a header that is too long"));
        }
        let mut contents = vec![0; size as usize + padding(size)];
        self.input.read_exact(&mut contents).map_err(|_| broken("the archive was cut off"))?;
        contents.truncate(size as usize);
        Ok(contents)
    }

    /// Returns the next entry; its contents and their padding are to be read. `None`: the end of the archive.
    pub(super) fn next(&mut self) -> io::Result<Option<Head>> {
        let mut told = Told::default();
        loop {
            let block = self.block()?;
            if block.iter().all(|byte| *byte == 0) {
                let last = self.block()?;
                return if last == block {
                    Ok(None)
                } else {
                    Err(broken("a block of zeros between entries"))
                };
            }
            let field = |from: usize, bytes: usize| block.get(from..from + bytes).unwrap_or_default();
            let sum = |at: (usize, &u8)| if (148..156).contains(&at.0) { 32 } else { u64::from(*at.1) };
            let own: u64 = block.iter().enumerate().map(sum).sum();
            if number(field(148, 8)) != Some(own) {
                return Err(broken("the sum of a header is wrong"));
            }
            let of =
                |from, bytes| number(field(from, bytes)).ok_or_else(|| broken("not a number in a header"));
            let size = of(124, 12)?;
            match block.get(156).copied().unwrap_or_default() {
                b'x' => {
                    let records = self.contents(size)?;
                    told.records(&records).ok_or_else(|| broken("pax records that are not understood"))?;
                }
                // Of all entries: what it may say is not used.
                b'g' => drop(self.contents(size)?),
                b'L' => told.path = Some(text(&self.contents(size)?).to_vec()),
                b'K' => told.link = Some(text(&self.contents(size)?).to_vec()),
                flag => {
                    let kind = match flag {
                        b'0' | b'7' | 0 => Kind::File,
                        b'1' => Kind::HardLink,
                        b'2' => Kind::Symlink,
                        b'5' => Kind::Directory,
                        _ => return Err(broken("an entry that is not a file, a folder or a link")),
                    };
                    let (prefix, name) = (text(field(345, 155)), text(field(0, 100)));
                    let is_posix = field(257, 6) == b"ustar\0";
                    let path = match (prefix, is_posix) {
                        ([], _) | (_, false) => name.to_vec(),
                        (prefix, true) => [prefix, b"/", name].concat(),
                    };
                    let seconds = i64::try_from(of(136, 12)?).unwrap_or(0);
                    let size = if kind == Kind::File { told.size.unwrap_or(size) } else { 0 };
                    return Ok(Some(Head {
                        kind,
                        path: told.path.unwrap_or(path),
                        link: told.link.unwrap_or_else(|| text(field(157, 100)).to_vec()),
                        mode: (of(100, 8)? & 0o7777) as u32,
                        uid: told.uid.map_or_else(|| of(108, 8), Ok)?,
                        gid: told.gid.map_or_else(|| of(116, 8), Ok)?,
                        size,
                        mtime: told.mtime.unwrap_or((seconds, 0)),
                    }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn head(path: &str) -> Head {
        Head {
            kind: Kind::File,
            path: path.as_bytes().to_vec(),
            link: Vec::new(),
            mode: 0o640,
            uid: 7,
            gid: 8,
            size: 0,
            mtime: (1_000_000_000, 0),
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written_whatever_does_not_fit() {
        let long = "a long name of a folder/".repeat(20);
        let mut heads = vec![head("a"), head(&"n".repeat(100)), head(&"n".repeat(101)), head(&long)];
        for at in [99, 100, 101, 150, 154, 155, 156, 157, 200, 255, 256, 257] {
            heads.push(head(&format!("{}/{}", "d".repeat(at), "n".repeat(100))));
            heads.push(head(&format!("{}/n", "d".repeat(at))));
        }
        heads.push(Head { kind: Kind::Symlink, link: long.clone().into_bytes(), ..head("l") });
        heads.push(Head { kind: Kind::HardLink, link: b"a".to_vec(), ..head("h") });
        heads.push(Head { kind: Kind::Directory, ..head("d/") });
        heads.push(Head { uid: 1 << 40, gid: SHORT_MAX + 1, ..head("u") });
        for mtime in
            [(-1, 0), (-1, 700_000_000), (-7, 1), (5, 250_000_000), (1 << 40, 0), (i64::from(u32::MAX), 9)]
        {
            heads.push(Head { mtime, ..head("t") });
        }
        let mut bytes = Vec::new();
        heads.iter().for_each(|head| header(head, &mut bytes));
        bytes.resize(bytes.len() + 2 * BLOCK, 0);
        let mut reader = Reader { input: bytes.as_slice() };
        for head in &heads {
            assert_eq!(reader.next().unwrap().as_ref(), Some(head));
        }
        assert_eq!(reader.next().unwrap(), None);
        let large = Head { size: 1 << 40, ..head("large") };
        let mut bytes = Vec::new();
        header(&large, &mut bytes);
        assert_eq!(Reader { input: bytes.as_slice() }.next().unwrap(), Some(large));
    }

    #[test]
    fn an_archive_that_is_cut_off_or_spoiled_is_an_error_and_never_a_panic() {
        let mut bytes = Vec::new();
        header(&head(&"n".repeat(300)), &mut bytes);
        bytes.resize(bytes.len() + 2 * BLOCK, 0);
        let read = |bytes: &[u8]| {
            let mut reader = Reader { input: bytes };
            while reader.next()?.is_some() {}
            Ok::<_, io::Error>(())
        };
        read(&bytes).unwrap();
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "{end}");
        }
        for at in 0..3 * BLOCK {
            let mut spoiled = bytes.clone();
            spoiled[at] ^= 0x41;
            // A byte of a name in a record has no sum; all else is noticed, or changes nothing.
            let _ = read(&spoiled);
        }
    }
}

//! A folder as a page or as JSON: sorted by name, size or time, folders first.

use super::open::{Found, Patience, Refused, Root};
use crate::page;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use ringroad_gate::date::Stamp;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use std::cmp::Ordering;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// What is in a folder.
#[derive(Debug, Default)]
pub(super) struct Listed {
    entries: Vec<Entry>,
    /// How many there are besides, all behind these in the order.
    left_out: u64,
}

#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    folder: bool,
    bytes: u64,
    modified: i64,
}

/// What must be escaped in a part of a path.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'/')
    .add(b':')
    .add(b';')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?')
    .add(b'@')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Reads the folder that `root` has at `relative`: what would be served, that is, files and folders. Of a
/// link it reads what the root serves there, and nothing of what is outside. It waits for the disk.
///
/// Of more than `most` names those that come first in the order are kept; there are never more than twice as
/// many in memory.
pub(super) fn read(
    folder: &OwnedFd,
    root: &Root,
    relative: &[u8],
    hidden: bool,
    order: Order,
    most: usize,
) -> Result<Listed, Refused> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = openat(folder, ".", flags, Mode::empty())?;
    let mut listed = Listed::default();
    for entry in Dir::read_from(&open)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || (!hidden && name.starts_with(b".")) || !is_askable(name) {
            continue;
        }
        // What has gone meanwhile has gone.
        let Ok(mut stat) = statat(&open, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            let path = if relative.is_empty() { name.to_vec() } else { [relative, b"/", name].concat() };
            stat = match root.find(&path, Patience::Disk) {
                Ok(Found::File(file, _)) => fstat(&file)?,
                Ok(Found::Folder(folder)) => fstat(&folder)?,
                Err(_) => continue,
            };
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            continue;
        }
        if listed.entries.len() >= most.saturating_mul(2) {
            listed.cut(order, most);
        }
        listed.entries.push(Entry {
            name: name.to_vec(),
            folder: kind == FileType::Directory,
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified: stat.st_mtime,
        });
    }
    listed.cut(order, most);
    listed.sort(order);
    Ok(listed)
}

/// Returns whether a request can name it: the paths of requests have no control characters, and a backslash
/// is a slash to some clients.
fn is_askable(name: &[u8]) -> bool {
    !name.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\')
}

/// The column that a listing is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Size,
    Time,
}

impl Column {
    const ALL: [(&'static str, Column, &'static str, &'static str); 3] = [
        ("name", Column::Name, "Name", ""),
        ("size", Column::Size, "Size", " class=\"size\""),
        ("time", Column::Time, "Modified", " class=\"time\""),
    ];
}

/// The order that a request asks for: `?sort=size&order=desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) column: Column,
    pub(super) descending: bool,
}

impl Order {
    /// What is not known is the order by name.
    pub(super) fn of(sort: Option<&str>, order: Option<&str>) -> Order {
        let named = Column::ALL.iter().find(|(name, ..)| Some(*name) == sort);
        let column = named.map_or(Column::Name, |(_, column, ..)| *column);
        Order { column, descending: order == Some("desc") }
    }
}

impl Order {
    fn compare(self, a: &Entry, b: &Entry) -> Ordering {
        let by = match self.column {
            Column::Name => natural(&a.name, &b.name),
            Column::Size => a.bytes.cmp(&b.bytes),
            Column::Time => a.modified.cmp(&b.modified),
        };
        let by = if self.descending { by.reverse() } else { by };
        b.folder.cmp(&a.folder).then(by).then_with(|| natural(&a.name, &b.name))
    }
}

impl Listed {
    /// Sorts the entries: folders first, equal ones by name.
    fn sort(&mut self, order: Order) {
        self.entries.sort_by(|a, b| order.compare(a, b));
    }

    /// Keeps so many, those that come first in the order.
    fn cut(&mut self, order: Order, most: usize) {
        if self.entries.len() > most {
            self.entries.select_nth_unstable_by(most, |a, b| order.compare(a, b));
            self.left_out += (self.entries.len() - most) as u64;
            self.entries.truncate(most);
        }
    }
}

/// Returns the folder as JSON: an object with its path and its entries.
pub(super) fn json(path: &str, listed: &Listed) -> String {
    let decoded: Vec<u8> = percent_encoding::percent_decode_str(path).collect();
    let mut out = String::from("{\"path\":");
    crate::json::string(&mut out, &decoded);
    out.push_str(",\"entries\":[");
    for (at, entry) in listed.entries.iter().enumerate() {
        out.push_str(if at == 0 { "\n{\"name\":" } else { ",\n{\"name\":" });
        crate::json::string(&mut out, &entry.name);
        // Writing to a string does not fail.
        let _ = if entry.folder {
            write!(out, ",\"type\":\"folder\"")
        } else {
            write!(out, ",\"type\":\"file\",\"size\":{}", entry.bytes)
        };
        let _ = write!(out, ",\"modified\":\"{}Z\"}}", stamp(entry.modified).seconds());
    }
    let _ = writeln!(out, "],\"more\":{},\"left_out\":{}}}", listed.left_out > 0, listed.left_out);
    out
}

/// Numbers by their value, letters without their case; then as bytes, so that it is an order.
fn natural(a: &[u8], b: &[u8]) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (Some(&one), Some(&other)) = (left.first(), right.first()) else {
            return left.len().cmp(&right.len()).then_with(|| a.cmp(b));
        };
        if one.is_ascii_digit() && other.is_ascii_digit() {
            let (one, behind_one) = number(left);
            let (other, behind_other) = number(right);
            // Without leading zeros, more digits are a larger number.
            let order = one.len().cmp(&other.len()).then_with(|| one.cmp(other));
            if order != Ordering::Equal {
                return order;
            }
            (left, right) = (behind_one, behind_other);
            continue;
        }
        let order = one.to_ascii_lowercase().cmp(&other.to_ascii_lowercase());
        if order != Ordering::Equal {
            return order;
        }
        (left, right) = (left.get(1..).unwrap_or_default(), right.get(1..).unwrap_or_default());
    }
}

fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, behind) = text.split_at(end);
    let zeros = digits.iter().position(|byte| *byte != b'0').unwrap_or(digits.len());
    (digits.get(zeros..).unwrap_or_default(), behind)
}

/// Builds the page of a folder; `path` is the request's path.
pub(super) fn page(path: &str, listed: &Listed, order: Order) -> String {
    let shown = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(out, "<main>\n<h1>{}</h1>", crumbs(path));
    out.push_str("<table>\n<thead><tr>");
    for (name, column, title, class) in Column::ALL {
        let chosen = order.column == column;
        // The same column again is the other way round.
        let link = if chosen && !order.descending { "&amp;order=desc" } else { "" };
        let mark = match (chosen, order.descending) {
            (false, _) => "",
            (true, false) => " \u{2191}",
            (true, true) => " \u{2193}",
        };
        let _ = write!(out, "<th{class}><a href=\"?sort={name}{link}\">{title}{mark}</a>");
    }
    out.push_str("</thead>\n<tbody>\n");
    if path != "/" {
        out.push_str(
            "<tr class=\"folder\"><td><a href=\"../\">../</a><td class=\"size\"><td class=\"time\">\n",
        );
    }
    for entry in &listed.entries {
        let slash = if entry.folder { "/" } else { "" };
        // A name is never taken for a scheme: what begins a URL is a part of a path.
        let href = percent_encode(&entry.name, ESCAPED);
        let name = page::escape(&std::ffi::OsStr::from_bytes(&entry.name).to_string_lossy());
        let class = if entry.folder { " class=\"folder\"" } else { "" };
        let bytes = if entry.folder { String::new() } else { size(entry.bytes) };
        let _ = writeln!(
            out,
            "<tr{class}><td><a href=\"{href}{slash}\">{name}{slash}</a><td class=\"size\">{bytes}\
             <td class=\"time\">{}",
            time(entry.modified)
        );
    }
    out.push_str("</tbody>\n</table>\n");
    if listed.entries.is_empty() {
        out.push_str("<p class=\"foot\">This folder is empty.</p>\n");
    }
    if listed.left_out > 0 {
        let (shown, more) = (listed.entries.len(), listed.left_out);
        let names = if more == 1 { "name is" } else { "names are" };
        let _ = writeln!(
            out,
            "<p class=\"foot\">These are the first {shown} in this order; {more} more {names} not shown.</p>"
        );
    }
    out.push_str("</main>\n");
    page::document(&page::escape(&shown), &out)
}

/// Builds a path with a link to the folder of each part.
fn crumbs(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut out = match parts.len() {
        0 => "/".to_owned(),
        deep => format!("<a href=\"{}\">/</a>", "../".repeat(deep)),
    };
    for (at, part) in parts.iter().enumerate() {
        let name = page::escape(&percent_encoding::percent_decode_str(part).decode_utf8_lossy());
        match parts.len() - at - 1 {
            0 => out.push_str(&name),
            up => {
                let _ = write!(out, "<a href=\"{}\">{name}/</a>", "../".repeat(up));
            }
        }
    }
    if !parts.is_empty() {
        out.push('/');
    }
    out
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let unit = UNITS.get(unit).unwrap_or(&"");
    if value < 99.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// As in a log: sorted as text it is sorted in time.
fn time(seconds: i64) -> String {
    stamp(seconds).minutes()
}

fn stamp(seconds: i64) -> Stamp {
    let since = std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    Stamp::at(std::time::UNIX_EPOCH + since)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_sorted_as_people_sort_them() {
        let mut names = ["b10", "a", "B9", "b9", "b010", "A2", "_", "a1b", "a1"];
        names.sort_by(|a, b| natural(a.as_bytes(), b.as_bytes()));
        assert_eq!(names, ["_", "a", "a1", "a1b", "A2", "B9", "b9", "b010", "b10"]);
    }

    #[test]
    fn sizes_have_three_digits_at_most() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (102_348, "99.9 KiB"),
            (102_400, "100 KiB"),
            (1_048_575, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn a_name_becomes_a_link_and_never_markup() {
        let entry =
            |name: &str, folder| Entry { name: name.into(), folder, bytes: 2048, modified: 784_111_777 };
        let entries =
            vec![entry("sub & co", true), entry("<img src=x>\"'.txt", false), entry("javascript:x", false)];
        let order = Order::of(None, None);
        let text = page("/a%20b/c/", &Listed { entries, left_out: 0 }, order);
        for part in [
            "<h1><a href=\"../../\">/</a><a href=\"../\">a b/</a>c/</h1>",
            "<a href=\"sub%20%26%20co/\">sub &amp; co/</a>",
            "<a href=\"%3Cimg%20src%3Dx%3E%22%27.txt\">&lt;img src=x&gt;&quot;&#39;.txt</a>",
            "<a href=\"javascript%3Ax\">javascript:x</a>",
            "2.0 KiB<td class=\"time\">1994-11-06 08:49",
            "<title>/a b/c/</title>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_listing_is_sorted_by_a_column_with_folders_first() {
        let entry =
            |name: &str, folder, bytes, modified| Entry { name: name.into(), folder, bytes, modified };
        let mut listed = Listed {
            entries: vec![
                entry("b", false, 1, 3),
                entry("a", false, 9, 1),
                entry("z", true, 0, 2),
                entry("c", false, 1, 2),
            ],
            left_out: 0,
        };
        for (sort, order, expected) in [
            (None, None, "zabc"),
            (Some("name"), Some("desc"), "zcba"),
            (Some("size"), None, "zbca"),
            (Some("size"), Some("desc"), "zabc"),
            (Some("time"), Some("asc"), "zacb"),
            (Some("x"), None, "zabc"),
        ] {
            listed.sort(Order::of(sort, order));
            let names: Vec<u8> = listed.entries.iter().flat_map(|entry| entry.name.clone()).collect();
            assert_eq!(String::from_utf8(names).unwrap(), expected, "{sort:?} {order:?}");
        }
    }

    #[test]
    fn a_listing_as_json_is_an_object_with_every_name() {
        let entries = vec![
            Entry { name: b"a\"b\xff".to_vec(), folder: false, bytes: 5, modified: 784_111_777 },
            Entry { name: b"sub".to_vec(), folder: true, bytes: 4096, modified: 0 },
        ];
        let expected = "{\"path\":\"/x y/\",\"entries\":[\n{\"name\":\"a\\\"b\\\\xff\",\"type\":\"file\",\"size\":5,\
                        \"modified\":\"1994-11-06T08:49:37Z\"},\n{\"name\":\"sub\",\"type\":\"folder\",\
                        \"modified\":\"1970-01-01T00:00:00Z\"}],\"more\":true,\"left_out\":7}\n";
        assert_eq!(json("/x%20y/", &Listed { entries, left_out: 7 }), expected);
    }

    #[test]
    fn only_what_would_be_served_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "12345").unwrap();
        std::fs::write(folder.path().join(".hidden"), "").unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for (name, to) in
            [("inside", "file"), ("outside", "/etc/passwd"), ("up", ".."), ("nowhere", "nothing")]
        {
            std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
        }
        for name in ["a\\b", "a\nb"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let open = openat(rustix::fs::CWD, folder.path(), OFlags::PATH, Mode::empty()).unwrap();
        let root = Root::open(folder.path()).unwrap();
        let names = |hidden| {
            let listed = read(&open, &root, b"", hidden, Order::of(None, None), 100).unwrap();
            listed
                .entries
                .iter()
                .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["sub", "file", "inside"]);
        assert_eq!(names(true), ["sub", ".hidden", "file", "inside"]);
    }

    #[test]
    fn of_more_names_than_are_shown_those_that_come_first_are() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..1000 {
            let file = std::fs::File::create(folder.path().join(format!("f{number}"))).unwrap();
            file.set_len(1000 - number).unwrap();
        }
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let open = openat(rustix::fs::CWD, folder.path(), OFlags::PATH, Mode::empty()).unwrap();
        let root = Root::open(folder.path()).unwrap();
        for (sort, order, first, last) in [
            (None, None, "f0", "f8"),
            (Some("name"), Some("desc"), "f999", "f991"),
            (Some("size"), None, "f999", "f991"),
            (Some("size"), Some("desc"), "f0", "f8"),
        ] {
            let order = Order::of(sort, order);
            for (most, left_out) in [(10, 991), (1001, 0), (1000, 1), (usize::MAX, 0)] {
                let listed = read(&open, &root, b"", false, order, most).unwrap();
                let shown = usize::try_from(1001 - left_out).unwrap();
                assert_eq!((listed.entries.len(), listed.left_out), (shown, left_out), "{order:?} {most}");
                let name = |at: usize| String::from_utf8_lossy(&listed.entries[at].name).into_owned();
                assert_eq!((name(0), name(1)), ("sub".to_owned(), first.to_owned()), "{order:?} {most}");
                assert_eq!(name(9), last, "{order:?} {most}");
                let text = page("/", &listed, order);
                assert_eq!(text.contains(&format!("{left_out} more name")), left_out > 0, "{order:?} {most}");
            }
        }
    }
}

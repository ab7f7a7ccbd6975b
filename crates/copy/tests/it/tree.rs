//! Trees to copy, written by plain calls: everything `-a` must keep, and nothing the code under test had a
//! hand in.
//!
//! A [`Node`] is one entry as data, so that a test can state a tree and a generator can make one up.
//! [`build`] writes it, directory descriptor by directory descriptor. [`everything`] is the tree of all the
//! things there are.

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fsetxattr,
    linkat, makedev, mkdirat, mknodat, open, openat, statat, symlinkat, utimensat,
};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What an entry is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Directory(Vec<Node>),
    /// Bytes at offsets, and the size; between them are holes.
    File(Vec<(u64, Vec<u8>)>, u64),
    Symlink(OsString),
    /// A further name of the node with this label, which was written before.
    HardLink(u32),
    Fifo,
    Socket,
    CharacterDevice(u32, u32),
    BlockDevice(u32, u32),
}

/// One entry: its name, what it is, and what it carries. What is `None` stays as the system makes it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: OsString,
    pub(crate) kind: Kind,
    pub(crate) mode: Option<u32>,
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) time: Option<(i64, i64)>,
    pub(crate) attributes: Vec<(String, Vec<u8>)>,
    pub(crate) label: Option<u32>,
}

/// What this user and this file system allow: a tree of it can be compared, a part that is left out is named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// Owners, devices, trusted attributes.
    pub(crate) root: bool,
    /// Extended attributes of users.
    pub(crate) attributes: bool,
    /// Access control lists.
    pub(crate) lists: bool,
}

impl Abilities {
    /// Found by trying, in a directory of the file system in question.
    pub(crate) fn of(directory: &Path) -> Abilities {
        let path = directory.join(".abilities");
        let file = File::create(&path).unwrap();
        let attributes = fsetxattr(&file, "user.try", b"1", XattrFlags::empty()).is_ok();
        let lists =
            fsetxattr(&file, "system.posix_acl_access", &access_list(&[(65_534, 4)]), XattrFlags::empty())
                .is_ok();
        std::fs::remove_file(&path).unwrap();
        Abilities { root: rustix::process::geteuid().is_root(), attributes, lists }
    }
}

pub(crate) fn node(name: impl Into<OsString>, kind: Kind) -> Node {
    let name = name.into();
    Node { name, kind, mode: None, owner: None, time: None, attributes: Vec::new(), label: None }
}

pub(crate) fn directory(name: impl Into<OsString>, inside: Vec<Node>) -> Node {
    node(name, Kind::Directory(inside))
}

pub(crate) fn file(name: impl Into<OsString>, bytes: impl Into<Vec<u8>>) -> Node {
    let bytes = bytes.into();
    let size = bytes.len() as u64;
    node(name, Kind::File(if bytes.is_empty() { vec![] } else { vec![(0, bytes)] }, size))
}

pub(crate) fn sparse(name: impl Into<OsString>, size: u64, pieces: Vec<(u64, Vec<u8>)>) -> Node {
    node(name, Kind::File(pieces, size))
}

pub(crate) fn symlink(name: impl Into<OsString>, target: impl Into<OsString>) -> Node {
    node(name, Kind::Symlink(target.into()))
}

pub(crate) fn hard_link(name: impl Into<OsString>, label: u32) -> Node {
    node(name, Kind::HardLink(label))
}

impl Node {
    pub(crate) fn mode(self, mode: u32) -> Node {
        Node { mode: Some(mode), ..self }
    }

    pub(crate) fn owner(self, user: u32, group: u32) -> Node {
        Node { owner: Some((user, group)), ..self }
    }

    pub(crate) fn time(self, seconds: i64, nanoseconds: i64) -> Node {
        Node { time: Some((seconds, nanoseconds)), ..self }
    }

    pub(crate) fn attribute(mut self, name: &str, value: impl Into<Vec<u8>>) -> Node {
        self.attributes.push((name.to_string(), value.into()));
        self
    }

    pub(crate) fn label(self, label: u32) -> Node {
        Node { label: Some(label), ..self }
    }
}

/// Bytes that look like nothing and are the same for the same seed (xorshift64*).
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; length];
    // Word by word: without optimisation an iterator of bytes takes a second for some MiB.
    for place in bytes.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let word = state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes();
        place.copy_from_slice(&word[..place.len()]);
    }
    bytes
}

/// An access control list in the kernel's form: rw- for the owner, the named users' bits, r-- for the rest.
pub(crate) fn access_list(users: &[(u32, u16)]) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let mut entries = vec![(0x01_u16, 6_u16, NOBODY)];
    entries.extend(users.iter().map(|(user, bits)| (0x02, *bits, *user)));
    entries.extend([(0x04, 4, NOBODY), (0x10, 6, NOBODY), (0x20, 4, NOBODY)]);
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Writes nodes into an existing directory.
pub(crate) fn build(path: &Path, nodes: &[Node]) {
    let root = open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let mut labels = HashMap::new();
    for node in nodes {
        write(root.as_fd(), node, &mut labels);
    }
}

/// Where labelled nodes lie: their directory, and their name in it.
type Labels = HashMap<u32, (OwnedFd, OsString)>;

fn write(at: BorrowedFd<'_>, node: &Node, labels: &mut Labels) {
    let name = node.name.as_os_str();
    let refused = |what: &str, error: rustix::io::Errno| -> ! { panic!("{what} {name:?}: {error}") };
    let special = |kind: FileType, device: u64| {
        mknodat(at, name, kind, Mode::from_raw_mode(0o600), device)
            .unwrap_or_else(|error| refused("mknod", error));
    };
    match &node.kind {
        Kind::Directory(inside) => {
            mkdirat(at, name, Mode::from_raw_mode(0o700)).unwrap_or_else(|error| refused("mkdir", error));
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let here = openat(at, name, flags, Mode::empty()).unwrap_or_else(|error| refused("open", error));
            for node in inside {
                write(here.as_fd(), node, labels);
            }
        }
        Kind::File(pieces, size) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = openat(at, name, flags, Mode::from_raw_mode(0o644));
            let file = File::from(file.unwrap_or_else(|error| refused("create", error)));
            file.set_len(*size).unwrap();
            for (offset, bytes) in pieces {
                file.write_all_at(bytes, *offset).unwrap();
            }
        }
        Kind::Symlink(target) => {
            symlinkat(target, at, name).unwrap_or_else(|error| refused("symlink", error));
        }
        Kind::HardLink(label) => {
            let (directory, first) = &labels[label];
            linkat(directory, first, at, name, AtFlags::empty())
                .unwrap_or_else(|error| refused("link", error));
        }
        Kind::Fifo => special(FileType::Fifo, 0),
        Kind::Socket => special(FileType::Socket, 0),
        Kind::CharacterDevice(major, minor) => special(FileType::CharacterDevice, makedev(*major, *minor)),
        Kind::BlockDevice(major, minor) => special(FileType::BlockDevice, makedev(*major, *minor)),
    }
    carry(at, node);
    if let Some(label) = node.label {
        let here = rustix::io::dup(at).unwrap();
        labels.insert(label, (here, name.to_os_string()));
    }
}

/// What an entry carries: owner before mode (a change of owner takes setuid away), times last.
fn carry(at: BorrowedFd<'_>, node: &Node) {
    let name = node.name.as_os_str();
    if let Some((user, group)) = node.owner {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        chownat(at, name, user, group, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    for (attribute, value) in &node.attributes {
        if matches!(node.kind, Kind::Symlink(_)) {
            // There is no call for an attribute of a link in a directory: this path leads there.
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&at));
            let path = Path::new(&path).join(name);
            rustix::fs::lsetxattr(&path, attribute.as_str(), value, XattrFlags::empty()).unwrap();
        } else {
            let entry = openat(at, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
            fsetxattr(&entry, attribute.as_str(), value, XattrFlags::empty())
                .unwrap_or_else(|error| panic!("{attribute} of {name:?}: {error}"));
        }
    }
    if let Some(mode) = node.mode {
        match node.kind {
            Kind::Directory(_) | Kind::File(..) => {
                let entry = openat(at, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
                fchmod(&entry, Mode::from_raw_mode(mode)).unwrap();
            }
            _ => rustix::fs::chmodat(at, name, Mode::from_raw_mode(mode), AtFlags::empty()).unwrap(),
        }
    }
    if let Some((seconds, nanoseconds)) = node.time {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(at, name, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    let _ = statat(at, name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// A name that is no text.
pub(crate) fn bytes(name: &[u8]) -> OsString {
    OsStr::from_bytes(name).to_os_string()
}

/// Everything that can be in a tree, as far as this user and this file system have it.
pub(crate) fn everything(abilities: Abilities) -> Vec<Node> {
    let mut tree = vec![
        directory("sizes", sizes()),
        directory("holes", holes()),
        directory("modes", modes()),
        directory("times", times()),
        directory("links", links()),
        directory("names", names()),
        directory("special", special(abilities)),
        directory("empty", vec![]).mode(0o750).time(1_000_000_000, 1),
        directory("many", (0..300).map(|nth| file(format!("{nth:03}"), format!("{nth}"))).collect()),
    ];
    // A directory gets its times before its neighbours are written: it would lose them if these were in it.
    tree.push(directory("nested", nested(6)).time(981_173_106, 123_456_789));
    if abilities.root {
        tree.push(directory("owners", owners()));
    }
    if abilities.attributes {
        tree.push(directory("attributes", attributes(abilities)));
    }
    if abilities.lists {
        tree.push(directory("lists", lists()));
    }
    tree
}

fn sizes() -> Vec<Node> {
    let sizes =
        [0, 1, 511, 4095, 4096, 4097, 65_536, 131_072, 131_073, 1 << 20, (1 << 20) + 1, (5 << 20) + 17];
    sizes.iter().map(|size| file(format!("{size}"), noise(*size, *size as u64))).collect()
}

fn holes() -> Vec<Node> {
    const MIB: u64 = 1 << 20;
    let comb = (0..16).map(|nth| (nth * MIB / 4, noise(4096, nth))).collect();
    vec![
        sparse("only", 3 * MIB, vec![]),
        sparse("front", 2 * MIB, vec![(2 * MIB - 5, noise(5, 1))]),
        sparse("back", 2 * MIB, vec![(0, noise(10, 2))]),
        sparse("middle", 2 * MIB, vec![(0, noise(4096, 3)), (2 * MIB - 4096, noise(4096, 4))]),
        sparse("comb", 4 * MIB, comb),
        sparse("wide", 64 * MIB, vec![(48 * MIB, noise(9, 5))]),
        // Zeros that were written are no hole, and need not become one.
        file("zeros", vec![0; MIB as usize]),
    ]
}

fn modes() -> Vec<Node> {
    let mut nodes: Vec<Node> =
        [0o644, 0o600, 0o400, 0o755, 0o777, 0o4755, 0o2755, 0o6711, 0o1644, 0o7777, 0o000]
            .iter()
            .map(|mode| file(format!("file-{mode:04o}"), noise(100, u64::from(*mode))).mode(*mode))
            .collect();
    // Without privilege a file without read permission cannot be copied either.
    if !rustix::process::geteuid().is_root() {
        nodes.retain(|node| node.mode != Some(0));
    }
    nodes.extend(
        [0o755, 0o700, 0o1777, 0o2775, 0o3770, 0o500, 0o555]
            .iter()
            .map(|mode| directory(format!("directory-{mode:04o}"), vec![file("inside", "x")]).mode(*mode)),
    );
    nodes
}

fn times() -> Vec<Node> {
    vec![
        file("nanoseconds", "x").time(1_234_567_890, 987_654_321),
        file("before-1970", "x").time(-1, 999_999_999),
        file("far", "x").time(4_102_444_800, 1),
        directory("directory", vec![file("inside", "x").time(1, 2)]).time(1_111_111_111, 222_222_222),
        symlink("link", "nanoseconds").time(1_222_333_444, 555_666_777),
        node("fifo", Kind::Fifo).time(1_333_333_333, 444_444_444),
    ]
}

fn links() -> Vec<Node> {
    vec![
        file("one", noise(5000, 11)).label(1).mode(0o640).time(1_400_000_000, 4),
        hard_link("two", 1),
        directory("elsewhere", vec![hard_link("three", 1), symlink("up", "../one").label(2)]),
        symlink("to-file", "one"),
        symlink("to-directory", "elsewhere"),
        symlink("dangling", "nowhere/at/all"),
        symlink("absolute", "/etc/hostname"),
        symlink("to-itself", "to-itself"),
        // XFS takes 1024 bytes.
        symlink("long", "x/".repeat(510)),
        symlink(bytes(b"odd-target"), bytes(b"\xff\xfe\n")),
        hard_link("another-name-of-a-link", 2),
        node("pipe", Kind::Fifo).label(3),
        hard_link("another-name-of-a-pipe", 3),
    ]
}

fn names() -> Vec<Node> {
    let names: [&[u8]; 12] = [
        b"-rf",
        b" leading",
        b"trailing ",
        b"new\nline",
        b"*?[]",
        b"back\\slash",
        b"'quotes\"",
        b".hidden",
        b"\xff\xfe\x80",
        b"\xc3\xa9 and \xe6\x97\xa5",
        b"\x01\x1b[2J",
        b"...",
    ];
    let mut nodes: Vec<Node> = names.iter().map(|name| file(bytes(name), *name)).collect();
    nodes.push(file(OsString::from_vec(vec![b'n'; 255]), "long"));
    nodes.push(directory(bytes(b"\x80dir"), vec![symlink(bytes(b"\x81"), bytes(b"\x82"))]));
    nodes
}

fn nested(depth: u64) -> Vec<Node> {
    let time = |node: Node, nth: i64| node.time(1_500_000_000 + nth, 7 * nth);
    let mut inside = vec![time(file("leaf", noise(50, depth)), depth as i64)];
    if depth > 0 {
        inside.push(time(directory(format!("level-{depth}"), nested(depth - 1)), 100 + depth as i64));
    }
    inside
}

fn special(abilities: Abilities) -> Vec<Node> {
    let mut nodes = vec![node("fifo", Kind::Fifo).mode(0o620), node("socket", Kind::Socket).mode(0o711)];
    if abilities.root {
        nodes.push(node("null", Kind::CharacterDevice(1, 3)).mode(0o666));
        nodes.push(node("loop", Kind::BlockDevice(7, 0)).mode(0o660).owner(0, 6));
    }
    nodes
}

fn owners() -> Vec<Node> {
    vec![
        file("user", "x").owner(1234, 0),
        file("both", "x").owner(65_534, 4321),
        file("setuid", "x").owner(1234, 4321).mode(0o6755),
        directory("directory", vec![file("inside", "x").owner(3, 4)]).owner(1, 2).mode(0o2750),
        symlink("link", "user").owner(1234, 4321),
        node("fifo", Kind::Fifo).owner(5, 6),
    ]
}

fn attributes(abilities: Abilities) -> Vec<Node> {
    let mut nodes = vec![
        file("one", "x").attribute("user.colour", "blue"),
        file("several", "x")
            .attribute("user.a", noise(200, 1))
            .attribute("user.empty", "")
            .attribute("user.b\u{e9}", "text"),
        file("read-only", "x").attribute("user.colour", "red").mode(0o444).time(1_600_000_000, 16),
        directory("directory", vec![]).attribute("user.of", "a directory").time(1_600_000_001, 17),
    ];
    if abilities.root {
        nodes.push(file("trusted", "x").attribute("trusted.secret", "y"));
        nodes.push(symlink("link", "one").attribute("trusted.of", "a link").time(1_600_000_002, 18));
        // cap_net_raw+ep, version 2.
        let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        nodes.push(file("capable", "x").mode(0o755).attribute("security.capability", capability));
    }
    nodes
}

fn lists() -> Vec<Node> {
    let list = access_list(&[(1234, 6), (65_534, 4)]);
    // The owner may search it, since the owner's bits come first: else rsync, as user nobody, could not.
    let mut of_directory = list.clone();
    of_directory[6] = 7;
    vec![
        file("file", "x").attribute("system.posix_acl_access", list.clone()).time(1_700_000_000, 19),
        directory("default", vec![file("inside", "x")]).attribute("system.posix_acl_default", list.clone()),
        directory("both", vec![])
            .attribute("system.posix_acl_access", of_directory)
            .attribute("system.posix_acl_default", list),
    ]
}

/// Directories in each other until no path reaches the bottom (PATH_MAX is 4096), with a file at each level.
pub(crate) fn deep(levels: u64) -> Vec<Node> {
    let mut inside = vec![file("bottom", "here")];
    for level in 0..levels {
        let name = format!("{level:03}-{}", "d".repeat(96));
        inside =
            vec![file("beside", noise(10, level)), directory(name, inside).time(1_000 + level as i64, 5)];
    }
    inside
}

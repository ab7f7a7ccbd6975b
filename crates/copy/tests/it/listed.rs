//! Listings that tell another type than an entry has: where something is mounted over it, and on file systems
//! that layer others.

use crate::fuse::{Faults, Fuse};
use crate::support::{archive, clean, engines, folders};
use ringroad_copy::{Dereference, Options};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that is mounted over another, until it is dropped.
struct Over(PathBuf);

impl Over {
    fn mount(what: &Path, over: &Path) -> Option<Over> {
        std::fs::write(over, "").unwrap();
        match rustix::mount::mount_bind(what, over) {
            Ok(()) => Some(Over(over.to_path_buf())),
            Err(why) => {
                eprintln!("skipped: mounting over a file: {why}");
                None
            }
        }
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[test]
fn what_is_mounted_over_a_file_is_copied_as_what_it_is_and_a_fifo_is_not_opened() {
    let (place, source, _) = folders();
    let (pipe, socket) = (place.path().join("pipe"), place.path().join("socket"));
    fifo(&pipe);
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::fs::write(source.join("plain"), "x").unwrap();
    let over = [(Path::new("/dev/null"), "null"), (&socket, "socket"), (&pipe, "pipe")];
    let over: Option<Vec<Over>> =
        over.iter().map(|(what, name)| Over::mount(what, &source.join(name))).collect();
    let Some(_over) = over else { return };
    // A writer that waits for a reader. A copy that opened the FIFO would let it go on, and lose its line.
    let to_pipe = pipe.clone();
    let writer = std::thread::spawn(move || {
        let mut pipe = std::fs::File::options().write(true).open(to_pipe).unwrap();
        pipe.write_all(b"important")
    });
    for &engine in engines() {
        for resume in [false, true] {
            let target = place.path().join(format!("{}-{resume}", engine.name()));
            clean(&source, &target, &Options { resume, ..archive(engine) });
            let kind = |name: &str| target.join(name).symlink_metadata().unwrap().file_type();
            assert!(kind("plain").is_file() && kind("pipe").is_fifo(), "{engine:?}");
            assert!(kind("null").is_char_device() && kind("socket").is_socket(), "{engine:?}");
        }
    }
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut reader = std::fs::File::options().read(true).custom_flags(nonblock).open(&pipe).unwrap();
    let mut polled = [rustix::event::PollFd::new(&reader, rustix::event::PollFlags::IN)];
    let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut polled, Some(&minute)), Ok(1), "the writer waits still");
    writer.join().unwrap().unwrap();
    let mut line = String::new();
    reader.read_to_string(&mut line).unwrap();
    assert_eq!(line, "important");
}

/// `DT_FIFO`, `DT_DIR`, `DT_REG`, `DT_LNK`.
const TYPES: [u32; 4] = [1, 4, 8, 10];

/// A tree of which the listing tells that everything is of one type.
fn tree(kind: u32) -> Option<Fuse> {
    let fuse = Fuse::mount(Faults::default())?;
    for name in ["one", "two", "three/four", "five/six", "seven/eight/nine"] {
        let path = fuse.mounted.join("tree").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, name).unwrap();
    }
    std::fs::create_dir(fuse.mounted.join("tree/empty")).unwrap();
    let names: &[&str] = &["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "empty"];
    let listed: Vec<(&str, u32)> = names.iter().map(|name| (*name, kind)).collect();
    fuse.set(Faults { listed_as: listed.leak(), ..Faults::default() });
    Some(fuse)
}

fn assert_same(source: &Path, target: &Path, what: &str) {
    let found = crate::compare::differences(source, target, crate::compare::ALL);
    assert!(found.is_empty(), "{what}: {found:?}");
}

#[test]
fn a_tree_of_which_the_listing_tells_wrong_types_arrives_as_it_is() {
    for kind in TYPES {
        let Some(fuse) = tree(kind) else { return };
        let source = fuse.mounted.join("tree");
        for &engine in engines() {
            let (_place, _, target) = folders();
            clean(&source, &target, &archive(engine));
            assert_same(&source, &target, &format!("{engine:?}, type {kind}"));
            let follows = target.with_extension("followed");
            clean(&source, &follows, &Options { dereference: Dereference::Always, ..archive(engine) });
            assert_same(&source, &follows, &format!("{engine:?}, type {kind}, links followed"));
        }
    }
}

#[test]
fn parts_patterns_lists_and_deletion_go_by_what_entries_are() {
    for kind in TYPES {
        let Some(fuse) = tree(kind) else { return };
        let source = fuse.mounted.join("tree");
        for &engine in engines() {
            let what = format!("{engine:?}, type {kind}");
            let resume = Options { resume: true, ..archive(engine) };
            let (place, _, target) = folders();
            for index in 0..3 {
                let part = ringroad_copy::Part { index, count: 3 };
                clean(&source, &target, &Options { part: Some(part), ..resume.clone() });
            }
            clean(&source, &target, &Options { finish: true, ..resume.clone() });
            assert_same(&source, &target, &format!("{what}, in parts"));

            // A pattern that means folders.
            let some = place.path().join("some");
            let exclude = vec!["three/".to_string(), "one/".to_string()];
            clean(&source, &some, &Options { exclude, ..archive(engine) });
            assert!(some.join("one").is_file() && !some.join("three").exists(), "{what}");

            // What the listings tell of both sides is not what is there.
            let mirror = fuse.mounted.join(format!("mirror-{}", engine.name()));
            clean(&source, &mirror, &archive(engine));
            std::fs::create_dir_all(mirror.join("more/two")).unwrap();
            std::fs::write(mirror.join("more/two/one"), "more").unwrap();
            std::fs::write(mirror.join("eight"), "more").unwrap();
            let report = clean(&source, &mirror, &Options { delete: true, ..archive(engine) });
            assert_eq!(report.totals.deleted, 4, "{what}");
            assert_same(&source, &mirror, &format!("{what}, deletion"));
        }
    }
}

//! Files that the kernel refuses to open, to read or to write, by a watcher it asks (fanotify): the same
//! answers beneath every engine, at a chosen file.
//!
//! The watcher needs root, and answers with an error number of its choice from Linux 6.14 on. What cannot be
//! had is said.

use crate::over::Over;
use crate::support::{Told, archive, assert_no_torn_file, engines, files, folders, many, run};
use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyResponse, InitFlags, MarkFlags, MaskFlags, Response,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Asked before a range is read or written (6.14). The crate's list is older.
const PRE_ACCESS: u64 = 0x10_0000;

/// A group that is asked about what happens to marked files.
struct Watcher {
    group: Fanotify,
    asked: AtomicUsize,
}

impl Watcher {
    /// `None`, with the reason on stderr, where it cannot be had.
    fn new(class: InitFlags) -> Option<Watcher> {
        let flags = class | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        match Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC) {
            Ok(group) => Some(Watcher { group, asked: AtomicUsize::new(0) }),
            Err(why) => {
                eprintln!("skipped: fanotify: {why}");
                None
            }
        }
    }

    /// `false`, with the reason on stderr, where the kernel cannot be made to ask this.
    fn marks(&self, mask: MaskFlags, path: &Path) -> bool {
        let marked = self.group.mark(MarkFlags::FAN_MARK_ADD, mask, rustix::fs::CWD, Some(path));
        if let Err(why) = marked {
            eprintln!("skipped: fanotify cannot watch {} for {mask:?}: {why}", path.display());
        }
        marked.is_ok()
    }

    /// Answers while `work` runs. `answer` gets the number of the question.
    fn during<T>(&self, answer: impl Fn(usize) -> Response + Sync, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Over(&over);
            scope.spawn(|| {
                let look = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                while !over.load(Ordering::Relaxed) {
                    let group = self.group.as_fd();
                    if poll(&mut [PollFd::new(&group, PollFlags::IN)], Some(&look)) != Ok(1) {
                        continue;
                    }
                    for event in self.group.read_events().unwrap_or_default() {
                        let Some(fd) = event.fd() else { continue };
                        let answer = answer(self.asked.fetch_add(1, Ordering::Relaxed));
                        self.group.write_response(FanotifyResponse::new(fd, answer)).unwrap();
                    }
                }
            });
            work()
        })
    }
}

/// Refused with this error (6.14; needs the class that is asked before contents are there).
fn refused_with(why: Errno) -> Response {
    Response::from_bits_retain(Response::FAN_DENY.bits() | (why.raw_os_error() as u32) << 24)
}

/// The chosen file fails with `text`, nothing of it is left, and all others are there.
fn only_the_chosen_file_fails(class: InitFlags, mask: MaskFlags, response: Response, text: &str) {
    for &engine in engines() {
        let (_place, source, target) = folders();
        many(&source, 60, 5000);
        let Some(watcher) = Watcher::new(class) else { return };
        if !watcher.marks(mask, &source.join("d3/f13")) {
            return;
        }
        let told = Told::default();
        let report = watcher.during(|_| response, || run(&source, &target, &archive(engine), &told));
        drop(watcher);
        let errors = told.errors.into_inner().unwrap();
        assert_eq!((report.totals.failed, report.totals.files), (1, 59), "{engine:?}: {errors:?}");
        assert!(errors.len() == 1 && errors[0].contains("d3/f13") && errors[0].contains(text), "{errors:?}");
        assert!(!target.join("d3/f13").exists(), "{engine:?}: half a file is not left");
        assert_eq!(files(&target).len(), 59);
        assert_no_torn_file(&source, &target);
    }
}

#[test]
fn a_file_that_may_not_be_opened_fails_alone() {
    let (class, mask) = (InitFlags::FAN_CLASS_CONTENT, MaskFlags::FAN_OPEN_PERM);
    only_the_chosen_file_fails(class, mask, Response::FAN_DENY, "Operation not permitted");
}

#[test]
fn a_file_that_may_not_be_read_fails_alone() {
    let (class, mask) = (InitFlags::FAN_CLASS_CONTENT, MaskFlags::FAN_ACCESS_PERM);
    only_the_chosen_file_fails(class, mask, Response::FAN_DENY, "Operation not permitted");
}

#[test]
fn a_read_that_fails_in_the_disk_fails_its_file_alone() {
    let (class, mask) = (InitFlags::FAN_CLASS_PRE_CONTENT, MaskFlags::from_bits_retain(PRE_ACCESS));
    only_the_chosen_file_fails(class, mask, refused_with(Errno::IO), "Input/output error");
}

/// The third write into a directory of the target fails, which the kernel is told when it asks about it.
fn third_write_fails(why: Errno, check: impl Fn(&str, &Path, &Path, &ringroad_copy::Report, &[String])) {
    for &engine in engines() {
        let (_place, source, target) = folders();
        many(&source, 200, 5000);
        std::fs::create_dir_all(target.join("d3")).unwrap();
        let Some(watcher) = Watcher::new(InitFlags::FAN_CLASS_PRE_CONTENT) else { return };
        let mask = MaskFlags::from_bits_retain(PRE_ACCESS) | MaskFlags::FAN_EVENT_ON_CHILD;
        if !watcher.marks(mask, &target.join("d3")) {
            return;
        }
        let told = Told::default();
        let answer = |nth| if nth == 2 { refused_with(why) } else { Response::FAN_ALLOW };
        let report = watcher.during(answer, || run(&source, &target, &archive(engine), &told));
        assert!(watcher.asked.load(Ordering::Relaxed) > 2, "{engine:?}: the third write was asked about");
        drop(watcher);
        let errors = told.errors.into_inner().unwrap();
        assert_no_torn_file(&source, &target);
        check(engine.name(), &source, &target, &report, &errors);
    }
}

#[test]
fn a_write_that_fails_in_the_disk_fails_its_file_alone() {
    third_write_fails(Errno::IO, |engine, _, target, report, errors| {
        assert_eq!((report.totals.failed, report.totals.files), (1, 199), "{engine}: {errors:?}");
        assert!(errors.len() == 1 && errors[0].contains("Input/output error"), "{engine}: {errors:?}");
        assert_eq!(files(target).len(), 199, "{engine}");
    });
}

#[test]
fn a_quota_that_refuses_one_file_fails_that_file_alone() {
    for full in [Errno::NOSPC, Errno::DQUOT] {
        third_write_fails(full, |engine, _, target, report, errors| {
            assert!(report.full, "{engine}: {report:?}");
            assert_eq!((report.totals.failed, report.totals.files), (1, 199), "{engine}: {errors:?}");
            assert_eq!(files(target).len(), 199, "{engine}: {errors:?}");
        });
    }
}

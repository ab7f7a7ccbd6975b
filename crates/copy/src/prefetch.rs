//! Reads a large file ahead of its copy, on a thread of its own.
//!
//! One thread that copies a file which is not cached does two things in turn: it makes the source's pages and
//! requests them from the disk, and it copies pages that have arrived. The kernel reads ahead, but the thread
//! that copies does that work too. Here a second thread does it: it reads the source into nothing, by
//! `sendfile(2)` to `/dev/null`, which moves no byte. Nothing depends on it: what it does not read, the copy
//! reads.
//!
//! It is of use only if `copy_file_range(2)` moves the bytes through the page cache. A server or a file
//! system that copies by itself reads nothing here, so the thread begins after the first step, and only
//! if that step is cached afterwards ([`Prefetch::reached`]). Where bytes are read and written by this
//! program (another file system, holes, a manifest), and where the kernel does not say what is cached
//! (FUSE, overlay and network file systems), nothing is read ahead here.

use crate::clock::{Clock, For};
use crate::sample::is_cached;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::Scope;

/// The number of `cachestat(2)`, on every architecture.
const CACHESTAT: libc::c_long = 451;
/// Bytes per read: few, so that the thread ends soon.
const PIECE_BYTES: u64 = 512 << 10;
/// Bytes that are read beyond what is copied, at first and at least. Where memory is limited, pages that are
/// read too early are taken away before they are copied, and read twice.
const FIRST_BYTES: u64 = 8 << 20;
const LEAST_BYTES: u64 = 4 << 20;
/// At most: what a fast disk reads in some 20 ms.
const MOST_BYTES: u64 = 64 << 20;
/// Steps of the copy within a window: at each it tells how far it is.
const STEPS: u64 = 4;
/// Bytes of which it is asked whether they were taken away.
const LOOK_BYTES: u64 = 1 << 20;

/// One file that is read ahead.
pub(crate) struct Prefetch<'a> {
    source: BorrowedFd<'a>,
    size: u64,
    place: Mutex<Place<'a>>,
    moved: Condvar,
}

/// How far the copy is, and how far ahead is read.
struct Place<'a> {
    at: u64,
    /// The end of what the thread has read.
    read: u64,
    window: Window,
    /// Whether the thread has begun; it does after the first step.
    begun: bool,
    /// One file at a time is read ahead: other workers keep the other CPUs busy. `None`: the copy does its
    /// own reading.
    turn: Option<Turn<'a>>,
    ended: bool,
}

/// The bytes ahead of the copy that are read.
///
/// It doubles as long as nothing of it is lost. When pages were taken away before they were copied, it is
/// halved and does not grow again.
#[derive(Clone, Copy, Debug)]
struct Window {
    bytes: u64,
    most: u64,
    /// From here on, the bytes at the place of the copy were read within a window of this size.
    shows_at: u64,
}

impl Window {
    fn new(at: u64) -> Window {
        Window { bytes: FIRST_BYTES, most: MOST_BYTES, shows_at: at + FIRST_BYTES }
    }

    /// Takes note of whether the bytes at `at` were taken away; `None` if the kernel does not say.
    fn look(&mut self, at: u64, lost: impl FnOnce() -> Option<bool>) {
        if at < self.shows_at || self.most == LEAST_BYTES {
            return;
        }
        let before = self.bytes;
        match lost() {
            Some(true) => {
                self.bytes = (before / 2).max(LEAST_BYTES);
                self.most = self.bytes;
            }
            Some(false) => self.bytes = (before * 2).min(self.most),
            // It is not asked again.
            None => self.shows_at = u64::MAX,
        }
        if self.bytes != before {
            self.shows_at = at + before;
        }
    }
}

/// The right to read ahead. Dropping it gives it back.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Ends reading ahead when it is dropped.
pub(crate) struct Ends<'e, 'a>(&'e Prefetch<'a>);

impl Drop for Ends<'_, '_> {
    fn drop(&mut self) {
        self.0.place().ended = true;
        self.0.moved.notify_one();
    }
}

impl<'a> Prefetch<'a> {
    /// Returns one for a file of `size` bytes that is to be copied from `at`; `None` if it is cached (as far
    /// as three of its bytes show), if the kernel does not say, or if another file is being read ahead.
    pub(crate) fn of(
        source: BorrowedFd<'a>,
        (at, size): (u64, u64),
        busy: &'a AtomicBool,
        clock: &mut Clock,
    ) -> Option<Prefetch<'a>> {
        let mut cached = |place| clock.call(For::Read, || is_cached(source, place));
        let last = size.saturating_sub(1);
        let mut all = true;
        for place in [at, at.midpoint(last), last] {
            all &= cached(place)?;
        }
        if all || busy.swap(true, Ordering::Relaxed) {
            return None;
        }
        let turn = Some(Turn(busy));
        let place = Place { at, read: 0, window: Window::new(at), begun: false, turn, ended: false };
        Some(Prefetch { source, size, place: Mutex::new(place), moved: Condvar::new() })
    }

    /// Records that the copy has reached the byte `at`, and returns the bytes of its next step; `None` if the
    /// copy does its own reading. The first time, begins to read ahead, if the bytes before `at` went through
    /// the page cache.
    pub(crate) fn reached<'scope>(&'scope self, at: u64, scope: &'scope Scope<'scope, '_>) -> Option<usize> {
        let mut place = self.place();
        place.at = at;
        if !place.begun {
            place.begun = true;
            if !self.begin(at, scope) {
                place.turn = None;
            }
        }
        place.turn.as_ref()?;
        // What the thread has not read shows nothing of it.
        if place.read >= at + LOOK_BYTES {
            place.window.look(at, || is_lost(self.source, at));
        }
        self.moved.notify_one();
        Some(step(place.window.bytes))
    }

    fn begin<'scope>(&'scope self, at: u64, scope: &'scope Scope<'scope, '_>) -> bool {
        if is_cached(self.source, at.saturating_sub(1)) != Some(true) {
            return false;
        }
        let nothing = OFlags::WRONLY | OFlags::CLOEXEC;
        let Ok(nothing) = rustix::fs::open("/dev/null", nothing, Mode::empty()) else { return false };
        let read = move |mut from| {
            // An error ends it: the copy meets it too, and reports it.
            rustix::fs::sendfile(&nothing, self.source, Some(&mut from), PIECE_BYTES as usize).unwrap_or(0)
                as u64
        };
        crate::threads::begin(scope, move || self.run(read))
    }

    /// Returns a guard that ends the thread when it is dropped. The request that the thread is making is
    /// finished.
    pub(crate) fn ends(&self) -> Ends<'_, 'a> {
        Ends(self)
    }

    /// Reads one piece after the other, from where the copy is, until all are read or the copy has ended.
    /// `read` returns the bytes that it has read; 0: there are no more.
    fn run(&self, read: impl Fn(u64) -> u64) {
        let mut next = 0;
        while let Some(at) = self.wait(next) {
            next = next.max(at);
            if next >= self.size {
                return;
            }
            match read(next) {
                0 => return,
                bytes => next += bytes,
            }
        }
    }

    /// Waits until the bytes from `next` are within the window. Returns how far the copy is; `None`: it has
    /// ended.
    fn wait(&self, next: u64) -> Option<u64> {
        let mut place = self.place();
        place.read = next;
        let far = |place: &mut Place<'_>| !place.ended && next >= place.at + place.window.bytes;
        let place = self.moved.wait_while(place, far).unwrap_or_else(PoisonError::into_inner);
        (!place.ended).then_some(place.at)
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Place<'a>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of the first step.
pub(crate) const FIRST_STEP_BYTES: usize = step(FIRST_BYTES);

const fn step(window: u64) -> usize {
    (window / STEPS) as usize
}

/// Returns whether pages from `at` on were taken away to make room (`cachestat(2)`, Linux 6.5); `None` if the
/// kernel does not say.
fn is_lost(source: BorrowedFd<'_>, at: u64) -> Option<bool> {
    // `struct cachestat_range`: offset and length.
    let range: [u64; 2] = [at, LOOK_BYTES];
    // `struct cachestat`: pages that are cached, dirty, written back, evicted, and evicted recently.
    let mut pages = [0_u64; 5];
    // SAFETY: both arrays have the layout of the call's structures (`linux/mman.h`) and outlive it. The
    // kernel reads the first and writes the second, no more than their size.
    let answer =
        unsafe { libc::syscall(CACHESTAT, source.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0_u32) };
    let [.., evicted, _] = pages;
    (answer == 0).then_some(evicted > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fs::Advice;
    use std::fs::File;
    use std::io::{Seek, Write};
    use std::os::fd::AsFd;
    use std::sync::mpsc;

    /// Returns a file that is on the disk and not cached; `None` if the kernel keeps it or says nothing.
    fn cold(bytes: usize) -> Option<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; bytes]).unwrap();
        file.sync_all().unwrap();
        // A look at a page that is not cached makes the kernel read it, and only it.
        for advice in [Advice::Random, Advice::DontNeed] {
            rustix::fs::fadvise(&file, 0, None, advice).unwrap();
        }
        (is_cached(file.as_fd(), bytes as u64 / 3) == Some(false)).then_some(file)
    }

    fn of<'a>(file: &'a File, busy: &'a AtomicBool) -> Option<Prefetch<'a>> {
        Prefetch::of(file.as_fd(), (0, file.metadata().unwrap().len()), busy, &mut Clock::new(false))
    }

    #[test]
    fn one_file_at_a_time_is_read_ahead_and_none_that_is_cached() {
        let Some(file) = cold(8 << 20) else {
            return eprintln!("skipped: no file of our own can be had here");
        };
        let busy = AtomicBool::new(false);
        let first = of(&file, &busy);
        assert!(first.is_some() && of(&file, &busy).is_none(), "one at a time");
        drop(first);
        // What was looked at may be on its way: only pages that have arrived are forgotten.
        let last = file.metadata().unwrap().len() - 1;
        for place in [0, last / 2, last] {
            rustix::io::pread(&file, &mut [0; 1], place).unwrap();
        }
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        assert!(of(&file, &busy).is_some(), "the next");
        let mut file = file;
        file.rewind().unwrap();
        std::io::copy(&mut file, &mut std::io::sink()).unwrap();
        assert!(of(&file, &busy).is_none(), "it is cached");
        assert!(!busy.load(Ordering::Relaxed));
    }

    #[test]
    fn a_copy_that_goes_past_the_page_cache_is_not_read_ahead() {
        let Some(file) = cold(8 << 20) else {
            return eprintln!("skipped: no file of our own can be had here");
        };
        let at = 6 << 20;
        for through_cache in [false, true] {
            if through_cache {
                rustix::io::pread(&file, &mut [0; 1], at - 1).unwrap();
            }
            let busy = AtomicBool::new(true);
            let prefetch = of_place(&file, 8 << 20, 0, &busy);
            prefetch.place().begun = false;
            std::thread::scope(|scope| {
                let _end = prefetch.ends();
                let steps = [at, at + 4096].map(|at| prefetch.reached(at, scope).is_some());
                assert_eq!(steps, [through_cache; 2]);
                assert_eq!(busy.load(Ordering::Relaxed), through_cache, "otherwise another file may be");
            });
        }
    }

    /// Returns one that reads ahead already, of a copy that is at `at`.
    fn of_place<'a>(file: &'a File, size: u64, at: u64, busy: &'a AtomicBool) -> Prefetch<'a> {
        let turn = Some(Turn(busy));
        let place = Place { at, read: 0, window: Window::new(at), begun: true, turn, ended: false };
        Prefetch { source: file.as_fd(), size, place: Mutex::new(place), moved: Condvar::new() }
    }

    #[test]
    fn what_the_thread_has_not_read_does_not_widen_its_window() {
        let Some(file) = cold(20 << 20) else {
            return eprintln!("skipped: no file of our own can be had here");
        };
        if is_lost(file.as_fd(), 0).is_none() {
            return eprintln!("skipped: this kernel does not say what it took away");
        }
        let busy = AtomicBool::new(true);
        let prefetch = of_place(&file, 20 << 20, 0, &busy);
        std::thread::scope(|scope| {
            let at = FIRST_BYTES;
            for (read, window) in [(0, FIRST_BYTES), (at, FIRST_BYTES), (at + LOOK_BYTES, 2 * FIRST_BYTES)] {
                prefetch.place().read = read;
                assert_eq!(prefetch.reached(at, scope), Some(step(window)), "{read}");
            }
        });
    }

    #[test]
    fn pieces_are_read_in_order_up_to_a_window_ahead_of_the_copy_and_none_after_its_end() {
        let file = tempfile::tempfile().unwrap();
        let size = 4 * MOST_BYTES - 1;
        let busy = AtomicBool::new(true);
        let prefetch = of_place(&file, size, PIECE_BYTES, &busy);
        let (read, all) = mpsc::channel();
        std::thread::scope(|scope| {
            let end = prefetch.ends();
            scope.spawn(|| {
                prefetch.run(|at| {
                    read.send(at).unwrap();
                    PIECE_BYTES
                });
                drop(read);
            });
            let mut next = PIECE_BYTES;
            // The last place is beyond the bytes that are read so far: they are left out.
            for at in [PIECE_BYTES, FIRST_BYTES, 3 * MOST_BYTES] {
                let step = prefetch.reached(at, scope).unwrap() as u64;
                next = next.max(at);
                while next < at + step * STEPS {
                    assert_eq!(all.recv(), Ok(next));
                    next += PIECE_BYTES;
                }
            }
            assert!(next < size, "more is left");
            drop(end);
            assert_eq!(all.recv(), Err(mpsc::RecvError), "nothing more, and the thread has ended");
        });
        drop(prefetch);
        assert!(!busy.load(Ordering::Relaxed), "another file may be read ahead");
    }

    #[test]
    fn the_thread_ends_where_the_file_does() {
        let file = tempfile::tempfile().unwrap();
        let busy = AtomicBool::new(true);
        let prefetch = of_place(&file, 3 * PIECE_BYTES + 1, 0, &busy);
        let read = Mutex::new(Vec::new());
        prefetch.run(|at| {
            read.lock().unwrap().push(at / PIECE_BYTES);
            PIECE_BYTES
        });
        assert_eq!(read.into_inner().unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_window_doubles_as_long_as_nothing_is_lost_and_is_halved_for_good_where_something_is() {
        let mut window = Window::new(0);
        let mut at = 0;
        let mut after = |window: &mut Window, lost| {
            // Before that, what is cached shows nothing of this size.
            window.look(window.shows_at - 1, || panic!("too early"));
            at = at.max(window.shows_at);
            window.look(at, || lost);
            window.bytes
        };
        assert_eq!(
            [Some(false); 4].map(|lost| after(&mut window, lost)),
            [16, 32, 64, 64].map(|mb| mb << 20)
        );
        assert_eq!(after(&mut window, Some(true)), 32 << 20);
        assert_eq!(
            [Some(false); 2].map(|lost| after(&mut window, lost)),
            [32 << 20; 2],
            "it does not grow again"
        );
        assert_eq!([Some(true); 4].map(|lost| after(&mut window, lost)), [16, 8, 4, 4].map(|mb| mb << 20));
        window.look(u64::MAX, || panic!("nothing is left to decide"));
        let mut silent = Window::new(0);
        silent.look(silent.shows_at, || None);
        silent.look(u64::MAX - 1, || panic!("the kernel has not said it before"));
        assert_eq!(silent.bytes, FIRST_BYTES);
    }

    #[test]
    fn pages_that_were_taken_away_are_seen_and_those_never_read_are_not() {
        let Some(mut file) = cold(1 << 20) else {
            return eprintln!("skipped: no file of our own can be had here");
        };
        if is_lost(file.as_fd(), 0).is_none() {
            return eprintln!("skipped: this kernel does not say what it took away");
        }
        assert_eq!(is_lost(file.as_fd(), 0), Some(false), "forgotten on request, not taken away");
        file.rewind().unwrap();
        std::io::copy(&mut file, &mut std::io::sink()).unwrap();
        assert_eq!(is_lost(file.as_fd(), 0), Some(false), "cached");
        let (none, flags) = (std::ptr::null_mut(), libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that stays as long as it is.
        // Its pages are advised about and unmapped, and no reference to its bytes is made.
        let taken = unsafe {
            let start = libc::mmap(none, 1 << 20, libc::PROT_READ, flags, file.as_raw_fd(), 0);
            assert_ne!(start, libc::MAP_FAILED);
            let filled = libc::madvise(start, 1 << 20, libc::MADV_POPULATE_READ);
            let taken = libc::madvise(start, 1 << 20, libc::MADV_PAGEOUT);
            libc::munmap(start, 1 << 20);
            filled == 0 && taken == 0
        };
        if taken && is_cached(file.as_fd(), 0) == Some(false) {
            assert_eq!(is_lost(file.as_fd(), 0), Some(true));
        }
    }
}

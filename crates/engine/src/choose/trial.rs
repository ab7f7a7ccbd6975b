//! Trials: each runs a driver's system calls once and checks the results.
//!
//! A trial runs in this process, or in a forked copy where a seccomp filter may end the caller (`child.rs`).
//! A trial decides nothing: its progress and findings are in the [`Report`], which both processes see, and
//! `refusal.rs` interprets it. Every wait in it has a limit.

use crate::driver::uring::setup::{ENTRIES_MIN, build};
use ringroad_uring::abi::*;
use ringroad_uring::{BufferRing, Cqe, Probe, Ring, Sqe, Wait};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// The step of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Step {
    Begin,
    Setup,
    Map,
    Probe,
    Buffers,
    Nop,
    Receive,
    Send,
    Accept,
    AcceptMultishot,
    Timeout,
    Cancel,
    Files,
    Readiness,
}

impl Step {
    const ALL: [Step; 14] = [
        Step::Begin,
        Step::Setup,
        Step::Map,
        Step::Probe,
        Step::Buffers,
        Step::Nop,
        Step::Receive,
        Step::Send,
        Step::Accept,
        Step::AcceptMultishot,
        Step::Timeout,
        Step::Cancel,
        Step::Files,
        Step::Readiness,
    ];

    pub(super) fn of(number: u32) -> Step {
        Step::ALL.into_iter().find(|step| *step as u32 == number).unwrap_or(Step::Begin)
    }

    /// Returns the system call and its purpose.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Step::Begin => ("setitimer", "a deadline for the trial"),
            Step::Setup => ("io_uring_setup", "making a ring"),
            Step::Map => ("mmap", "mapping the ring's queues"),
            Step::Probe => ("io_uring_register", "asking which operations there are"),
            Step::Buffers => ("io_uring_register", "offering buffers"),
            Step::Nop => ("io_uring_enter", "an operation that does nothing"),
            Step::Receive => ("io_uring_enter", "a receive that stands, and its cancel"),
            Step::Send => ("io_uring_enter", "a send"),
            Step::Accept => ("io_uring_enter", "an accept"),
            Step::AcceptMultishot => ("io_uring_enter", "a multishot accept"),
            Step::Timeout => ("io_uring_enter", "a timeout"),
            Step::Cancel => ("io_uring_enter", "the cancel of a read that waits"),
            Step::Files => ("io_uring_enter", "operations on files"),
            Step::Readiness => ("the system's calls", "an event that is waited for"),
        }
    }
}

/// Not an errno: the kernel returned a wrong result.
pub(super) const WRONG: i32 = 1 << 16;

/// Not an errno: no result in time.
pub(super) const SILENT: i32 = WRONG + 1;

/// The file operations that are tried, in the form that the driver uses. A failure is reported but does not
/// refuse the driver: the thread pool does what a ring cannot.
pub(super) const FILES: [&str; 5] = ["WRITE", "READ", "FSYNC", "STATX", "OPENAT"];

/// Time limit for each wait of a trial, and for a trial in a child. It passes only where the kernel does not
/// answer: on a machine that pauses, an answer comes later.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What the trial found, in memory that a forked child shares with its parent. Zero is "not tried".
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) step: AtomicU32,
    /// Every needed step passed.
    pub(super) passed: AtomicU32,
    /// The trial has ended, whatever its result.
    pub(super) ended: AtomicU32,
    /// The failure, if it did not pass: an errno, [`WRONG`] or [`SILENT`].
    pub(super) errno: AtomicI32,
    /// The errno of a set-up without flags, if the one with flags was refused.
    pub(super) plain_errno: AtomicI32,
    pub(super) setup_flags: AtomicU32,
    pub(super) features: AtomicU32,
    /// Bits of the supported opcodes, and whether they were probed.
    pub(super) opcodes: [AtomicU64; 4],
    pub(super) asked: AtomicU32,
    /// Result of the multishot accept: 0, or the failure.
    pub(super) multishot_accept: AtomicI32,
    /// Results by [`FILES`]: 0, or the failure.
    pub(super) files: [AtomicI32; FILES.len()],
}

impl Report {
    fn at(&self, step: Step) {
        self.step.store(step as u32, Release);
    }
}

const GROUP: u16 = 1;
const BUFFERS: u16 = 8;
const BUFFER_BYTES: u32 = 256;

/// A ring, and the deadline for its completions.
struct Tried {
    ring: Ring,
    until: Instant,
}

/// Tries everything that the driver needs, on the smallest ring it can use.
pub(super) fn io_uring(report: &Report) -> Result<(), i32> {
    let mut tried = make(report)?;
    probe(report, &tried.ring)?;
    report.at(Step::Buffers);
    // Dropped before the ring. Dropping the ring ends requests that still select from the buffers.
    let mut buffers = BufferRing::new(&tried.ring, GROUP, BUFFERS, BUFFER_BYTES).map_err(errno)?;
    report.at(Step::Nop);
    let answer = tried.one(Sqe::nop())?;
    expect(answer.result == 0)?;
    receive(report, &mut tried, &mut buffers)?;
    report.at(Step::Timeout);
    let now = __kernel_timespec { tv_sec: 0, tv_nsec: 1 };
    let answer = tried.one(Sqe::timeout(&now, 0, 0))?;
    expect(answer.result == -libc::ETIME)?;
    report.at(Step::Cancel);
    cancel(&mut tried)?;
    report.at(Step::Accept);
    accept(report, &mut tried)
}

/// Tries file operations. Separate, because they start kernel threads, which takes longer than everything
/// else.
pub(super) fn files(report: &Report) -> Result<(), i32> {
    let mut tried = make(report)?;
    report.at(Step::Files);
    on_file(report, &mut tried)
}

fn make(report: &Report) -> Result<Tried, i32> {
    report.at(Step::Setup);
    let ring = build(ENTRIES_MIN, ENTRIES_MIN * 4).map_err(|refused| {
        if refused.call != "io_uring_setup" {
            report.at(Step::Map);
        } else if refused.source.raw_os_error() == Some(libc::EINVAL) {
            // Find out whether the flags are the cause.
            let plain = Ring::builder(ENTRIES_MIN).build().err();
            report.plain_errno.store(plain.map_or(0, |refused| errno(refused.source)), Relaxed);
        }
        errno(refused.source)
    })?;
    report.setup_flags.store(ring.setup_flags(), Relaxed);
    report.features.store(ring.features().0, Relaxed);
    Ok(Tried { ring, until: Instant::now() + PATIENCE })
}

fn probe(report: &Report, ring: &Ring) -> Result<(), i32> {
    report.at(Step::Probe);
    let known = Probe::of(ring).map_err(errno)?;
    for opcode in (0..=u8::MAX).filter(|opcode| known.supports(*opcode)) {
        report.opcodes[usize::from(opcode / 64)].fetch_or(1 << (opcode % 64), Relaxed);
    }
    report.asked.store(1, Relaxed);
    Ok(())
}

/// Checks that a multishot receive delivers two messages, and ends when it is cancelled.
fn receive(report: &Report, tried: &mut Tried, buffers: &mut BufferRing) -> Result<(), i32> {
    const STANDING: u64 = 7;
    report.at(Step::Receive);
    let (near, far) = pair()?;
    let mut brings = |answer: &Cqe, expected: u8| {
        // SAFETY: a completion of this ring, popped once; its only receive selects from this group.
        let Some((id, bytes)) = (unsafe { buffers.take(answer) }) else { return false };
        let right = *bytes == [expected];
        buffers.give_back(id);
        right && answer.more()
    };
    write(&far, b'1')?;
    let answer = tried.one(Sqe::recv_multishot(near.as_raw_fd(), GROUP).user_data(STANDING))?;
    expect(brings(&answer, b'1'))?;
    report.at(Step::Send);
    static BYTE: u8 = b'2';
    let send = Sqe::send(far.as_raw_fd(), &raw const BYTE, 1, libc::MSG_NOSIGNAL).user_data(8);
    let answers = tried.exchange(Some(send), 2)?;
    expect(answers.iter().any(|answer| answer.user_data == 8 && answer.result == 1))?;
    expect(answers.iter().any(|answer| answer.user_data == STANDING && brings(answer, b'2')))?;
    report.at(Step::Receive);
    let answers = tried.exchange(Some(Sqe::cancel(STANDING).user_data(9)), 2)?;
    expect(ended(&answers, STANDING))
}

/// Returns whether the operation was cancelled and has ended.
fn ended(answers: &[Cqe], user_data: u64) -> bool {
    answers
        .iter()
        .any(|answer| answer.user_data == user_data && answer.result == -libc::ECANCELED && !answer.more())
}

/// Checks that connections are accepted by single requests, and by a multishot request.
fn accept(report: &Report, ring: &mut Tried) -> Result<(), i32> {
    const STANDING: u64 = 7;
    // A Unix socket works without a network. Bound to no name, it gets one from the kernel (unix(7)).
    // Non-blocking, as the driver's sockets are: io_uring waits anyway (ADR 22).
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket(2) takes numbers only; no other code has the result.
    let listener = owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: integers only.
    let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    name.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let mut bytes = size_of::<libc::sa_family_t>() as libc::socklen_t;
    // SAFETY: both calls read or write a live structure of the length given.
    unsafe {
        check(libc::bind(listener.as_raw_fd(), (&raw const name).cast(), bytes))?;
        check(libc::listen(listener.as_raw_fd(), 8))?;
        bytes = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        check(libc::getsockname(listener.as_raw_fd(), (&raw mut name).cast(), &raw mut bytes))?;
    }
    let connect = || {
        // SAFETY: as above.
        let client =
            owned(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: `bytes` bytes of the name are valid. The queue has room, so this does not wait.
        check(unsafe { libc::connect(client.as_raw_fd(), (&raw const name).cast(), bytes) })?;
        Ok::<OwnedFd, i32>(client)
    };
    let none = ring.exchange(Some(Sqe::accept(listener.as_raw_fd(), libc::SOCK_CLOEXEC)), 0)?;
    expect(none.is_empty())?;
    // Held until the end: a disconnected client would be a different case for accept.
    let _first = connect()?;
    let answer = ring.exchange(None, 1)?[0];
    expect(closed(answer.result))?;
    report.at(Step::AcceptMultishot);
    let mut standing = || {
        let _second = connect()?;
        let answer =
            ring.one(Sqe::accept_multishot(listener.as_raw_fd(), libc::SOCK_CLOEXEC).user_data(STANDING))?;
        // Some kernels from 6.6 to 6.8 return a number that is not a descriptor.
        expect(closed(answer.result) && answer.more())?;
        let _third = connect()?;
        let answer = ring.exchange(None, 1)?[0];
        expect(closed(answer.result) && answer.more())?;
        let answers = ring.exchange(Some(Sqe::cancel(STANDING).user_data(9)), 2)?;
        expect(ended(&answers, STANDING))
    };
    report.multishot_accept.store(standing().err().unwrap_or(0), Relaxed);
    Ok(())
}

/// Returns whether the number is a descriptor that the kernel has just opened; closes it.
fn closed(fd: i32) -> bool {
    // SAFETY: fcntl(2) takes any number; the kernel has just returned it, so no other code uses it.
    unsafe { fd >= 0 && libc::fcntl(fd, libc::F_GETFD) >= 0 && libc::close(fd) == 0 }
}

/// Checks that a read that waits for an event ends when it is cancelled.
fn cancel(tried: &mut Tried) -> Result<(), i32> {
    const READ: u64 = 7;
    // SAFETY: eventfd(2) takes numbers only.
    let event = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
    // Leaked if the read does not end: the kernel may still write it.
    let place = Box::into_raw(Box::new(0_u64));
    let read = Sqe::read(event.as_raw_fd(), place.cast(), 8, 0).user_data(READ);
    let none = tried.exchange(Some(read), 0)?;
    expect(none.is_empty())?;
    let answers = tried.exchange(Some(Sqe::cancel(READ).user_data(9)), 2)?;
    expect(ended(&answers, READ))?;
    // SAFETY: made above, and the read that named it has completed.
    drop(unsafe { Box::from_raw(place) });
    Ok(())
}

/// Tries operations on a memfd. Reports their results; a failure does not end the trial.
fn on_file(report: &Report, tried: &mut Tried) -> Result<(), i32> {
    // SAFETY: the name is a constant that ends in zero.
    let file = owned(unsafe { libc::memfd_create(c"ringroad-trial".as_ptr(), libc::MFD_CLOEXEC) });
    let Ok(file) = file else { return Ok(()) };
    let fd = file.as_raw_fd();
    // Leaked if an operation does not complete. SAFETY: an array of bytes and a structure of integers, for
    // which zero is valid.
    let memory = Box::leak(Box::new(unsafe { std::mem::zeroed::<([u8; 2], libc::statx)>() }));
    memory.0[0] = b'x';
    let place = memory.0.as_mut_ptr();
    let back = place.wrapping_add(1);
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let entries = [
        Sqe::write(fd, place, 1, 0),
        Sqe::read(fd, back, 1, 0),
        Sqe::fsync(fd, 0),
        Sqe::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_SIZE, &raw mut memory.1),
        Sqe::openat(libc::AT_FDCWD, c"/".as_ptr(), flags, 0),
    ];
    for ((index, entry), told) in entries.into_iter().enumerate().zip(&report.files) {
        let result = tried.one(entry)?.result;
        let right = match index {
            0 => result == 1,
            // SAFETY: the read before has completed.
            1 => result == 1 && unsafe { back.read_volatile() } == b'x',
            4 => closed(result),
            _ => result == 0,
        };
        let answer = if result < 0 { -result } else { WRONG };
        told.store(if right { 0 } else { answer }, Relaxed);
    }
    // SAFETY: leaked above, and every operation that named it has completed.
    drop(unsafe { Box::from_raw(std::ptr::from_mut(memory)) });
    Ok(())
}

impl Tried {
    /// Submits an entry and takes its completion.
    fn one(&mut self, entry: Sqe) -> Result<Cqe, i32> {
        self.exchange(Some(entry), 1)?.first().copied().ok_or(WRONG)
    }

    /// Submits an entry, if any, waits for `count` completions and takes all that arrived.
    fn exchange(&mut self, entry: Option<Sqe>, count: u32) -> Result<Vec<Cqe>, i32> {
        if let Some(entry) = entry {
            // SAFETY: the entries of a trial name the buffer group, a constant, a static, or memory that
            // `cancel` and `on_file` keep until the operation has completed.
            unsafe { self.ring.submissions().push(entry) }.map_err(|_| WRONG)?;
        }
        let mut answers = Vec::new();
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            // After a signal, or a stop and continue, the call may have waited for fewer completions.
            let missing = count.saturating_sub(answers.len() as u32);
            match self.ring.submit_and_wait(Wait {
                completions: missing,
                timeout: Some(left),
                ..Wait::default()
            }) {
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                answer => drop(answer.map_err(errno)?),
            }
            while let Some(answer) = self.ring.completions().pop() {
                answers.push(answer);
            }
            if answers.len() >= count as usize {
                return Ok(answers);
            }
            if left.is_zero() {
                return Err(SILENT);
            }
        }
    }
}

/// Checks that epoll reports an event once. Uses both wait calls of the driver: a filter may kill the caller
/// of one of them.
pub(super) fn epoll(report: &Report) -> Result<(), i32> {
    report.at(Step::Readiness);
    let (near, far) = pair()?;
    // SAFETY: epoll_create1(2) takes a number only.
    let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 42 };
    // SAFETY: a live structure, read during the call.
    check(unsafe {
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, near.as_raw_fd(), &raw mut event)
    })?;
    write(&far, b'!')?;
    let mut told = libc::epoll_event { events: 0, u64: 0 };
    let no_mask = std::ptr::null::<libc::sigset_t>();
    let room = &raw mut told;
    // SAFETY: room for one event, written during the call; no signal mask is given.
    let count = uninterrupted(|| unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            epoll.as_raw_fd(),
            room,
            1,
            PATIENCE.as_millis() as i32,
            no_mask,
            0_usize,
        )
    } as i32)?;
    let number = told.u64;
    expect(count == 1 && number == 42)?;
    let span = libc::timespec { tv_sec: 0, tv_nsec: 1 };
    let room = &raw mut told;
    // SAFETY: as above; the timespec is read during the call.
    let count = uninterrupted(|| unsafe {
        libc::syscall(libc::SYS_epoll_pwait2, epoll.as_raw_fd(), room, 1, &raw const span, no_mask, 0_usize)
    } as i32);
    match count {
        // The driver works without epoll_pwait2.
        Err(libc::ENOSYS | libc::EPERM) => Ok(()),
        count => expect(count? == 0),
    }
}

/// Checks that `ppoll` reports a ready descriptor.
pub(super) fn poll(report: &Report) -> Result<(), i32> {
    report.at(Step::Readiness);
    let (near, far) = pair()?;
    write(&far, b'!')?;
    let mut entry = libc::pollfd { fd: near.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let span = libc::timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    // SAFETY: one live entry, written during the call, and a timespec that is read; no signal mask.
    let count =
        uninterrupted(|| unsafe { libc::ppoll(&raw mut entry, 1, &raw const span, std::ptr::null()) })?;
    expect(count == 1 && entry.revents == libc::POLLIN)
}

/// Checks that `pselect` reports a ready descriptor.
pub(super) fn select(report: &Report) -> Result<(), i32> {
    report.at(Step::Readiness);
    let (near, far) = pair()?;
    write(&far, b'!')?;
    let number = near.as_raw_fd();
    // The number has no bit: the driver could not watch new descriptors either.
    if number as usize >= libc::FD_SETSIZE {
        return Err(libc::EMFILE);
    }
    let none = std::ptr::null_mut();
    // SAFETY: a set of integers, for which zero is valid.
    let mut reads: libc::fd_set = unsafe { std::mem::zeroed() };
    // SAFETY: the number is below the size of the set, which is written during the call; null means none.
    let count = uninterrupted(|| unsafe {
        libc::FD_ZERO(&raw mut reads);
        libc::FD_SET(number, &raw mut reads);
        let span = libc::timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        libc::pselect(number + 1, &raw mut reads, none, none, &raw const span, std::ptr::null())
    })?;
    // SAFETY: as above.
    expect(count == 1 && unsafe { libc::FD_ISSET(number, &raw const reads) })
}

/// Checks a worker's wait: `poll` on a descriptor and a bell, which ends it.
pub(super) fn threads(report: &Report) -> Result<(), i32> {
    report.at(Step::Readiness);
    let (near, _far) = pair()?;
    // SAFETY: eventfd(2) takes numbers only.
    let bell = owned(unsafe { libc::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    let entry = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut set = [entry(&near), entry(&bell)];
    // SAFETY: two live entries, written during the call.
    let count = uninterrupted(|| unsafe { libc::poll(set.as_mut_ptr(), 2, PATIENCE.as_millis() as i32) })?;
    expect(count == 1 && set[0].revents == 0 && set[1].revents == libc::POLLIN)
}

fn pair() -> Result<(OwnedFd, OwnedFd), i32> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors, written during the call.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    Ok((owned(ends[0])?, owned(ends[1])?))
}

fn write(socket: &OwnedFd, byte: u8) -> Result<(), i32> {
    // SAFETY: one live byte, read during the call.
    let count = unsafe { libc::send(socket.as_raw_fd(), (&raw const byte).cast(), 1, libc::MSG_NOSIGNAL) };
    if count == 1 { Ok(()) } else { Err(last()) }
}

fn owned(fd: RawFd) -> Result<OwnedFd, i32> {
    check(fd)?;
    // SAFETY: each caller passes the result of a system call, and does not keep the number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(answer: libc::c_int) -> Result<libc::c_int, i32> {
    if answer < 0 { Err(last()) } else { Ok(answer) }
}

/// Repeats a call that a signal has interrupted.
fn uninterrupted(mut call: impl FnMut() -> libc::c_int) -> Result<libc::c_int, i32> {
    loop {
        match check(call()) {
            Err(libc::EINTR) => {}
            answer => return answer,
        }
    }
}

fn last() -> i32 {
    errno(std::io::Error::last_os_error())
}

fn errno(error: std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(WRONG)
}

fn expect(right: bool) -> Result<(), i32> {
    if right { Ok(()) } else { Err(WRONG) }
}

//! What the probe's child does: each driver's system calls once, with the answers checked.
//!
//! This runs in a process that shares its parent's memory and may be killed at any call, so it neither allocates nor
//! takes a lock nor panics: numbers and system calls only, on memory that was laid out beforehand. It decides nothing;
//! how far it came and what it saw stands in the [`Report`]. The parent's side is `probe.rs`.

use crate::driver::uring::setup::{ENTRIES_MIN, SETUP_FLAGS};
use ringroad_uring::abi::setup::*;
use ringroad_uring::abi::*;
use ringroad_uring::{Sqe, syscall};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

/// What is being tried.
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

    /// The system call that is made, and what for.
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
            Step::AcceptMultishot => ("io_uring_enter", "an accept that stands"),
            Step::Timeout => ("io_uring_enter", "a timeout"),
            Step::Cancel => ("io_uring_enter", "the cancel of a read that waits"),
            Step::Files => ("io_uring_enter", "operations on files"),
            Step::Readiness => ("the system's calls", "an event that is waited for"),
        }
    }
}

/// An answer that is none of the kernel's numbers: it was given, and was not the one expected.
pub(super) const WRONG: i32 = 1 << 16;

/// The file operations that are tried. No driver of today needs them: a refusal is told, and refuses nothing.
pub(super) const FILES: [&str; 5] = ["WRITE", "READ", "FSYNC", "STATX", "OPENAT2"];

/// What the child found, in memory that both processes see. Zero is "not tried".
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) step: AtomicU32,
    /// Every needed step passed.
    pub(super) passed: AtomicU32,
    /// What ended it, if it did not: an errno, or [`WRONG`].
    pub(super) errno: AtomicI32,
    /// The answer to a set-up without flags, where one with them was refused.
    pub(super) plain_errno: AtomicI32,
    pub(super) setup_flags: AtomicU32,
    pub(super) features: AtomicU32,
    /// Bits of the opcodes that the kernel answers to, and whether it was asked.
    pub(super) opcodes: [AtomicU64; 4],
    pub(super) asked: AtomicU32,
    /// Start and length of what was mapped of the ring.
    pub(super) mapped: [[AtomicUsize; 2]; 3],
    /// 0, or what was wrong with an accept that stands.
    pub(super) multishot_accept: AtomicI32,
    /// By [`FILES`]: 0, or what was wrong.
    pub(super) files: [AtomicI32; FILES.len()],
}

impl Report {
    fn at(&self, step: Step) {
        self.step.store(step as u32, Release);
    }
}

/// Memory for the trial: laid out by the parent, who unmaps it whatever becomes of the child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arena {
    pub(super) start: *mut u8,
}

/// A multiple of every page size.
pub(super) const PIECE: usize = 64 * 1024;

impl Arena {
    /// Slots of the buffer ring, then the buffers, then whatever the operations name.
    fn memory(self) -> *mut u8 {
        self.start
    }

    pub(super) const BYTES: usize = PIECE;
}

const GROUP: u16 = 1;
const BUFFERS: u16 = 8;
const BUFFER_BYTES: usize = 256;
/// Offsets in the arena's memory.
const BUFFERS_AT: usize = 4096;
const SCRATCH_AT: usize = 16384;

/// What one submission brought, at most this many.
type Answers = [io_uring_cqe_copy; 4];

/// A completion, as plain numbers.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Default)]
struct io_uring_cqe_copy {
    user_data: u64,
    result: i32,
    flags: u32,
}

impl io_uring_cqe_copy {
    fn more(self) -> bool {
        self.flags & IORING_CQE_F_MORE != 0
    }
}

struct Ring {
    fd: OwnedFd,
    sq_tail: *const AtomicU32,
    sq_mask: u32,
    sq_array: *mut u32,
    slots: *mut io_uring_sqe,
    cq_head: *const AtomicU32,
    cq_tail: *const AtomicU32,
    cq_mask: u32,
    cqes: *const io_uring_cqe,
}

/// Everything the driver asks of io_uring, on the smallest ring it makes do with.
pub(super) fn io_uring(report: &Report, arena: Arena) -> Result<(), i32> {
    let mut ring = make(report)?;
    probe(report, &ring, arena)?;
    report.at(Step::Buffers);
    offer_buffers(&ring, arena)?;
    report.at(Step::Nop);
    let answer = ring.one(Sqe::nop())?;
    expect(answer.result == 0)?;
    receive(report, &mut ring, arena)?;
    report.at(Step::Timeout);
    let now = __kernel_timespec { tv_sec: 0, tv_nsec: 1 };
    let answer = ring.one(Sqe::timeout(&now, 0, 0))?;
    expect(answer.result == -libc::ETIME)?;
    report.at(Step::Cancel);
    cancel(&mut ring, arena)?;
    report.at(Step::Accept);
    accept(report, &mut ring)
}

/// Operations on files, apart: they start kernel threads, which takes longer than all the rest.
pub(super) fn files(report: &Report, arena: Arena) -> Result<(), i32> {
    let mut ring = make(report)?;
    report.at(Step::Files);
    on_file(report, &mut ring, arena)
}

fn make(report: &Report) -> Result<Ring, i32> {
    report.at(Step::Setup);
    let (fd, params) = match setup(SETUP_FLAGS | IORING_SETUP_NO_SQARRAY) {
        // NO_SQARRAY (6.6) only spares work.
        Err(libc::EINVAL) => match setup(SETUP_FLAGS) {
            Err(libc::EINVAL) => {
                let plain = setup(0).err().unwrap_or(0);
                report.plain_errno.store(plain, Relaxed);
                return Err(libc::EINVAL);
            }
            other => other?,
        },
        other => other?,
    };
    report.setup_flags.store(params.flags, Relaxed);
    report.features.store(params.features, Relaxed);
    report.at(Step::Map);
    let indexed = params.flags & IORING_SETUP_NO_SQARRAY == 0;
    let array_bytes = if indexed { params.sq_off.array + params.sq_entries * 4 } else { 0 };
    let words_bytes = array_bytes.max(params.sq_off.flags.max(params.sq_off.dropped) + 4);
    let cqes_bytes = params.cq_off.cqes + params.cq_entries * size_of::<io_uring_cqe>() as u32;
    let (words, completions) = if params.features & IORING_FEAT_SINGLE_MMAP != 0 {
        let both = map(report, 0, &fd, IORING_OFF_SQ_RING, words_bytes.max(cqes_bytes))?;
        (both, both)
    } else {
        let words = map(report, 0, &fd, IORING_OFF_SQ_RING, words_bytes)?;
        (words, map(report, 1, &fd, IORING_OFF_CQ_RING, cqes_bytes)?)
    };
    let slots_bytes = params.sq_entries * size_of::<io_uring_sqe>() as u32;
    let slots = map(report, 2, &fd, IORING_OFF_SQES, slots_bytes)?;
    let at = |base: *mut u8, offset: u32| base.wrapping_add(offset as usize);
    let array = if indexed { at(words, params.sq_off.array) } else { std::ptr::null_mut() };
    // SAFETY: the kernel gave these offsets for the memory just mapped, in whole pages.
    let (sq_mask, cq_mask) = unsafe {
        let sq_mask = at(words, params.sq_off.ring_mask).cast::<u32>().read();
        (sq_mask, at(completions, params.cq_off.ring_mask).cast::<u32>().read())
    };
    Ok(Ring {
        fd,
        sq_tail: at(words, params.sq_off.tail).cast(),
        sq_mask,
        sq_array: array.cast(),
        slots: slots.cast(),
        cq_head: at(completions, params.cq_off.head).cast(),
        cq_tail: at(completions, params.cq_off.tail).cast(),
        cq_mask,
        cqes: at(completions, params.cq_off.cqes).cast(),
    })
}

fn setup(flags: u32) -> Result<(OwnedFd, io_uring_params), i32> {
    // SAFETY: integers only, and zero means "not asked for".
    let mut params: io_uring_params = unsafe { std::mem::zeroed() };
    params.flags = flags | IORING_SETUP_CQSIZE;
    params.cq_entries = ENTRIES_MIN * 4;
    let fd = syscall::setup(ENTRIES_MIN, &mut params).map_err(errno)?;
    Ok((fd, params))
}

/// Maps part number `index` of the ring, and leaves word of it to whoever has to unmap it: the kernel does not let the
/// place be chosen.
fn map(report: &Report, index: usize, fd: &OwnedFd, offset: u32, bytes: u32) -> Result<*mut u8, i32> {
    let bytes = bytes as usize;
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
    // SAFETY: new memory, at no address that is anybody's.
    let place = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd.as_raw_fd(), libc::off_t::from(offset))
    };
    if place == libc::MAP_FAILED {
        return Err(last());
    }
    if let Some([start, length]) = report.mapped.get(index) {
        length.store(bytes, Relaxed);
        start.store(place as usize, Release);
    }
    Ok(place.cast())
}

fn probe(report: &Report, ring: &Ring, arena: Arena) -> Result<(), i32> {
    const OPS: usize = 256;
    report.at(Step::Probe);
    let head = arena.memory().wrapping_add(SCRATCH_AT);
    // SAFETY: the kernel writes a head of 16 bytes and at most 256 operations of 8 (sizes asserted in `abi`) to
    // zeroed memory of the arena, which has room for them, and keeps nothing.
    unsafe {
        let argument = head.cast_const().cast();
        syscall::register(
            ring.fd.as_fd(),
            io_uring_register_op::IORING_REGISTER_PROBE as u32,
            argument,
            OPS as u32,
        )
    }
    .map_err(errno)?;
    // SAFETY: written by the kernel just now; integers only.
    let count = unsafe { head.cast::<io_uring_probe>().read() }.ops_len;
    for index in 0..usize::from(count) {
        let place = head.wrapping_add(size_of::<io_uring_probe>() + index * size_of::<io_uring_probe_op>());
        // SAFETY: `ops_len` operations follow the head, and are at most 255.
        let operation = unsafe { place.cast::<io_uring_probe_op>().read() };
        if operation.flags & 1 != 0
            && let Some(word) = report.opcodes.get(usize::from(operation.op / 64))
        {
            word.fetch_or(1 << (operation.op % 64), Relaxed);
        }
    }
    report.asked.store(1, Relaxed);
    Ok(())
}

fn offer_buffers(ring: &Ring, arena: Arena) -> Result<(), i32> {
    let slots = arena.memory();
    let argument = io_uring_buf_reg {
        ring_addr: slots as u64,
        ring_entries: u32::from(BUFFERS),
        bgid: GROUP,
        flags: 0,
        resv: [0; 3],
    };
    // SAFETY: one such structure is read. The slots lie at the arena's start, page-aligned, zeroed, and stay mapped
    // until this process has ended.
    unsafe {
        let opcode = io_uring_register_op::IORING_REGISTER_PBUF_RING as u32;
        syscall::register(ring.fd.as_fd(), opcode, (&raw const argument).cast(), 1)
    }
    .map_err(errno)?;
    for id in 0..BUFFERS {
        let buffer = slots.wrapping_add(BUFFERS_AT + usize::from(id) * BUFFER_BYTES);
        let slot = slots.wrapping_add(usize::from(id) * size_of::<io_uring_buf>()).cast::<io_uring_buf>();
        // SAFETY: slot `id` of eight in the memory given above; the kernel reads it once the tail is past it. Its last
        // field is left alone: in the first slot the tail lies over it.
        unsafe {
            (*slot).addr = buffer as u64;
            (*slot).len = BUFFER_BYTES as u32;
            (*slot).bid = id;
        }
    }
    let tail = slots.wrapping_add(std::mem::offset_of!(io_uring_buf, resv)).cast::<AtomicU16>();
    // SAFETY: the tail lies over the `resv` of the first slot (asserted in `abi`); pairs with the kernel's acquire.
    unsafe { (*tail).store(BUFFERS, Release) };
    Ok(())
}

/// A receive that stands brings what is sent, twice, and ends when it is cancelled.
fn receive(report: &Report, ring: &mut Ring, arena: Arena) -> Result<(), i32> {
    const STANDING: u64 = 7;
    report.at(Step::Receive);
    let (near, far) = pair()?;
    let bytes = |answer: io_uring_cqe_copy, expected: u8| {
        let id = (answer.flags >> IORING_CQE_BUFFER_SHIFT) as usize;
        let named = answer.flags & IORING_CQE_F_BUFFER != 0 && id < usize::from(BUFFERS);
        let buffer = arena.memory().wrapping_add(BUFFERS_AT + (id % usize::from(BUFFERS)) * BUFFER_BYTES);
        // SAFETY: inside the buffers, which the kernel does not write between completions.
        named && answer.result == 1 && answer.more() && unsafe { buffer.read_volatile() } == expected
    };
    write(&far, b'1')?;
    let answer = ring.one(Sqe::recv_multishot(near.as_raw_fd(), GROUP).user_data(STANDING))?;
    expect(bytes(answer, b'1'))?;
    report.at(Step::Send);
    let byte = arena.memory().wrapping_add(SCRATCH_AT);
    // SAFETY: our scratch, which no operation names at the moment.
    unsafe { byte.write(b'2') };
    let answers =
        ring.exchange(Some(Sqe::send(far.as_raw_fd(), byte, 1, libc::MSG_NOSIGNAL).user_data(8)), 2)?;
    expect(answers.iter().any(|answer| answer.user_data == 8 && answer.result == 1))?;
    expect(answers.iter().any(|answer| answer.user_data == STANDING && bytes(*answer, b'2')))?;
    report.at(Step::Receive);
    let answers = ring.exchange(Some(Sqe::cancel(STANDING).user_data(9)), 2)?;
    expect(ended(&answers, STANDING))
}

/// Whether the operation was cancelled, for good.
fn ended(answers: &Answers, user_data: u64) -> bool {
    answers
        .iter()
        .any(|answer| answer.user_data == user_data && answer.result == -libc::ECANCELED && !answer.more())
}

/// Connections come in one by one, and by a request that stands.
fn accept(report: &Report, ring: &mut Ring) -> Result<(), i32> {
    const STANDING: u64 = 7;
    // A Unix socket: there is always one, also where no network is. Without a name the kernel makes one up (unix(7)).
    // SAFETY: socket(2) takes numbers only; what it returns is ours.
    let listener = owned(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
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
        // SAFETY: `bytes` bytes of the name are valid. There is room in the queue: this does not wait.
        check(unsafe { libc::connect(client.as_raw_fd(), (&raw const name).cast(), bytes) })?;
        Ok::<OwnedFd, i32>(client)
    };
    // Held until the end: a client that is gone would be another thing to accept.
    let _first = connect()?;
    let answer = ring.one(Sqe::accept(listener.as_raw_fd(), libc::SOCK_CLOEXEC))?;
    expect(is_open(answer.result))?;
    report.at(Step::AcceptMultishot);
    let mut standing = || {
        let _second = connect()?;
        let answer =
            ring.one(Sqe::accept_multishot(listener.as_raw_fd(), libc::SOCK_CLOEXEC).user_data(STANDING))?;
        // Some kernels of 6.6 to 6.8 answer with a descriptor that is none.
        expect(is_open(answer.result) && answer.more())?;
        let _third = connect()?;
        let answer = ring.exchange(None, 1)?[0];
        expect(is_open(answer.result) && answer.more())?;
        let answers = ring.exchange(Some(Sqe::cancel(STANDING).user_data(9)), 2)?;
        expect(ended(&answers, STANDING))
    };
    report.multishot_accept.store(standing().err().unwrap_or(0), Relaxed);
    Ok(())
}

fn is_open(fd: i32) -> bool {
    // SAFETY: fcntl(2) with a number that may be anything.
    fd >= 0 && unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0
}

/// A read that waits for an event ends when it is cancelled.
fn cancel(ring: &mut Ring, arena: Arena) -> Result<(), i32> {
    const READ: u64 = 7;
    // SAFETY: eventfd(2) takes numbers only.
    let event = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
    let place = arena.memory().wrapping_add(SCRATCH_AT);
    let answers = ring.exchange(Some(Sqe::read(event.as_raw_fd(), place, 8, 0).user_data(READ)), 0)?;
    expect(answers[0].user_data == 0)?;
    let answers = ring.exchange(Some(Sqe::cancel(READ).user_data(9)), 2)?;
    expect(ended(&answers, READ))
}

/// Operations on a file in memory: what they answer is told, and ends nothing.
fn on_file(report: &Report, ring: &mut Ring, arena: Arena) -> Result<(), i32> {
    // SAFETY: the name is a constant that ends in zero.
    let file = owned(unsafe { libc::memfd_create(c"ringroad-trial".as_ptr(), libc::MFD_CLOEXEC) });
    let Ok(file) = file else { return Ok(()) };
    let fd = file.as_raw_fd();
    let place = arena.memory().wrapping_add(SCRATCH_AT);
    // SAFETY: our scratch.
    unsafe { place.write(b'x') };
    // SAFETY: integers only; the structure of openat2(2).
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
    let mut openat2 = Sqe::openat(libc::AT_FDCWD, c"/".as_ptr(), 0, 0).into_raw();
    openat2.opcode = io_uring_op::IORING_OP_OPENAT2 as u8;
    openat2.len = size_of::<libc::open_how>() as u32;
    openat2.__bindgen_anon_1.off = (&raw const how) as u64;
    let back = place.wrapping_add(64);
    let about = place.wrapping_add(1024).cast();
    let entries = [
        Sqe::write(fd, place, 1, 0),
        Sqe::read(fd, back, 1, 0),
        Sqe::fsync(fd, 0),
        Sqe::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_SIZE, about),
        Sqe::from_raw(openat2),
    ];
    for ((index, entry), told) in entries.into_iter().enumerate().zip(&report.files) {
        let result = ring.one(entry)?.result;
        let right = match index {
            0 => result == 1,
            // SAFETY: one byte of scratch, which the read before has filled.
            1 => result == 1 && unsafe { back.read_volatile() } == b'x',
            4 => is_open(result),
            _ => result == 0,
        };
        told.store(
            if right {
                0
            } else if result < 0 {
                -result
            } else {
                WRONG
            },
            Relaxed,
        );
    }
    Ok(())
}

impl Ring {
    /// Submits an entry and takes its completion.
    fn one(&mut self, entry: Sqe) -> Result<io_uring_cqe_copy, i32> {
        Ok(self.exchange(Some(entry), 1)?[0])
    }

    /// Submits an entry, if there is one, waits for `count` completions and takes them.
    fn exchange(&mut self, entry: Option<Sqe>, count: u32) -> Result<Answers, i32> {
        let mut submitted = 0;
        if let Some(entry) = entry {
            // SAFETY: the mapped tail, written by nobody else; with one entry at a time its slot is free. Whatever
            // the entry names is the arena's, a constant, or a local of a caller that waits for its completion; and
            // this process ends only when the kernel has let go of all of it, before its memory is used again.
            unsafe {
                let tail = (*self.sq_tail).load(Relaxed);
                let index = tail & self.sq_mask;
                self.slots.add(index as usize).write(entry.into_raw());
                if !self.sq_array.is_null() {
                    self.sq_array.add(index as usize).write(index);
                }
                (*self.sq_tail).store(tail.wrapping_add(1), Release);
            }
            submitted = 1;
        }
        loop {
            // SAFETY: as above; no argument.
            let entered = unsafe {
                let flags = IORING_ENTER_GETEVENTS;
                syscall::enter(self.fd.as_raw_fd(), submitted, count, flags, std::ptr::null(), 0)
            };
            match entered.map_err(errno) {
                Ok(_) => submitted = 0,
                Err(libc::EINTR) => {}
                Err(other) => return Err(other),
            }
            // SAFETY: the mapped words, live as long as the ring.
            let ready = unsafe { (*self.cq_tail).load(Acquire).wrapping_sub((*self.cq_head).load(Relaxed)) };
            // Stopped and continued, the process has waited for less than it asked.
            if ready >= count {
                break;
            }
        }
        let mut answers = Answers::default();
        // SAFETY: the mapped head and tail; between them the kernel has written completions and writes no more (pairs
        // with its release of the tail).
        unsafe {
            let mut head = (*self.cq_head).load(Relaxed);
            for answer in &mut answers {
                if head == (*self.cq_tail).load(Acquire) {
                    break;
                }
                let completion = self.cqes.add((head & self.cq_mask) as usize);
                *answer = io_uring_cqe_copy {
                    user_data: (&raw const (*completion).user_data).read(),
                    result: (&raw const (*completion).res).read(),
                    flags: (&raw const (*completion).flags).read(),
                };
                head = head.wrapping_add(1);
            }
            (*self.cq_head).store(head, Release);
        }
        Ok(answers)
    }
}

/// An event on a descriptor is told once. By the driver's own two calls: a filter may end whoever makes one of them.
pub(super) fn epoll(report: &Report, _: Arena) -> Result<(), i32> {
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
    let count = check(unsafe {
        libc::syscall(libc::SYS_epoll_pwait, epoll.as_raw_fd(), room, 1, -1, no_mask, 0_usize)
    } as i32)?;
    let number = told.u64;
    expect(count == 1 && number == 42)?;
    let span = libc::timespec { tv_sec: 0, tv_nsec: 1 };
    let room = &raw mut told;
    // SAFETY: as above; the timespec is read during the call.
    let count = check(unsafe {
        libc::syscall(libc::SYS_epoll_pwait2, epoll.as_raw_fd(), room, 1, &raw const span, no_mask, 0_usize)
    } as i32);
    match count {
        // The driver does without it.
        Err(libc::ENOSYS | libc::EPERM) => Ok(()),
        count => expect(count? == 0),
    }
}

/// What is there is told by `ppoll`.
pub(super) fn poll(report: &Report, _: Arena) -> Result<(), i32> {
    report.at(Step::Readiness);
    let (near, far) = pair()?;
    write(&far, b'!')?;
    let mut entry = libc::pollfd { fd: near.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live entry, written during the call; no timeout and no signal mask.
    let count = check(unsafe { libc::ppoll(&raw mut entry, 1, std::ptr::null(), std::ptr::null()) })?;
    expect(count == 1 && entry.revents == libc::POLLIN)
}

/// What is there is told by `pselect`.
pub(super) fn select(report: &Report, _: Arena) -> Result<(), i32> {
    report.at(Step::Readiness);
    let (near, far) = pair()?;
    write(&far, b'!')?;
    let number = near.as_raw_fd();
    // A number without a bit: the driver could not watch anything either.
    if number as usize >= libc::FD_SETSIZE {
        return Err(libc::EMFILE);
    }
    let none = std::ptr::null_mut();
    // SAFETY: a set of integers, for which zero is valid, in which a number below its size is set and looked for; it is
    // written during the call; null means none.
    unsafe {
        let mut reads: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(number, &raw mut reads);
        let ready = libc::pselect(number + 1, &raw mut reads, none, none, std::ptr::null(), std::ptr::null());
        let count = check(ready)?;
        expect(count == 1 && libc::FD_ISSET(number, &raw const reads))
    }
}

/// What a worker stands in: `poll` for a descriptor and for a bell, which ends it. (A thread cannot be made here.)
pub(super) fn threads(report: &Report, _: Arena) -> Result<(), i32> {
    report.at(Step::Readiness);
    let (near, _far) = pair()?;
    // SAFETY: eventfd(2) takes numbers only.
    let bell = owned(unsafe { libc::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    let entry = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut set = [entry(&near), entry(&bell)];
    // SAFETY: two live entries, written during the call.
    let count = check(unsafe { libc::poll(set.as_mut_ptr(), 2, -1) })?;
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
    // SAFETY: each caller passes what a system call has just made, and keeps no number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(answer: libc::c_int) -> Result<libc::c_int, i32> {
    if answer < 0 { Err(last()) } else { Ok(answer) }
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

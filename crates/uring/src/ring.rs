//! The ring: set up, mapped, entered.
//!
//! [`Builder`] requests exactly its settings from the kernel, and returns a refusal unchanged. The caller
//! decides which flags to try, and in which order. [`Ring`] owns the descriptor, the mappings, and both
//! queues.

use crate::abi::*;
use crate::complete::{CompletionQueue, Completions};
use crate::fork::ForkGuard;
use crate::map::Mapping;
use crate::submit::{SubmissionQueue, Submissions};
use crate::syscall;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

/// The set-up flags under which the queues are laid out and walked as `submit.rs` and `complete.rs` do it.
///
/// INVARIANT: under each of these an entry has 64 bytes and a completion 16, the kernel maps the memory,
/// takes entries from the head to the tail, and both count up for ever. Soundness depends on it, so this is
/// an allow-list; review the effect of a flag before adding it. (`SQ_AFF` and `ATTACH_WQ` need fields that
/// `Builder` does not set.)
const SUPPORTED: u32 = IORING_SETUP_IOPOLL
    | IORING_SETUP_SQPOLL
    | IORING_SETUP_CQSIZE
    | IORING_SETUP_CLAMP
    | IORING_SETUP_R_DISABLED
    | IORING_SETUP_SUBMIT_ALL
    | IORING_SETUP_COOP_TASKRUN
    | IORING_SETUP_TASKRUN_FLAG
    | IORING_SETUP_SINGLE_ISSUER
    | IORING_SETUP_DEFER_TASKRUN
    | IORING_SETUP_NO_SQARRAY;

/// Settings of a new ring.
#[derive(Clone, Debug)]
pub struct Builder {
    entries: u32,
    params: io_uring_params,
    separate_mappings: bool,
}

/// The kernel refused to make a ring.
#[derive(Debug)]
pub struct SetupError {
    /// The requested number of entries.
    pub entries: u32,
    /// The requested set-up flags.
    pub flags: u32,
    /// The step that failed: `io_uring_setup`, or `mmap`.
    pub call: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "io_uring with {} entries and flags {:#x}: {}: {}",
            self.entries, self.flags, self.call, self.source
        )?;
        match self.source.raw_os_error() {
            Some(libc::ENOSYS) => f.write_str(" (this kernel has no io_uring, or a seccomp filter hides it)"),
            Some(libc::EPERM) => {
                f.write_str(" (forbidden by the sysctl kernel.io_uring_disabled or by a seccomp filter)")
            }
            Some(libc::ENOMEM) => f.write_str(
                " (more locked memory than RLIMIT_MEMLOCK allows: fewer entries, or a higher limit)",
            ),
            Some(libc::EINVAL) => {
                f.write_str(" (a flag this kernel does not know, or more than 32768 entries)")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Capabilities that the kernel reports (`IORING_FEAT_*`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Features(pub u32);

impl Features {
    const NAMES: [(u32, &'static str); 18] = [
        (IORING_FEAT_SINGLE_MMAP, "SINGLE_MMAP"),
        (IORING_FEAT_NODROP, "NODROP"),
        (IORING_FEAT_SUBMIT_STABLE, "SUBMIT_STABLE"),
        (IORING_FEAT_RW_CUR_POS, "RW_CUR_POS"),
        (IORING_FEAT_CUR_PERSONALITY, "CUR_PERSONALITY"),
        (IORING_FEAT_FAST_POLL, "FAST_POLL"),
        (IORING_FEAT_POLL_32BITS, "POLL_32BITS"),
        (IORING_FEAT_SQPOLL_NONFIXED, "SQPOLL_NONFIXED"),
        (IORING_FEAT_EXT_ARG, "EXT_ARG"),
        (IORING_FEAT_NATIVE_WORKERS, "NATIVE_WORKERS"),
        (IORING_FEAT_RSRC_TAGS, "RSRC_TAGS"),
        (IORING_FEAT_CQE_SKIP, "CQE_SKIP"),
        (IORING_FEAT_LINKED_FILE, "LINKED_FILE"),
        (IORING_FEAT_REG_REG_RING, "REG_REG_RING"),
        (IORING_FEAT_RECVSEND_BUNDLE, "RECVSEND_BUNDLE"),
        (IORING_FEAT_MIN_TIMEOUT, "MIN_TIMEOUT"),
        (IORING_FEAT_RW_ATTR, "RW_ATTR"),
        (IORING_FEAT_NO_IOWAIT, "NO_IOWAIT"),
    ];

    /// Returns whether all of `bits` are present.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// Returns the names of the present capabilities, in the order the kernel added them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(bit, _)| self.has(*bit)).map(|(_, name)| name)
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// Wait conditions of an `enter`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// Completions to wait for. Zero: run what is due, do not wait.
    pub completions: u32,
    /// Give up after this long. Needs `IORING_FEAT_EXT_ARG` (5.11). `None`: no limit.
    pub timeout: Option<Duration>,
    /// Return with fewer than `completions` once this long has passed and at least one has come. Needs
    /// `IORING_FEAT_MIN_TIMEOUT` (6.12).
    pub batch_for: Option<Duration>,
    /// Do not count the wait as iowait (6.15, `IORING_FEAT_NO_IOWAIT`): an idle server is idle, not "waiting
    /// for a disk".
    pub no_iowait: bool,
}

impl Builder {
    /// Makes a ring of `entries` submission entries (rounded up to a power of two; the completion queue gets
    /// twice as many unless [`completion_entries`](Self::completion_entries) says otherwise).
    pub fn new(entries: u32) -> Builder {
        Builder { entries, params: io_uring_params::default_zero(), separate_mappings: false }
    }

    /// Adds `IORING_SETUP_*` flags. [`build`](Self::build) refuses every flag but those this library was
    /// written for: an unknown one may change how the queues are laid out or walked, as `SQE128`, `CQE32`,
    /// `NO_MMAP`, `CQE_MIXED` (6.18) and `SQ_REWIND` (7.0) do.
    pub fn flags(mut self, flags: u32) -> Builder {
        self.params.flags |= flags;
        self
    }

    /// Asks for a completion queue of this many entries (`IORING_SETUP_CQSIZE`, 5.5).
    pub fn completion_entries(mut self, entries: u32) -> Builder {
        self.params.flags |= IORING_SETUP_CQSIZE;
        self.params.cq_entries = entries;
        self
    }

    /// Lets a kernel thread submit entries; it sleeps after `idle_ms` without work (`IORING_SETUP_SQPOLL`).
    pub fn sqpoll(mut self, idle_ms: u32) -> Builder {
        self.params.flags |= IORING_SETUP_SQPOLL;
        self.params.sq_thread_idle = idle_ms;
        self
    }

    /// Maps the two queues one by one even where the kernel offers them in one piece (`SINGLE_MMAP`, 5.4), as
    /// kernels before it demand. For tests.
    pub fn separate_mappings(mut self) -> Builder {
        self.separate_mappings = true;
        self
    }

    /// Returns an error in the form of [`build`](Self::build)'s.
    pub(crate) fn refused(&self, call: &'static str, source: io::Error) -> SetupError {
        SetupError { entries: self.entries, flags: self.params.flags, call, source }
    }

    /// Makes the ring, for the thread that calls this.
    pub fn build(self) -> Result<Ring, SetupError> {
        let Builder { entries, mut params, separate_mappings } = self;
        let flags = params.flags;
        let failed = |call| move |source| SetupError { entries, flags, call, source };
        if flags & !SUPPORTED != 0 {
            let why = format!(
                "this library supports no ring with the set-up flags {:#x}: they may change how the queues are laid \
                 out; leave them out",
                flags & !SUPPORTED
            );
            return Err(failed("Builder::build")(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let guard = Rc::new(ForkGuard::new().map_err(failed("mmap"))?);
        let fd = syscall::setup(entries, &mut params).map_err(failed("io_uring_setup"))?;
        let features = Features(params.features);

        let array_entries = if flags & IORING_SETUP_NO_SQARRAY != 0 { 0 } else { params.sq_entries as usize };
        // Without an index array its offset is zero, and the words before it still have to be mapped.
        let words_end = params.sq_off.flags.max(params.sq_off.dropped) as usize + size_of::<u32>();
        let sq_bytes = words_end.max(params.sq_off.array as usize + array_entries * size_of::<u32>());
        let cq_bytes = params.cq_off.cqes as usize + params.cq_entries as usize * size_of::<io_uring_cqe>();
        let slots_bytes = params.sq_entries as usize * size_of::<io_uring_sqe>();
        let map = |offset, bytes| Mapping::of_ring(fd.as_fd(), offset, bytes).map_err(failed("mmap"));

        let (rings, completions) = if features.has(IORING_FEAT_SINGLE_MMAP) && !separate_mappings {
            (map(IORING_OFF_SQ_RING, sq_bytes.max(cq_bytes))?, None)
        } else {
            (map(IORING_OFF_SQ_RING, sq_bytes)?, Some(map(IORING_OFF_CQ_RING, cq_bytes)?))
        };
        let slots = map(IORING_OFF_SQES, slots_bytes)?;

        let sq = Submissions::new(&params, &rings, &slots, Rc::clone(&guard));
        let cq = Completions::new(&params, completions.as_ref().unwrap_or(&rings), Rc::clone(&guard));
        Ok(Ring {
            sq,
            cq,
            handle: Rc::new(Handle { fd, guard }),
            enter_target: None,
            flags,
            features,
            mappings: [Some(rings), completions, Some(slots)],
            stays_on_its_thread: PhantomData,
        })
    }
}

/// The descriptor and its maker, shared with what must be unregistered before it goes (buffer rings).
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) fd: OwnedFd,
    pub(crate) guard: Rc<ForkGuard>,
}

impl Handle {
    /// `io_uring_register` by the maker.
    ///
    /// # Safety
    /// As [`syscall::register`].
    pub(crate) unsafe fn register(
        &self,
        opcode: io_uring_register_op,
        argument: *const std::ffi::c_void,
        count: u32,
    ) -> io::Result<u32> {
        self.guard.check()?;
        // SAFETY: promised by the caller.
        unsafe { syscall::register(self.fd.as_fd(), opcode as u32, argument, count) }
    }
}

/// One io_uring instance.
#[derive(Debug)]
pub struct Ring {
    // INVARIANT: the queues point into `mappings`, and nothing takes either out of the ring or replaces it:
    // users get a queue only in a view that borrows the ring. `mappings` comes after the queues, so it is
    // dropped after them.
    sq: Submissions,
    cq: Completions,
    pub(crate) handle: Rc<Handle>,
    /// The index of the registered descriptor, if there is one.
    pub(crate) enter_target: Option<u32>,
    flags: u32,
    features: Features,
    mappings: [Option<Mapping>; 3],
    stays_on_its_thread: PhantomData<*mut ()>,
}

impl Ring {
    /// Makes a builder, as [`Builder::new`] does.
    pub fn builder(entries: u32) -> Builder {
        Builder::new(entries)
    }

    /// Returns the capabilities that the kernel reports.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Returns the set-up flags that the ring was made with.
    pub fn setup_flags(&self) -> u32 {
        self.flags
    }

    /// Returns whether this process made the ring. In a forked child the ring can only be dropped.
    pub fn is_of_this_process(&self) -> bool {
        self.handle.guard.is_owner()
    }

    /// Returns the submission queue.
    #[inline]
    pub fn submissions(&mut self) -> SubmissionQueue<'_> {
        SubmissionQueue::of(&mut self.sq)
    }

    /// Returns the completion queue.
    #[inline]
    pub fn completions(&mut self) -> CompletionQueue<'_> {
        CompletionQueue::of(&mut self.cq)
    }

    /// Returns both queues, for a loop that takes completions and makes new entries of them.
    #[inline]
    pub fn queues(&mut self) -> (SubmissionQueue<'_>, CompletionQueue<'_>) {
        (SubmissionQueue::of(&mut self.sq), CompletionQueue::of(&mut self.cq))
    }

    /// Submits what the queue holds, without waiting. Returns how many entries the kernel consumed (with
    /// SQPOLL: how many it has been shown and may not have consumed yet); the rest stays queued.
    ///
    /// Errors: EBUSY (completions overflowed and must be taken first), EAGAIN (no memory for requests now),
    /// EINTR, EBADR (5.19: a completion was lost; the state of the ring is unknown).
    pub fn submit(&mut self) -> io::Result<u32> {
        self.handle.guard.check()?;
        let pending = self.sq.publish();
        let mut flags = 0;
        if self.flags & IORING_SETUP_SQPOLL != 0 {
            // The kernel thread consumes by itself; `enter` only wakes it.
            if !self.sq.needs_wakeup() {
                return Ok(pending);
            }
            flags |= IORING_ENTER_SQ_WAKEUP;
        } else if pending == 0 {
            return Ok(0);
        }
        self.enter(pending, 0, flags, None)
    }

    /// Submits what the queue holds and waits as `wait` says, in one system call.
    ///
    /// Returns how many entries were consumed. A timeout is not an error: check the completion queue. Errors
    /// as [`submit`](Self::submit); with EINTR nothing is lost, call again.
    pub fn submit_and_wait(&mut self, wait: Wait) -> io::Result<u32> {
        self.handle.guard.check()?;
        let pending = self.sq.publish();
        // GETEVENTS also when nothing is waited for: with DEFER_TASKRUN it is what runs the due completions.
        let mut flags = IORING_ENTER_GETEVENTS;
        if self.flags & IORING_SETUP_SQPOLL != 0 && self.sq.needs_wakeup() {
            flags |= IORING_ENTER_SQ_WAKEUP;
        }
        if wait.no_iowait {
            flags |= IORING_ENTER_NO_IOWAIT;
        }
        if wait.timeout.is_none() && wait.batch_for.is_none() {
            return self.enter(pending, wait.completions, flags, None);
        }
        let timespec = wait.timeout.map(timespec);
        let argument = io_uring_getevents_arg {
            sigmask: 0,
            sigmask_sz: 0,
            min_wait_usec: wait.batch_for.map_or(0, |span| span.as_micros().min(u128::from(u32::MAX)) as u32),
            ts: timespec.as_ref().map_or(0, |span| span as *const __kernel_timespec as u64),
        };
        match self.enter(pending, wait.completions, flags | IORING_ENTER_EXT_ARG, Some(&argument)) {
            // The time-out with nothing to submit is an errno, but not an error.
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(0),
            answer => answer,
        }
    }

    /// Submits, and returns when the queue has room again. With SQPOLL that may mean waiting for the kernel
    /// thread (`IORING_ENTER_SQ_WAIT`, 5.10); without, submitting is enough. Errors as
    /// [`submit`](Self::submit).
    pub fn make_room(&mut self) -> io::Result<()> {
        if self.flags & IORING_SETUP_SQPOLL == 0 {
            return self.submit().map(|_| ());
        }
        self.handle.guard.check()?;
        let pending = self.sq.publish();
        let wakeup = if self.sq.needs_wakeup() { IORING_ENTER_SQ_WAKEUP } else { 0 };
        self.enter(pending, 0, IORING_ENTER_SQ_WAIT | wakeup, None).map(|_| ())
    }

    /// Brings completions that did not fit in their queue from kernel memory into it, as far as there is
    /// room.
    pub fn flush_overflow(&mut self) -> io::Result<()> {
        self.handle.guard.check()?;
        self.enter(0, 0, IORING_ENTER_GETEVENTS, None).map(|_| ())
    }

    fn enter(
        &mut self,
        to_submit: u32,
        min_complete: u32,
        mut flags: u32,
        argument: Option<&io_uring_getevents_arg>,
    ) -> io::Result<u32> {
        let target = match self.enter_target {
            Some(index) => {
                flags |= IORING_ENTER_REGISTERED_RING;
                index as RawFd
            }
            None => self.handle.fd.as_raw_fd(),
        };
        let (argument, bytes) = match argument {
            Some(argument) => (std::ptr::from_ref(argument).cast(), size_of::<io_uring_getevents_arg>()),
            None => (std::ptr::null(), 0),
        };
        // SAFETY: every entry was filled under the promise of `Slot::fill`. The argument is borrowed for the
        // call, and the timespec it points to lives in `submit_and_wait`'s frame, which outlives the call.
        unsafe { syscall::enter(target, to_submit, min_complete, flags, argument, bytes) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.fd.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.handle.guard.is_owner() {
            self.forget_registered_fd();
        } else {
            // In a forked child the queues are not mapped: there is nothing to unmap, and something else may
            // have been mapped at their addresses since.
            self.mappings.iter_mut().flatten().for_each(Mapping::forget);
        }
    }
}

pub(crate) fn timespec(span: Duration) -> __kernel_timespec {
    __kernel_timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}

/// All-zero `io_uring_params`: the bindings derive no `Default`.
trait DefaultZero {
    fn default_zero() -> Self;
}

impl DefaultZero for io_uring_params {
    fn default_zero() -> io_uring_params {
        // SAFETY: the structure is integers only (io_uring_setup(2)); zero is valid for each and means "not
        // asked for", and the reserved words must be zero.
        unsafe { std::mem::zeroed() }
    }
}

//! io_uring as the kernel offers it, built from its three system calls and the memory they share.
//!
//! Contents: [`Ring`] (set-up, mapping, `enter`), its [`SubmissionQueue`] and [`CompletionQueue`], the
//! entries [`Sqe`] and [`Cqe`], the objects of `io_uring_register` ([`BufferRing`], [`FileTable`], fixed
//! buffers, the registered ring descriptor, [`Probe`]).
//!
//! Deliberately absent: futures, an executor, a fall-back, a choice of flags. This crate exposes one kernel
//! interface as it is. Its users decide what to do when it is not available.
//!
//! # The one promise
//! Everything is safe except one act: handing an entry to the kernel ([`Slot::fill`],
//! [`SubmissionQueue::push`]). An entry may name memory and descriptors. From the moment it is published
//! until its *last* completion (the one without [`Cqe::more`]) the kernel may read and write them at any
//! time, so the code that fills an entry promises that this memory stays valid, in place, and unaliased until
//! then. Nothing else ends the kernel's right: not a cancel that was merely sent, not closing the descriptor,
//! not dropping the [`Ring`] (its requests are cancelled later, by a kernel worker).
//!
//! # Threads and processes
//! A [`Ring`] stays on the thread that made it (`!Send`): the kernel ties `SINGLE_ISSUER` and the registered
//! ring descriptor to that thread. It also remembers its process. A forked child shares the descriptor, and
//! on a default ring the kernel would let it submit on the parent's behalf; here the queues are not mapped in
//! the child, system calls return an error that names both processes, and touching a queue panics.
//!
//! [`ReadAhead`] shows all of it at work: one file, in order, with many reads in flight.
//!
//! Reading order: [`ring`](crate::Ring), `submit.rs`, `complete.rs`, then `register.rs`.
//!
//! References: io_uring(7), io_uring_setup(2), io_uring_enter(2), io_uring_register(2). Kernel versions are
//! given where a feature is newer than 5.1.
#![cfg(target_os = "linux")]

pub mod abi;
mod buffer_ring;
mod complete;
mod entry;
mod file_table;
mod fork;
mod fuse;
mod map;
mod probe;
mod read_ahead;
mod register;
mod ring;
mod submit;
pub mod syscall;

pub use buffer_ring::{BUFFERS_MAX, BufferRing};
pub use complete::{CompletionQueue, Cqe};
pub use entry::{CURRENT_POSITION, Sqe};
pub use file_table::FileTable;
pub use fuse::{FUSE_SUPER_MAGIC, is_on_fuse};
pub use probe::Probe;
pub use read_ahead::{DIRECT_ALIGNMENT, ReadAhead, ReadError, Source};
pub use ring::{Builder, Features, Ring, SetupError, Wait};
pub use submit::{Full, Slot, SubmissionQueue};

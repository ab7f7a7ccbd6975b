//! The hand-written models: direct system calls, no engine, one file for each way of waiting.
//!
//! Shared code: [`socket`] has the system calls and counts them; [`accept`] accepts connections and pauses
//! when needed; [`connection`] advances one connection; [`crowd`] has all connections of one loop, kept in a
//! [`slab`]; [`delay`] is the artificial delay of answers (artificial work is in `work.rs`). A model's own
//! file has only its set of descriptors and its wait call, which are what is compared.
//!
//! Reading order: `connection.rs`, `crowd.rs`, then `poll.rs`, `select.rs`, `epoll.rs`; `threads.rs` and
//! `uring.rs` stand alone: they do not wait for readiness.

mod accept;
mod connection;
mod crowd;
mod delay;
mod epoll;
mod poll;
mod select;
mod slab;
mod socket;
mod threads;
mod uring;

pub(crate) use socket::listen;

use crate::work::Work;
use crate::{Model, Options, Protocol, Result, Stop, Totals};
use std::net::TcpListener;
use std::os::fd::OwnedFd;

/// What a model is given to serve with.
#[derive(Debug)]
pub(crate) struct Site {
    listener: OwnedFd,
    protocol: Protocol,
    options: Options,
}

impl Site {
    pub(crate) fn new(listener: TcpListener, protocol: Protocol, options: Options) -> Self {
        Site { listener: listener.into(), protocol, options }
    }

    /// Returns how many ready connections, or completions, a turn of the loop takes.
    fn batch(&self, unless_told: usize) -> usize {
        self.options.batch.map_or(unless_told, |batch| batch.get().into())
    }
}

/// Serves on the calling thread until `stop` is requested.
pub(crate) fn run(model: Model, site: Site, stop: &Stop) -> Result<Totals> {
    let counters = match model {
        Model::Threads => threads::run(site, stop),
        Model::Select => select::run(site, stop),
        Model::Poll => poll::run(site, stop),
        Model::EpollLt => epoll::run(site, stop, epoll::Trigger::Level),
        Model::EpollEt => epoll::run(site, stop, epoll::Trigger::Edge),
        Model::Uring => uring::run(site, stop, uring::Receive::Single),
        Model::UringMultishot => uring::run(site, stop, uring::Receive::Multishot),
        Model::EngineThreads
        | Model::EngineSelect
        | Model::EnginePoll
        | Model::EngineEpoll
        | Model::EngineIoUring => unreachable!("dispatched by `Server::run`"),
    }?;
    Ok(counters.totals(model))
}

/// What happened so far, in plain numbers: one set per thread, summed at the end.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    accepted: u64,
    refused: u64,
    requests: u64,
    bytes_in: u64,
    bytes_out: u64,
    /// Raised at every call site in [`socket`] and nowhere else.
    syscalls: u64,
}

impl Counters {
    fn add(&mut self, other: &Counters) {
        let Counters { accepted, refused, requests, bytes_in, bytes_out, syscalls } = other;
        self.accepted += accepted;
        self.refused += refused;
        self.requests += requests;
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
        self.syscalls += syscalls;
    }

    fn totals(self, model: Model) -> Totals {
        let Counters { accepted, refused, requests, bytes_in, bytes_out, syscalls } = self;
        Totals { model, accepted, refused, requests, bytes_in, bytes_out, syscalls }
    }
}

/// What the connections of one thread have in common: one buffer, one set of counters.
#[derive(Clone, Debug)]
struct Worker {
    /// Where received bytes land. One for all: its content is answered or copied before the next receive.
    buffer: Vec<u8>,
    counters: Counters,
    work: Work,
    /// Answers wait before they go (see [`delay`]).
    delayed: bool,
}

impl Worker {
    fn new(options: &Options) -> Self {
        Worker {
            buffer: vec![0; options.buffer_bytes],
            counters: Counters::default(),
            work: Work::calibrate(options.work),
            delayed: !options.delay.is_zero(),
        }
    }
}

/// Says once on stderr that connections are being refused, and why.
#[derive(Debug, Default)]
struct Notice {
    given: bool,
}

impl Notice {
    fn once(&mut self, sentence: impl FnOnce() -> String) {
        if !std::mem::replace(&mut self.given, true) {
            eprintln!("ringroad: {}", sentence());
        }
    }
}

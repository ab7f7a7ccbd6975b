//! Application workers: processes behind the server that answer requests.
//!
//! A [`Pool`] is one application: slots with fixed numbers, each with a process. Its supervisor is a thread
//! that starts, watches, replaces and stops them. Threads of the server take a [`Ticket`] for a worker from
//! the pool ([`Pool::take`]) and exchange the request over a link of their own to that worker ([`Links`]).
//! The protocol is `docs/APP-PROTOCOL.md`.
//!
//! Start reading at `pool.rs` for the choice of a worker, at `supervisor.rs` for the life of a process, at
//! `link.rs` for one request's way.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod control;
mod crash;
mod fcgi;
mod goridge;
mod head;
mod left;
mod lines;
mod link;
mod metrics;
mod mold;
mod php;
mod pool;
mod printed;
mod probe;
mod process;
mod run_folder;
mod settings;
mod slot;
mod status;
mod supervisor;
mod task_socket;
mod tasks;
mod watch;

pub use control::CONTROL_ENV;
pub use fcgi::{FastCgi, FastCgiAnswer, FastCgiBody, FastCgiFailed, FastCgiStream, FastCgiTiming, Responder};
pub use goridge::{
    BadForm, Form, GoridgeAnswer, GoridgeBody, Upload, exchange as exchange_goridge, head as goridge_head,
    is_form, multipart, urlencoded,
};
pub use head::{Codec, Incoming};
pub use link::{AnswerBody, Answered, Exchange, Failed, FileAnswer, Links, Opening, Said, Socket};
pub use metrics::text as metrics_text;
pub use php::{PhpServer, ask_php};
pub use pool::{Pool, Refused, Say, Ticket, Worker};
pub use settings::{BadTarget, Dispatch, Launch, Protocol, Settings};
pub use slot::SlotId;
pub use status::{CrashStatus, SlotStatus, Status, TasksStatus, table as status_table};

//! What every driver promises alike.

mod accept;
mod blocking;
mod callers;
mod cancel;
mod close;
mod connect;
mod direct;
mod dump;
mod echo;
mod fairness;
mod files;
pub(crate) mod fs;
mod limits;
mod moving;
mod option;
mod receive;
mod runtime;
mod send;
mod signal;
mod sync;
mod task;
mod threads;
mod time;
mod transcript;
mod udp;
mod unix;
mod unix_datagram;

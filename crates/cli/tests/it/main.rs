//! The real binary, driven from outside as a user drives it: arguments, pipes, signals, files, exit codes.
//!
//! What the libraries promise is tested in their crates; here is what only the whole program can break. Start
//! with the module named after the verb. `support` starts programs and never leaves one behind.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![forbid(unsafe_code)]

mod app;
mod cat;
mod cp;
mod doctor;
#[path = "../../../copy/tests/it/fifo.rs"]
mod fifo;
mod hub_machines;
mod lab_advise;
mod lab_client;
mod lab_records;
mod lab_run;
mod lab_server;
mod learn;
mod load;
mod load_answers;
mod load_broadcast;
mod load_calibrate;
mod load_direct;
mod load_hold;
mod load_http2;
mod load_https;
mod load_live;
mod load_parts;
mod load_processes;
mod load_records;
#[path = "../../../lab/tests/it/longer.rs"]
mod longer;
#[path = "../../../http/tests/it/over.rs"]
mod over;
mod pack;
#[path = "../../../serve/tests/it/ports.rs"]
mod ports;
mod push_demo;
#[path = "../../../stores/tests/it/server.rs"]
mod redis;
#[path = "../../../stores/tests/it/relay.rs"]
mod relay;
mod serve;
mod serve_reloads;
mod serve_shared;
mod support;
mod usage;
mod workers;

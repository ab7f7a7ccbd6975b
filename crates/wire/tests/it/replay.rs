//! The committed corpus of the fuzz targets, through the same functions: no fuzzer needed.

use crate::{checks, differential};
use std::fs;
use std::path::Path;

/// Every input of a target, at least `least`.
fn corpus(target: &str, least: usize) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let inputs: Vec<Vec<u8>> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("read {}: {error}", folder.display()))
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(inputs.len() >= least, "{target}: {} inputs", inputs.len());
    inputs
}

#[test]
fn the_corpus_of_requests_passes() {
    corpus("request", 20).iter().for_each(|bytes| checks::requests(bytes));
}

#[test]
fn the_corpus_of_responses_passes() {
    corpus("response", 10).iter().for_each(|bytes| checks::responses(bytes));
}

#[test]
fn the_corpus_of_chunked_bodies_passes() {
    corpus("chunked", 10).iter().for_each(|bytes| checks::chunked(bytes));
}

#[test]
fn the_corpus_of_websocket_frames_passes() {
    corpus("websocket", 10).iter().for_each(|bytes| checks::websocket(bytes));
}

#[test]
fn the_corpus_of_connections_is_understood_alike() {
    for bytes in corpus("differential", 20) {
        differential::httparse(&bytes);
        differential::hyper(&bytes);
    }
}

#[test]
fn the_corpus_of_worker_frames_passes() {
    corpus("rwp", 4).iter().for_each(|bytes| checks::rwp(bytes));
}

#[test]
fn the_corpus_of_fastcgi_records_passes() {
    corpus("fcgi", 4).iter().for_each(|bytes| checks::fcgi(bytes));
}

#[test]
fn the_corpus_of_goridge_frames_passes() {
    corpus("goridge", 4).iter().for_each(|bytes| checks::goridge(bytes));
}

#[test]
fn the_corpus_of_redis_replies_passes() {
    corpus("resp", 8).iter().for_each(|bytes| checks::resp(bytes));
}

#[test]
fn the_corpus_of_nats_operations_passes() {
    corpus("nats", 6).iter().for_each(|bytes| checks::nats(bytes));
}

//! HTTP/2: the same handlers behind another protocol, and clients that mean no good.

mod asking;
mod attacks;
mod client;
pub(crate) mod frames;
mod requests;
mod seeds;
mod websocket;

use crate::support::start;
use ringroad_engine::DriverName;
use ringroad_http::{Handle, Http2, Server};

/// Starts `server`, which speaks HTTP/2 with clients that begin with its preface.
fn start_http2<S: 'static>(driver: DriverName, server: Server<S>) -> Handle {
    start(driver, server.http2_prior_knowledge(Http2::default()))
}

#[test]
fn the_corpus_of_fuzz_targets_passes() {
    use crate::checks;
    let targets =
        [("http2-server", checks::http2_server as fn(&[u8])), ("http2-client", checks::http2_client)];
    for (target, check) in targets {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let inputs: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
        assert!(inputs.len() >= 6, "{target}: {} inputs", inputs.len());
        inputs.into_iter().for_each(|input| check(&std::fs::read(input.unwrap().path()).unwrap()));
    }
}

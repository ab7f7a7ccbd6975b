//! Other people's crates on our streams: one body of scenarios for every driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "../../../http/tests/it/drivers.rs"]
mod drivers;
mod adapters;
mod crates;
mod hyper;
mod local;
mod servers;

use ringroad_engine::net::{TcpListener, TcpStream};
use ringroad_engine::{DriverName, Runtime};

/// Runs `work` on a runtime of this driver.
fn run<F: Future>(driver: DriverName, work: F) -> F::Output {
    Runtime::new(driver).unwrap().block_on(work).unwrap()
}

/// The two ends of a connection.
async fn pair() -> (TcpStream, TcpStream) {
    let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (here, listener.accept().await.unwrap())
}

/// Bytes that differ from place to place.
fn pattern(bytes: usize) -> Vec<u8> {
    let block: Vec<u8> = (0..4093).map(|at| (at * 7 + at / 251) as u8).collect();
    let mut all = Vec::with_capacity(bytes + block.len() + 4);
    // Each block behind its number: byte by byte, megabytes would take longer than to send them.
    for number in 0..bytes.div_ceil(4097) as u32 {
        all.extend_from_slice(&number.to_le_bytes());
        all.extend_from_slice(&block);
    }
    all.truncate(bytes);
    all
}

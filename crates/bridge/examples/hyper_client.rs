//! `hyper_client URL…`: asks for each URL by the pooled client of hyper-util on the engine, and prints the
//! status and the length of the answer.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::StatusCode;
use hyper_util::client::legacy;
use ringroad_bridge::{Clock, Connector, LocalExecutor};
use std::error::Error;

/// Clones share their connections.
pub(crate) type Client = legacy::Client<Connector, Empty<Bytes>>;

/// Makes a client, of HTTP/2 without TLS where the server is known to speak it.
pub(crate) fn client(is_http2: bool) -> Client {
    let mut builder = legacy::Client::builder(LocalExecutor);
    // Idle connections are closed by the engine's timers.
    builder.timer(Clock).pool_timer(Clock).http2_only(is_http2).build(Connector::new())
}

/// Asks for a URL.
pub(crate) async fn fetch(client: &Client, url: &str) -> Result<(StatusCode, Bytes), Box<dyn Error>> {
    let response = client.get(url.parse()?).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

#[allow(dead_code, reason = "the tests use this file as well")]
fn main() -> Result<(), Box<dyn Error>> {
    ringroad_engine::run(async {
        let client = client(false);
        for url in std::env::args().skip(1) {
            let (status, body) = fetch(&client, &url).await?;
            println!("{status}, {} bytes: {url}", body.len());
        }
        Ok(())
    })?
}

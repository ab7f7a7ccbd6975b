//! `hyper_hello ADDR`: what the example `hello` answers, by hyper on the engine, one thread, on whatever
//! driver works best here or `RINGROAD_DRIVER` names. HTTP/1.1 only; `axum_hello` takes HTTP/2 as well.
//!
//! `cargo xtask bench bridge` runs it beside hyper on tokio (`peers/hyper`), which has the same code but for
//! the runtime.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use ringroad_bridge::Io;
use ringroad_engine::net::TcpListener;
use ringroad_engine::{Runtime, spawn};
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"<h1>Hello World</h1>")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    Ok(response)
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let address: SocketAddr = address.parse()?;
    // Its backlog is 4096 and its connections have `TCP_NODELAY`, as those of the other one.
    let served: Result<(), ringroad_engine::Error> = Runtime::auto()?.block_on(async move {
        let mut listener = TcpListener::bind(address)?;
        println!("listening on {}", listener.local_addr()?);
        loop {
            let stream = listener.accept().await?;
            spawn(async move {
                // Pipelined answers are gathered. The end of a connection concerns no other one.
                let mut connection = http1::Builder::new();
                connection.pipeline_flush(true);
                let _ = connection.serve_connection(Io::new(stream), service_fn(hello)).await;
            })
            .detach();
        }
    })?;
    Ok(served?)
}

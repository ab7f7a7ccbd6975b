//! `peer-hyper ADDR`: what the example `hello` answers, by hyper on tokio, one thread.
#![forbid(unsafe_code)]

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error;
use tokio::net::TcpSocket;

/// As many connections may wait to be accepted as at our own servers.
const BACKLOG: u32 = 4096;

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"<h1>Hello World</h1>")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    Ok(response)
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let address: std::net::SocketAddr = address.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        println!("listening on {}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::task::spawn_local(async move {
                // Pipelined answers are gathered, as ours are. The end of a connection concerns no other one.
                let mut connection = http1::Builder::new();
                connection.pipeline_flush(true);
                let _ = connection.serve_connection(TokioIo::new(stream), service_fn(hello)).await;
            });
        }
    })
}

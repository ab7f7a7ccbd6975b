//! `axum_hello ADDR`: an axum router on the engine, over hyper's connections, of HTTP/1.1 or HTTP/2 as the
//! client begins.
//!
//! The router is a tower service, so hyper's `service_fn` calls it. A handler must be `Send`; one that waits
//! for the engine does so in [`Local`].

use axum::extract::Path;
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::server::conn::auto;
use ringroad_bridge::{Clock, Io, Local, LocalExecutor};
use ringroad_engine::net::{TcpListener, TcpStream};
use ringroad_engine::{Runtime, spawn, time};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use tower_service::Service as _;

async fn hello(Path(name): Path<String>) -> String {
    format!("hello, {name}")
}

async fn sum(Json(numbers): Json<Vec<u64>>) -> Json<u64> {
    Json(numbers.iter().sum())
}

async fn later() -> &'static str {
    Local::new(async {
        time::sleep(Duration::from_millis(1)).await;
        "later"
    })
    .await
}

/// The program's routes.
pub(crate) fn routes() -> Router {
    Router::new().route("/hello/{name}", get(hello)).route("/sum", post(sum)).route("/later", get(later))
}

/// Serves one connection until its client closes it.
pub(crate) async fn serve(stream: TcpStream, routes: Router) -> Result<(), Box<dyn Error + Send + Sync>> {
    let service = service_fn(move |request: Request<Incoming>| routes.clone().call(request));
    let mut connection = auto::Builder::new(LocalExecutor);
    connection.http1().timer(Clock);
    connection.http2().timer(Clock);
    connection.serve_connection(Io::gathering(stream), service).await
}

#[allow(dead_code, reason = "the tests use this file as well")]
fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let address: SocketAddr = address.parse()?;
    let served: ringroad_engine::Result<()> = Runtime::auto()?.block_on(async move {
        let mut listener = TcpListener::bind(address)?;
        println!("listening on {}", listener.local_addr()?);
        let routes = routes();
        loop {
            let stream = listener.accept().await?;
            let routes = routes.clone();
            // The end of a connection concerns no other one.
            spawn(async move { drop(serve(stream, routes).await) }).detach();
        }
    })?;
    Ok(served?)
}

//! `axum_websocket ADDR`: an axum router with a WebSocket, which stops in order on Ctrl-C.
//!
//! axum's own `WebSocketUpgrade` spawns on tokio's runtime. Here the handler answers the handshake, and the
//! connection becomes a WebSocket of tokio-tungstenite. hyper asks for a stream that is `Send` if it may be
//! upgraded, so the adapter is in [`Local`].

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::get;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::body::Incoming;
use hyper::rt::Executor as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use ringroad_bridge::{Clock, Io, Local, LocalExecutor};
use ringroad_engine::net::{TcpListener, TcpStream};
use ringroad_engine::sync::{CancellationToken, WaitGroup};
use ringroad_engine::{Runtime, signal, spawn, time};
use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tower_service::Service as _;

/// How long requests may take after the server was told to stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Returns the client's key if the request opens a WebSocket.
fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let is = |name, value: &str| {
        let words = headers.get_all(name).iter().filter_map(|words| words.to_str().ok());
        words.flat_map(|words| words.split(',')).any(|word| word.trim().eq_ignore_ascii_case(value))
    };
    let opens = is(header::CONNECTION, "upgrade")
        && is(header::UPGRADE, "websocket")
        && is(header::SEC_WEBSOCKET_VERSION, "13");
    headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| opens).map(header::HeaderValue::as_bytes)
}

/// Answers the handshake, and sends every message of the WebSocket back.
async fn socket(mut request: Request) -> Result<Response<Body>, StatusCode> {
    let accept = derive_accept_key(key(request.headers()).ok_or(StatusCode::UPGRADE_REQUIRED)?);
    let upgrade = hyper::upgrade::on(&mut request);
    // A handler must be `Send`, and this task is not: it is on the engine's own executor.
    LocalExecutor.execute(async move {
        if let Err(why) = echo(upgrade).await {
            eprintln!("WebSocket: {why}");
        }
    });
    let answer = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let answer = answer.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "websocket");
    let answer = answer.header(header::SEC_WEBSOCKET_ACCEPT, accept).body(Body::empty());
    answer.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn echo(upgrade: OnUpgrade) -> Result<(), Box<dyn Error>> {
    // The stream comes back as it was given to hyper, with what was received behind the handshake.
    let parts = upgrade.await?.downcast::<Local<Io<TcpStream>>>().map_err(|_| "a stream of another type")?;
    let (stream, received) = (parts.io.into_inner(), parts.read_buf.to_vec());
    let mut socket = WebSocketStream::from_partially_read(stream, received, Role::Server, None).await;
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}

/// Serves until `stop` is cancelled; then ends idle connections, and others behind their request.
pub(crate) async fn serve(mut listener: TcpListener, stop: CancellationToken) -> ringroad_engine::Result<()> {
    let routes = Router::new().route("/", get(|| async { "hello" })).route("/socket", get(socket));
    let connections = WaitGroup::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let (stream, routes) = (Local::new(Io::new(accepted?)), routes.clone());
        let (stop, running) = (stop.clone(), connections.begin());
        spawn(async move {
            let _running = running;
            let service = service_fn(move |request: hyper::Request<Incoming>| routes.clone().call(request));
            let mut builder = http1::Builder::new();
            let connection = builder.timer(Clock).serve_connection(stream, service).with_upgrades();
            let mut connection = pin!(connection);
            // The end of a connection concerns no other one.
            if stop.run_until_cancelled(connection.as_mut()).await.is_none() {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        })
        .detach();
    }
    // No new connection is taken meanwhile.
    drop(listener);
    let _ = time::timeout(DRAIN, connections.wait()).await;
    Ok(())
}

#[allow(dead_code, reason = "the tests use this file as well")]
fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let address: SocketAddr = address.parse()?;
    let served: ringroad_engine::Result<()> = Runtime::auto()?.block_on(async move {
        let listener = TcpListener::bind(address)?;
        println!("listening on {}", listener.local_addr()?);
        let stop = CancellationToken::new();
        let told = stop.clone();
        spawn(async move {
            let _ = signal::ctrl_c().await;
            told.cancel();
        })
        .detach();
        serve(listener, stop).await
    })?;
    Ok(served?)
}

//! `websocket_echo ADDR`: a WebSocket server that sends messages back, by tokio-tungstenite on the engine,
//! and a client that talks to it.

use futures_util::{SinkExt as _, StreamExt as _};
use ringroad_bridge::Io;
use ringroad_engine::net::{TcpListener, TcpStream};
use ringroad_engine::{Runtime, spawn};
use std::error::Error;
use std::net::SocketAddr;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

/// Sends each message of one connection back, until the client closes it.
pub(crate) async fn echo(stream: TcpStream) -> Result<(), Box<dyn Error>> {
    let mut socket = accept_async(Io::new(stream)).await?;
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}

/// Opens a WebSocket on a connection.
pub(crate) async fn open(stream: TcpStream) -> Result<WebSocketStream<Io<TcpStream>>, Box<dyn Error>> {
    let (socket, _) = client_async("ws://localhost/", Io::new(stream)).await?;
    Ok(socket)
}

#[allow(dead_code, reason = "the tests use this file as well")]
fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let address: SocketAddr = address.parse()?;
    Runtime::auto()?.block_on(async move {
        let mut listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        spawn(async move {
            while let Ok(stream) = listener.accept().await {
                spawn(async move { drop(echo(stream).await) }).detach();
            }
        })
        .detach();
        let mut socket = open(TcpStream::connect(address).await?).await?;
        socket.send(Message::text("hello")).await?;
        if let Some(message) = socket.next().await {
            println!("{}", message?);
        }
        socket.close(None).await?;
        Ok(())
    })?
}

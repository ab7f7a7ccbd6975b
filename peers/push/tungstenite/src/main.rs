//! Answers each WebSocket message with itself, on one thread. Its argument is the port.

#![forbid(unsafe_code)]

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpListener;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port: u16 = std::env::args().nth(1).ok_or("usage: peer-tungstenite PORT")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(async move {
                let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
                while let Some(Ok(message)) = socket.next().await {
                    let is_data = message.is_text() || message.is_binary();
                    if is_data && socket.send(message).await.is_err() {
                        return;
                    }
                }
            });
        }
    })
}

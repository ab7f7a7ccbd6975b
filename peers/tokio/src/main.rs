//! `peer-tokio ADDR`: an echo by tokio, one thread, a task and a buffer of 4 KiB per connection.
#![forbid(unsafe_code)]

use std::error::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let listener = TcpListener::bind(&address).await?;
        println!("listening on {}", listener.local_addr()?);
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::task::spawn_local(async move {
                let mut buffer = [0; 4096];
                // The end of a connection concerns no other one.
                while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
                    if stream.write_all(&buffer[..bytes]).await.is_err() {
                        break;
                    }
                }
            });
        }
    })
}

//! `proxy LISTEN TARGET`: passes each TCP connection on to another address, and answers back, until both
//! sides have ended. `RINGROAD_DRIVER` chooses the driver.

use ringroad::net::{ReadHalf, TcpListener, TcpStream, WriteHalf};
use ringroad::{Runtime, choose, task};
use std::error::Error;
use std::net::SocketAddr;

/// Passes on what one side sends, and then its end.
async fn pass(mut from: ReadHalf, mut to: WriteHalf) -> ringroad::Result<()> {
    loop {
        // The bytes are sent from the buffer they came in; that is a large one while much comes.
        let bytes = from.recv().await?;
        if bytes.is_empty() {
            return to.shutdown();
        }
        to.write_all(bytes).await.0?;
    }
}

async fn connection(client: TcpStream, target: SocketAddr) -> ringroad::Result<()> {
    let server = TcpStream::connect(target).await?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let back = task::spawn(pass(from_server, to_client));
    pass(from_client, to_server).await?;
    // Dropping the handle would cancel the other direction.
    back.await.unwrap_or(Ok(()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(listen), Some(target)) = (words.next(), words.next()) else {
        return Err("usage: proxy LISTEN TARGET, for example proxy 127.0.0.1:7777 127.0.0.1:8080".into());
    };
    let (listen, target): (SocketAddr, SocketAddr) = (listen.parse()?, target.parse()?);
    let choice = choose::choose(None, None)?;
    let runtime = Runtime::builder(choice.driver()).features(choice.features()).build()?;
    runtime.block_on(async {
        let mut listener = TcpListener::bind(listen)?;
        eprintln!("proxy on {} to {target}, {choice}", listener.local_addr()?);
        loop {
            let client = listener.accept().await?;
            task::spawn(async move {
                if let Err(why) = connection(client, target).await {
                    eprintln!("{why}");
                }
            })
            .detach();
        }
    })?
}

//! `echo ADDR`: gives back what it gets, a task for each connection. SIGUSR1 has it tell what is in flight.

use ringroad::net::{TcpListener, TcpStream};
use ringroad::signal::{Signal, dump_on};
use ringroad::{Runtime, choose, task};
use std::error::Error;
use std::net::SocketAddr;

/// Sends everything back until the client ends, or is gone.
async fn echo(mut stream: TcpStream) {
    while let Ok(bytes) = stream.recv().await {
        // The bytes are sent from the buffer they came in.
        if bytes.is_empty() || stream.write_all(bytes).await.0.is_err() {
            return;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let address: SocketAddr = std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:7777").parse()?;
    let choice = choose::choose(None, None)?;
    dump_on(Signal::SIGUSR1, |text| eprint!("{text}"))?;
    let runtime = Runtime::builder(choice.driver()).features(choice.features()).build()?;
    runtime.block_on(async {
        let mut listener = TcpListener::bind(address)?;
        eprintln!("echo on {}, {choice}", listener.local_addr()?);
        loop {
            let stream = listener.accept().await?;
            task::spawn(echo(stream)).detach();
        }
    })?
}

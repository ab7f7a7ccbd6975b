//! `autobahn`: both sides of the Autobahn testsuite for WebSocket.
//!
//! `autobahn serve ADDRESS` answers each message with itself. `autobahn ask URL AGENT` takes every case of
//! the suite's own server and has it write its report.

use ringroad::http::ws::{Limits, Options, WebSocket};
use ringroad::http::{Client, Request, Response, Server, get};
use ringroad::{Runtime, choose};
use std::error::Error;
use std::time::Duration;

/// The longest message of the suite has 16 MiB.
fn options() -> Options {
    let limits = Limits { message_bytes: 32 << 20, fragments: 1 << 20 };
    Options::new().limits(limits).compress(true).queue_bytes(64 << 20)
}

async fn echo(mut socket: WebSocket) {
    while let Ok(Some(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            // What the peer said last is still to be read.
            while let Ok(Some(_)) = socket.recv().await {}
            return;
        }
    }
}

async fn answer(request: Request) -> Response {
    options().accept(&request, echo)
}

async fn ask(url: &str, agent: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::new().timeout(Duration::from_secs(60));
    let mut socket = client.websocket(&format!("{url}/getCaseCount")).connect().await?;
    let count = socket.recv().await?.and_then(|message| message.into_text()).unwrap_or_default();
    let count: u32 = count.parse()?;
    for case in 1..=count {
        let url = format!("{url}/runCase?case={case}&agent={agent}");
        echo(client.websocket(&url).options(&options()).connect().await?).await;
    }
    let mut socket = client.websocket(&format!("{url}/updateReports?agent={agent}")).connect().await?;
    while let Ok(Some(_)) = socket.recv().await {}
    println!("{count} cases");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => {
            let server = Server::new().bind(address)?.route("/", get(answer));
            server.serve_and(|handle| println!("{} {}", handle.address(), handle.choice()))?;
        }
        ["ask", url, agent] => {
            let choice = choose::choose(None, None)?;
            let runtime = Runtime::builder(choice.driver()).features(choice.features()).build()?;
            runtime.block_on(ask(url, agent))??;
        }
        _ => return Err("usage: autobahn serve ADDRESS | autobahn ask URL AGENT".into()),
    }
    Ok(())
}

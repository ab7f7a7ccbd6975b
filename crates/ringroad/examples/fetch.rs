//! `fetch [URL]`: ten requests at a time. Without a URL it asks a server of its own that takes 250 ms for
//! each; one after another they would take two and a half seconds.

use ringroad::http::{Client, ClientError, Request, Server, get};
use ringroad::{Runtime, choose, task, time};
use std::error::Error;
use std::time::{Duration, Instant};

async fn slow(_: Request) -> &'static str {
    time::sleep(Duration::from_millis(250)).await;
    "here you are\n"
}

async fn fetch(client: Client, url: String) -> Result<(u16, usize), ClientError> {
    let mut response = client.get(&url).send().await?;
    let status = response.status().code();
    let mut bytes = 0;
    while let Some(piece) = response.next().await {
        bytes += piece?.len();
    }
    Ok((status, bytes))
}

fn main() -> Result<(), Box<dyn Error>> {
    let server = match std::env::args().nth(1) {
        Some(_) => None,
        None => Some(Server::new().bind("127.0.0.1:0")?.route("/", get(slow)).start()?),
    };
    let url = std::env::args().nth(1).or_else(|| Some(format!("http://{}/", server.as_ref()?.address())));
    let url = url.ok_or("no URL")?;
    let choice = choose::choose(None, None)?;
    let runtime = Runtime::builder(choice.driver()).features(choice.features()).build()?;
    let begun = Instant::now();
    runtime.block_on(async {
        let client = Client::new();
        let all: Vec<_> = (0..10).map(|_| task::spawn(fetch(client.clone(), url.clone()))).collect();
        for one in all {
            let (status, bytes) = one.await??;
            println!("{status}, {bytes} bytes, after {:.0?}", begun.elapsed());
        }
        Ok::<(), Box<dyn Error>>(())
    })??;
    println!("all ten in {:.0?}, {choice}", begun.elapsed());
    Ok(())
}

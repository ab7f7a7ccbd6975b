//! `peer-bulk WHAT ...`: large bodies in and out of files, as a program that uses a library would do it.
//!
//! - `upload ours|axum ADDRESS FILE`: a server that writes the body of each `PUT /body` to a file of its own
//!   beside `FILE`, and answers with how many bytes it had.
//! - `download ADDRESS FILE`: a client of ours that writes what `GET /` brings to a file, each piece where it
//!   belongs.
//!
//! `RINGROAD_DRIVER` chooses the driver of ours. axum runs on tokio's current-thread runtime: one thread
//! beside one.
#![forbid(unsafe_code)]

use axum::body::Body;
use axum::http::StatusCode;
use futures_util::StreamExt;
use ringroad::http::{Client, Limits, Request, Response, Server, Status, put};
use ringroad::{Runtime, choose, fs};
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

type Failure = Box<dyn Error>;

/// The file to write to.
static FILE: OnceLock<PathBuf> = OnceLock::new();
static UPLOADS: AtomicU64 = AtomicU64::new(0);

/// A file of its own for each upload, so that one which is slow to end does not meet the next.
fn next_file() -> PathBuf {
    let number = UPLOADS.fetch_add(1, Ordering::Relaxed);
    FILE.get().cloned().unwrap_or_default().with_extension(number.to_string())
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["upload", "ours", address, file] => {
            FILE.get_or_init(|| file.into());
            upload_ours(address)
        }
        ["upload", "axum", address, file] => {
            FILE.get_or_init(|| file.into());
            upload_axum(address.parse()?)
        }
        ["download", address, file] => download(address, file),
        _ => Err("usage: peer-bulk upload ours|axum ADDRESS FILE, or peer-bulk download ADDRESS FILE".into()),
    }
}

async fn save(mut request: Request) -> Result<String, Response> {
    let failed =
        |why: &dyn std::fmt::Display| Response::new(why.to_string()).status(Status::INTERNAL_SERVER_ERROR);
    let file = fs::File::create(next_file()).await.map_err(|why| failed(&why))?;
    let mut at = 0;
    while let Some(piece) = request.body().next().await {
        let bytes = piece.map_err(|why| failed(&why))?.into_vec();
        let length = bytes.len() as u64;
        file.write_all_at(bytes, at).await.0.map_err(|why| failed(&why))?;
        at += length;
    }
    Ok(at.to_string())
}

fn upload_ours(address: &str) -> Result<(), Failure> {
    let limits = Limits { body_bytes: u64::MAX, ..Limits::default() };
    Server::new().bind(address)?.limits(limits).workers(1).route("/body", put(save)).start()?.wait()?;
    Ok(())
}

async fn save_axum(body: Body) -> Result<String, (StatusCode, String)> {
    let failed = |why: &dyn std::fmt::Display| (StatusCode::INTERNAL_SERVER_ERROR, why.to_string());
    let mut file = tokio::fs::File::create(next_file()).await.map_err(|why| failed(&why))?;
    let mut at = 0;
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|why| failed(&why))?;
        file.write_all(&piece).await.map_err(|why| failed(&why))?;
        at += piece.len();
    }
    file.flush().await.map_err(|why| failed(&why))?;
    Ok(at.to_string())
}

fn upload_axum(address: SocketAddr) -> Result<(), Failure> {
    let app = axum::Router::new().route("/body", axum::routing::put(save_axum));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        axum::serve(listener, app).await
    })?;
    Ok(())
}

fn download(address: &str, file: &str) -> Result<(), Failure> {
    let choice = choose::choose(None, None)?;
    let runtime = Runtime::builder(choice.driver()).features(choice.features()).build()?;
    runtime.block_on(async {
        let client = Client::new().timeout(Duration::from_secs(600));
        let mut response = client.get(&format!("http://{address}/")).send().await?;
        let file = fs::File::create(file).await?;
        let (mut at, mut pieces) = (0, 0);
        while let Some(piece) = response.next().await {
            let bytes = piece?.into_vec();
            let length = bytes.len() as u64;
            file.write_all_at(bytes, at).await.0?;
            (at, pieces) = (at + length, pieces + 1);
        }
        println!("{at} bytes in {pieces} pieces");
        Ok::<(), Failure>(())
    })?
}

//! `json ADDR`: a small value as JSON, encoded anew for each request.

use ringroad::http::{Deadlines, Json, Request, Server, ServerError, get};
use serde::Serialize;

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

async fn health(_: Request) -> Json<Health> {
    Json(Health { status: "ok" })
}

fn main() -> Result<(), ServerError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    // As `hello`, it keeps a connection as long as its client.
    let deadlines = Deadlines { requests_per_connection: u32::MAX, ..Deadlines::default() };
    let server = Server::new().bind(&address)?.deadlines(deadlines).route("/", get(health));
    server.serve_and(|server| eprintln!("http://{}/, {}", server.address(), server.choice()))
}

//! `hello ADDR`: one page, one worker, on whatever driver works best here or `RINGROAD_DRIVER` names.

use ringroad::http::{Deadlines, Html, Request, Server, ServerError, get};

async fn hello(_: Request) -> Html<&'static str> {
    Html("<h1>Hello World</h1>")
}

fn main() -> Result<(), ServerError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    // Load generators keep a connection for millions of requests; by default it is closed after 10,000.
    let deadlines = Deadlines { requests_per_connection: u32::MAX, ..Deadlines::default() };
    let server = Server::new().bind(&address)?.deadlines(deadlines).route("/", get(hello));
    server.serve_and(|server| eprintln!("http://{}/, {}", server.address(), server.choice()))
}

//! `http2 ADDR`: one page by HTTP/2 with prior knowledge (h2c), and by HTTP/1.1; what is posted comes back.

use ringroad::http::{Deadlines, Html, Http2, Request, Response, Server, ServerError, get};

async fn hello(_: Request) -> Html<&'static str> {
    Html("<h1>Hello World</h1>")
}

async fn echo(request: Request) -> Response {
    Response::new(request.into_body())
}

fn main() -> Result<(), ServerError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    // Load generators keep a connection for millions of requests; by default it is closed after 10,000.
    let deadlines = Deadlines { requests_per_connection: u32::MAX, ..Deadlines::default() };
    let server = Server::new()
        .bind(&address)?
        .deadlines(deadlines)
        .route("/", get(hello).post(echo))
        .http2_prior_knowledge(Http2::default());
    server.serve_and(|server| eprintln!("http://{}/, {}", server.address(), server.choice()))
}

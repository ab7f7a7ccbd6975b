//! `peer-may ADDR`: what the example `hello` answers, by may_minihttp, one thread.
#![forbid(unsafe_code)]

use may_minihttp::{HttpServer, HttpService, Request, Response};
use std::io;

#[derive(Clone)]
struct Hello;

impl HttpService for Hello {
    fn call(&mut self, _: Request, response: &mut Response) -> io::Result<()> {
        response.header("Content-Type: text/html");
        response.body("<h1>Hello World</h1>");
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    may::config().set_workers(1);
    let server = HttpServer(Hello).start(&address)?;
    println!("listening on {address}");
    server.join().map_err(|_| io::Error::other("the server panicked"))
}

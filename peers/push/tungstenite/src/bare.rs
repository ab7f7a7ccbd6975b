//! The bare sends of a hub: the frame of what is posted goes to each subscriber by one `write`.
//!
//! Its argument is the port. `GET` subscribes, whatever is asked for; `POST` publishes its body of at most
//! 125 bytes.

#![forbid(unsafe_code)]

use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Answers the requests of one connection until it ends or subscribes.
fn serve(mut stream: TcpStream, subscribers: &Mutex<Vec<TcpStream>>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut input = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let head = loop {
            if let Some(at) = input.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                bytes => input.extend_from_slice(&buffer[..bytes]),
            }
        };
        if input.starts_with(b"GET") {
            stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")?;
            subscribers.lock().map_err(|_| std::io::ErrorKind::Other)?.push(stream);
            return Ok(());
        }
        let text = String::from_utf8_lossy(&input[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let length: u8 = length.filter(|length| *length <= 125).ok_or(std::io::ErrorKind::InvalidData)?;
        while input.len() < head + usize::from(length) {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                bytes => input.extend_from_slice(&buffer[..bytes]),
            }
        }
        let mut frame = vec![0x81, length];
        frame.extend(input.drain(..head + usize::from(length)).skip(head));
        for subscriber in subscribers.lock().map_err(|_| std::io::ErrorKind::Other)?.iter_mut() {
            subscriber.write_all(&frame)?;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let port: u16 = std::env::args().nth(1).ok_or("usage: peer-bare PORT")?.parse()?;
    let subscribers = Arc::new(Mutex::new(Vec::new()));
    for stream in TcpListener::bind(("127.0.0.1", port))?.incoming() {
        let (stream, subscribers) = (stream?, subscribers.clone());
        // Subscribers end their threads at once; publishers keep theirs.
        std::thread::spawn(move || serve(stream, &subscribers));
    }
    Ok(())
}

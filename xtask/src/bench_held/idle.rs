//! Memory of a server for each connection that is idle: what it holds with many, less what it holds with few,
//! over the difference. Each connection has had an answer; then all get sixteen at once, and are idle again.

use crate::peers::Server;
use ringroad_host::memory;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

/// Connections there are before the others come: by then a server has what it needs in any case.
pub(super) const BASE: usize = 64;

/// Requests on each connection in the burst.
const BURST: usize = 16;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const PAGE: &[u8] = b"<h1>Hello World</h1>";

/// Bytes of the server's memory for each idle connection.
pub(super) struct Cost {
    pub(super) idle_bytes: f64,
    pub(super) after_burst_bytes: f64,
}

pub(super) fn measure(server: &Server, connections: usize) -> io::Result<Cost> {
    let mut clients = Vec::with_capacity(connections);
    let mut answer_bytes = 0;
    open(server.address, BASE, &mut clients, &mut answer_bytes)?;
    let base = resident(server)?;
    open(server.address, connections - BASE, &mut clients, &mut answer_bytes)?;
    let idle = resident(server)?;
    let burst = REQUEST.repeat(BURST);
    for client in &mut clients {
        client.write_all(&burst)?;
    }
    let mut answers = vec![0; answer_bytes * BURST];
    for client in &mut clients {
        client.read_exact(&mut answers)?;
        if !answers.ends_with(PAGE) {
            return Err(io::Error::other("an answer of another length than the first"));
        }
    }
    let after = resident(server)?;
    let each = |bytes: f64| (bytes - base) / (connections - BASE) as f64;
    Ok(Cost { idle_bytes: each(idle), after_burst_bytes: each(after) })
}

/// Opens some connections, and has one answer on each.
fn open(
    address: SocketAddr,
    count: usize,
    clients: &mut Vec<TcpStream>,
    answer_bytes: &mut usize,
) -> io::Result<()> {
    for _ in 0..count {
        let mut client = TcpStream::connect(address)?;
        client.set_read_timeout(Some(Duration::from_secs(30)))?;
        client.write_all(REQUEST)?;
        let mut answer = Vec::new();
        while !answer.ends_with(PAGE) {
            let mut piece = [0; 1024];
            match client.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => answer.extend_from_slice(piece.get(..bytes).unwrap_or_default()),
            }
        }
        *answer_bytes = answer.len();
        clients.push(client);
    }
    Ok(())
}

/// What it holds once the chores that servers do now and then are done.
fn resident(server: &Server) -> io::Result<f64> {
    thread::sleep(Duration::from_millis(2500));
    let bytes = memory::process(server.pid())?.rss_bytes;
    bytes.map(|bytes| bytes as f64).ok_or_else(|| io::Error::other("its memory is not told"))
}

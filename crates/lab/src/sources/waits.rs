//! Ten answers of a quarter of a second each, asked for one after the other and all at once.
//!
//! What a coroutine brings to a program that waits is that the waits overlap; so one thread with ten sockets
//! is all there is to it, and the server is one of ours that lets each answer wait. Start at [`figures`].

use super::sum::Figure;
use super::{Named, Setting};
use crate::pin::Cores;
use crate::program::{Filling, Program, STOP_DEADLINE, free_address};
use crate::suite::{Protocol, Suite};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// As the example in the document: ten.
const REQUESTS: usize = 10;
/// 2500 ms for ten in turn leaves this for each.
const DELAY: Duration = Duration::from_millis(250);
/// An answer that has not come by then will not.
const PATIENCE: Duration = Duration::from_secs(10);

/// `waits/in-turn.ms` and `waits/together.ms`.
pub(super) fn figures(setting: &Setting<'_>) -> Vec<Named> {
    let both = both(setting);
    let each = |pick: fn(&(f64, f64)) -> f64| both.clone().map(|both| Figure::of(pick(&both)).scaled("once"));
    vec![
        ("waits/in-turn.ms".to_owned(), each(|both| both.0)),
        ("waits/together.ms".to_owned(), each(|both| both.1)),
    ]
}

fn both(setting: &Setting<'_>) -> Result<(f64, f64), String> {
    let text = format!(
        "title = \"waits\"\nrepeats = 1\nduration_s = 1.0\n[[server]]\nid = \"slow\"\ncommand = [\"{{ringroad}}\", \"lab\", \
         \"server\", \"--model\", \"engine-epoll\", \"--protocol\", \"http\", \"--delay-us\", \"{}\", \"--listen\", \
         \"127.0.0.1:0\"]\nready = \"listening on {{addr}}\"\nprotocols = [\"http\"]\n[[load]]\nid = \"x\"\n\
         protocol = \"http\"\nconnections = [1]\n",
        DELAY.as_micros()
    );
    let suite = Suite::parse(&text, "sources", "waits", None).map_err(|error| error.to_string())?;
    let addr = free_address().map_err(|error| format!("no free port on the loopback: {error}"))?;
    let filling = Filling { ringroad: setting.ringroad, protocol: Protocol::Http, addr, arguments: &[] };
    let cores = Cores::of_this_process().map_err(|error| error.to_string())?;
    let (server, addr) =
        Program::start_server(&suite.servers[0], &filling, None, &cores.server, setting.stop)
            .map_err(|error| format!("the slow server did not start: {error}"))?;
    let measured = in_turn(addr).and_then(|in_turn| Ok((in_turn, together(addr)?)));
    server.stop(STOP_DEADLINE);
    measured.map_err(|error| format!("ask the slow server: {error}"))
}

/// Milliseconds for one request after the other on one connection.
fn in_turn(addr: SocketAddr) -> io::Result<f64> {
    let mut connection = connect(addr)?;
    let start = Instant::now();
    for _ in 0..REQUESTS {
        ask(&mut connection)?;
        answer(&mut connection)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// Milliseconds for as many on connections of their own: all are asked, then each is heard.
fn together(addr: SocketAddr) -> io::Result<f64> {
    let mut connections = (0..REQUESTS).map(|_| connect(addr)).collect::<io::Result<Vec<_>>>()?;
    let start = Instant::now();
    connections.iter_mut().try_for_each(ask)?;
    connections.iter_mut().try_for_each(answer)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn connect(addr: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = ringroad_host::connect::connect(addr, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

fn ask(connection: &mut BufReader<TcpStream>) -> io::Result<()> {
    connection.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// Reads one answer with a Content-Length to its end.
fn answer(connection: &mut BufReader<TcpStream>) -> io::Result<()> {
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if connection.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(|_| io::Error::other("a length that is no number"))?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let read = io::copy(&mut connection.by_ref().take(length), &mut io::sink())?;
    if read == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nhello";

    /// Reads one request; `false` at the end of the connection.
    fn request(connection: &mut BufReader<TcpStream>) -> bool {
        let mut line = String::new();
        while connection.read_line(&mut line).unwrap() > 0 {
            if line == "\r\n" {
                return true;
            }
            line.clear();
        }
        false
    }

    #[test]
    fn in_turn_is_one_connection_and_a_request_only_after_the_answer_before() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let served = std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut connection = BufReader::new(listener.accept().unwrap().0);
                let mut served = 0;
                while request(&mut connection) {
                    assert!(connection.buffer().is_empty(), "the next request came before its turn");
                    connection.get_mut().write_all(ANSWER).unwrap();
                    served += 1;
                }
                served
            });
            assert!(in_turn(addr).unwrap() > 0.0);
            server.join().unwrap()
        });
        assert_eq!(served, REQUESTS);
    }

    /// The server answers no request before all have come: a client that waits for an answer first would wait
    /// in vain.
    #[test]
    fn together_all_have_asked_before_one_is_heard() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let accept = || BufReader::new(listener.accept().unwrap().0);
                let mut connections: Vec<_> = (0..REQUESTS).map(|_| accept()).collect();
                assert!(connections.iter_mut().all(request));
                connections.iter_mut().for_each(|connection| connection.get_mut().write_all(ANSWER).unwrap());
            });
            assert!(together(addr).unwrap() > 0.0);
        });
    }

    #[test]
    fn an_answer_that_ends_too_soon_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = connect(listener.local_addr().unwrap()).unwrap();
        listener.accept().unwrap().0.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel").unwrap();
        assert_eq!(answer(&mut connection).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}

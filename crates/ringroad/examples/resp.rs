//! `resp ADDR`: GET, SET, DEL and PING of the protocol of Redis (RESP2), pipelined, in one thread.
//!
//! All commands that came together are answered with one send. `contrib/resp/bench.sh` measures it beside
//! redis-server.

use ringroad::net::{TcpListener, TcpStream};
use ringroad::task::spawn;
use ringroad::{Runtime, choose};
use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;

/// Longest argument, and most arguments of a command.
const ARGUMENT_BYTES_MAX: usize = 1 << 20;
const ARGUMENTS_MAX: usize = 64;
/// Most bytes of values that are kept together; a SET beyond them is refused, as Redis does.
const KEPT_BYTES_MAX: usize = 1 << 30;
/// Answers of so many bytes are sent before further commands are read.
const BATCH_BYTES: usize = 64 * 1024;

/// The values, which all connections of the thread share.
#[derive(Default)]
struct Store {
    values: HashMap<Box<[u8]>, Rc<[u8]>>,
    bytes: usize,
}

impl Store {
    fn set(&mut self, key: &[u8], value: &[u8]) -> bool {
        let before = self.values.get(key).map_or(0, |value| key.len() + value.len());
        let after = self.bytes - before + key.len() + value.len();
        if after > KEPT_BYTES_MAX {
            return false;
        }
        self.bytes = after;
        match self.values.get_mut(key) {
            Some(kept) => *kept = value.into(),
            None => drop(self.values.insert(key.into(), value.into())),
        }
        true
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let removed = self.values.remove(key);
        self.bytes -= removed.as_ref().map_or(0, |value| key.len() + value.len());
        removed.is_some()
    }
}

/// A command that is no such thing: the connection ends.
struct Malformed(&'static str);

/// Reads the number behind `mark`, and moves behind its line; `None`: the line is not complete.
fn number(input: &[u8], at: &mut usize, mark: u8) -> Result<Option<usize>, Malformed> {
    let Some(rest) = input.get(*at..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
    if rest.first() != Some(&mark) {
        return Err(Malformed("a command is an array of bulk strings"));
    }
    let Some(end) = rest.iter().take(16).position(|byte| *byte == b'\n') else {
        return if rest.len() < 16 { Ok(None) } else { Err(Malformed("a number is too long")) };
    };
    let digits = rest.get(1..end.saturating_sub(1)).and_then(|digits| std::str::from_utf8(digits).ok());
    let number = digits.and_then(|digits| digits.parse().ok()).ok_or(Malformed("a length is a number"))?;
    *at += end + 1;
    Ok(Some(number))
}

/// Reads a command into `arguments`; false: it is not complete.
fn command<'i>(input: &'i [u8], at: &mut usize, arguments: &mut Vec<&'i [u8]>) -> Result<bool, Malformed> {
    arguments.clear();
    let mut here = *at;
    let Some(count) = number(input, &mut here, b'*')? else { return Ok(false) };
    if count > ARGUMENTS_MAX {
        return Err(Malformed("too many arguments"));
    }
    for _ in 0..count {
        let Some(length) = number(input, &mut here, b'$')? else { return Ok(false) };
        if length > ARGUMENT_BYTES_MAX {
            return Err(Malformed("an argument is too long"));
        }
        let Some(bytes) = input.get(here..here + length + 2) else { return Ok(false) };
        arguments.push(bytes.get(..length).unwrap_or_default());
        here += length + 2;
    }
    *at = here;
    Ok(true)
}

/// Answers a command.
fn answer(store: &mut Store, arguments: &[&[u8]], out: &mut Vec<u8>) {
    let Some((name, arguments)) = arguments.split_first() else { return };
    match (name.to_ascii_uppercase().as_slice(), arguments) {
        (b"GET", [key]) => match store.values.get(*key) {
            Some(value) => {
                // A vector takes whatever is written.
                let _ = write!(out, "${}\r\n", value.len());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
            None => out.extend_from_slice(b"$-1\r\n"),
        },
        (b"SET", [key, value]) => match store.set(key, value) {
            true => out.extend_from_slice(b"+OK\r\n"),
            false => out.extend_from_slice(b"-OOM command not allowed\r\n"),
        },
        (b"DEL", keys) => {
            let removed = keys.iter().filter(|key| store.remove(key)).count();
            let _ = write!(out, ":{removed}\r\n");
        }
        (b"PING", []) => out.extend_from_slice(b"+PONG\r\n"),
        // What redis-benchmark asks first.
        (b"CONFIG", _) => out.extend_from_slice(b"*0\r\n"),
        _ => out.extend_from_slice(b"-ERR unknown command or wrong number of arguments\r\n"),
    }
}

/// Serves one connection until it ends.
async fn serve(mut stream: TcpStream, store: Rc<RefCell<Store>>) -> ringroad::Result<()> {
    // Bytes of a command that is not complete.
    let mut kept: Vec<u8> = Vec::new();
    let mut out = Vec::new();
    loop {
        let lease = stream.recv().await?;
        if lease.is_empty() {
            return Ok(());
        }
        // Most often nothing is kept, and the commands are read where they were received.
        let joined = !kept.is_empty();
        if joined {
            kept.extend_from_slice(&lease);
        }
        let mut used = 0;
        loop {
            let wrong = {
                let input: &[u8] = if joined { &kept } else { &lease };
                let mut arguments = Vec::with_capacity(3);
                loop {
                    match command(input, &mut used, &mut arguments) {
                        Ok(true) => answer(&mut store.borrow_mut(), &arguments, &mut out),
                        Ok(false) => break None,
                        Err(Malformed(why)) => break Some(why),
                    }
                    if out.len() >= BATCH_BYTES {
                        break None;
                    }
                }
            };
            if let Some(why) = wrong {
                out.extend_from_slice(format!("-ERR Protocol error: {why}\r\n").as_bytes());
            }
            let is_full = out.len() >= BATCH_BYTES;
            if !out.is_empty() {
                let (sent, buffer) = stream.write_all(out).await;
                sent?;
                out = buffer;
                out.clear();
            }
            if wrong.is_some() {
                return Ok(());
            }
            if !is_full {
                break;
            }
        }
        if joined {
            kept.drain(..used);
        } else {
            kept.extend_from_slice(lease.get(used..).unwrap_or_default());
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let address: SocketAddr = std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:6380").parse()?;
    let choice = choose::choose(None, None)?;
    let runtime = Runtime::builder(choice.driver()).features(choice.features()).build()?;
    let store = Rc::new(RefCell::new(Store::default()));
    runtime.block_on(async {
        let mut listener = TcpListener::bind(address)?;
        eprintln!("resp on {}, {choice}", listener.local_addr()?);
        loop {
            let stream = listener.accept().await?;
            let store = Rc::clone(&store);
            spawn(async move {
                // The connection's error is the client's to see.
                let _ = serve(stream, store).await;
            })
            .detach();
        }
    })?
}

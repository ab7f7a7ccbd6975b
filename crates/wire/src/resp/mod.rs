//! RESP2 and RESP3, the protocol of Redis and Valkey, from a client's side: commands as bytes, replies from
//! bytes.
//!
//! [`put_command`] appends a command. [`Replies`] reads replies however the bytes are cut: it keeps what of a
//! nested reply is complete, so no byte of one is parsed twice. [`Limits`] bound what a server can make a
//! client keep. Streamed strings and aggregates (`$?`, `*?`), which no server sends unasked, are refused.

mod read;
mod reply;

pub use read::{Error, Limits, Replies};
pub use reply::Reply;

use crate::encode::put_decimal;

/// Appends a command: its name and its arguments, each of any bytes.
pub fn put_command<A: AsRef<[u8]>>(out: &mut Vec<u8>, arguments: &[A]) {
    put_count(out, b'*', arguments.len());
    for argument in arguments {
        put_text(out, b'$', argument.as_ref());
    }
}

/// Appends a type's first byte, a number and the end of a line.
fn put_count(out: &mut Vec<u8>, first: u8, count: usize) {
    out.push(first);
    put_decimal(out, count as u64);
    out.extend_from_slice(b"\r\n");
}

/// Appends bytes with their length before them.
fn put_text(out: &mut Vec<u8>, first: u8, text: &[u8]) {
    put_count(out, first, text.len());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

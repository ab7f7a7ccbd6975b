//! Bodies made from a file: from memory, sent by the kernel, or, for several parts in one body, read while
//! they are sent.
//!
//! A read first tries the page cache (RWF_NOWAIT) and otherwise runs on a thread that may wait for the disk.
//! Files are not mapped: a file truncated during the send gives an end of file instead of SIGBUS. The body
//! then ends with an error, which closes the connection, and no bytes are sent that were never in the file.

use super::range::Part;
use crate::answer::{Tally, Watch};
use futures_core::Stream;
use ringroad_engine::blocking::Blocking;
use ringroad_engine::spawn_blocking;
use ringroad_http::Body;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Bytes read at a time.
const READ_BYTES: u64 = 128 * 1024;

/// Where a file's bytes are.
pub(super) enum Content {
    Memory(Rc<[u8]>),
    File(Arc<File>),
}

/// A piece of a body.
pub(super) enum Piece {
    Text(Vec<u8>),
    Part(Part),
}

impl Piece {
    fn part(&self) -> Option<Part> {
        match self {
            Piece::Text(_) => None,
            Piece::Part(part) => Some(*part),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Piece::Text(text) => text.len() as u64,
            Piece::Part(part) => part.bytes(),
        }
    }
}

impl Content {
    /// These pieces, `bytes` together, as a body.
    pub(super) fn send(&self, pieces: Vec<Piece>, bytes: u64) -> (Body, Watch) {
        match self {
            Content::Memory(all) => {
                let mut body = Vec::with_capacity(bytes as usize);
                for piece in &pieces {
                    match piece {
                        Piece::Text(text) => body.extend_from_slice(text),
                        Piece::Part(part) => body.extend_from_slice(
                            all.get(part.from as usize..part.to as usize).unwrap_or_default(),
                        ),
                    }
                }
                (body.into(), Watch::Sent)
            }
            // One part goes by the kernel.
            Content::File(file) if pieces.len() == 1 => {
                let part = pieces.first().and_then(Piece::part);
                let range = part.map_or(0..0, |part| part.from..part.to);
                (Body::file(Arc::clone(file), range), Watch::Sent)
            }
            Content::File(file) => {
                let tally = Tally::new();
                let parts = Parts {
                    file: Arc::clone(file),
                    pieces: pieces.into(),
                    reading: None,
                    tally: Rc::clone(&tally),
                };
                (Body::stream_of(bytes, parts), Watch::Stream(tally))
            }
        }
    }
}

/// Pieces of a file, read as they are sent.
pub(super) struct Parts {
    file: Arc<File>,
    pieces: VecDeque<Piece>,
    reading: Option<Blocking<io::Result<Vec<u8>>>>,
    tally: Rc<Tally>,
}

impl Parts {
    /// Ends the body here; the log says why.
    fn failed(&self, why: io::Error) -> io::Error {
        match why.kind() {
            io::ErrorKind::UnexpectedEof => self.tally.fault("the file was cut while it was sent"),
            _ => self.tally.fault(&format!("reading the file: {why}")),
        }
        why
    }

    /// Bytes of the part at hand are there: what is left of it stays.
    fn take(&mut self, read: Vec<u8>) -> io::Result<Vec<u8>> {
        if read.is_empty() {
            return Err(self.failed(io::Error::from(io::ErrorKind::UnexpectedEof)));
        }
        if let Some(Piece::Part(part)) = self.pieces.front_mut() {
            part.from += read.len() as u64;
            if part.from >= part.to {
                self.pieces.pop_front();
            }
        }
        Ok(read)
    }
}

impl Stream for Parts {
    type Item = io::Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(reading) = &mut this.reading {
            let read = ready!(Pin::new(reading).poll(context));
            this.reading = None;
            let read = read.unwrap_or_else(|why| Err(io::Error::other(why.to_string())));
            let read = read.map_err(|why| this.failed(why));
            return Poll::Ready(Some(read.and_then(|read| this.take(read))));
        }
        let part = match this.pieces.pop_front() {
            None => return Poll::Ready(None),
            Some(Piece::Text(text)) => {
                return Poll::Ready(Some(Ok(text)));
            }
            Some(Piece::Part(part)) => {
                this.pieces.push_front(Piece::Part(part));
                part
            }
        };
        let bytes = part.bytes().min(READ_BYTES) as usize;
        match read_now(&this.file, part.from, bytes) {
            Err(why) => Poll::Ready(Some(Err(this.failed(why)))),
            Ok(Some(read)) => Poll::Ready(Some(this.take(read))),
            Ok(None) => {
                let (file, from) = (Arc::clone(&this.file), part.from);
                this.reading = Some(spawn_blocking(move || read_exactly(&file, from, bytes)));
                self.poll_next(context)
            }
        }
    }
}

/// Reads what is in memory of `bytes` from `from` on; `None` if nothing can be said without a wait.
pub(super) fn read_now(file: &File, from: u64, bytes: usize) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = vec![0; bytes];
    match preadv2(file, &mut [IoSliceMut::new(&mut buffer)], from, ReadWriteFlags::NOWAIT) {
        Ok(read) => {
            buffer.truncate(read);
            Ok(Some(buffer))
        }
        // Not in memory; or the file system cannot tell, or the kernel does not know the flag (before Linux
        // 4.14).
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR | Errno::NOSYS) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// Reads `bytes` from `from` on, fewer only at the end of the file.
pub(super) fn read_exactly(file: &File, from: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, from + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

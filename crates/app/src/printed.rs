//! Assigns printed lines to requests, for a worker with one request at a time that does not mark its lines.
//!
//! Output printed before the answer is in the worker's pipes when the answer arrives. So the server records
//! how many bytes are in the pipes at the beginning and end of a request. The bytes between belong to that
//! request, whenever they are read.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::{Arc, Mutex, PoisonError};

/// The pipes of a worker.
#[derive(Debug)]
pub(crate) struct Printed(Mutex<Pipes>);

#[derive(Debug)]
struct Pipes {
    pipes: [Pipe; 2],
    /// The request that present output belongs to; empty: none.
    request: String,
}

#[derive(Debug)]
struct Pipe {
    file: Option<Arc<File>>,
    /// Bytes that were read.
    read: u64,
    /// For earlier output: up to which byte it belongs to which request.
    before: VecDeque<(u64, String)>,
}

/// One of a worker's pipes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Out,
    Err,
}

impl Pipe {
    fn new(file: Option<&Arc<File>>) -> Pipe {
        Pipe { file: file.cloned(), read: 0, before: VecDeque::new() }
    }
}

impl Printed {
    /// Reads from these pipes. No other code reads them.
    pub(crate) fn new(out: Option<&Arc<File>>, err: Option<&Arc<File>>) -> Printed {
        let pipes = [Pipe::new(out), Pipe::new(err)];
        Printed(Mutex::new(Pipes { pipes, request: String::new() }))
    }

    /// Assigns the output from here on to a request; to none if `request` is empty.
    pub(crate) fn turn(&self, request: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Pipes { pipes, request: present } = &mut *all;
        for pipe in pipes {
            let Some(file) = &pipe.file else { continue };
            // Linux supports this for every pipe.
            let unread = rustix::io::ioctl_fionread(file).unwrap_or(0);
            let end = pipe.read + unread;
            if end > pipe.before.back().map_or(pipe.read, |(end, _)| *end) {
                pipe.before.push_back((end, present.clone()));
            }
        }
        present.clear();
        present.push_str(request);
    }

    /// Reads the available bytes of a pipe. `part` gets each part with its request. Parts of different
    /// requests follow each other even if no line ends between them.
    ///
    /// # Errors
    /// No bytes are available now.
    pub(crate) fn read(
        &self,
        which: Which,
        buffer: &mut [u8],
        mut part: impl FnMut(&str, &[u8]),
    ) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Pipes { pipes: [out, err], request } = &mut *all;
        let pipe = match which {
            Which::Out => out,
            Which::Err => err,
        };
        let Some(file) = &pipe.file else { return Ok(0) };
        let count = (&**file).read(buffer)?;
        let mut parts = Vec::new();
        let mut rest = buffer.get(..count).unwrap_or_default();
        while let Some((end, _)) = pipe.before.front()
            && !rest.is_empty()
        {
            let length = usize::try_from(end - pipe.read).unwrap_or(rest.len()).min(rest.len());
            let (one, behind) = rest.split_at(length);
            (rest, pipe.read) = (behind, pipe.read + length as u64);
            if pipe.read == *end {
                let request = pipe.before.pop_front().map(|(_, request)| request);
                parts.push((request.unwrap_or_default(), one));
            } else if let Some((_, request)) = pipe.before.front() {
                parts.push((request.clone(), one));
            }
        }
        pipe.read += rest.len() as u64;
        if !rest.is_empty() {
            parts.push((request.clone(), rest));
        }
        if count == 0 {
            pipe.file = None;
        }
        drop(all);
        parts.iter().for_each(|(request, bytes)| part(request, bytes));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;

    #[test]
    fn what_is_printed_between_the_begin_and_the_end_of_a_request_is_its_own_whenever_it_is_read() {
        let (reader, mut out) = io::pipe().unwrap();
        let (empty, _err) = io::pipe().unwrap();
        let files = [reader, empty].map(|pipe| Arc::new(File::from(OwnedFd::from(pipe))));
        files.iter().for_each(|file| rustix::io::ioctl_fionbio(file, true).unwrap());
        let printed = Printed::new(Some(&files[0]), Some(&files[1]));
        let mut say = |request: &str, text: &str| {
            printed.turn(request);
            out.write_all(text.as_bytes()).unwrap();
        };
        say("", "boot");
        say("one", "1");
        say("two", "");
        say("", "idle");
        say("three", "33");
        let mut all = Vec::new();
        // Some of it in pieces.
        for length in [5, 2, 100] {
            let mut buffer = [0; 100];
            let mut took = |request: &str, bytes: &[u8]| {
                all.push((request.to_owned(), String::from_utf8(bytes.to_vec()).unwrap()));
            };
            printed.read(Which::Out, &mut buffer[..length], &mut took).unwrap();
        }
        printed.turn("four");
        out.write_all(b"4").unwrap();
        printed.read(Which::Out, &mut [0; 100], |id, _| all.push((id.to_owned(), "4".to_owned()))).unwrap();
        assert!(printed.read(Which::Out, &mut [0; 100], |_, _| {}).is_err());
        let all: Vec<(&str, &str)> = all.iter().map(|(id, text)| (&**id, &**text)).collect();
        assert_eq!(all, [("", "boot"), ("one", "1"), ("", "id"), ("", "le"), ("three", "33"), ("four", "4")]);
    }
}

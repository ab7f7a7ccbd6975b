//! What a worker prints that has one request at a time and does not say to which request a line belongs.
//!
//! What it printed before it answered is in its pipes when the answer is here. So the server notes how much
//! is in them where a request begins and where it ends: what comes between is that request's, whenever it is
//! read.

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
    /// What is printed now belongs to this request; empty: to none.
    request: String,
}

#[derive(Debug)]
struct Pipe {
    file: Option<Arc<File>>,
    /// Bytes that were read.
    read: u64,
    /// Up to where what was printed belongs to which request, where that is not the present one.
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
    /// Reads from these pipes, which nothing else reads.
    pub(crate) fn new(out: Option<&Arc<File>>, err: Option<&Arc<File>>) -> Printed {
        let pipes = [Pipe::new(out), Pipe::new(err)];
        Printed(Mutex::new(Pipes { pipes, request: String::new() }))
    }

    /// Has what is printed from here on belong to a request; to none, if that is empty.
    pub(crate) fn turn(&self, request: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Pipes { pipes, request: present } = &mut *all;
        for pipe in pipes {
            let Some(file) = &pipe.file else { continue };
            // Linux answers this for any pipe.
            let unread = rustix::io::ioctl_fionread(file).unwrap_or(0);
            let end = pipe.read + unread;
            if end > pipe.before.back().map_or(pipe.read, |(end, _)| *end) {
                pipe.before.push_back((end, present.clone()));
            }
        }
        present.clear();
        present.push_str(request);
    }

    /// Reads what is there of a pipe. `part` gets each part with its request; parts of different requests
    /// follow one another even where no line ends between them.
    ///
    /// # Errors
    /// Nothing is there now.
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

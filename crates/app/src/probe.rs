//! Asks a worker whether it serves, without waiting.

use crate::control::Control;
use crate::head::{Codec, Incoming};
use ringroad_wire::rwp::{self, END, Kind};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// One question under way.
#[derive(Debug)]
pub(crate) struct Probe {
    socket: UnixStream,
    answer: Vec<u8>,
    speaks: Speaks,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Http,
    FastCgi,
    /// RWP/1, over a link of its own.
    Frames,
}

/// FCGI_GET_VALUES without names: a question about the application itself, which each one answers.
const GET_VALUES: [u8; 8] = [1, 9, 0, 0, 0, 0, 0, 0];

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Probed {
    Waiting,
    Serves,
    /// Why not, or not yet.
    Not(String),
}

impl Probe {
    /// Connects and asks for `path`. `None`: nothing listens there yet.
    pub(crate) fn begin(socket: &Path, method: &str, path: &str) -> Option<Probe> {
        let mut socket = UnixStream::connect(socket).ok()?;
        socket.set_nonblocking(true).ok()?;
        let question = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        // The buffer of a new socket takes so little at once.
        socket.write_all(question.as_bytes()).ok()?;
        Some(Probe { socket, answer: Vec::new(), speaks: Speaks::Http })
    }

    /// Connects and asks for the values of a FastCGI application. `None`: nothing listens there yet.
    pub(crate) fn begin_fastcgi(socket: &Path) -> Option<Probe> {
        let mut socket = UnixStream::connect(socket).ok()?;
        socket.set_nonblocking(true).ok()?;
        socket.write_all(&GET_VALUES).ok()?;
        Some(Probe { socket, answer: Vec::new(), speaks: Speaks::FastCgi })
    }

    /// Asks a worker that has said READY for `path`, as a client that calls the server "localhost".
    pub(crate) fn begin_frames(
        control: &Control,
        codec: Codec,
        path: &str,
        root_path: &str,
    ) -> Option<Probe> {
        let (mut socket, theirs) = UnixStream::pair().ok()?;
        socket.set_nonblocking(true).ok()?;
        control.send(Kind::LINK, &[], &[theirs.as_fd()]).ok()?;
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let incoming = Incoming {
            method: "GET",
            path,
            query,
            version: "1.1",
            scheme: "http",
            authority: "localhost",
            lines: vec![(b"host", b"localhost"), (b"user-agent", b"ringroad")],
            client: None,
            local: None,
            root_path,
            body_bytes: Some(0),
            id: "health",
            socket: None,
        };
        let mut question = Vec::new();
        incoming.request(codec, 1, &[], END, &mut question);
        // The buffer of a new socket takes so little at once.
        socket.write_all(&question).ok()?;
        Some(Probe { socket, answer: Vec::new(), speaks: Speaks::Frames })
    }

    /// Looks whether the answer has come. `strict`: a status of 400 or more means no.
    pub(crate) fn look(&mut self, strict: bool) -> Probed {
        let mut buffer = [0; 512];
        loop {
            match self.socket.read(&mut buffer) {
                // An answer, or the end of a connection that was accepted: the process runs.
                Ok(_) if self.speaks == Speaks::FastCgi => return Probed::Serves,
                Ok(0) => return Probed::Not("closed the connection without an answer".to_owned()),
                Ok(count) => self.answer.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Probed::Waiting,
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) => return Probed::Not(why.to_string()),
            }
            if self.speaks == Speaks::Frames {
                match self.framed(strict) {
                    Probed::Waiting => continue,
                    probed => return probed,
                }
            }
            let Some(status) = self.answer.get(9..12) else { continue };
            let status = str::from_utf8(status).ok().and_then(|text| text.parse::<u16>().ok());
            return match status.filter(|_| self.answer.starts_with(b"HTTP/1.")) {
                Some(status) if strict && status >= 400 => Probed::Not(format!("answered {status}")),
                Some(_) => Probed::Serves,
                None => Probed::Not("answered something that is not HTTP/1".to_owned()),
            };
        }
    }
}

impl Probe {
    /// Looks for the head of the answer among the frames that have come.
    fn framed(&self, strict: bool) -> Probed {
        let mut at = 0;
        loop {
            match rwp::next(&self.answer, &mut at) {
                Ok(Some(frame)) if frame.stream != 1 => {}
                Ok(Some(frame)) => match frame.kind {
                    Kind::RESPONSE if strict && frame.aux >= 400 => {
                        return Probed::Not(format!("answered {}", frame.aux));
                    }
                    Kind::RESPONSE => return Probed::Serves,
                    Kind::RESET => {
                        let why = String::from_utf8_lossy(frame.payload).into_owned();
                        return Probed::Not(format!("failed: {why}"));
                    }
                    _ => {}
                },
                Ok(None) => return Probed::Waiting,
                Err(why) => return Probed::Not(why.to_string()),
            }
        }
    }
}

impl AsFd for Probe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

//! The task socket: programs of the same user submit tasks here and get their results.
//!
//! A Unix socket that only its owner may open. One JSON object a line is asked, `{"task": NAME, "args": […],
//! "kwargs": {…}, "id": ANY, "wait": false}`, and one is answered, with the same `id`:
//! `{"id": …, "ok": RESULT}` or `{"id": …, "error": TEXT, "why": WORD}`. Answers come in the order in which
//! tasks end. With `"wait": false` the answer comes when the task is in the queue. The supervisor's thread
//! serves it.

use ringroad_wire::rwp::Outcome;
use rustix::event::{PollFd, PollFlags};
use serde_json::{Map, Value, json};
use std::fs::Permissions;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Connections at once; more are closed.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a question.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes of answers that a connection may leave unread before no more of it is read.
const UNREAD_BYTES_MAX: usize = 1 << 20;
/// Tasks of one connection that are not answered, before no more of it is read.
const OPEN_MAX: usize = 1000;

/// The socket, which listens. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct TaskSocket {
    path: PathBuf,
    listener: UnixListener,
    connections: Vec<Connection>,
    next: u64,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    stream: UnixStream,
    received: Vec<u8>,
    out: Vec<u8>,
    /// Tasks that are not answered.
    open: usize,
    /// The client asks no more.
    ended: bool,
    broken: bool,
}

/// A task that was submitted.
#[derive(Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) connection: u64,
    pub(crate) id: Value,
    /// The answer comes when it is in the queue.
    pub(crate) forget: bool,
    pub(crate) payload: Vec<u8>,
}

impl TaskSocket {
    /// Listens at `path`, where no other program may listen. It belongs to `user`.
    pub(crate) fn open(path: &Path, user: Option<(u32, u32)>) -> io::Result<TaskSocket> {
        let told =
            |why: io::Error| io::Error::new(why.kind(), format!("task socket {}: {why}", path.display()));
        if UnixStream::connect(path).is_ok() {
            return Err(told(io::Error::new(ErrorKind::AddrInUse, "another program listens there")));
        }
        // Left over from a server that was killed; anything but a socket stays, and binding fails.
        if std::fs::symlink_metadata(path).is_ok_and(|facts| facts.file_type().is_socket()) {
            std::fs::remove_file(path).map_err(told)?;
        }
        let listener = UnixListener::bind(path).map_err(told)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(told)?;
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(path, Some(user), Some(group)).map_err(told)?;
        }
        listener.set_nonblocking(true).map_err(told)?;
        Ok(TaskSocket { path: path.to_owned(), listener, connections: Vec::new(), next: 1 })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it is waited for.
    pub(crate) fn poll_fds<'t>(&'t self, fds: &mut Vec<PollFd<'t>>) {
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        for one in &self.connections {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, one.is_read());
            flags.set(PollFlags::OUT, !one.out.is_empty());
            fds.push(PollFd::new(&one.stream, flags));
        }
    }

    /// Accepts, receives and sends without waiting. Returns the tasks that were submitted.
    pub(crate) fn turn(&mut self) -> Vec<Asked> {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.connections.len() < CONNECTIONS_MAX && stream.set_nonblocking(true).is_ok() {
                self.connections.push(Connection::new(self.next, stream));
                self.next += 1;
            }
        }
        let mut asked = Vec::new();
        for one in &mut self.connections {
            one.receive(&mut asked);
            one.send();
        }
        // One that has closed its side still gets what it waits for.
        self.connections.retain(|one| !(one.broken || one.ended && one.open == 0 && one.out.is_empty()));
        asked
    }

    /// Answers a question.
    pub(crate) fn answer(&mut self, connection: u64, id: Value, outcome: Outcome, payload: &[u8]) {
        let Some(one) = self.connections.iter_mut().find(|one| one.number == connection) else { return };
        one.open = one.open.saturating_sub(1);
        one.say(&match outcome {
            Outcome::Done => {
                let result = serde_json::from_slice::<Value>(payload)
                    .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(payload).into_owned()));
                json!({ "id": id, "ok": result })
            }
            Outcome::Silent => json!({ "id": id, "ok": null }),
            _ => json!({
                "id": id, "error": String::from_utf8_lossy(payload), "why": outcome.as_str(),
            }),
        });
        one.send();
    }
}

impl Drop for TaskSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Connection {
    fn new(number: u64, stream: UnixStream) -> Connection {
        let (received, out) = (Vec::new(), Vec::new());
        Connection { number, stream, received, out, open: 0, ended: false, broken: false }
    }

    fn is_read(&self) -> bool {
        !self.ended && self.open < OPEN_MAX && self.out.len() < UNREAD_BYTES_MAX
    }

    fn say(&mut self, answer: &Value) {
        self.out.extend_from_slice(format!("{answer}\n").as_bytes());
    }

    fn receive(&mut self, asked: &mut Vec<Asked>) {
        let mut buffer = [0; 16 << 10];
        // Each turn takes a part, so that the others get theirs.
        for _ in 0..16 {
            if !self.is_read() {
                return;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(count) => self.received.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.broken = true,
            }
            if self.broken {
                return;
            }
            while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                self.question(&line, asked);
            }
            if self.received.len() > LINE_BYTES_MAX {
                self.say(&json!({
                    "id": null, "error": format!("a line of more than {LINE_BYTES_MAX} bytes"), "why": "refused",
                }));
                self.received = Vec::new();
                self.ended = true;
            }
        }
    }

    fn question(&mut self, line: &[u8], asked: &mut Vec<Asked>) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let refuse = |id: Value, why: String| json!({ "id": id, "error": why, "why": "refused" });
        let mut question = match serde_json::from_slice::<Map<String, Value>>(line) {
            Ok(question) => question,
            Err(why) => return self.say(&refuse(Value::Null, format!("not an object in JSON: {why}"))),
        };
        let id = question.remove("id").unwrap_or_default();
        let forget = question.remove("wait") == Some(Value::Bool(false));
        if !question.get("task").is_some_and(Value::is_string) {
            return self.say(&refuse(id, "expected \"task\": the name of a task".to_owned()));
        }
        self.open += 1;
        let payload = Value::Object(question).to_string().into_bytes();
        asked.push(Asked { connection: self.number, id, forget, payload });
    }

    fn send(&mut self) {
        while !self.out.is_empty() && !self.broken {
            match self.stream.write(&self.out) {
                Ok(0) => self.broken = true,
                Ok(count) => drop(self.out.drain(..count)),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.broken = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{BufRead as _, BufReader};

    #[test]
    fn questions_become_tasks_and_anything_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.sock");
        let mut socket = TaskSocket::open(&path, None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(TaskSocket::open(&path, None).unwrap_err().kind(), ErrorKind::AddrInUse);
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"{\"task\":\"a\",\"args\":[1],\"id\":7}\nrubbish\n[]\n{\"id\":\"x\"}\n\n").unwrap();
        client.write_all(b"{\"wait\":false,\"task\":\"b\"}\n").unwrap();
        let asked = socket.turn();
        let payloads: Vec<_> = asked.iter().map(|one| String::from_utf8_lossy(&one.payload)).collect();
        assert_eq!(payloads, ["{\"args\":[1],\"task\":\"a\"}", "{\"task\":\"b\"}"]);
        assert_eq!((asked[0].forget, &asked[0].id, asked[1].forget), (false, &json!(7), true));
        socket.answer(asked[0].connection, json!(7), Outcome::Done, b"{\"n\":1}");
        socket.answer(asked[1].connection, Value::Null, Outcome::Died, b"gone");
        let mut lines = BufReader::new(&client).lines().map(Result::unwrap);
        for part in [
            "not an object",
            "not an object",
            "expected \\\"task\\\"",
            "\"ok\":{\"n\":1}",
            "\"why\":\"died\"",
        ] {
            let line = lines.next().unwrap();
            assert!(line.contains(part), "{part}: {line}");
        }
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_line_without_an_end_ends_the_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.sock");
        let mut socket = TaskSocket::open(&path, None).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while sent < LINE_BYTES_MAX + 4096 {
            match client.write(&[b'x'; 4096]) {
                Ok(count) => sent += count,
                Err(why) if why.kind() == ErrorKind::WouldBlock => assert!(socket.turn().is_empty()),
                // It closed its side.
                Err(_) => break,
            }
        }
        for _ in 0..20 {
            assert!(socket.turn().is_empty());
        }
        assert!(socket.connections.is_empty());
    }
}

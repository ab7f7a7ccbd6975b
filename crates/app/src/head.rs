//! The head of a request, as the worker's language reads it fastest.
//!
//! For Python the finished ASGI scope or WSGI environment, as `marshal` reads it; for PHP strings with NUL
//! between them, which one call splits; for others JSON. The worker only adds what it alone has. Lines with
//! `_` in their names are left out: a program that gets lines as variables cannot tell them from lines with
//! `-`.

use percent_encoding::percent_decode;
use ringroad_wire::rwp::marshal::Writer;
use ringroad_wire::rwp::{self, Kind};
use serde_json::json;
use std::net::SocketAddr;

/// How heads are written for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// The scope of an ASGI application, in Python's marshal.
    Asgi,
    /// The environment of a WSGI application, in Python's marshal.
    Wsgi,
    /// Strings with NUL between them.
    Lines,
    /// JSON, for every language.
    Json,
}

impl Codec {
    /// Reads the word of HELLO; what is not known gets JSON.
    pub(crate) fn of(word: &str) -> Codec {
        match word {
            "asgi" => Codec::Asgi,
            "wsgi" => Codec::Wsgi,
            "lines" => Codec::Lines,
            _ => Codec::Json,
        }
    }
}

/// What a worker is told of a request.
#[derive(Clone, Debug)]
pub struct Incoming<'r> {
    /// The method.
    pub method: &'r str,
    /// The path as received.
    pub path: &'r str,
    /// What is behind `?`.
    pub query: Option<&'r str>,
    /// "1.0", "1.1" or "2".
    pub version: &'static str,
    /// "http" or "https".
    pub scheme: &'r str,
    /// The host and port that the client asked for.
    pub authority: &'r str,
    /// Header lines that are handed on, in order.
    pub lines: Vec<(&'r [u8], &'r [u8])>,
    /// The client.
    pub client: Option<SocketAddr>,
    /// The address that the client connected to, if it was asked for.
    pub local: Option<SocketAddr>,
    /// Where the application begins, without a slash at its end.
    pub root_path: &'r str,
    /// Bytes of the body, if that is known.
    pub body_bytes: Option<u64>,
    /// The request's id.
    pub id: &'r str,
    /// It offers a WebSocket, with these subprotocols.
    pub socket: Option<Vec<&'r str>>,
}

impl Incoming<'_> {
    /// Returns the server's name and port, as the client called it.
    fn server(&self) -> (&str, u16) {
        let default = if self.scheme == "https" { 443 } else { 80 };
        match self.authority.rsplit_once(':') {
            Some((host, port)) if !port.is_empty() && !host.ends_with(':') && !port.contains(']') => {
                (host, port.parse().unwrap_or(default))
            }
            _ => (self.authority, default),
        }
    }

    /// Returns the scheme as ASGI wants it: of WebSockets "ws" and "wss".
    fn asgi_scheme(&self) -> &str {
        match (&self.socket, self.scheme) {
            (None, scheme) => scheme,
            (Some(_), "https") => "wss",
            (Some(_), _) => "ws",
        }
    }

    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.iter().copied().filter(|(name, _)| !name.contains(&b'_'))
    }

    /// Appends the frame of a request, with the beginning of its body.
    pub(crate) fn request(&self, codec: Codec, stream: u32, first: &[u8], flags: u8, out: &mut Vec<u8>) {
        self.frame(Kind::REQUEST, codec, stream, first, flags, out);
    }

    /// The same of any kind that has a head.
    pub(crate) fn frame(
        &self,
        kind: Kind,
        codec: Codec,
        stream: u32,
        first: &[u8],
        flags: u8,
        out: &mut Vec<u8>,
    ) {
        let at = rwp::begin(out, kind, flags, 0, stream);
        let place = out.len();
        out.extend_from_slice(&[0; 4]);
        self.write(codec, out);
        let length = (out.len() - place - 4) as u32;
        if let Some(place) = out.get_mut(place..place + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        out.extend_from_slice(first);
        rwp::finish(out, at);
    }

    /// Appends the head in a codec.
    pub(crate) fn write(&self, codec: Codec, out: &mut Vec<u8>) {
        match codec {
            Codec::Asgi => self.asgi(&mut Writer(out)),
            Codec::Wsgi => self.wsgi(&mut Writer(out)),
            Codec::Lines => self.strings(out),
            Codec::Json => self.json(out),
        }
    }

    fn asgi(&self, out: &mut Writer<'_>) {
        let decoded: Vec<u8> = percent_decode(self.path.as_bytes()).collect();
        let decoded = String::from_utf8_lossy(&decoded);
        out.begin_dict();
        let kind = if self.socket.is_some() { "websocket" } else { "http" };
        for (name, text) in [("type", kind), ("http_version", self.version), ("scheme", self.asgi_scheme())] {
            out.text(name);
            out.text(text);
        }
        match &self.socket {
            None => {
                out.text("method");
                out.text(self.method);
            }
            Some(protocols) => {
                out.text("subprotocols");
                out.list(protocols.len());
                protocols.iter().for_each(|protocol| out.text(protocol));
            }
        }
        out.text("path");
        // A proxy before this server may have cut the application's root off.
        if self.root_path.is_empty() || below(&decoded, self.root_path) {
            out.text(&decoded);
        } else {
            out.text(&format!("{}{decoded}", self.root_path));
        }
        out.text("raw_path");
        out.bytes(self.path.as_bytes());
        out.text("query_string");
        out.bytes(self.query.unwrap_or_default().as_bytes());
        out.text("root_path");
        out.text(self.root_path);
        out.text("headers");
        out.list(self.lines().count());
        for (name, value) in self.lines() {
            out.tuple(2);
            out.bytes_lower(name);
            out.bytes(value);
        }
        out.text("client");
        match self.client {
            Some(client) => {
                out.tuple(2);
                out.text(&client.ip().to_canonical().to_string());
                out.int(i32::from(client.port()));
            }
            None => out.none(),
        }
        out.text("ringroad.request_id");
        out.text(self.id);
        out.text("server");
        let (host, port) = self.server();
        out.tuple(2);
        out.text(host.trim_start_matches('[').trim_end_matches(']'));
        out.int(i32::from(port));
        out.end_dict();
    }

    fn wsgi(&self, out: &mut Writer<'_>) {
        let decoded: Vec<u8> = percent_decode(self.path.as_bytes()).collect();
        let info = match decoded.strip_prefix(self.root_path.as_bytes()) {
            Some(rest) if rest.is_empty() || rest.starts_with(b"/") => rest,
            _ => &decoded,
        };
        let (host, port) = self.server();
        out.begin_dict();
        let mut put = |name: &str, value: &[u8]| {
            out.text(name);
            out.latin1(value);
        };
        put("REQUEST_METHOD", self.method.as_bytes());
        put("SCRIPT_NAME", self.root_path.as_bytes());
        put("PATH_INFO", info);
        put("QUERY_STRING", self.query.unwrap_or_default().as_bytes());
        let target = match self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.to_owned(),
        };
        put("REQUEST_URI", target.as_bytes());
        put("RAW_URI", target.as_bytes());
        put("SERVER_NAME", host.as_bytes());
        put("SERVER_PORT", port.to_string().as_bytes());
        // RFC 3875 §4.1.16 has two numbers; ASGI has one for HTTP/2.
        let minor = if self.version.contains('.') { "" } else { ".0" };
        put("SERVER_PROTOCOL", format!("HTTP/{}{minor}", self.version).as_bytes());
        put("wsgi.url_scheme", self.scheme.as_bytes());
        if self.scheme == "https" {
            put("HTTPS", b"on");
        }
        if let Some(client) = self.client {
            put("REMOTE_ADDR", client.ip().to_canonical().to_string().as_bytes());
            put("REMOTE_PORT", client.port().to_string().as_bytes());
        }
        if let Some(bytes) = self.body_bytes.filter(|bytes| *bytes > 0 || self.has("content-length")) {
            put("CONTENT_LENGTH", bytes.to_string().as_bytes());
        }
        put("ringroad.request_id", self.id.as_bytes());
        // Lines of one name become one variable: cookies joined as cookies, others as lists (RFC 3875
        // §4.1.18).
        let mut seen: Vec<(String, Vec<u8>)> = Vec::with_capacity(self.lines.len());
        for (name, value) in self.lines() {
            if ["content-length", "proxy", "transfer-encoding"]
                .iter()
                .any(|left_out| name.eq_ignore_ascii_case(left_out.as_bytes()))
            {
                continue;
            }
            let mut variable = if name.eq_ignore_ascii_case(b"content-type") {
                String::new()
            } else {
                String::from("HTTP_")
            };
            variable.extend(name.iter().map(|byte| match byte {
                b'-' => '_',
                other => char::from(other.to_ascii_uppercase()),
            }));
            match seen.iter_mut().find(|(known, _)| *known == variable) {
                Some((_, joined)) => {
                    joined.extend_from_slice(if variable == "HTTP_COOKIE" { b"; " } else { b"," });
                    joined.extend_from_slice(value);
                }
                None => seen.push((variable, value.to_vec())),
            }
        }
        for (variable, value) in &seen {
            put(variable, value);
        }
        out.end_dict();
    }

    fn has(&self, name: &str) -> bool {
        self.lines.iter().any(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Appends fourteen strings, then a name and a value for each line, with NUL between them.
    fn strings(&self, out: &mut Vec<u8>) {
        let mut begins = true;
        let mut put = |bytes: &[u8], lower: bool| {
            if !std::mem::take(&mut begins) {
                out.push(0);
            }
            let at = out.len();
            out.extend_from_slice(bytes);
            let new = out.get_mut(at..).unwrap_or_default();
            if lower {
                new.make_ascii_lowercase();
            }
            // No parser of requests lets it through; here it would move every string behind it.
            new.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        };
        let (host, port) = match self.local {
            Some(local) => (local.ip().to_canonical().to_string(), local.port()),
            None => {
                let (host, port) = self.server();
                (host.to_owned(), port)
            }
        };
        let (client, client_port) = match self.client {
            Some(client) => (client.ip().to_canonical().to_string(), client.port().to_string()),
            None => Default::default(),
        };
        let body_bytes = self.body_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        let protocols = self.socket.as_ref().map(|protocols| protocols.join(", ")).unwrap_or_default();
        for text in [
            self.method,
            self.path,
            self.query.unwrap_or_default(),
            self.version,
            self.scheme,
            self.authority,
            &client,
            &client_port,
            &host,
            &port.to_string(),
            self.root_path,
            &body_bytes,
            self.id,
            &protocols,
        ] {
            put(text.as_bytes(), false);
        }
        for (name, value) in self.lines() {
            put(name, true);
            put(value, false);
        }
    }

    fn json(&self, out: &mut Vec<u8>) {
        let text = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
        let lines: Vec<_> =
            self.lines().map(|(name, value)| json!([text(name).to_lowercase(), text(value)])).collect();
        let (host, port) = self.server();
        let head = json!({
            "method": self.method,
            "path": self.path,
            "query": self.query,
            "version": self.version,
            "scheme": self.scheme,
            "authority": self.authority,
            "headers": lines,
            "client": self.client.map(|client| json!([client.ip().to_canonical().to_string(), client.port()])),
            "server": [host, port],
            "root_path": self.root_path,
            "body_bytes": self.body_bytes,
            "id": self.id,
            "websocket": self.socket,
        });
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(out, &head);
    }
}

fn below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn incoming<'r>() -> Incoming<'r> {
        Incoming {
            method: "POST",
            path: "/app/caf%C3%A9/%ff",
            query: Some("a=1&b=%20"),
            version: "1.1",
            scheme: "https",
            authority: "example.org:8443",
            lines: vec![
                (b"Host", b"example.org:8443"),
                (b"Cookie", b"a=1"),
                (b"X-Two", b"1"),
                (b"X-Two", b"\xe9"),
                (b"Cookie", b"b=2"),
                (b"X_Two", b"evil"),
                (b"Proxy", b"http://evil"),
                (b"Content-Type", b"text/plain"),
            ],
            client: Some("[::ffff:192.0.2.1]:4711".parse().unwrap()),
            local: None,
            root_path: "/app",
            body_bytes: Some(3),
            id: "id",
            socket: None,
        }
    }

    /// Returns what Python reads of it.
    fn python(codec: Codec, program: &str) -> Option<String> {
        let mut head = Vec::new();
        incoming().write(codec, &mut head);
        python_of(&head, program)
    }

    fn python_of(head: &[u8], program: &str) -> Option<String> {
        let program = format!("import sys, marshal; d = marshal.loads(sys.stdin.buffer.read()); {program}");
        let child = Command::new("python3")
            .args(["-c", &program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(why) => {
                eprintln!("skipped: python3: {why}");
                return None;
            }
        };
        child.stdin.take().unwrap().write_all(head).unwrap();
        let output = child.wait_with_output().unwrap();
        Some(String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn python_reads_the_scope_of_asgi() {
        let Some(told) = python(Codec::Asgi, "print(ascii(sorted(d.items())))") else { return };
        assert_eq!(
            told.trim(),
            "[('client', ('192.0.2.1', 4711)), ('headers', [(b'host', b'example.org:8443'), (b'cookie', b'a=1'), \
             (b'x-two', b'1'), (b'x-two', b'\\xe9'), (b'cookie', b'b=2'), (b'proxy', b'http://evil'), \
             (b'content-type', b'text/plain')]), ('http_version', '1.1'), ('method', 'POST'), \
             ('path', '/app/caf\\xe9/\\ufffd'), ('query_string', b'a=1&b=%20'), \
             ('raw_path', b'/app/caf%C3%A9/%ff'), ('ringroad.request_id', 'id'), ('root_path', '/app'), ('scheme', 'https'), \
             ('server', ('example.org', 8443)), ('type', 'http')]"
        );
    }

    #[test]
    fn python_reads_the_scope_of_a_websocket() {
        let mut head = Vec::new();
        let offer = Incoming { socket: Some(vec!["chat.v2", "chat"]), method: "GET", ..incoming() };
        offer.write(Codec::Asgi, &mut head);
        let program = "print(d['type'], d['scheme'], d['subprotocols'], 'method' in d, d['http_version'])";
        let Some(told) = python_of(&head, program) else { return };
        assert_eq!(told.trim(), "websocket wss ['chat.v2', 'chat'] False 1.1");
    }

    #[test]
    fn python_reads_the_environment_of_wsgi() {
        let names = "'PATH_INFO', 'SCRIPT_NAME', 'HTTP_COOKIE', 'HTTP_X_TWO', 'CONTENT_TYPE', 'CONTENT_LENGTH', \
                     'SERVER_NAME', 'SERVER_PORT', 'SERVER_PROTOCOL', 'REMOTE_ADDR', 'HTTP_PROXY'";
        let Some(told) = python(Codec::Wsgi, &format!("print(ascii([d.get(n) for n in ({names})]))")) else {
            return;
        };
        assert_eq!(
            told.trim(),
            "['/caf\\xc3\\xa9/\\xff', '/app', 'a=1; b=2', '1,\\xe9', 'text/plain', '3', 'example.org', '8443', \
             'HTTP/1.1', '192.0.2.1', None]"
        );
        let mut head = Vec::new();
        Incoming { version: "2", ..incoming() }.write(Codec::Wsgi, &mut head);
        let told = python_of(&head, "print(d['SERVER_PROTOCOL'], d['wsgi.url_scheme'], d['HTTPS'])").unwrap();
        assert_eq!(told.trim(), "HTTP/2.0 https on");
        let mut head = Vec::new();
        Incoming { scheme: "http", ..incoming() }.write(Codec::Wsgi, &mut head);
        assert_eq!(python_of(&head, "print(d.get('HTTPS'))").unwrap().trim(), "None");
    }

    #[test]
    fn strings_of_a_head_stand_in_their_places() {
        let mut head = Vec::new();
        let offer = Incoming { socket: Some(vec!["chat.v2", "chat"]), ..incoming() };
        offer.write(Codec::Lines, &mut head);
        let strings: Vec<&[u8]> = head.split(|byte| *byte == 0).collect();
        let expected: [&[u8]; 14] = [
            b"POST",
            b"/app/caf%C3%A9/%ff",
            b"a=1&b=%20",
            b"1.1",
            b"https",
            b"example.org:8443",
            b"192.0.2.1",
            b"4711",
            b"example.org",
            b"8443",
            b"/app",
            b"3",
            b"id",
            b"chat.v2, chat",
        ];
        assert_eq!(strings.get(..14).unwrap(), expected);
        let lines: Vec<_> = strings.get(14..).unwrap().chunks(2).collect();
        assert_eq!(lines.len(), 7);
        assert_eq!(lines.get(3).unwrap(), &[b"x-two".as_slice(), b"\xe9"]);
    }

    #[test]
    fn a_nul_moves_no_string() {
        let mut head = Vec::new();
        let odd = Incoming { path: "/a\0b", lines: vec![(b"A\0B", b"1\x002")], ..incoming() };
        odd.write(Codec::Lines, &mut head);
        let strings: Vec<&[u8]> = head.split(|byte| *byte == 0).collect();
        assert_eq!(strings.get(1).unwrap(), b"/a b");
        assert_eq!(strings.get(14..).unwrap(), [b"a b".as_slice(), b"1 2"]);
    }

    #[test]
    fn every_language_reads_json() {
        let mut head = Vec::new();
        incoming().write(Codec::Json, &mut head);
        let head: serde_json::Value = serde_json::from_slice(&head).unwrap();
        assert_eq!(head["path"], "/app/caf%C3%A9/%ff");
        assert_eq!(head["headers"][3], json!(["x-two", "\u{e9}"]));
        assert_eq!(head["headers"].as_array().unwrap().len(), 7);
    }
}

//! A client that writes frames by hand, and so may break any rule.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a socket waits before a test is shown to hang.
const HANG: Duration = Duration::from_secs(60);

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![high, middle, low, kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// SETTINGS with these values.
pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> = values
        .iter()
        .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    frame(4, 0, 0, &payload)
}

/// A header block of literals that are not indexed (RFC 7541 §6.2.2).
pub(crate) fn block(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in lines {
        block.push(0);
        for text in [name, value] {
            // Seven bits of length, and more where that is not enough.
            let length = text.len();
            if length < 127 {
                block.push(length as u8);
            } else {
                block.push(127);
                let mut rest = length - 127;
                while rest >= 128 {
                    block.push((rest % 128 + 128) as u8);
                    rest /= 128;
                }
                block.push(rest as u8);
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

/// The head of a GET.
pub(crate) fn get_lines(path: &str) -> [(&'static str, &str); 4] {
    [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", path)]
}

/// HEADERS that are complete.
pub(crate) fn headers(stream: u32, lines: &[(&str, &str)], end: bool) -> Vec<u8> {
    frame(1, 0x4 | u8::from(end), stream, &block(lines))
}

/// A connection.
pub(crate) struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
    /// Frames that were read while others were looked for: type, flags, stream, payload.
    kept: VecDeque<(u8, u8, u32, Vec<u8>)>,
}

impl Peer {
    /// Connects, and says nothing.
    pub(crate) fn silent(address: SocketAddr) -> Peer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer { stream, input: Vec::new(), kept: VecDeque::new() }
    }

    /// Connects, and begins.
    pub(crate) fn new(address: SocketAddr) -> Peer {
        Peer::with_settings(address, &[])
    }

    pub(crate) fn with_settings(address: SocketAddr, values: &[(u16, u32)]) -> Peer {
        let mut peer = Peer::silent(address);
        peer.send(&[PREFACE, &settings(values)].concat());
        peer
    }

    /// Sends; the server may have gone.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends no more.
    pub(crate) fn finish(&mut self) {
        // The server may have closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    pub(crate) fn headers(&mut self, stream: u32, lines: &[(&str, &str)], end: bool) -> bool {
        self.send(&headers(stream, lines, end))
    }

    pub(crate) fn get(&mut self, stream: u32, path: &str) -> bool {
        self.headers(stream, &get_lines(path), true)
    }

    fn more(&mut self) -> bool {
        read_more(&mut self.stream, &mut self.input)
    }

    /// The next frame as it comes; `None` at the end of the connection.
    pub(crate) fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        loop {
            if let Some(header) = self.input.first_chunk::<9>() {
                let [high, middle, low, kind, flags, a, b, c, d] = *header;
                let length = u32::from_be_bytes([0, high, middle, low]) as usize;
                if self.input.len() >= 9 + length {
                    let payload = self.input[9..9 + length].to_vec();
                    self.input.drain(..9 + length);
                    // What was not asked for is acknowledged, as a client has to.
                    if kind == 4 && flags & 1 == 0 {
                        self.send(&frame(4, 1, 0, &[]));
                    }
                    return Some((kind, flags, u32::from_be_bytes([a, b, c, d]), payload));
                }
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// The payload of the next frame of this type; others are forgotten.
    pub(crate) fn until(&mut self, wanted: u8) -> Option<Vec<u8>> {
        loop {
            let (kind, _, _, payload) = self.next()?;
            if kind == wanted {
                return Some(payload);
            }
        }
    }

    /// The code of the GOAWAY that the connection ends with; `None` if it ends without.
    pub(crate) fn goaway(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some((kind, _, _, payload)) = self.next() {
            if kind == 7 {
                code = Some(u32::from_be_bytes(*payload[4..].first_chunk().unwrap()));
            }
        }
        code
    }

    /// The code of a GOAWAY, if one is among the frames that have come. Others are forgotten.
    pub(crate) fn goaway_so_far(&mut self) -> Option<u32> {
        self.stream.set_nonblocking(true).unwrap();
        let mut buffer = [0; 16 * 1024];
        while let Ok(bytes @ 1..) = self.stream.read(&mut buffer) {
            self.input.extend_from_slice(&buffer[..bytes]);
        }
        self.stream.set_nonblocking(false).unwrap();
        let mut code = None;
        while let Some(header) = self.input.first_chunk::<9>() {
            let (length, kind) =
                (u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize, header[3]);
            let Some(payload) = self.input.get(9..9 + length) else { break };
            if kind == 7 {
                code = Some(u32::from_be_bytes(*payload[4..].first_chunk().unwrap()));
            }
            self.input.drain(..9 + length);
        }
        code
    }

    /// The next frame of this stream: type, flags, payload.
    pub(crate) fn frame_of(&mut self, stream: u32) -> Option<(u8, u8, Vec<u8>)> {
        if let Some(at) = self.kept.iter().position(|(_, _, of, _)| *of == stream) {
            let (kind, flags, _, payload) = self.kept.remove(at)?;
            return Some((kind, flags, payload));
        }
        loop {
            let (kind, flags, of, payload) = self.next()?;
            if of == stream {
                return Some((kind, flags, payload));
            }
            if of != 0 {
                self.kept.push_back((kind, flags, of, payload));
            }
        }
    }

    /// The body of a response, to its end; `None` if it has none: the stream was reset, or the connection
    /// ended.
    pub(crate) fn response(&mut self, stream: u32) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let (kind, flags, payload) = self.frame_of(stream)?;
            match kind {
                0 => body.extend(payload),
                1 => {}
                3 => return None,
                _ => continue,
            }
            if flags & 1 != 0 {
                return Some(body);
            }
        }
    }
}

/// Appends what the stream has next to `input`; false at its end. A reset is an end, too.
pub(crate) fn read_more(stream: &mut impl Read, input: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 16 * 1024];
    match stream.read(&mut buffer) {
        Ok(bytes) => {
            input.extend_from_slice(&buffer[..bytes]);
            bytes > 0
        }
        Err(why) if matches!(why.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => false,
        // The kernel does not go on by itself where a socket has a time limit (signal(7)), and the work of a
        // ring that this thread had interrupts as a signal does.
        Err(why) if why.kind() == ErrorKind::Interrupted => true,
        Err(why) => panic!("{why}"),
    }
}

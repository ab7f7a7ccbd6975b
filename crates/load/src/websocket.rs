//! WebSocket as a load: the opening handshake of a connection, and the layer between its frames and the
//! messages that come back.
//!
//! A message is one masked frame, encoded before the load begins. Of what comes, payloads are passed on,
//! pings are answered, and a close frame is answered and ends the connection. Start at [`open`].

use crate::connection::words;
use crate::error::Error;
use crate::foreign::instead_of_http1;
use crate::handshake::or_expired;
use crate::layer::Layer;
use crate::target::Target;
use crate::worker::{NEVER, Seat, Worker};
use ringroad_engine::AnyBuf;
use ringroad_engine::net::TcpStream;
use ringroad_wire::ws::{Opcode, handshake, put_frame};
use std::fmt::Write;
use std::pin::pin;

/// The longest answer to an opening handshake.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// What a connection sends first, and what the answer has to have.
#[derive(Debug)]
pub(crate) struct Opening {
    request: Vec<u8>,
    accept: String,
    /// Pings are sent, and pongs are their answers; messages of the server are passed over.
    pings: bool,
}

impl Opening {
    /// Encodes the handshake. The header lines have been checked.
    pub(crate) fn new(target: &Target, headers: &[(String, String)], pings: bool) -> Opening {
        let mut random = [0; 16];
        fastrand::fill(&mut random);
        let key = handshake::key_of(random);
        let has = |wanted: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let mut text = format!("GET {} HTTP/1.1\r\n", target.path);
        if !has("host") {
            let _ = write!(text, "Host: {}\r\n", target.authority());
        }
        let _ = write!(
            text,
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n\
             Sec-WebSocket-Version: {}\r\n",
            handshake::VERSION
        );
        if !has("user-agent") {
            text.push_str(concat!("User-Agent: ringroad/", env!("CARGO_PKG_VERSION"), "\r\n"));
        }
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text.push_str("\r\n");
        Opening { request: text.into_bytes(), accept: handshake::accept_key(&key), pings }
    }
}

/// Returns a message as a client sends it.
///
/// # Errors
/// There is nothing in it.
pub(crate) fn frame(payload: &[u8]) -> Result<Vec<u8>, Error> {
    if payload.is_empty() {
        return Err(Error::usage("message: nothing in it, so nothing could come back"));
    }
    let opcode = if str::from_utf8(payload).is_ok() { Opcode::Text } else { Opcode::Binary };
    let mut mask = [0; 4];
    fastrand::fill(&mut mask);
    let mut out = Vec::with_capacity(payload.len() + 14);
    put_frame(&mut out, opcode, payload, Some(mask));
    Ok(out)
}

/// Returns a ping with this payload.
///
/// # Errors
/// There is nothing in it, or it is longer than a ping may be.
pub(crate) fn ping(payload: &[u8]) -> Result<Vec<u8>, Error> {
    if payload.is_empty() || payload.len() > 125 {
        return Err(Error::usage("message: a ping has 1 to 125 bytes here"));
    }
    let mut mask = [0; 4];
    fastrand::fill(&mut mask);
    let mut out = Vec::with_capacity(payload.len() + 6);
    put_frame(&mut out, Opcode::Ping, payload, Some(mask));
    Ok(out)
}

/// Carries out the opening handshake over the layer below.
pub(crate) async fn open<L: Layer>(
    worker: &Worker,
    seat: &Seat,
    opening: &Opening,
    stream: &mut TcpStream,
    below: L,
) -> Result<Frames<L>, String> {
    seat.since.set(worker.now());
    let incoming = Incoming { pings: opening.pings, ..Incoming::default() };
    let mut frames = Frames { below, incoming };
    let opened = shake(seat, opening, stream, &mut frames).await;
    seat.since.set(NEVER);
    opened.map(|()| frames).map_err(|why| format!("WebSocket handshake: {why}"))
}

async fn shake<L: Layer>(
    seat: &Seat,
    opening: &Opening,
    stream: &mut TcpStream,
    frames: &mut Frames<L>,
) -> Result<(), String> {
    let Frames { below, incoming } = frames;
    if let Some(bytes) = below.outgoing(Some(AnyBuf::from(opening.request.clone()))) {
        let mut sending = pin!(stream.write_all(bytes));
        or_expired(seat, async { sending.as_mut().await.0.map_err(|why| words(&why)) }).await?;
    }
    let mut head = Vec::new();
    loop {
        let mut lease = or_expired(seat, async { stream.recv().await.map_err(|why| words(&why)) }).await?;
        if lease.is_empty() {
            return Err("the server closed the connection".to_owned());
        }
        below.incoming(&mut lease, |bytes| {
            head.extend_from_slice(bytes);
            None::<()>
        })?;
        if let Some(what) = instead_of_http1(&head) {
            return Err(what.to_owned());
        }
        if let Some(at) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = head.split_off(at + 4);
            check(&head, &opening.accept)?;
            // What came with the answer is looked at with what comes next.
            incoming.early = rest;
            return Ok(());
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err("the answer's head is longer than 16 KiB".to_owned());
        }
    }
}

/// Checks the answer to an opening handshake.
fn check(head: &[u8], accept: &str) -> Result<(), String> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    if first.split(' ').nth(1) != Some("101") {
        return Err(format!("the server answered \"{first}\""));
    }
    let is_accepted = lines
        .filter_map(|line| line.split_once(':'))
        .any(|(name, value)| name.eq_ignore_ascii_case("sec-websocket-accept") && value.trim() == accept);
    is_accepted.then_some(()).ok_or_else(|| "Sec-WebSocket-Accept is not the answer to our key".to_owned())
}

/// Frames over another layer.
pub(crate) struct Frames<L> {
    below: L,
    incoming: Incoming,
}

/// Where in a frame the bytes are.
#[derive(Default)]
struct Incoming {
    /// The beginning of a head that is not whole.
    head: Vec<u8>,
    /// Bytes of the frame that are still to come.
    left: u64,
    /// The control frame that comes, and its payload so far.
    control: Option<(u8, Vec<u8>)>,
    /// Frames to send: pongs, the answer to a close frame.
    answers: Vec<u8>,
    /// What came with the answer to the handshake.
    early: Vec<u8>,
    closed: bool,
    /// Payload of pongs is shown, and messages are passed over.
    pings: bool,
}

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

impl Incoming {
    /// Takes bytes of frames, and shows what is payload of messages, or of pongs.
    fn take<E>(
        &mut self,
        mut bytes: &[u8],
        show: &mut impl FnMut(&[u8]) -> Option<E>,
    ) -> Result<Option<E>, String> {
        loop {
            if self.left > 0 {
                if bytes.is_empty() {
                    return Ok(None);
                }
                let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                let (part, rest) = bytes.split_at(count);
                bytes = rest;
                self.left -= count as u64;
                match &mut self.control {
                    Some((_, payload)) => payload.extend_from_slice(part),
                    None if self.pings => {}
                    None => {
                        if let Some(end) = show(part) {
                            return Ok(Some(end));
                        }
                    }
                }
            }
            if self.left == 0
                && let Some((opcode, payload)) = self.control.take()
            {
                if opcode == PONG
                    && self.pings
                    && let Some(end) = show(&payload)
                {
                    return Ok(Some(end));
                }
                self.answer(opcode, &payload);
            }
            if bytes.is_empty() {
                return Ok(None);
            }
            bytes = self.begin(bytes)?;
        }
    }

    /// Takes the head of a frame, and returns what follows it.
    fn begin<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], String> {
        let before = self.head.len();
        // A head of a server has at most 10 bytes.
        self.head.extend_from_slice(
            bytes.get(..bytes.len().min(10_usize.saturating_sub(before))).unwrap_or_default(),
        );
        let (length, used) = match self.head.as_slice() {
            [_, short @ 0..=125, ..] => (u64::from(*short), 2),
            [_, 126, a, b, ..] => (u64::from(u16::from_be_bytes([*a, *b])), 4),
            [_, 127, a, b, c, d, e, f, g, h, ..] => {
                (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), 10)
            }
            [_, masked, ..] if *masked > 127 => return Err("a masked frame of the server".to_owned()),
            _ => return Ok(&[]),
        };
        let first = self.head.first().copied().unwrap_or_default();
        self.head.clear();
        let opcode = first & 0x0f;
        if first & 0x70 != 0 {
            return Err("a frame with bits of an extension that was not agreed on".to_owned());
        }
        match opcode {
            CONTINUATION | TEXT | BINARY => {}
            CLOSE | PING | PONG if length <= 125 && first & 0x80 != 0 => {
                self.control = Some((opcode, Vec::new()))
            }
            _ => return Err(format!("a frame of the wrong form (first byte {first:#04x})")),
        }
        self.left = length;
        Ok(bytes.get(used - before..).unwrap_or_default())
    }

    fn answer(&mut self, opcode: u8, payload: &[u8]) {
        let answer = match opcode {
            PING => Opcode::Pong,
            CLOSE if !self.closed => {
                self.closed = true;
                Opcode::Close
            }
            _ => return,
        };
        let mut mask = [0; 4];
        fastrand::fill(&mut mask);
        put_frame(&mut self.answers, answer, payload, Some(mask));
    }
}

impl<L: Layer> Layer for Frames<L> {
    #[inline]
    fn outgoing(&mut self, messages: Option<AnyBuf>) -> Option<AnyBuf> {
        if self.incoming.answers.is_empty() {
            return self.below.outgoing(messages);
        }
        let mut all = std::mem::take(&mut self.incoming.answers);
        if let Some(messages) = messages {
            all.extend_from_slice(&messages);
        }
        self.below.outgoing(Some(AnyBuf::from(all)))
    }

    #[inline]
    fn incoming<E>(
        &mut self,
        bytes: &mut [u8],
        mut show: impl FnMut(&[u8]) -> Option<E>,
    ) -> Result<Option<E>, String> {
        let Frames { below, incoming } = self;
        let early = std::mem::take(&mut incoming.early);
        if !early.is_empty()
            && let Some(end) = incoming.take(&early, &mut show)?
        {
            return Ok(Some(end));
        }
        let mut fault = None;
        let end = below.incoming(bytes, |piece| match incoming.take(piece, &mut show) {
            _ if fault.is_some() => None,
            Ok(end) => end,
            Err(why) => {
                fault = Some(why);
                None
            }
        })?;
        match (end, fault) {
            (Some(end), _) => Ok(Some(end)),
            (None, Some(why)) => Err(format!("WebSocket: {why}")),
            (None, None) => Ok(None),
        }
    }

    fn may_end(&self) -> bool {
        self.below.may_end()
    }

    fn has_ended(&self) -> bool {
        self.below.has_ended()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::layer::Plain;

    #[test]
    fn where_pings_are_sent_their_answers_are_shown_and_messages_are_not() {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, Opcode::Text, b"news", None);
        put_frame(&mut bytes, Opcode::Pong, b"one", None);
        put_frame(&mut bytes, Opcode::Ping, b"are you there", None);
        put_frame(&mut bytes, Opcode::Binary, &[b'x'; 300], None);
        put_frame(&mut bytes, Opcode::Pong, b"two", None);
        for size in [1, 2, 3, 7, bytes.len()] {
            let mut layer = layer();
            layer.incoming.pings = true;
            assert_eq!(shown(&mut layer, &bytes, size).unwrap(), b"onetwo");
        }
        assert!(ping(&[]).is_err() && ping(&[0; 126]).is_err());
    }

    fn layer() -> Frames<Plain> {
        Frames { below: Plain, incoming: Incoming::default() }
    }

    /// Payload bytes that are shown, fed in pieces of `size`.
    fn shown(layer: &mut Frames<Plain>, bytes: &[u8], size: usize) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        for piece in bytes.chunks(size) {
            layer.incoming(&mut piece.to_vec(), |part| {
                all.extend_from_slice(part);
                None::<()>
            })?;
        }
        Ok(all)
    }

    #[test]
    fn payloads_are_shown_and_pings_answered_wherever_the_bytes_are_cut() {
        let mut bytes = Vec::new();
        let long = vec![b'x'; 70_000];
        put_frame(&mut bytes, Opcode::Text, b"one", None);
        put_frame(&mut bytes, Opcode::Ping, b"are you there", None);
        put_frame(&mut bytes, Opcode::Binary, &long[..300], None);
        put_frame(&mut bytes, Opcode::Pong, b"", None);
        put_frame(&mut bytes, Opcode::Text, &long, None);
        put_frame(&mut bytes, Opcode::Ping, b"", None);
        for size in [1, 2, 3, 7, 100, bytes.len()] {
            let mut layer = layer();
            let told = shown(&mut layer, &bytes, size).unwrap();
            assert_eq!(told, [&b"one"[..], &long[..300], &long].concat(), "{size}");
            let sent = layer.outgoing(Some(AnyBuf::from(b"message".to_vec()))).unwrap();
            // Two pongs, masked, before the message.
            assert_eq!(sent.len(), 6 + 13 + 6 + 7, "{size}");
            assert_eq!(sent[0], 0x8a);
            assert!(sent.ends_with(b"message"));
            assert!(layer.outgoing(None).is_none());
        }
    }

    #[test]
    fn a_close_frame_is_answered_once() {
        let mut layer = layer();
        assert_eq!(shown(&mut layer, &[0x88, 2, 3, 232, 0x88, 0], 3).unwrap(), b"");
        let sent = layer.outgoing(None).unwrap();
        assert_eq!((sent.len(), sent[0]), (8, 0x88));
        assert!(layer.outgoing(None).is_none());
    }

    #[test]
    fn what_a_server_may_not_send_is_a_fault() {
        for (bytes, why) in [
            (&[0x81, 0x80][..], "masked"),
            (&[0xc1, 0], "extension"),
            (&[0x83, 0], "wrong form"),
            (&[0x09, 0], "wrong form"),
            (&[0x89, 126, 0, 126], "wrong form"),
        ] {
            let told = shown(&mut layer(), bytes, 8).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn a_handshake_is_checked() {
        let target: Target = "ws://a:81/x?y".parse().unwrap();
        let opening = Opening::new(&target, &[("Origin".to_owned(), "http://a".to_owned())], false);
        let text = String::from_utf8(opening.request.clone()).unwrap();
        assert!(
            text.starts_with("GET /x?y HTTP/1.1\r\nHost: a:81\r\n")
                && text.ends_with("Origin: http://a\r\n\r\n")
        );
        let good = format!("HTTP/1.1 101 Switching\r\nsec-websocket-ACCEPT:  {}\r\n\r\n", opening.accept);
        check(good.as_bytes(), &opening.accept).unwrap();
        let refused = check(b"HTTP/1.1 403 Forbidden\r\n\r\n", &opening.accept).unwrap_err();
        assert!(refused.contains("403 Forbidden"));
        assert!(check(b"HTTP/1.1 101 X\r\n\r\n", &opening.accept).unwrap_err().contains("Accept"));
        assert!(frame(b"").is_err());
        assert_eq!((frame(b"a").unwrap()[0], frame(&[0xff]).unwrap()[0]), (0x81, 0x82));
    }
}

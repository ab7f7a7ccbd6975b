//! Reads responses from a connection: received bytes that are not used yet, and the state of the protocol.
//!
//! The client here and the proxy of the server tool share this, and little else: each decides when to send,
//! how long to wait, and what to keep for the next request.

use crate::h1::gather;
use crate::message::{ALONE_BYTES_MIN, Chunk, Trailers};
use crate::pool;
use crate::transport::Receive;
use ringroad_engine::Lease;
use ringroad_wire::{Asked, Error, Fields, KeptHead, Phase, ResponseEvent, ResponseHead, Responses, Scratch};
use std::cell::RefCell;
use std::fmt;

/// Why a response cannot be read completely.
#[derive(Debug)]
pub enum ReadError {
    /// No byte of it arrived: the connection was closed, or failed with this error.
    Unanswered(Option<ringroad_engine::Error>),
    /// The connection was closed within the response; the error of the protocol, if it has one.
    Closed(Option<Error>),
    /// The response breaks the protocol or a limit.
    Refused(Error),
    /// Receiving failed.
    Connection(ringroad_engine::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Unanswered(None) => f.write_str("the connection was closed"),
            ReadError::Closed(_) => f.write_str("the connection was closed in the middle of it"),
            ReadError::Refused(why) => why.fmt(f),
            ReadError::Unanswered(Some(why)) | ReadError::Connection(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads one response after another.
#[derive(Debug, Default)]
pub struct ResponseReader {
    responses: Responses,
    /// Received bytes; those from `used` on are not used.
    input: Vec<u8>,
    used: usize,
    /// What was received after that: the rest of the lease with the head, or, after the last piece, the end
    /// or an error.
    behind: Option<ringroad_engine::Result<Lease>>,
    trailers: Trailers,
}

impl ResponseReader {
    /// Makes the reader of a connection that was just opened.
    pub fn new() -> ResponseReader {
        ResponseReader::default()
    }

    /// Returns the head of the response to a request like this, which was sent or is being sent. Interim
    /// heads (1xx) are skipped.
    ///
    /// # Errors
    /// Any [`ReadError`]. The connection cannot be used afterwards.
    pub async fn head(
        &mut self,
        from: &mut impl Receive,
        scratch: &RefCell<Scratch>,
        asked: Asked,
    ) -> Result<KeptHead, ReadError> {
        self.head_with(from, scratch, asked, |_| {}).await
    }

    /// Works as [`head`](Self::head), and calls `interim` for each interim head (1xx except 101), of which
    /// there are at most [`Limits::interim_responses`](ringroad_wire::Limits). `interim` must not use
    /// `scratch`.
    ///
    /// # Errors
    /// As [`head`](Self::head).
    pub async fn head_with(
        &mut self,
        from: &mut impl Receive,
        scratch: &RefCell<Scratch>,
        asked: Asked,
        mut interim: impl FnMut(ResponseHead<'_>),
    ) -> Result<KeptHead, ReadError> {
        if self.used == self.input.len() {
            // Rest of the last response, which cannot begin this one.
            self.input.clear();
            self.used = 0;
        }
        self.responses.begin(asked).map_err(ReadError::Refused)?;
        loop {
            {
                let mut scratch = scratch.borrow_mut();
                let event = self.responses.next(&mut scratch, &self.input, &mut self.used);
                match event {
                    Ok(Some(ResponseEvent::Head(head))) => return Ok(head.keep()),
                    Ok(Some(ResponseEvent::Interim(head))) => {
                        interim(head);
                        continue;
                    }
                    Ok(Some(_)) => continue,
                    Ok(None) => {}
                    Err(why) => {
                        if !self.responses.unfold(&mut self.input, self.used) {
                            return Err(ReadError::Refused(why));
                        }
                        continue;
                    }
                }
            }
            let silent = self.input.is_empty();
            match from.recv().await {
                Ok(lease) if lease.is_empty() && silent => return Err(ReadError::Unanswered(None)),
                Ok(lease) if lease.is_empty() => return Err(ReadError::Closed(None)),
                Ok(lease) if silent => {
                    if let Some(head) = self.head_in(scratch, lease, &mut interim)? {
                        return Ok(head);
                    }
                }
                Ok(lease) => self.take(&lease),
                Err(why) if silent => return Err(ReadError::Unanswered(Some(why))),
                Err(why) => return Err(ReadError::Connection(why)),
            }
        }
    }

    /// Returns the head at the front of a lease, without a copy, if no bytes precede it. The rest stays in
    /// the lease. An incomplete head is copied to the input.
    fn head_in(
        &mut self,
        scratch: &RefCell<Scratch>,
        mut lease: Lease,
        interim: &mut impl FnMut(ResponseHead<'_>),
    ) -> Result<Option<KeptHead>, ReadError> {
        let mut at = 0;
        let head = loop {
            let mut scratch = scratch.borrow_mut();
            let event = self.responses.next(&mut scratch, &lease, &mut at);
            match event {
                Ok(Some(ResponseEvent::Head(head))) => break head.keep(),
                Ok(Some(ResponseEvent::Interim(head))) => interim(head),
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.input.extend_from_slice(&lease);
                    self.used = at;
                    return Ok(None);
                }
                Err(why) => {
                    if !self.responses.unfold(&mut lease, at) {
                        return Err(ReadError::Refused(why));
                    }
                }
            }
        };
        lease.advance(at);
        self.behind = (!lease.is_empty()).then_some(Ok(lease));
        Ok(Some(head))
    }

    fn take(&mut self, more: &[u8]) {
        self.input.drain(..std::mem::take(&mut self.used));
        self.input.extend_from_slice(more);
    }

    /// Returns whether the response is complete, including its body.
    pub fn is_complete(&self) -> bool {
        matches!(self.responses.phase(), Phase::Idle | Phase::Closed)
    }

    /// Returns whether the connection can carry another request.
    pub fn is_idle(&self) -> bool {
        self.responses.phase() == Phase::Idle && self.used == self.input.len() && self.behind.is_none()
    }

    /// Returns the received part of the body, unless it is large: then it is the next piece, without a copy.
    /// An error is returned again with that piece.
    pub fn ready(&mut self, scratch: &RefCell<Scratch>) -> Vec<u8> {
        let mut all = Vec::new();
        let parsed = self.parse(scratch, &mut all);
        if parsed.is_ok()
            && !self.is_complete()
            && let Some(Ok(lease)) = self.behind.take_if(is_short)
        {
            all = pool::buffer();
            let mut used = 0;
            let _ = self.parse_in(scratch, &lease, &mut used, &mut all);
            if used < lease.len() {
                self.take(lease.get(used..).unwrap_or_default());
            }
        }
        all
    }

    /// Moves received bytes of the body out of the input.
    fn parse(&mut self, scratch: &RefCell<Scratch>, all: &mut Vec<u8>) -> Result<(), ReadError> {
        let (input, mut used) = (std::mem::take(&mut self.input), self.used);
        let parsed = self.parse_in(scratch, &input, &mut used, all);
        (self.input, self.used) = (input, used);
        parsed
    }

    /// Moves received bytes of the body out of `input`, from `used` on.
    fn parse_in(
        &mut self,
        scratch: &RefCell<Scratch>,
        input: &[u8],
        used: &mut usize,
        all: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let mut scratch = scratch.borrow_mut();
        loop {
            let event = self.responses.next(&mut scratch, input, used);
            match event.map_err(ReadError::Refused)? {
                Some(ResponseEvent::Data(data)) => all.extend_from_slice(data),
                Some(ResponseEvent::End(lines)) => {
                    self.trailers = kept(lines);
                    return Ok(());
                }
                None => return Ok(()),
                // Impossible within a body.
                Some(ResponseEvent::Interim(_) | ResponseEvent::Head(_)) => {}
            }
        }
    }

    /// Returns the next piece of the body, of at most 64 KiB or one chunk of its framing; `None` at its end.
    ///
    /// # Errors
    /// Any but [`ReadError::Unanswered`]. The connection cannot be used afterwards.
    pub async fn next(
        &mut self,
        from: &mut impl Receive,
        scratch: &RefCell<Scratch>,
    ) -> Result<Option<Chunk>, ReadError> {
        loop {
            if self.is_complete() {
                return Ok(None);
            }
            let mut all = Vec::new();
            let parsed = self.parse(scratch, &mut all);
            if !all.is_empty() {
                return Ok(Some(Chunk::from(all)));
            }
            parsed?;
            if self.is_complete() {
                return Ok(None);
            }
            let received = match self.behind.take() {
                Some(behind) => behind,
                None => from.recv().await,
            };
            match received {
                Ok(lease) if lease.is_empty() => {
                    // The end of a body without a length.
                    let ended = self.responses.end_of_input();
                    return ended.map(|_| None).map_err(|why| ReadError::Closed(Some(why)));
                }
                Ok(lease) => {
                    let (chunk, behind) = gather(from, lease).await;
                    self.behind = behind;
                    if let Some(whole) = self.whole(scratch, chunk) {
                        return Ok(Some(whole));
                    }
                }
                Err(why) => return Err(ReadError::Connection(why)),
            }
        }
    }

    /// Returns received bytes without a copy, if all of them belong to the body. Otherwise copies them to the
    /// input.
    fn whole(&mut self, scratch: &RefCell<Scratch>, chunk: Chunk) -> Option<Chunk> {
        let inside = self.responses.body_left().is_none_or(|left| left >= chunk.len() as u64);
        let mut at = 0;
        if inside && self.used == self.input.len() {
            let mut scratch = scratch.borrow_mut();
            match self.responses.next(&mut scratch, &chunk, &mut at) {
                Ok(Some(ResponseEvent::Data(data))) if data.len() == chunk.len() => return Some(chunk),
                Ok(Some(ResponseEvent::Data(data))) => {
                    // A chunked body: a part of the bytes is data, the rest is framing.
                    let part = Chunk::from(data.to_vec());
                    drop(scratch);
                    self.take(chunk.get(at..).unwrap_or_default());
                    return Some(part);
                }
                Ok(Some(ResponseEvent::End(lines))) => self.trailers = kept(lines),
                // An error is returned again when the rest is parsed.
                Ok(Some(ResponseEvent::Interim(_) | ResponseEvent::Head(_)) | None) | Err(_) => {}
            }
        }
        self.take(chunk.get(at..).unwrap_or_default());
        None
    }

    /// Takes the trailers, once the body has ended: names and values.
    pub fn take_trailers(&mut self) -> Vec<(String, Vec<u8>)> {
        std::mem::take(&mut self.trailers)
    }

    /// Returns the bytes that were not used. After 101 they belong to the other protocol.
    pub fn into_rest(self) -> Vec<u8> {
        let ResponseReader { mut input, used, behind, .. } = self;
        input.drain(..used);
        if let Some(Ok(lease)) = behind {
            input.extend_from_slice(&lease);
        }
        input
    }
}

/// Returns whether the lease is short enough to be copied to the head's piece.
fn is_short(behind: &mut ringroad_engine::Result<Lease>) -> bool {
    matches!(behind, Ok(lease) if !lease.is_empty() && lease.len() < ALONE_BYTES_MIN)
}

fn kept(lines: Fields<'_>) -> Trailers {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    lines.iter().map(|line| (text(line.name), line.value.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_engine::net::UnixStream;
    use ringroad_engine::{DriverName, Runtime};
    use ringroad_wire::{Limits, Method};
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    /// Reads an answer with a body of so many bytes, all of which has come: what of it is there with the
    /// head, and then in how many pieces the rest comes, and whether each lies where it was received.
    fn read(bytes: usize) -> (usize, Vec<(usize, bool)>) {
        let runtime = Runtime::builder(DriverName::Epoll).buffers(4, 60 * 1024).build().unwrap();
        let reading = async {
            let (mut server, mut client) = UnixStream::pair().unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
            server.write_all([head, vec![b'x'; bytes]].concat()).await.0.unwrap();
            let scratch = RefCell::new(Scratch::new(Limits::client()));
            let mut reader = ResponseReader::new();
            reader.head(&mut client, &scratch, Method::Get.into()).await.unwrap();
            let ready = reader.ready(&scratch);
            assert!(ready.iter().all(|byte| *byte == b'x'));
            let mut pieces = Vec::new();
            while let Some(piece) = reader.next(&mut client, &scratch).await.unwrap() {
                assert!(piece.iter().all(|byte| *byte == b'x'));
                pieces.push((piece.len(), piece.is_lease()));
            }
            assert!(reader.is_idle());
            (ready.len(), pieces)
        };
        runtime.block_on(reading).unwrap()
    }

    #[test]
    fn a_large_body_is_given_out_where_it_was_received_and_a_small_one_with_its_head() {
        assert_eq!(read(5), (5, vec![]));
        assert_eq!(read(40_000), (0, vec![(40_000, true)]));
        let (with_head, pieces) = read(100_000);
        assert_eq!(with_head + pieces.iter().map(|(bytes, _)| bytes).sum::<usize>(), 100_000);
        assert_eq!((with_head, pieces.len()), (0, 2));
        assert!(pieces.iter().all(|(_, is_lease)| *is_lease), "{pieces:?}");
    }

    #[test]
    fn folded_lines_are_unfolded_wherever_the_head_is_cut() {
        let runtime = Runtime::new(DriverName::Epoll).unwrap();
        let hints = b"HTTP/1.1 103 Hints\r\nA: b\r\n c\r\n\r\n";
        let answer = b"HTTP/1.1 200 OK\r\nX: a,\r\n b\r\n\tc\r\nContent-Length: 0\r\n\r\n";
        let head = [&hints[..], answer].concat();
        let reading = async {
            for cut in 1..head.len() {
                let (mut server, mut client) = UnixStream::pair().unwrap();
                server.write_all(head[..cut].to_vec()).await.0.unwrap();
                let scratch = RefCell::new(Scratch::new(Limits::client()));
                let mut reader = ResponseReader::new();
                let mut hints = Vec::new();
                let told = {
                    let inform =
                        |head: ResponseHead<'_>| hints.extend(head.fields().get("a").map(<[u8]>::to_vec));
                    let mut told = pin!(reader.head_with(&mut client, &scratch, Method::Get.into(), inform));
                    // Takes what is there, and waits for the rest.
                    let waits =
                        poll_fn(|context| Poll::Ready(told.as_mut().poll(context).is_pending())).await;
                    assert!(waits, "{cut}");
                    server.write_all(head[cut..].to_vec()).await.0.unwrap();
                    told.await.unwrap()
                };
                assert_eq!(told.view().fields().get("x"), Some(&b"a,   b  \tc"[..]), "{cut}");
                assert_eq!(hints, [b"b   c"], "{cut}");
                assert!(reader.is_idle());
            }
        };
        runtime.block_on(reading).unwrap();
    }
}

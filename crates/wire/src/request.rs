//! Requests, as a server reads them.
//!
//! [`Requests`] is one connection's state: bytes in, [`Event`]s out. It keeps no bytes; what it did not use,
//! the caller shows again with more behind it. What a head means is decided in
//! [`request_head`](crate::request_head); deadlines, dispatch and answers are the caller's.

use crate::body::{Decoder, Piece};
use crate::encode::ReplyTo;
use crate::error::{Error, Problem};
use crate::fields::{Fields, Progress, Scratch};
use crate::head::Found;
use crate::limits::Limits;
use crate::message::Phase;
use crate::request_head::{RequestHead, read};

/// What happens on a connection, seen by a server.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request begins. If its [`body`](RequestHead::body) is [`Body::Empty`](crate::Body::Empty) it ends
    /// here too.
    Head(RequestHead<'a>),
    /// A piece of its body, never empty.
    Data(&'a [u8]),
    /// It is complete, with these trailers.
    End(Fields<'a>),
}

/// The requests of one connection.
///
/// Call [`next`](Self::next) until it finds nothing, then again when more bytes came. A request that closes
/// the connection ([`RequestHead::keep_alive`]) is the last: bytes after it are used and ignored.
#[derive(Clone, Debug)]
pub struct Requests {
    state: State,
    /// For the body at hand.
    body_bytes_max: u64,
    /// Bytes of the body at hand that were thrown away; `None` while it is wanted.
    drained: Option<u32>,
    empty_lines: u8,
    /// The request at hand is not the last.
    keep_alive: bool,
    /// The client may be waiting for `100 Continue`: its body may never come.
    awaits_continue: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Head { begun: bool, progress: Progress },
    Body(Decoder),
    Closed,
    HandedOver,
    Failed(Error),
}

impl Default for Requests {
    fn default() -> Self {
        Requests::new()
    }
}

impl Requests {
    /// Makes the state of a connection that was just opened.
    pub const fn new() -> Self {
        Requests {
            state: State::Head { begun: false, progress: Progress::START },
            body_bytes_max: 0,
            drained: None,
            empty_lines: 0,
            keep_alive: true,
            awaits_continue: false,
        }
    }

    /// Looks at `bytes` from `at` on for the next event, and moves `at` behind what is done with: also where
    /// that is not an event yet, as between chunks. `None`: more bytes are needed; show those from `at` on
    /// again, with what came since behind them. An error is final: it is given again to every later call.
    pub fn next<'a>(
        &mut self,
        scratch: &'a mut Scratch,
        bytes: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<Event<'a>>, Error> {
        match self.state {
            State::Head { progress, .. } => self.head(scratch, bytes, at, progress),
            State::Body(_) => self.body(scratch, bytes, at),
            State::Closed => {
                *at = bytes.len();
                Ok(None)
            }
            State::HandedOver => Ok(None),
            State::Failed(error) => Err(error),
        }
    }

    /// Uses the head at the front of `bytes` if it is that of the last request again, and there is nothing
    /// more to that request: no body, no other protocol on offer, a connection that goes on. Then its
    /// [stamp](RequestHead::stamp) is [`Scratch::stamp`]. `None`: nothing was used, and [`next`](Self::next)
    /// tells what there is.
    #[inline]
    pub fn next_again(&mut self, scratch: &Scratch, bytes: &[u8], at: &mut usize) -> Option<ReplyTo> {
        let State::Head { progress, .. } = self.state else { return None };
        if progress.line() != 0 {
            return None;
        }
        let (reply, end) = scratch.plain_again(bytes.get(*at..)?)?;
        self.empty_lines = 0;
        self.keep_alive = true;
        self.state = State::Head { begun: false, progress: Progress::default() };
        *at += end;
        Some(reply)
    }

    #[inline]
    fn head<'a>(
        &mut self,
        scratch: &'a mut Scratch,
        bytes: &'a [u8],
        at: &mut usize,
        progress: Progress,
    ) -> Result<Option<Event<'a>>, Error> {
        let mut rest = bytes.get(*at..).unwrap_or_default();
        // RFC 9112 §2.2: an empty line before a request is ignored.
        while let [b'\r', after @ ..] = rest {
            match after {
                [b'\n', after @ ..] if self.empty_lines < scratch.limits().empty_lines => rest = after,
                [b'\n', ..] => return Err(self.fail(Error::new(Problem::EmptyLines, b"\r\n"))),
                [other, ..] => return Err(self.fail(Error::at(Problem::LineEnd, *other))),
                [] => return Ok(None),
            }
            self.empty_lines += 1;
            *at += 2;
        }
        let again = if progress.line() == 0 { scratch.again(rest) } else { None };
        let (meta, end, count) = match again {
            Some(same) => same,
            None => {
                let (limits, slots) = scratch.table();
                match read(rest, limits, slots, progress) {
                    Ok(Found::Whole { meta, end, count }) => {
                        scratch.keep(rest.get(..end).unwrap_or_default(), meta, count);
                        (meta, end, count)
                    }
                    Ok(Found::Partial(progress)) => {
                        self.state = State::Head { begun: !rest.is_empty(), progress };
                        return Ok(None);
                    }
                    Err(error) => return Err(self.fail(error)),
                }
            }
        };
        self.empty_lines = 0;
        self.keep_alive = meta.keep_alive;
        self.state = match Decoder::new(meta.body, false) {
            None => self.after(),
            Some(decoder) => {
                self.body_bytes_max = scratch.limits().body_bytes;
                self.drained = None;
                self.awaits_continue = meta.expects_continue;
                State::Body(decoder)
            }
        };
        *at += end;
        let head = RequestHead::from_parts(rest.get(..end).unwrap_or_default(), scratch.used(count), meta);
        Ok(Some(Event::Head(head.stamped(scratch.stamp()))))
    }

    fn body<'a>(
        &mut self,
        scratch: &'a mut Scratch,
        bytes: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<Event<'a>>, Error> {
        while let State::Body(decoder) = &mut self.state {
            let rest = bytes.get(*at..).unwrap_or_default();
            let (used, piece) =
                decoder.next(scratch, self.body_bytes_max, rest).map_err(|error| self.fail(error))?;
            *at += used;
            self.awaits_continue &= used == 0;
            match (piece, &mut self.drained) {
                (Piece::Nothing, _) => break,
                (Piece::Data(data), None) => return Ok(Some(Event::Data(data))),
                (Piece::Data(data), Some(drained)) => {
                    *drained = drained.saturating_add(u32::try_from(data.len()).unwrap_or(u32::MAX));
                    if *drained > scratch.limits().drain_bytes {
                        return Err(self.fail(Error::new(Problem::DrainTooLong, &[])));
                    }
                }
                (Piece::End { section, trailers }, _) => {
                    self.state = self.after();
                    return Ok(Some(Event::End(Fields::new(section, scratch.used(trailers)))));
                }
            }
        }
        Ok(None)
    }

    /// Returns the state after a complete message.
    fn after(&self) -> State {
        if self.keep_alive {
            State::Head { begun: false, progress: Progress::default() }
        } else {
            State::Closed
        }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.state = State::Failed(error);
        error
    }

    /// Returns where in the conversation the connection is.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Head { begun: false, .. } => Phase::Idle,
            State::Head { .. } => Phase::Head,
            State::Body(_) => Phase::Body,
            State::Closed => Phase::Closed,
            State::HandedOver => Phase::HandedOver,
            State::Failed(_) => Phase::Failed,
        }
    }

    /// Takes the end of the input: the peer will send nothing more. An error if a request was not complete.
    pub fn end_of_input(&mut self) -> Result<(), Error> {
        match self.state {
            State::Head { begun: true, .. } | State::Body(_) => {
                Err(self.fail(Error::new(Problem::Truncated, &[])))
            }
            State::Failed(error) => Err(error),
            State::Head { begun: false, .. } => {
                self.state = State::Closed;
                Ok(())
            }
            State::Closed | State::HandedOver => Ok(()),
        }
    }

    /// Returns how many bytes of the body at hand are still to come, where its framing tells.
    pub fn body_left(&self) -> Option<u64> {
        match &self.state {
            State::Body(decoder) => decoder.left(),
            _ => Some(0),
        }
    }

    /// Takes less of the body at hand than [`Limits::body_bytes`] allows; to be called at its head. The
    /// error, 413, is final.
    pub fn limit_body(&mut self, bytes_max: u64) -> Result<(), Error> {
        if let State::Body(decoder) = &self.state {
            self.body_bytes_max = self.body_bytes_max.min(bytes_max);
            if decoder.left().is_some_and(|left| left > self.body_bytes_max) {
                return Err(self.fail(Error::new(Problem::BodyTooLong, &[])));
            }
        }
        Ok(())
    }

    /// Notes that `100 Continue` was sent: the body will come.
    pub fn continue_sent(&mut self) {
        self.awaits_continue = false;
    }

    /// Discards the rest of the current body: it is used up without [`Event::Data`], and its end is reported.
    ///
    /// False: do not wait for it, answer with `Connection: close`, and close. Either it is known to be longer
    /// than [`Limits::drain_bytes`], or the client was never told to continue and may or may not send it, so
    /// that what comes next could be taken for either. A chunked body that turns out too long becomes an
    /// error.
    #[must_use = "on false the connection cannot be used for another request"]
    pub fn skip_body(&mut self, limits: &Limits) -> bool {
        let State::Body(decoder) = &self.state else { return true };
        if self.awaits_continue || decoder.left().is_some_and(|left| left > u64::from(limits.drain_bytes)) {
            self.state = State::Closed;
            return false;
        }
        self.drained = Some(self.drained.unwrap_or(0));
        true
    }

    /// Notes that the connection speaks another protocol from here on (after 101, or 2xx to CONNECT): no byte
    /// after the request is looked at any more, and [`next`](Self::next) uses none.
    ///
    /// False: a request has begun and is not complete.
    #[must_use = "on false the connection was not handed over"]
    pub fn hand_over(&mut self) -> bool {
        let complete = matches!(self.state, State::Head { begun: false, .. } | State::Closed);
        if complete {
            self.state = State::HandedOver;
        }
        complete
    }
}

//! The body of a request, passed from the connection to its reader.
//!
//! It holds one piece. The connection receives the next one only when the reader has taken that piece and
//! asks for more. So a slow reader slows the sender down, and memory is bounded. Reader and connection may be
//! different tasks.

use super::chunk::Chunk;
use super::error::BodyError;
use ringroad_wire::Fields;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Trailer lines: names and values.
pub(crate) type Trailers = Vec<(String, Vec<u8>)>;

/// State shared by both ends.
pub(crate) struct Incoming(RefCell<State>);

struct State {
    piece: Option<Chunk>,
    end: End,
    /// Whether all of it was received, even if the reader has not taken it.
    complete: bool,
    /// The reader waits for a piece.
    wanted: bool,
    /// Whether the sender needs no minimum rate.
    unhurried: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
    trailers: Trailers,
    /// Bytes still to be received, if the framing announces them.
    left: Option<u64>,
    /// Bytes that the reader still takes, and the limit that was set.
    allowed: (u64, usize),
}

enum End {
    Open,
    Ended,
    /// The error, until the reader takes it.
    Failed(Option<BodyError>),
}

impl Incoming {
    pub(crate) fn new(left: Option<u64>) -> Rc<Incoming> {
        Rc::new(Incoming(RefCell::new(State {
            piece: None,
            end: End::Open,
            complete: false,
            wanted: false,
            unhurried: false,
            reader: None,
            connection: None,
            trailers: Vec::new(),
            left,
            allowed: (u64::MAX, usize::MAX),
        })))
    }

    /// Stores a received piece (connection side).
    pub(crate) fn push(&self, piece: Chunk) {
        self.change(|state| {
            let bytes = piece.len() as u64;
            state.left = state.left.map(|left| left.saturating_sub(bytes));
            match state.allowed.0.checked_sub(bytes) {
                Some(allowed) => {
                    state.allowed.0 = allowed;
                    state.piece = Some(piece);
                }
                None if matches!(state.end, End::Failed(_)) => {}
                // Even if the end is known already: without this piece the body is incomplete.
                None => state.end = End::Failed(Some(BodyError::TooLong(state.allowed.1))),
            }
        });
    }

    /// Ends the body (connection side).
    pub(crate) fn end(&self, trailers: Fields<'_>) {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        self.end_with(trailers.iter().map(|field| (text(field.name), field.value.to_vec())).collect());
    }

    /// Ends the body with parsed trailers (connection side).
    pub(crate) fn end_with(&self, trailers: Trailers) {
        self.change(|state| {
            state.complete = true;
            if matches!(state.end, End::Failed(_)) {
                return;
            }
            state.trailers = trailers;
            state.end = End::Ended;
        });
    }

    /// Fails the body: no more will be received (connection side).
    pub(crate) fn fail(&self, why: BodyError) {
        self.change(|state| {
            if let End::Open = state.end {
                state.end = End::Failed(Some(why));
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let reader = {
            let mut state = self.0.borrow_mut();
            change(&mut state);
            state.wanted = false;
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Returns whether the reader has not taken the last piece yet (connection side).
    pub(crate) fn has_piece(&self) -> bool {
        self.0.borrow().piece.is_some()
    }

    /// Returns whether all of it has been received (connection side).
    pub(crate) fn is_complete(&self) -> bool {
        self.0.borrow().complete
    }

    /// Returns whether the reader waits for a piece. Otherwise the reader wakes the task when it does
    /// (connection side).
    pub(crate) fn is_wanted(&self, context: &Context<'_>) -> bool {
        let mut state = self.0.borrow_mut();
        if !state.wanted {
            state.connection = Some(context.waker().clone());
        }
        state.wanted
    }

    /// Takes the next piece (reader side).
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Result<Chunk, BodyError>>> {
        let connection = {
            let mut state = self.0.borrow_mut();
            if let Some(piece) = state.piece.take() {
                return Poll::Ready(Some(Ok(piece)));
            }
            match &mut state.end {
                End::Ended => return Poll::Ready(None),
                End::Failed(why) => return Poll::Ready(why.take().map(Err)),
                End::Open => {}
            }
            state.wanted = true;
            state.reader = Some(context.waker().clone());
            state.connection.take()
        };
        if let Some(connection) = connection {
            connection.wake();
        }
        Poll::Pending
    }

    /// Returns the bytes still to come, if known (reader side).
    pub(crate) fn left(&self) -> Option<u64> {
        let state = self.0.borrow();
        let held = state.piece.as_ref().map_or(0, |piece| piece.len() as u64);
        state.left.map(|left| left + held)
    }

    /// Limits how many more bytes are taken, including a piece that is already here (reader side).
    pub(crate) fn limit(&self, bytes_max: u64) {
        let mut state = self.0.borrow_mut();
        let held = state.piece.as_ref().map_or(0, |piece| piece.len() as u64);
        let at_first = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        match bytes_max.checked_sub(held) {
            Some(allowed) if allowed < state.allowed.0 => state.allowed = (allowed, at_first),
            Some(_) => {}
            None => {
                state.piece = None;
                state.allowed = (0, at_first);
                state.end = End::Failed(Some(BodyError::TooLong(at_first)));
            }
        }
    }

    /// Removes the minimum rate for the sender (reader side).
    pub(crate) fn take_time(&self) {
        self.0.borrow_mut().unhurried = true;
    }

    /// Returns whether the minimum rate was removed (connection side).
    pub(crate) fn is_unhurried(&self) -> bool {
        self.0.borrow().unhurried
    }

    /// Takes the trailers (reader side).
    pub(crate) fn trailers(&self) -> Trailers {
        std::mem::take(&mut self.0.borrow_mut().trailers)
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Incoming")
    }
}

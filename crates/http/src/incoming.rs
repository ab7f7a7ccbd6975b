//! The body of a request on its way from the connection to whoever reads it.
//!
//! It holds one piece. The connection receives the next only when the reader has taken that one and asks for
//! more, so a slow reader slows the sender down and nothing piles up. Reader and connection may be different tasks.

use crate::chunk::Chunk;
use crate::error::BodyError;
use ringroad_wire::Fields;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Trailer lines: names and values.
pub(crate) type Trailers = Vec<(String, Vec<u8>)>;

/// Both ends' state.
pub(crate) struct Incoming(RefCell<State>);

struct State {
    piece: Option<Chunk>,
    end: End,
    /// The reader waits for a piece.
    wanted: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
    trailers: Trailers,
    /// Bytes still to come, where the framing told.
    left: Option<u64>,
}

enum End {
    Open,
    Ended,
    /// The error, until it is taken.
    Failed(Option<BodyError>),
}

impl Incoming {
    pub(crate) fn new(left: Option<u64>) -> Rc<Incoming> {
        Rc::new(Incoming(RefCell::new(State {
            piece: None,
            end: End::Open,
            wanted: false,
            reader: None,
            connection: None,
            trailers: Vec::new(),
            left,
        })))
    }

    /// The connection: a piece has come.
    pub(crate) fn push(&self, piece: Chunk) {
        self.change(|state| {
            state.left = state.left.map(|left| left.saturating_sub(piece.len() as u64));
            state.piece = Some(piece);
        });
    }

    /// The connection: that was all.
    pub(crate) fn end(&self, trailers: Fields<'_>) {
        self.change(|state| {
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            state.trailers = trailers.iter().map(|field| (text(field.name), field.value.to_vec())).collect();
            state.end = End::Ended;
        });
    }

    /// The connection: no more will come.
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

    /// The connection: whether all of it has come.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.0.borrow().end, End::Ended)
    }

    /// The connection: whether a piece is asked for; if not, whoever asks wakes it.
    pub(crate) fn is_wanted(&self, context: &Context<'_>) -> bool {
        let mut state = self.0.borrow_mut();
        if !state.wanted {
            state.connection = Some(context.waker().clone());
        }
        state.wanted
    }

    /// The reader: the next piece.
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

    /// The reader: bytes still to come, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        let state = self.0.borrow();
        let held = state.piece.as_ref().map_or(0, |piece| piece.len() as u64);
        state.left.map(|left| left + held)
    }

    /// The reader: what came behind the body.
    pub(crate) fn trailers(&self) -> Trailers {
        std::mem::take(&mut self.0.borrow_mut().trailers)
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Incoming")
    }
}

//! An answer on its way: one task fetches it, and all that wait for it get its bytes as they come.
//!
//! Tasks of all workers meet here, so it is behind a mutex and wakes by wakers. The task that fetches is the
//! *leader*. Where it is dropped before there is a head, [`Stage::Gone`] wakes the waiters, and one of them
//! leads next. What grows beyond the store's limit for one answer is handed on in a window: the leader waits
//! for the slowest reader.

use super::stored::{Head, Stored};
use futures_core::Stream;
use ringroad_http::{BoxError, Status};
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// How far a fetch has come, for its waiters.
#[derive(Clone, Debug)]
pub enum Stage {
    /// There is no head yet.
    Asked,
    /// The leader is gone without an answer: another one leads.
    Gone,
    /// The answer is for its own request only.
    NotShared,
    /// There is no answer to be had, for the reason that this status tells.
    Refused(Status),
    /// This is the answer, all of it.
    Whole(Arc<Stored>),
    /// This is its head, and its bytes come.
    Streaming(Arc<Head>, Option<u64>),
}

/// A fetch.
pub struct Fill {
    inner: Mutex<Filling>,
    /// What is fetched was purged meanwhile: it is not kept.
    doomed: AtomicBool,
}

struct Filling {
    stage: Stage,
    pieces: VecDeque<Arc<[u8]>>,
    /// Pieces that no reader needs any more and that were dropped.
    dropped: usize,
    /// Bytes in `pieces`.
    held: usize,
    end: Option<Result<(), Arc<str>>>,
    /// Pieces that each reader has had.
    readers: Vec<(u64, usize)>,
    next_reader: u64,
    wakers: Vec<Waker>,
    leader: Option<Waker>,
    /// All of it is kept for later readers. Otherwise pieces are dropped when the readers have had them.
    keeps: bool,
}

impl Default for Fill {
    fn default() -> Fill {
        let inner = Filling {
            stage: Stage::Asked,
            pieces: VecDeque::new(),
            dropped: 0,
            held: 0,
            end: None,
            readers: Vec::new(),
            next_reader: 0,
            wakers: Vec::new(),
            leader: None,
            keeps: true,
        };
        Fill { inner: Mutex::new(inner), doomed: AtomicBool::new(false) }
    }
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fill").field("stage", &self.lock().stage).finish_non_exhaustive()
    }
}

fn note(wakers: &mut Vec<Waker>, waker: &Waker) {
    if !wakers.iter().any(|known| known.will_wake(waker)) {
        wakers.push(waker.clone());
    }
}

impl Fill {
    fn lock(&self) -> MutexGuard<'_, Filling> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has its answer not kept.
    pub fn doom(&self) {
        self.doomed.store(true, Ordering::Relaxed);
    }

    /// Returns whether its answer must not be kept.
    pub fn is_doomed(&self) -> bool {
        self.doomed.load(Ordering::Relaxed)
    }

    /// Sets the stage, and wakes all that wait for it at once.
    pub fn set(&self, stage: Stage) {
        let mut inner = self.lock();
        inner.stage = stage;
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Sets [`Stage::Gone`] where there is no head yet.
    pub fn abandon(&self) {
        if matches!(self.lock().stage, Stage::Asked) {
            self.set(Stage::Gone);
        }
    }

    /// Returns the stage.
    pub fn stage(&self) -> Stage {
        self.lock().stage.clone()
    }

    /// Becomes ready when there is more than a request on its way.
    pub fn answered(self: &Arc<Self>) -> impl Future<Output = Stage> + use<> {
        let fill = Arc::clone(self);
        std::future::poll_fn(move |context| {
            let mut inner = fill.lock();
            if !matches!(inner.stage, Stage::Asked) {
                return Poll::Ready(inner.stage.clone());
            }
            note(&mut inner.wakers, context.waker());
            Poll::Pending
        })
    }

    /// Returns a reader from the first byte on; `None` where first bytes are gone already.
    pub fn reader(self: &Arc<Self>) -> Option<Reader> {
        let mut inner = self.lock();
        if inner.dropped > 0 {
            return None;
        }
        let id = inner.next_reader;
        inner.next_reader += 1;
        inner.readers.push((id, 0));
        Some(Reader { fill: Arc::clone(self), id })
    }

    /// Returns how many bytes are held.
    pub fn held(&self) -> usize {
        self.lock().held
    }

    /// Keeps no longer what all readers have had: it has become too long to be kept.
    pub fn keep_no_longer(&self) {
        let mut inner = self.lock();
        inner.keeps = false;
        inner.trim();
    }

    /// Adds a piece.
    pub fn push(&self, piece: Arc<[u8]>) {
        let mut inner = self.lock();
        inner.held += piece.len();
        inner.pieces.push_back(piece);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Becomes ready when less than `most` bytes are held; `false` when no reader is left.
    pub fn room(self: &Arc<Self>, most: usize) -> impl Future<Output = bool> + use<> {
        let fill = Arc::clone(self);
        std::future::poll_fn(move |context| {
            let mut inner = fill.lock();
            if inner.readers.is_empty() {
                return Poll::Ready(false);
            }
            if inner.held < most {
                return Poll::Ready(true);
            }
            inner.leader = Some(context.waker().clone());
            Poll::Pending
        })
    }

    /// Ends the bytes; returns them in one piece, if all of them are here.
    pub fn end(&self, how: Result<(), Arc<str>>) -> Option<Arc<[u8]>> {
        let mut inner = self.lock();
        let whole = (how.is_ok() && inner.keeps).then(|| match inner.pieces.len() {
            1 => inner.pieces.front().map(Arc::clone).unwrap_or_default(),
            _ => {
                let mut all = Vec::with_capacity(inner.held);
                inner.pieces.iter().for_each(|piece| all.extend_from_slice(piece));
                Arc::from(all)
            }
        });
        inner.end = Some(how);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        whole
    }
}

impl Filling {
    /// Drops what all readers have had.
    fn trim(&mut self) {
        if self.keeps {
            return;
        }
        let had = self.readers.iter().map(|(_, had)| *had).min().unwrap_or(usize::MAX);
        while self.dropped < had
            && let Some(piece) = self.pieces.pop_front()
        {
            self.dropped += 1;
            self.held -= piece.len();
        }
        if let Some(leader) = self.leader.take() {
            leader.wake();
        }
    }
}

/// The bytes of a fetch, for one client.
#[derive(Debug)]
pub struct Reader {
    fill: Arc<Fill>,
    id: u64,
}

impl Stream for Reader {
    type Item = Result<Arc<[u8]>, BoxError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut inner = self.fill.lock();
        let dropped = inner.dropped;
        let Some(place) = inner.readers.iter().position(|(id, _)| *id == self.id) else {
            return Poll::Ready(None);
        };
        let had = inner.readers.get(place).map_or(0, |(_, had)| *had);
        if let Some(piece) = inner.pieces.get(had.saturating_sub(dropped)).map(Arc::clone) {
            if let Some((_, had)) = inner.readers.get_mut(place) {
                *had += 1;
            }
            inner.trim();
            return Poll::Ready(Some(Ok(piece)));
        }
        match &inner.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(why)) => Poll::Ready(Some(Err(why.to_string().into()))),
            None => {
                note(&mut inner.wakers, context.waker());
                Poll::Pending
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut inner = self.fill.lock();
        inner.readers.retain(|(id, _)| *id != self.id);
        inner.trim();
        if inner.readers.is_empty()
            && let Some(leader) = inner.leader.take()
        {
            leader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn next(reader: &mut Reader) -> Poll<Option<Vec<u8>>> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(reader).poll_next(&mut context) {
            Poll::Ready(piece) => {
                Poll::Ready(piece.map(|piece| piece.map_or_else(|_| b"cut".to_vec(), |p| p.to_vec())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    #[test]
    fn readers_get_all_bytes_whenever_they_begin() {
        let fill = Arc::<Fill>::default();
        let mut early = fill.reader().unwrap();
        assert!(next(&mut early).is_pending());
        fill.push(Arc::from(&b"ab"[..]));
        assert_eq!(next(&mut early), Poll::Ready(Some(b"ab".to_vec())));
        let mut late = fill.reader().unwrap();
        fill.push(Arc::from(&b"cd"[..]));
        assert_eq!(fill.end(Ok(())).as_deref(), Some(&b"abcd"[..]));
        for piece in [Some(b"ab".to_vec()), Some(b"cd".to_vec()), None] {
            assert_eq!(next(&mut late), Poll::Ready(piece));
        }
    }

    #[test]
    fn what_is_not_kept_is_held_until_the_slowest_reader_has_had_it() {
        let fill = Arc::<Fill>::default();
        let (mut one, mut other) = (fill.reader().unwrap(), fill.reader().unwrap());
        fill.push(Arc::from(&b"abc"[..]));
        fill.keep_no_longer();
        assert_eq!(next(&mut one), Poll::Ready(Some(b"abc".to_vec())));
        assert_eq!(fill.held(), 3);
        assert_eq!(next(&mut other), Poll::Ready(Some(b"abc".to_vec())));
        assert_eq!(fill.held(), 0);
        assert!(fill.reader().is_none(), "its first bytes are gone");
        fill.push(Arc::from(&b"d"[..]));
        drop(one);
        assert_eq!(next(&mut other), Poll::Ready(Some(b"d".to_vec())));
        assert_eq!(fill.end(Err("x".into())), None);
        assert_eq!(next(&mut other), Poll::Ready(Some(b"cut".to_vec())));
        let mut room = Box::pin(fill.room(1));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(room.as_mut().poll(&mut context), Poll::Ready(true));
        drop(other);
        assert_eq!(room.as_mut().poll(&mut context), Poll::Ready(false));
    }

    #[test]
    fn a_leader_that_is_gone_is_told_only_before_there_is_an_answer() {
        let fill = Fill::default();
        fill.set(Stage::NotShared);
        fill.abandon();
        assert!(matches!(fill.stage(), Stage::NotShared));
        let fill = Fill::default();
        fill.abandon();
        assert!(matches!(fill.stage(), Stage::Gone));
    }
}

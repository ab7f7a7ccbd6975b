//! `bandwidth = "1M/s"`: how many bytes of answers a route sends in a second.
//!
//! The bytes of a body are handed on in small pieces, each when its time has come. An answer has its own
//! clock; all answers of a route share another one over all workers, which a reload keeps.

use crate::chain::{Answering, Builder, Filter};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope};
use crate::flow::{Flow, Local};
use crate::stage::Stage;
use futures_core::Stream;
use ringroad_engine::time::{Sleep, sleep};
use ringroad_http::{Body, BoxError, Chunk, Method, Piece, Response};
use ringroad_settings::{Key, Section, Table, Value, value};
use std::any::Any;
use std::borrow::Cow;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "bandwidth",
        form: "bytes a second, as `\"1M/s\"`, or a table as `{ answer = \"1M/s\", route = \"20M/s\" }`",
        default: "-",
        meaning: "How fast answers are sent, see below. A rate alone is that of each answer.",
    },
    tables: &[&TABLE],
    scope: Scope::Route,
    read,
    named: None,
};

static TABLE: Table = Table {
    name: "[[route]] bandwidth = { … }",
    meaning: "Bytes of bodies a second, as they are sent: behind compression.",
    keys: &[
        Key { name: "answer", form: "bytes a second, as `\"1M/s\"`", default: "-", meaning: "Of each answer." },
        Key {
            name: "route",
            form: "bytes a second",
            default: "-",
            meaning: "Of all answers of the route together, over all workers.",
        },
        Key {
            name: "after",
            form: "bytes",
            default: "0",
            meaning: "The first bytes of each answer are sent without a limit of their own.",
        },
    ],
};

/// A piece takes so much of a second, so that a slow answer is even.
const PIECES_PER_SECOND: u64 = 20;

/// The smallest and the largest piece.
const PIECE_BYTES: (u64, u64) = (512, 64 << 10);

/// Returns a rate, from 1 KiB a second on.
fn rate(value: &Value<'_>) -> Result<u64, String> {
    let wrong = || value::found("bytes a second, as \"1M/s\"", value);
    let text = value::text(value).map_err(|_| wrong())?;
    let bytes = text.strip_suffix("/s").ok_or_else(wrong)?.to_owned();
    value::bytes(&Value::String(Cow::Owned(bytes)), 1 << 10, 1 << 40).map_err(|_| wrong())
}

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let name = DECLARATION.key.name;
    let mut settings = Settings::default();
    if section.read(name, |value| Ok(value.is_table()))? {
        let mut table = section.table(name)?;
        table.describe(&TABLE);
        settings.answer = table.read("answer", rate);
        settings.route = table.read("route", rate);
        settings.after = table.read("after", |value| value::bytes(value, 0, u64::MAX)).unwrap_or(0);
        if !table.has("answer") && !table.has("route") {
            section.mistake(name, "expected `answer`, `route` or both");
        }
        table.finish();
    } else {
        settings.answer = Some(section.read(name, rate)?);
    }
    Some(Arc::new(Bandwidth { settings, free_at: Mutex::default() }))
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Settings {
    answer: Option<u64>,
    route: Option<u64>,
    after: u64,
}

#[derive(Debug)]
struct Bandwidth {
    settings: Settings,
    /// When the route may send again, in nanoseconds; shared with the configuration before.
    free_at: Mutex<Arc<AtomicU64>>,
}

impl Configured for Bandwidth {
    fn same_as(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Bandwidth>().is_some_and(|other| self.settings == other.settings)
    }

    fn adopt(&self, before: &dyn Any) {
        if let Some(before) = before.downcast_ref::<Bandwidth>() {
            let kept = Arc::clone(&before.free_at.lock().unwrap_or_else(PoisonError::into_inner));
            *self.free_at.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        }
    }
}

impl Feature for Bandwidth {
    fn install(self: Arc<Self>, local: &Rc<Local>, chain: &mut Builder) {
        let free_at = Arc::clone(&self.free_at.lock().unwrap_or_else(PoisonError::into_inner));
        let pace = Pace { settings: self.settings, free_at, local: Rc::clone(local) };
        chain.add(Stage::Shape, Rc::new(pace));
    }
}

#[derive(Clone)]
struct Pace {
    settings: Settings,
    free_at: Arc<AtomicU64>,
    local: Rc<Local>,
}

/// Returns the time that bytes take at a rate.
fn nanos(bytes: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

/// Moves a clock by what is sent, and returns how long to wait before that.
fn reserve(free_at: u64, now: u64, bytes: u64, rate: u64) -> (u64, u64) {
    let begin = free_at.max(now);
    (begin.saturating_add(nanos(bytes, rate)), begin - now)
}

impl Pace {
    fn piece_bytes(&self) -> usize {
        let rates = [self.settings.answer, self.settings.route];
        let slowest = rates.into_iter().flatten().min().unwrap_or(u64::MAX);
        (slowest / PIECES_PER_SECOND).clamp(PIECE_BYTES.0, PIECE_BYTES.1) as usize
    }

    /// Returns how long to wait before these bytes of all answers.
    fn route_wait(&self, bytes: u64) -> u64 {
        let Some(rate) = self.settings.route else { return 0 };
        let now = self.local.now();
        let mut wait = 0;
        // Relaxed: nothing else is published by this word.
        let _ = self.free_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free_at| {
            let (next, this) = reserve(free_at, now, bytes, rate);
            wait = this;
            Some(next)
        });
        wait
    }
}

impl Filter for Pace {
    fn response<'a>(&'a self, flow: &'a mut Flow, mut response: Response) -> Answering<'a> {
        let upgraded = response.status_code().code() == 101;
        if upgraded || response.body().is_empty() || flow.request.method() == Method::Head {
            return Answering::Now(response);
        }
        let body = response.take_body();
        let size = body.size();
        let paced = Paced {
            source: body.into_pieces(),
            pace: self.clone(),
            piece: None,
            sent: 0,
            free_at: 0,
            sleep: None,
        };
        response.set_body(match size {
            Some(size) => Body::stream_of(size, paced),
            None => Body::stream(paced),
        });
        Answering::Now(response)
    }
}

/// A body that is sent at a rate.
struct Paced {
    source: Pin<Box<dyn Stream<Item = Result<Piece, BoxError>>>>,
    pace: Pace,
    /// A piece of the source, and how much of it was sent.
    piece: Option<(Chunk, usize)>,
    sent: u64,
    /// When this answer may send again.
    free_at: u64,
    /// The wait before the next bytes; their time is reserved already.
    sleep: Option<Sleep>,
}

impl Stream for Paced {
    type Item = Result<Piece, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(sleep) = &mut this.sleep {
                if Pin::new(sleep).poll(context).is_pending() {
                    return Poll::Pending;
                }
                this.sleep = None;
                if let Some(next) = this.take() {
                    return Poll::Ready(Some(Ok(next)));
                }
            }
            if this.piece.is_some() {
                let wait = this.wait();
                if wait > 0 {
                    this.sleep = Some(sleep(Duration::from_nanos(wait)));
                } else if let Some(next) = this.take() {
                    return Poll::Ready(Some(Ok(next)));
                }
                continue;
            }
            match this.source.as_mut().poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(Piece::Data(chunk)))) if !chunk.is_empty() => this.piece = Some((chunk, 0)),
                Poll::Ready(Some(Ok(Piece::Data(_)))) => {}
                Poll::Ready(other) => return Poll::Ready(other),
            }
        }
    }
}

impl Paced {
    fn next_bytes(&self) -> usize {
        let left = self.piece.as_ref().map_or(0, |(chunk, from)| chunk.len() - from);
        left.min(self.pace.piece_bytes())
    }

    /// Reserves the time of the next bytes, and returns how long to wait before them.
    fn wait(&mut self) -> u64 {
        let bytes = self.next_bytes() as u64;
        let of_route = self.pace.route_wait(bytes);
        let Some(rate) = self.pace.settings.answer else { return of_route };
        let limited = (self.sent + bytes).saturating_sub(self.pace.settings.after.max(self.sent));
        let (next, of_answer) = reserve(self.free_at, self.pace.local.now(), limited, rate);
        self.free_at = next;
        self.sent += bytes;
        of_route.max(of_answer)
    }

    /// Takes the next bytes.
    fn take(&mut self) -> Option<Piece> {
        let count = self.next_bytes();
        let (chunk, from) = self.piece.take()?;
        if from == 0 && count == chunk.len() {
            return Some(Piece::Data(chunk));
        }
        let end = from + count;
        let part = chunk.get(from..end)?.to_vec();
        if end < chunk.len() {
            self.piece = Some((chunk, end));
        }
        Some(Piece::Data(part.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_sent_when_those_before_have_had_their_time() {
        let second = 1_000_000_000;
        let (free_at, wait) = reserve(0, 5 * second, 500, 1000);
        assert_eq!((free_at, wait), (5 * second + second / 2, 0));
        let (free_at, wait) = reserve(free_at, 5 * second, 1000, 1000);
        assert_eq!((free_at, wait), (6 * second + second / 2, second / 2));
        // What was not used is not saved up.
        assert_eq!(reserve(free_at, 60 * second, 1000, 1000), (61 * second, 0));
    }
}

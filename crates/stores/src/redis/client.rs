//! Commands of one thread over one connection.
//!
//! A [`Lane`] has the bytes to be sent, and the queue of commands that wait for their replies. The first
//! command spawns its task, which connects, then sends and receives until the connection ends; the next
//! command spawns another. INVARIANT: the queue has one entry for each command that was put into the lane, in
//! order, so the next reply belongs to the first entry. An abandoned command keeps its entry.

use super::connect::Link;
use super::error::RedisError;
use super::health::{Life as SeenLife, Seen};
use super::{Counters, Redis, Shared};
use ringroad_engine::{spawn, time};
use ringroad_policy::breaker::{Breaker, Outcome, Permit, Settings as BreakerSettings};
use ringroad_policy::{Nanos, SECOND, backoff};
use ringroad_wire::resp::{Reply, put_command};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Bounds of the back-off before reconnecting: up to the first after one failure, doubled with each, at most
/// the second.
const BACKOFF: (Nanos, Nanos) = (SECOND / 20, 5 * SECOND);

/// A connection without a reply for this long, and for this many timeouts, is closed.
const STUCK: (Duration, u32) = (Duration::from_secs(1), 10);

/// Commands without a reply open the breaker: half of at least five within 10 s.
const BREAKER: BreakerSettings = BreakerSettings {
    window: 10 * SECOND,
    least: 5,
    failed: 0.5,
    open: SECOND / 4,
    longest: 5 * SECOND,
    probes: 1,
};

thread_local! {
    /// The clients of this thread that are in use, by server.
    static CLIENTS: RefCell<Vec<(Arc<Shared>, Weak<Handle>)>> = const { RefCell::new(Vec::new()) };
}

/// A client of a server on one thread. Clones share one connection.
#[derive(Clone)]
pub struct Client(Rc<Handle>);

/// Ends the lane's task with the last clone.
struct Handle(Rc<Lane>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.is_closed.set(true);
        self.0.wake();
    }
}

struct Lane {
    redis: Redis,
    is_closed: Cell<bool>,
    state: RefCell<State>,
    /// State for other threads.
    seen: Arc<Seen>,
}

struct State {
    life: Life,
    /// The task is connected.
    is_connected: bool,
    /// The number of the connection, by which the task of an earlier one ends.
    run: u64,
    out: Vec<u8>,
    line: VecDeque<Place>,
    task: Option<Waker>,
    breaker: Breaker,
    /// Attempts to connect that failed in a row.
    failures: u32,
    received: Nanos,
}

#[derive(Clone)]
enum Life {
    /// No connection, the reason, and the earliest time of the next attempt.
    Idle(Option<Arc<str>>, Nanos),
    /// A task connects, or is connected.
    Running,
}

/// An entry in the queue of commands.
struct Place {
    since: Nanos,
    slot: Rc<Slot>,
}

/// The slot for a reply.
#[derive(Default)]
struct Slot {
    answer: RefCell<Option<Result<Reply, RedisError>>>,
    waker: RefCell<Option<Waker>>,
}

impl Slot {
    fn put(&self, answer: Result<Reply, RedisError>) {
        *self.answer.borrow_mut() = Some(answer);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Client {
    pub(super) fn new(redis: &Redis) -> Client {
        let state = State {
            life: Life::Idle(None, 0),
            is_connected: false,
            run: 0,
            out: Vec::new(),
            line: VecDeque::new(),
            task: None,
            breaker: Breaker::new(BREAKER),
            failures: 0,
            received: 0,
        };
        let lane = Lane {
            redis: redis.clone(),
            is_closed: Cell::new(false),
            state: RefCell::new(state),
            seen: redis.0.watched.begin(),
        };
        Client(Rc::new(Handle(Rc::new(lane))))
    }

    pub(super) fn of_thread(redis: &Redis) -> Client {
        CLIENTS.with_borrow_mut(|clients| {
            let known = clients.iter().find(|(shared, _)| Arc::ptr_eq(shared, &redis.0));
            if let Some(handle) = known.and_then(|(_, handle)| handle.upgrade()) {
                return Client(handle);
            }
            clients.retain(|(_, handle)| handle.strong_count() > 0);
            let client = Client::new(redis);
            clients.push((Arc::clone(&redis.0), Rc::downgrade(&client.0)));
            client
        })
    }

    /// Returns the server.
    pub fn redis(&self) -> &Redis {
        &self.0.0.redis
    }

    /// Sends a command: its name and its arguments. It is queued when this returns, even if the answer is
    /// never awaited, and commands are executed in the order of these calls. The answer is an error after
    /// [`Settings::timeout`](super::Settings::timeout).
    ///
    /// # Errors
    /// Those of the answer: see [`RedisError`].
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Answer {
        self.command_within(self.redis().settings().timeout, arguments)
    }

    /// Works as [`command`](Self::command) with another timeout, for commands that block: use a client
    /// [of their own](Redis::client_apart) for them.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    ///
    /// # Panics
    /// Those of that method.
    pub fn command_within<A: AsRef<[u8]>>(&self, span: Duration, arguments: &[A]) -> Answer {
        let lane = &self.0.0;
        let asked = lane.ask(span, arguments);
        let (slot, permit) = match asked {
            Ok((slot, permit)) => (slot, Some(permit)),
            Err(why) => {
                let counters = lane.redis.counters();
                Counters::add(if why == RedisError::Full { &counters.full } else { &counters.refused });
                let slot = Rc::new(Slot::default());
                slot.put(Err(why));
                (slot, None)
            }
        };
        let since = lane.now();
        Answer {
            lane: Rc::clone(lane),
            _client: self.clone(),
            slot,
            permit,
            since,
            span,
            sleep: time::sleep(span),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.0.state.borrow();
        write!(f, "Client({:?}, {} commands wait)", self.redis(), state.line.len())
    }
}

impl Lane {
    fn now(&self) -> Nanos {
        self.redis.0.watched.now()
    }

    /// Publishes the state for other threads.
    fn show(&self, state: &State, now: Nanos) {
        let life = match &state.life {
            Life::Idle(None, _) => SeenLife::Idle,
            Life::Idle(Some(_), again) => SeenLife::Unreachable(*again),
            Life::Running if state.is_connected => SeenLife::Connected,
            Life::Running => SeenLife::Connecting,
        };
        self.seen.show(life, state.breaker.state(now), state.line.len());
    }

    fn ask<A: AsRef<[u8]>>(
        self: &Rc<Self>,
        span: Duration,
        arguments: &[A],
    ) -> Result<(Rc<Slot>, Permit), RedisError> {
        let now = self.now();
        let settings = self.redis.settings();
        let mut state = self.state.borrow_mut();
        if let Life::Idle(Some(why), again) = &state.life
            && *again > now
        {
            let again = Duration::from_nanos(again - now);
            return Err(RedisError::Unreachable { why: Arc::clone(why), again });
        }
        if state.line.len() >= settings.queue || state.out.len() >= settings.queue_bytes {
            return Err(RedisError::Full);
        }
        // A connection without replies is kept for a while only.
        let patience = STUCK.0.max(settings.timeout * STUCK.1).max(span);
        let oldest = state.line.front().map_or(now, |place| place.since.max(state.received));
        if u128::from(now - oldest.min(now)) > patience.as_nanos() && matches!(state.life, Life::Running) {
            drop(state);
            let why: Arc<str> = "it answers nothing".into();
            let again = self.end(Arc::clone(&why));
            self.wake();
            return Err(RedisError::Unreachable { why, again: Duration::from_nanos(again) });
        }
        let permit =
            state.breaker.ask(now).map_err(|again| RedisError::Resting(Duration::from_nanos(again)))?;
        put_command(&mut state.out, arguments);
        let slot = Rc::new(Slot::default());
        state.line.push_back(Place { since: now, slot: Rc::clone(&slot) });
        let starts = matches!(state.life, Life::Idle(..));
        if starts {
            (state.life, state.is_connected) = (Life::Running, false);
            state.run += 1;
        }
        let number = state.run;
        self.show(&state, now);
        drop(state);
        if starts {
            let run = Run { lane: Rc::clone(self), number };
            spawn(async move { run.run().await }).detach();
        } else {
            self.wake();
        }
        Ok((slot, permit))
    }

    fn wake(&self) {
        let waker = self.state.borrow_mut().task.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the connection and every waiting command. Returns the pause before the next connection.
    fn end(&self, why: Arc<str>) -> Nanos {
        let now = self.now();
        let mut state = self.state.borrow_mut();
        state.out = Vec::new();
        let random = RandomState::new().hash_one(now);
        let wait = backoff::wait(state.failures, BACKOFF.0, BACKOFF.1, random);
        let again = now.saturating_add(wait);
        state.failures = state.failures.saturating_add(1);
        state.life = Life::Idle(Some(Arc::clone(&why)), again);
        let line = std::mem::take(&mut state.line);
        self.show(&state, now);
        self.seen.failed(&why);
        drop(state);
        for place in line {
            place.slot.put(Err(RedisError::Lost(Arc::clone(&why))));
        }
        wait
    }
}

/// The task of one connection. Dropping it early, as with its runtime, ends the connection.
struct Run {
    lane: Rc<Lane>,
    number: u64,
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.is_current() {
            self.lane.end("its runtime ended".into());
        }
    }
}

impl Run {
    /// Returns whether the lane still belongs to this connection.
    fn is_current(&self) -> bool {
        let state = self.lane.state.borrow();
        matches!(state.life, Life::Running) && state.run == self.number
    }

    async fn run(self) {
        let lane = &self.lane;
        let why = match Link::open(&lane.redis).await {
            Err(why) => why,
            Ok(link) => {
                {
                    let mut state = lane.state.borrow_mut();
                    (state.received, state.is_connected) = (lane.now(), true);
                    lane.show(&state, state.received);
                }
                self.pump(link).await
            }
        };
        if !self.is_current() {
            return;
        }
        let mut state = lane.state.borrow_mut();
        if state.failures == 0 && state.line.is_empty() && state.out.is_empty() {
            // It has replied, and was closed between commands, so the next command reconnects at once.
            state.life = Life::Idle(None, 0);
            lane.show(&state, lane.now());
        } else {
            drop(state);
            lane.end(why);
        }
    }

    /// Sends commands and receives answers until the connection ends. Returns why.
    async fn pump(&self, mut link: Link) -> Arc<str> {
        let lane = &self.lane;
        poll_fn(|context| {
            if lane.is_closed.get() {
                return Poll::Ready("its client was dropped".into());
            }
            match self.step(&mut link, context) {
                Ok(()) => {
                    lane.state.borrow_mut().task = Some(context.waker().clone());
                    Poll::Pending
                }
                Err(why) => {
                    let redis = &lane.redis;
                    let why = format!("redis.{} at {}: {why}", redis.name(), redis.settings().to);
                    Poll::Ready(why.into())
                }
            }
        })
        .await
    }

    fn step(&self, link: &mut Link, context: &mut Context<'_>) -> Result<(), String> {
        let lane = &self.lane;
        if !self.is_current() {
            return Err("it answers nothing".to_owned());
        }
        let mut out = std::mem::take(&mut lane.state.borrow_mut().out);
        let written = link.poll_write(&mut out, context);
        {
            // No command was added meanwhile: sending runs no foreign code.
            lane.state.borrow_mut().out = out;
        }
        written?;
        link.poll_replies(context, |reply| {
            if matches!(reply, Reply::Push(_)) {
                return Ok(());
            }
            let mut state = lane.state.borrow_mut();
            state.received = lane.now();
            state.failures = 0;
            let place = state.line.pop_front();
            drop(state);
            let Some(place) = place else { return Err("an answer to no command".to_owned()) };
            place.slot.put(match reply {
                Reply::Error(text) => Err(RedisError::Refused(String::from_utf8_lossy(&text).into())),
                reply => Ok(reply),
            });
            Ok(())
        })
    }
}

/// A pending answer. Dropping it abandons the answer, not the command.
#[must_use = "the command was sent, and its result is lost without `await`"]
pub struct Answer {
    lane: Rc<Lane>,
    /// Keeps the connection until the answer has arrived.
    _client: Client,
    slot: Rc<Slot>,
    /// `None` once the breaker has its result.
    permit: Option<Permit>,
    since: Nanos,
    span: Duration,
    sleep: time::Sleep,
}

impl Answer {
    fn judge(&mut self, outcome: Outcome) {
        if let Some(permit) = self.permit.take() {
            let now = self.lane.now();
            let mut state = self.lane.state.borrow_mut();
            state.breaker.end(permit, outcome, now);
            self.lane.show(&state, now);
        }
    }
}

impl Future for Answer {
    type Output = Result<Reply, RedisError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.slot.answer.borrow_mut().take();
        let lane = Rc::clone(&self.lane);
        let counters = lane.redis.counters();
        let was_sent = self.permit.is_some();
        if let Some(answer) = answer {
            let lost = matches!(answer, Err(RedisError::Lost(_)));
            if was_sent && lost {
                Counters::add(&counters.lost);
            } else if was_sent {
                let now = lane.now();
                Counters::add(&counters.answered);
                counters.nanos.fetch_add(now - self.since, Ordering::Relaxed);
                match &answer {
                    // The source of an unknown script is sent next.
                    Err(RedisError::Refused(why)) if !why.starts_with("NOSCRIPT") => {
                        Counters::add(&counters.errors);
                        lane.seen.unanswered(why, now);
                    }
                    _ => lane.seen.answered(now - self.since, now),
                }
            }
            self.judge(if lost { Outcome::Failed } else { Outcome::Succeeded });
            return Poll::Ready(answer);
        }
        if Pin::new(&mut self.sleep).poll(context).is_ready() {
            Counters::add(&counters.timed_out);
            let why = RedisError::TimedOut(self.span);
            lane.seen.unanswered(&why.to_string().into(), lane.now());
            self.judge(Outcome::Failed);
            return Poll::Ready(Err(why));
        }
        let mut waker = self.slot.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.judge(Outcome::Abandoned);
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer(within {:?})", self.span)
    }
}

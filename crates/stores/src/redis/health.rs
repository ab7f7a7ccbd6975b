//! What is known of a server at a moment, from the clients of all threads.
//!
//! Each client writes into atomics of its own ([`Seen`]) when something changes; [`Watched::health`] sums
//! them up for a reader on any thread. Nothing is decided by these numbers.

use ringroad_policy::{Nanos, breaker};
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What is known of a server now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The worst of what its clients see.
    pub state: State,
    /// The longest rest of a client's breaker.
    pub breaker: Breaker,
    /// Until the next attempt to connect, while it is unreachable. Zero: with the next command.
    pub next_attempt: Option<Duration>,
    /// Connections that are open.
    pub connections: usize,
    /// Commands that wait for their answers.
    pub waiting: usize,
    /// From a command to its answer, of late: the mean of its clients. `None` before the first answer.
    pub latency: Option<Duration>,
    /// Why the last connection was lost or could not be made, or the last command failed.
    pub last_failure: Option<Arc<str>>,
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// There is no connection, and none is needed.
    Idle,
    /// A connection is open.
    Up,
    /// A connection is being made.
    Connecting,
    /// There is a connection, or one is being made, and the last command was refused or not answered in time.
    Failing,
    /// The last attempt to connect has failed, or the connection was lost.
    Unreachable,
}

impl State {
    /// Returns it as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Up => "up",
            State::Connecting => "connecting",
            State::Failing => "failing",
            State::Unreachable => "unreachable",
        }
    }
}

/// What the breakers of a server's clients let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breaker {
    /// Everything.
    Closed,
    /// A command that tries.
    Probing,
    /// Nothing of at least one client, for so long.
    Open(Duration),
}

/// How one client is connected, for [`Seen::show`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Life {
    Idle,
    Connecting,
    Connected,
    /// Until then.
    Unreachable(Nanos),
}

/// What one client shows. Only its own thread writes.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// 0 idle, 1 connecting, 2 connected, 3 unreachable.
    life: AtomicU8,
    /// When it tries again, while it is unreachable.
    again: AtomicU64,
    /// 0 closed, 1 probing, else when it is open no more.
    breaker: AtomicU64,
    waiting: AtomicUsize,
    /// Smoothed; 0 before the first answer.
    latency: AtomicU64,
    /// When the last command was answered well, and when one failed; 0: none.
    good: AtomicU64,
    bad: AtomicU64,
    last_failure: Mutex<Option<Arc<str>>>,
}

impl Seen {
    // Relaxed throughout: a reader shows numbers of about the same moment, and decides nothing.
    pub(super) fn show(&self, life: Life, breaker: breaker::State, waiting: usize) {
        let (life, again) = match life {
            Life::Idle => (0, 0),
            Life::Connecting => (1, 0),
            Life::Connected => (2, 0),
            Life::Unreachable(again) => (3, again),
        };
        self.life.store(life, Relaxed);
        self.again.store(again, Relaxed);
        let breaker = match breaker {
            breaker::State::Closed => 0,
            breaker::State::Probing => 1,
            breaker::State::Open(until) => until.max(2),
        };
        self.breaker.store(breaker, Relaxed);
        self.waiting.store(waiting, Relaxed);
    }

    /// Notes how long an answer took: an eighth of each new one, seven of what was known.
    pub(super) fn answered(&self, took: Nanos, now: Nanos) {
        self.good.store(now.max(1), Relaxed);
        let known = self.latency.load(Relaxed);
        let next = if known == 0 { took } else { known - known / 8 + took / 8 };
        self.latency.store(next.max(1), Relaxed);
    }

    /// Notes that a command was refused, or not answered in time.
    pub(super) fn unanswered(&self, why: &Arc<str>, now: Nanos) {
        self.bad.store(now.max(1), Relaxed);
        self.failed(why);
    }

    pub(super) fn failed(&self, why: &Arc<str>) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(why));
    }
}

/// The clients of a server, and the clock that they share.
pub(super) struct Watched {
    born: Instant,
    clients: Mutex<Vec<Weak<Seen>>>,
}

impl Default for Watched {
    fn default() -> Watched {
        Watched { born: Instant::now(), clients: Mutex::default() }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({:?})", self.health())
    }
}

impl Watched {
    pub(super) fn now(&self) -> Nanos {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Begins to watch a client.
    pub(super) fn begin(&self) -> Arc<Seen> {
        let seen = Arc::new(Seen::default());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(&seen));
        seen
    }

    pub(super) fn health(&self) -> Health {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let clients: Vec<_> = clients.iter().filter_map(Weak::upgrade).collect();
        sum(&clients, self.now())
    }
}

/// Sums up what clients show.
fn sum(clients: &[Arc<Seen>], now: Nanos) -> Health {
    let mut health = Health {
        state: State::Idle,
        breaker: Breaker::Closed,
        next_attempt: None,
        connections: 0,
        waiting: 0,
        latency: None,
        last_failure: None,
    };
    let (mut latencies, mut answering) = (0_u64, 0_u32);
    // What a client saw of the server once, and has not looked at since: another one may know better.
    let mut stale = false;
    let (mut good, mut bad, mut told) = (0, 0, 0);
    for client in clients {
        let again = client.again.load(Relaxed);
        let state = match client.life.load(Relaxed) {
            1 => State::Connecting,
            2 => State::Up,
            3 if again > now => State::Unreachable,
            3 => {
                stale = true;
                State::Idle
            }
            _ => State::Idle,
        };
        health.state = health.state.max(state);
        health.connections += usize::from(state == State::Up);
        if state == State::Unreachable {
            let left = Duration::from_nanos(again - now);
            health.next_attempt = Some(health.next_attempt.map_or(left, |known| known.max(left)));
        }
        let breaker = match client.breaker.load(Relaxed) {
            0 => Breaker::Closed,
            until if until > now => Breaker::Open(Duration::from_nanos(until - now)),
            _ => Breaker::Probing,
        };
        health.breaker = health.breaker.max(breaker);
        health.waiting += client.waiting.load(Relaxed);
        let latency = client.latency.load(Relaxed);
        (latencies, answering) = (latencies.saturating_add(latency), answering + u32::from(latency > 0));
        good = good.max(client.good.load(Relaxed));
        let failed = client.bad.load(Relaxed);
        bad = bad.max(failed);
        let rank = if state == State::Unreachable { u64::MAX } else { failed };
        if rank >= told
            && let Some(why) = &*client.last_failure.lock().unwrap_or_else(PoisonError::into_inner)
        {
            (told, health.last_failure) = (rank, Some(Arc::clone(why)));
        }
    }
    if bad > good && matches!(health.state, State::Up | State::Connecting) {
        health.state = State::Failing;
    }
    if stale && health.state == State::Idle {
        (health.state, health.next_attempt) = (State::Unreachable, Some(Duration::ZERO));
    }
    health.latency = (answering > 0).then(|| Duration::from_nanos(latencies / u64::from(answering)));
    health
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(life: Life, breaker: breaker::State, waiting: usize) -> Arc<Seen> {
        let seen = Arc::new(Seen::default());
        seen.show(life, breaker, waiting);
        seen
    }

    #[test]
    fn the_worst_of_what_clients_see_counts() {
        const CLOSED: breaker::State = breaker::State::Closed;
        assert_eq!(sum(&[], 10).state, State::Idle);
        let up = client(Life::Connected, CLOSED, 2);
        let resting = client(Life::Connected, breaker::State::Open(500), 1);
        let health = sum(&[Arc::clone(&up), resting], 100);
        assert_eq!((health.state, health.connections, health.waiting), (State::Up, 2, 3));
        assert_eq!(health.breaker, Breaker::Open(Duration::from_nanos(400)));
        let away = client(Life::Unreachable(600), CLOSED, 0);
        let health = sum(&[Arc::clone(&up), Arc::clone(&away)], 100);
        assert_eq!(
            (health.state, health.next_attempt),
            (State::Unreachable, Some(Duration::from_nanos(500)))
        );
        // The client has not looked again, and another one is connected.
        assert_eq!(sum(&[up, Arc::clone(&away)], 700).state, State::Up);
        let health = sum(&[away], 700);
        assert_eq!((health.state, health.next_attempt), (State::Unreachable, Some(Duration::ZERO)));
    }

    #[test]
    fn a_server_whose_last_answer_was_an_error_is_failing() {
        let clients = [(); 2].map(|()| client(Life::Connected, breaker::State::Closed, 0));
        let state = |now| sum(&clients, now);
        clients[0].answered(1000, 10);
        clients[1].unanswered(&"OOM".into(), 20);
        assert_eq!((state(30).state, state(30).last_failure.as_deref()), (State::Failing, Some("OOM")));
        // What another one hears later counts.
        clients[0].answered(1000, 40);
        assert_eq!(state(50).state, State::Up);
        clients[0].unanswered(&"LOADING".into(), 60);
        assert_eq!(state(70).last_failure.as_deref(), Some("LOADING"));
        // One that cannot be reached is worse.
        clients[0].show(Life::Unreachable(600), breaker::State::Closed, 0);
        assert_eq!(state(100).state, State::Unreachable);
    }

    #[test]
    fn the_latency_follows_what_answers_take() {
        let seen = Seen::default();
        assert_eq!(sum(&[Arc::new(Seen::default())], 0).latency, None);
        (0..100).for_each(|_| seen.answered(1000, 1));
        (0..100).for_each(|_| seen.answered(8000, 1));
        let latency = seen.latency.load(Relaxed);
        assert!((7900..=8000).contains(&latency), "{latency}");
    }
}

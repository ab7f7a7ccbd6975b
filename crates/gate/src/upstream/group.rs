//! A group of servers, and the choice among them.

use super::guard::{Admitted, Guards, Shields};
use super::server::{Server, State};
use ringroad_policy::balance::{Turns, two_choices};
use ringroad_policy::budget::Budget;
use ringroad_policy::ring::{Ring, bound};
use ringroad_policy::{Nanos, below, health};
use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How the next server is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Of two at random, the one with fewer requests in flight for its weight.
    #[default]
    Least,
    /// Of two at random, the one with the lower expected time: latency × (requests in flight + 1).
    Time,
    /// One after another, by weight.
    Turns,
    /// The same key goes to the same server, as long as that has at most 1.25 times its fair share.
    Hash(HashBy),
    /// A client stays with the server that a cookie names.
    Sticky {
        /// The cookie's name.
        cookie: String,
    },
}

/// What a key is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashBy {
    /// The client's address.
    Client,
    /// The path.
    Path,
    /// The path and the query.
    Target,
    /// A header line.
    Header(String),
    /// A cookie.
    Cookie(String),
    /// A value of the query.
    Query(String),
}

/// How far the load of a server with hashed keys may be over its fair share.
const BOUNDED: f64 = 1.25;

/// Repeats of each second that are permitted in any case.
const REPEATS_PER_SECOND: u32 = 10;

/// Servers that answer the same requests, shared by all workers.
#[derive(Debug)]
pub struct Group {
    name: String,
    servers: Vec<Arc<Server>>,
    balance: Balance,
    guards: Guards,
    shields: Shields,
    turns: Turns,
    turn: AtomicUsize,
    ring: Ring,
    weights: u64,
    budget: Mutex<Budget>,
    /// Requests that were sent again, to another server.
    pub repeated: AtomicU64,
    /// Choices made with health ignored, since too few servers were usable.
    pub panicked: AtomicU64,
    /// Requests that were refused because the breaker was open or there were too many.
    pub refused: AtomicU64,
    /// Times the breaker opened.
    pub opened: AtomicU64,
    /// Requests that were sent to a second server as well.
    pub hedged: AtomicU64,
}

impl Group {
    /// Makes a group. Servers of `before` with the same address and weight are taken over with all that is
    /// known of them.
    pub fn new(
        name: impl Into<String>,
        servers: Vec<Server>,
        balance: Balance,
        guards: Guards,
        before: Option<&Group>,
    ) -> Group {
        let known = |server: &Server| {
            let before = before?.servers.iter();
            before
                .clone()
                .find(|old| {
                    old.address() == server.address()
                        && old.weight() == server.weight()
                        && old.is_backup() == server.is_backup()
                })
                .cloned()
        };
        let servers: Vec<Arc<Server>> =
            servers.into_iter().map(|server| known(&server).unwrap_or_else(|| Arc::new(server))).collect();
        if guards.check.is_none() {
            // What the last check said of a server holds no more.
            servers.iter().for_each(|server| server.set_healthy(true));
        }
        let same_share = before.filter(|before| before.guards.retry.share == guards.retry.share);
        let count = |of: fn(&Group) -> &AtomicU64| {
            AtomicU64::new(before.map_or(0, |before| of(before).load(Ordering::Relaxed)))
        };
        let weights: Vec<u32> = servers.iter().map(|server| server.weight()).collect();
        let named = servers.iter().map(|server| (server.id(), server.weight()));
        Group {
            name: name.into(),
            turns: Turns::new(&weights),
            turn: AtomicUsize::new(0),
            ring: Ring::new(&named.collect::<Vec<_>>()),
            weights: weights.iter().map(|weight| u64::from(*weight)).sum(),
            servers,
            balance,
            budget: Mutex::new(match same_share {
                Some(before) => before.budget.lock().unwrap_or_else(PoisonError::into_inner).clone(),
                None => Budget::new(guards.retry.share, REPEATS_PER_SECOND),
            }),
            shields: Shields::new(&guards, before.map(|before| (&before.guards, &before.shields))),
            guards,
            repeated: count(|before| &before.repeated),
            panicked: count(|before| &before.panicked),
            refused: count(|before| &before.refused),
            opened: count(|before| &before.opened),
            hedged: count(|before| &before.hedged),
        }
    }

    /// Returns how it is guarded.
    pub fn guards(&self) -> &Guards {
        &self.guards
    }

    pub(super) fn shields(&self) -> &Shields {
        &self.shields
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its servers, in the order in which they are written.
    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// Returns how it chooses.
    pub fn balance(&self) -> &Balance {
        &self.balance
    }

    /// Chooses a server for a request, and counts the request as in flight there until the [`Pick`] is
    /// dropped.
    ///
    /// `key` is the hash of what [`Balance::Hash`] and [`Balance::Sticky`] go by. Servers of `tried` are
    /// chosen only where no other is left. `None`: the group has no servers.
    pub fn pick(
        self: &Arc<Group>,
        key: Option<u64>,
        tried: &[usize],
        now: Nanos,
        random: [u64; 2],
    ) -> Option<Pick> {
        let is_backup = |at: usize| self.servers.get(at).is_some_and(|server| server.is_backup());
        let up = |at: usize| self.servers.get(at).is_some_and(|server| server.state(now) == State::Up);
        let (mut all, mut count, mut backups) = (0, 0, 0);
        for at in 0..self.servers.len() {
            if is_backup(at) {
                backups += usize::from(up(at));
            } else {
                (all, count) = (all + 1, count + usize::from(up(at)));
            }
        }
        // Backups take over when no other server is left; only without them health is ignored.
        let take_over = count == 0 && backups > 0;
        let panics = !take_over && count < all && health::panics(count, all, self.guards.panic);
        if panics {
            self.panicked.fetch_add(1, Ordering::Relaxed);
        }
        let usable = |at: usize| {
            if take_over { is_backup(at) && up(at) } else { !is_backup(at) && (panics || up(at)) }
        };
        let fresh = |at: usize| usable(at) && !tried.contains(&at);
        let spare = |at: usize| is_backup(at) && up(at) && !tried.contains(&at);
        let chosen = self
            .choose(key, fresh, now, random)
            .or_else(|| self.choose(key, spare, now, random))
            .or_else(|| self.choose(key, usable, now, random))
            .or_else(|| self.choose(key, |_| true, now, random))?;
        let server = Arc::clone(self.servers.get(chosen)?);
        server.begin();
        let (told, clock) = (Cell::new(false), Cell::new(None));
        Some(Pick { group: Arc::clone(self), server, at: chosen, admitted: None, begun: now, told, clock })
    }

    fn choose(
        &self,
        key: Option<u64>,
        usable: impl Fn(usize) -> bool,
        now: Nanos,
        random: [u64; 2],
    ) -> Option<usize> {
        let count = self.servers.len();
        let at = |at: usize| self.servers.get(at);
        // In parts of 100, so that a server that comes back can have less than its weight.
        let window = self.guards.slow_start;
        let weight = |place: usize| {
            at(place).map_or(100, |server| {
                if window == 0 { server.weight() * 100 } else { server.weight_now(window, now) }
            })
        };
        let busy = |place: usize| at(place).map_or(u32::MAX, |server| server.in_flight());
        let least = |place: usize| (f64::from(busy(place)) + 1.0) / f64::from(weight(place));
        match (&self.balance, key) {
            (Balance::Turns, _) => {
                // A server that comes back leaves a part of its turns to others.
                let [random, _] = random;
                let takes = |place: usize| {
                    let whole = at(place).map_or(1, |server| server.weight()) * 100;
                    usable(place) && (window == 0 || below(random, whole.into()) < weight(place).into())
                };
                // A turn that is not taken is over: the others go on from there, or the one behind a server
                // that is out would have two of each round.
                let mut turn = 0;
                let taken = (0..self.turns.count()).find_map(|_| {
                    turn = self.turn.fetch_add(1, Ordering::Relaxed);
                    self.turns.from(turn).next().filter(|at| takes(*at))
                });
                taken.or_else(|| self.turns.from(turn).find(|at| usable(*at)))
            }
            (Balance::Sticky { .. }, Some(key)) => {
                let named = (0..count).find(|place| at(*place).is_some_and(|server| server.id() == key));
                named.filter(|at| usable(*at)).or_else(|| two_choices(count, weight, usable, least, random))
            }
            (Balance::Hash(_), Some(key)) => {
                let all: u64 = self.servers.iter().map(|server| u64::from(server.in_flight())).sum();
                let has_room = |place: &usize| {
                    u64::from(busy(*place))
                        < bound(all, at(*place).map_or(1, |server| server.weight()), self.weights, BOUNDED)
                };
                let order = || self.ring.from(key).filter(|at| usable(*at));
                order().find(has_room).or_else(|| order().next())
            }
            (Balance::Time, _) => {
                let cost = |place: usize| {
                    let cost =
                        at(place).map_or(f64::MAX, |server| server.latency().cost(server.in_flight(), now));
                    cost / f64::from(weight(place))
                };
                two_choices(count, weight, usable, cost, random)
            }
            _ => two_choices(count, weight, usable, least, random),
        }
    }

    /// Notes that a client's request begins, which brings a part of the budget for repeats.
    pub fn request_begins(&self) {
        // Of two at the same moment one counts: the budget is a share, no account.
        if let Ok(mut budget) = self.budget.try_lock() {
            budget.request();
        }
    }

    /// Returns whether a request may be sent to another server after it failed at one that it may have
    /// reached; it is counted if so. Repeats stay a share of the requests, so that a group in trouble does
    /// not get twice its load.
    pub fn may_repeat(&self, now: Nanos) -> bool {
        let may = self.budget.lock().unwrap_or_else(PoisonError::into_inner).repeat(now);
        self.repeated.fetch_add(u64::from(may), Ordering::Relaxed);
        may
    }

    /// Returns whether one more server may be left out.
    fn can_spare_one(&self, now: Nanos) -> bool {
        let out = self.servers.iter().filter(|server| server.state(now) != State::Up).count();
        self.guards.ejection.allows(self.servers.len(), out)
    }
}

/// Returns the hash of a key. Without a random seed: every process of one build sends a key to the same
/// server.
pub fn hash(key: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Returns the time since an epoch.
type Clock = fn(Instant) -> Nanos;

/// A request in flight at a server.
#[derive(Debug)]
pub struct Pick {
    group: Arc<Group>,
    server: Arc<Server>,
    at: usize,
    /// What the request holds of the group until its answer was sent.
    admitted: Option<Admitted>,
    begun: Nanos,
    /// How it ended has been told.
    told: Cell<bool>,
    /// The clock that `begun` is of and its epoch, where giving up counts.
    clock: Cell<Option<(Clock, Instant)>>,
}

impl Pick {
    /// Returns the server.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Returns the server's group.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Returns its place in the group, for `tried`.
    pub fn place(&self) -> usize {
        self.at
    }

    /// Holds the request's place in the group for as long as this is held.
    pub fn hold(&mut self, admitted: Admitted) {
        self.admitted = Some(admitted);
    }

    /// From now on, dropping this without a word counts as an answer that takes at least as long as was
    /// waited (the deadline passed, another server was faster, the client has gone). Without that, a server
    /// that never answers keeps the latency that it had. `clock` with this `epoch` gives the time as `now` of
    /// the other calls does; it is read only when an exchange is given up.
    ///
    /// Not for an exchange that waits for the client's own body.
    pub fn count_if_given_up(&self, clock: Clock, epoch: Instant) {
        self.clock.set(Some((clock, epoch)));
    }

    /// Notes that it answered, in so much time until the head.
    pub fn succeeded(&self, took: Nanos, now: Nanos) {
        self.told.set(true);
        self.server.latency().observe(took, now);
        self.server.answered(took);
        self.server.succeeded(&self.group.guards.ejection, now);
    }

    /// Notes that it failed. Counts as a slow answer, or a server that refuses at once would look like the
    /// fastest. Returns whether it is left out from now on.
    pub fn failed(&self, now: Nanos, random: u64) -> bool {
        self.told.set(true);
        self.server.latency().observe(PENALTY, now);
        self.server.failed(&self.group.guards.ejection, now, self.group.can_spare_one(now), random)
    }
}

/// What a failure counts as, where answers are compared by their time.
const PENALTY: Nanos = 5 * ringroad_policy::SECOND;

impl Drop for Pick {
    fn drop(&mut self) {
        self.server.end();
        if let Some((clock, epoch)) = self.clock.get().filter(|_| !self.told.get()) {
            let now = clock(epoch);
            self.server.latency().observe_at_least(now.saturating_sub(self.begun), now);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::server::Address;
    use super::*;
    use ringroad_policy::SECOND;

    fn server(port: u16, weight: u32) -> Server {
        Server::new(Address::Tcp { host: "a".to_owned(), port }, weight)
    }

    fn group(count: u16, balance: Balance) -> Arc<Group> {
        let servers = (1..=count).map(|port| server(port, 1)).collect();
        Arc::new(Group::new("g", servers, balance, Guards::default(), None))
    }

    fn picks(group: &Arc<Group>, count: usize) -> Vec<Pick> {
        let mut seed = 7_u64;
        let mut next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed
        };
        (0..count).map(|_| group.pick(None, &[], SECOND, [next(), next()]).unwrap()).collect()
    }

    #[test]
    fn requests_in_flight_are_spread_over_all_servers() {
        for balance in [Balance::Least, Balance::Time, Balance::Turns] {
            let group = group(4, balance.clone());
            let held = picks(&group, 400);
            for server in group.servers() {
                assert!((60..=140).contains(&server.in_flight()), "{balance:?}: {}", server.in_flight());
            }
            drop(held);
            assert!(group.servers().iter().all(|server| server.in_flight() == 0), "{balance:?}");
        }
    }

    #[test]
    fn a_key_stays_with_its_server_until_that_is_overloaded() {
        let group = group(4, Balance::Hash(HashBy::Client));
        let pick = |key| group.pick(Some(key), &[], SECOND, [1, 2]).unwrap();
        let home = pick(9).place();
        assert!((0..20).all(|_| pick(9).place() == home));
        let held: Vec<_> = (0..40).map(|_| pick(9)).collect();
        let at_home = held.iter().filter(|pick| pick.place() == home).count();
        assert!((10..=15).contains(&at_home), "{at_home} of 40 at home: a quarter over its fair share of 10");
    }

    #[test]
    fn a_client_stays_with_the_server_that_its_cookie_names_while_that_is_up() {
        let group = group(4, Balance::Sticky { cookie: "s".to_owned() });
        let named = &group.servers()[2];
        let pick = || group.pick(Some(named.id()), &[], SECOND, [8, 9]).unwrap();
        let held: Vec<_> = (0..50).map(|_| pick()).collect();
        assert!(held.iter().all(|pick| pick.place() == 2), "whatever its load");
        named.set_healthy(false);
        assert_ne!(pick().place(), 2);
    }

    #[test]
    fn a_tried_server_is_chosen_again_only_where_no_other_is_left() {
        let group = group(2, Balance::Least);
        for _ in 0..20 {
            assert_eq!(group.pick(None, &[0], SECOND, [3, 4]).unwrap().place(), 1);
        }
        assert!(group.pick(None, &[0, 1], SECOND, [3, 4]).is_some());
        assert!(self::group(0, Balance::Least).pick(None, &[], SECOND, [3, 4]).is_none());
    }

    #[test]
    fn a_server_that_fails_in_a_row_gets_nothing_until_its_time_is_over() {
        let group = group(3, Balance::Turns);
        let first = group.pick(None, &[], SECOND, [0, 0]).unwrap();
        assert_eq!(first.place(), 0);
        assert!((0..4).all(|_| !first.failed(SECOND, 0)));
        assert!(first.failed(SECOND, 0));
        assert!(picks(&group, 30).iter().all(|pick| pick.place() != 0));
        let later = 40 * SECOND;
        let again = (0..3).map(|_| group.pick(None, &[], later, [0, 0]).unwrap().place());
        assert!(again.collect::<Vec<_>>().contains(&0));
    }

    #[test]
    fn the_turns_of_a_server_that_is_out_are_shared_by_all_others() {
        let group = group(4, Balance::Turns);
        group.servers()[0].set_healthy(false);
        let mut counts = [0; 4];
        for pick in picks(&group, 30) {
            counts[pick.place()] += 1;
        }
        assert_eq!(counts, [0, 10, 10, 10]);
    }

    #[test]
    fn a_server_that_comes_back_has_a_tenth_of_its_turns_at_first() {
        let guards = Guards { slow_start: 10 * SECOND, ..Guards::default() };
        let group = Group::new("g", vec![server(1, 1), server(2, 1)], Balance::Turns, guards, None);
        let back = &group.servers()[0];
        back.checked(Some("down".to_owned()), 1, 1, SECOND);
        back.checked(None, 1, 1, SECOND);
        let group = Arc::new(group);
        // Random numbers that are spread evenly.
        let turns = |now: Nanos| {
            let places = (0..1000).map(|at| {
                let random = (u64::MAX / 1000) * at;
                group.pick(None, &[], now, [random, random]).unwrap().place()
            });
            places.filter(|place| *place == 0).count()
        };
        let at_first = turns(SECOND);
        assert!((30..150).contains(&at_first), "{at_first}");
        let half = turns(6 * SECOND);
        assert!((250..420).contains(&half), "{half}");
        assert_eq!(turns(20 * SECOND), 500);
    }

    #[test]
    fn with_most_servers_down_health_is_ignored_and_that_is_counted() {
        let group = group(4, Balance::Turns);
        for server in &group.servers()[..3] {
            server.set_healthy(false);
        }
        let places: Vec<_> = picks(&group, 40).iter().map(Pick::place).collect();
        assert!((0..4).all(|at| places.contains(&at)), "{places:?}");
        assert_eq!(group.panicked.load(Ordering::Relaxed), 40);
    }

    #[test]
    fn a_reload_keeps_what_is_known_of_a_server() {
        let old = group(2, Balance::Least);
        let held = picks(&old, 10);
        let servers = vec![server(2, 1), server(3, 1), server(1, 5)];
        let new = Group::new("g", servers, Balance::Least, Guards::default(), Some(&old));
        assert!(new.servers()[0].in_flight() > 0);
        assert_eq!(new.servers()[1].in_flight(), 0);
        assert_eq!(new.servers()[2].in_flight(), 0, "another weight is another server");
        drop(held);
    }

    #[test]
    fn an_exchange_that_is_given_up_counts_as_one_that_takes_as_long_as_it_waited() {
        let group = group(2, Balance::Time);
        fn clock(epoch: Instant) -> Nanos {
            epoch.elapsed().as_nanos() as Nanos + 3600 * SECOND
        }
        let epoch = Instant::now();
        // Requests that began a second ago.
        let begin = |place: usize| {
            let begun = clock(epoch) - SECOND;
            let pick = group.pick(None, &[1 - place], begun, [3, 4]).unwrap();
            assert_eq!(pick.place(), place);
            pick
        };
        for place in 0..2 {
            begin(place).succeeded(5_000_000, clock(epoch));
        }
        let latency = |place: usize| group.servers()[place].latency().value(clock(epoch));
        // What is not watched teaches nothing, nor does what was told before.
        drop(begin(0));
        let told = begin(0);
        told.count_if_given_up(clock, epoch);
        told.succeeded(5_000_000, clock(epoch));
        drop(told);
        assert!(latency(0) < 10.0, "{}", latency(0));
        let given_up = begin(0);
        given_up.count_if_given_up(clock, epoch);
        drop(given_up);
        assert!(latency(0) > 900.0, "{}", latency(0));
        assert!(latency(1) < 10.0);
        let now = clock(epoch);
        assert!((0..20).all(|_| group.pick(None, &[], now, [3, 4]).unwrap().place() == 1));
    }
}

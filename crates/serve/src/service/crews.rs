//! Workers on several drivers, and their moves between drivers.
//!
//! A move starts workers on the other driver that listen on the sockets of those that are to go, and then
//! ends these. No listening socket is closed, so no client is refused or reset. Start at
//! [`Service::move_workers`].

use super::{Config, Overrides, Service, Shared, StartError, WorkerSet};
use crate::event::Event;
use crate::worker::Audience;
use ringroad_engine::DriverName;
use ringroad_engine::choose::{self, Choice, Unusable, Wish};
use ringroad_http::{Handle, Released, ServerError, Sockets, Stats};
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Workers of each public address on one driver.
#[derive(Clone, Debug)]
pub struct Crew {
    /// The driver, and how it came to that.
    pub choice: Choice,
    /// Threads for each address.
    pub workers: usize,
    /// Whether the first of them were moved there.
    pub was_moved: bool,
}

impl Crew {
    /// Returns the driver.
    pub fn driver(&self) -> DriverName {
        self.choice.driver()
    }

    /// Returns the reason for the driver, as part of a sentence.
    pub fn why(&self) -> String {
        if self.was_moved { "workers were moved to it".to_owned() } else { self.choice.why() }
    }
}

pub(super) fn drivers(crews: &[Crew]) -> Vec<DriverName> {
    crews.iter().map(Crew::driver).collect()
}

/// Puts numbers of threads of the command line in force.
pub(super) fn override_threads(config: &mut Config, overrides: &Overrides) -> Result<(), StartError> {
    if !overrides.drivers.is_empty() {
        config.drivers.clone_from(&overrides.drivers);
        config.workers = overrides.drivers.iter().map(|(_, threads)| threads).sum();
    } else if let Some(workers) = overrides.workers {
        if !config.drivers.is_empty() && overrides.driver.is_none() {
            let why = "--workers: the configuration has `drivers`, the threads of each driver (--drivers \
                       replaces them, and --driver puts all on one)";
            return Err(StartError::Overrides(why.to_owned()));
        }
        config.workers = workers;
    }
    Ok(())
}

/// Chooses the drivers, and deals the threads out to them.
pub(super) fn choose(overrides: &Overrides, config: &Config) -> Result<Vec<Crew>, StartError> {
    let crew = |choice, workers| Crew { choice, workers, was_moved: false };
    let by_line = !overrides.drivers.is_empty();
    if config.drivers.is_empty() || (overrides.driver.is_some() && !by_line) {
        let choice = choose::choose(overrides.driver, config.driver).map_err(ServerError::Driver)?;
        return Ok(vec![crew(choice, config.threads())]);
    }
    let mut crews: Vec<Crew> = Vec::new();
    for (driver, threads) in &config.drivers {
        let wish = Some(Wish::Named(*driver));
        let choice = if by_line { choose::choose(wish, None) } else { choose::choose(None, wish) };
        let choice = choice.map_err(ServerError::Driver)?;
        // The environment may put all of them on one.
        match crews.iter_mut().find(|crew| crew.driver() == choice.driver()) {
            Some(same) => same.workers += threads,
            None => crews.push(crew(choice, *threads)),
        }
    }
    Ok(crews)
}

/// A move of workers that was asked for over the control socket ([`Event::MoveAsked`]).
#[derive(Clone, Debug)]
pub struct Move {
    /// The driver that they are on.
    pub from: DriverName,
    /// The driver that they are to be on.
    pub to: DriverName,
    /// Threads of each address; `None`: all.
    pub workers: Option<usize>,
    answer: mpsc::Sender<Result<String, String>>,
}

impl Move {
    /// Makes a move, and where its result comes.
    pub(crate) fn new(
        from: DriverName,
        to: DriverName,
        workers: Option<usize>,
    ) -> (Move, mpsc::Receiver<Result<String, String>>) {
        let (answer, answered) = mpsc::channel();
        (Move { from, to, workers, answer }, answered)
    }
}

/// The reason why workers are not moved. Then all are where they were.
#[derive(Debug)]
#[non_exhaustive]
pub enum MoveError {
    /// There are not so many on that driver.
    NotThere {
        /// The driver.
        from: DriverName,
        /// How many of each address were asked for.
        wanted: usize,
        /// How many of each address are there.
        there: usize,
    },
    /// Both drivers are the same.
    Same(DriverName),
    /// The other driver cannot be used here.
    Unusable(Unusable),
    /// Workers on the other driver do not start.
    Server(ServerError),
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MoveError::NotThere { from, there: 0, .. } => write!(f, "no worker is on {from}"),
            MoveError::NotThere { from, wanted, there } => {
                write!(f, "each address has {there} on {from}, and {wanted} were to be moved")
            }
            MoveError::Same(driver) => write!(f, "they are on {driver}"),
            MoveError::Unusable(Unusable::Named(_, refusal)) => write!(f, "{refusal}"),
            MoveError::Unusable(why) => write!(f, "{why}"),
            MoveError::Server(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for MoveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MoveError::Unusable(why) => Some(why),
            MoveError::Server(why) => Some(why),
            MoveError::NotThere { .. } | MoveError::Same(_) => None,
        }
    }
}

impl From<ServerError> for MoveError {
    fn from(why: ServerError) -> MoveError {
        MoveError::Server(why)
    }
}

/// Workers that have left their sockets to others.
pub(super) struct Leaving {
    released: Released,
    since: Instant,
    /// Of a group that has no other workers, with the number of its counts.
    group: Option<(u64, Stats)>,
}

impl Leaving {
    fn has_ended(&self) -> bool {
        self.released.has_ended()
    }

    /// Gives what has begun this long from now on.
    pub(super) fn hurry(&self, drain: Duration) {
        self.released.set_drain(self.since.elapsed() + drain);
    }

    pub(super) fn wait(self, shared: &Shared) -> Result<(), ServerError> {
        let ended = self.released.wait();
        if let Some((id, stats)) = self.group {
            shared.keep_counts(id, &stats);
        }
        ended
    }
}

/// Started workers that have not taken the place of others yet. Dropped, they end, and the others go on.
struct Started {
    /// Where: the address, and the group of those that are to go.
    at: (usize, usize),
    sockets: Sockets,
    /// Taken when they stay.
    handle: Option<Handle>,
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // What they have accepted meanwhile is completed. Without a thread it is completed here.
            let _ = thread::Builder::new().name("ringroad-drain".to_owned()).spawn(|| handle.give_back());
        }
    }
}

impl Service {
    /// Workers of each public address, by driver.
    pub fn crews(&self) -> Vec<Crew> {
        self.shared.crews.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &WorkerSet> {
        self.listening.iter().flat_map(|one| &one.groups)
    }

    /// Moves workers of each public address to another driver: `workers` threads of each, or all.
    ///
    /// New ones begin on the sockets of the old ones, which then accept nothing more. A request that has
    /// begun is completed where it began, however long it takes; a connection that is idle is closed as by a
    /// stop, and one with another protocol gets the time of `drain`. Returns when the new workers accept.
    ///
    /// # Errors
    /// There are not so many workers; the driver cannot be used here; workers do not start on it. Then
    /// nothing has changed.
    pub fn move_workers(
        &mut self,
        from: DriverName,
        to: DriverName,
        workers: Option<usize>,
    ) -> Result<usize, MoveError> {
        self.forget_left();
        let mut crews = self.crews();
        let there = crews.iter().find(|crew| crew.driver() == from).map_or(0, |crew| crew.workers);
        let wanted = workers.unwrap_or(there);
        if wanted > there || there == 0 || wanted == 0 {
            return Err(MoveError::NotThere { from, wanted, there });
        }
        if from == to {
            return Err(MoveError::Same(from));
        }
        let choice = choose::choose(Some(Wish::Named(to)), None).map_err(MoveError::Unusable)?;
        let mut started = Vec::new();
        for (at, one) in self.listening.iter().enumerate() {
            if one.audience != Audience::Public {
                continue;
            }
            let mut left = wanted;
            for (index, group) in one.groups.iter().enumerate().filter(|(_, group)| group.driver == from) {
                let Some(take) = NonZeroUsize::new(left.min(group.handle.workers())) else { continue };
                let sockets = group.handle.sockets(take)?;
                let server = self.server(&one.listen, one.audience, to)?;
                let handle = Some(server.instead_of(&sockets).start()?);
                started.push(Started { at: (at, index), sockets, handle });
                left -= take.get();
            }
        }
        // Nothing fails from here on.
        for mut one in started {
            self.exchange(&mut one, to);
        }
        for one in &mut self.listening {
            one.groups.retain(|group| group.handle.workers() > 0);
        }
        if let Some(crew) = crews.iter_mut().find(|crew| crew.driver() == from) {
            crew.workers -= wanted;
        }
        match crews.iter_mut().find(|crew| crew.driver() == to) {
            Some(crew) => crew.workers += wanted,
            None => crews.push(Crew { choice, workers: wanted, was_moved: true }),
        }
        crews.retain(|crew| crew.workers > 0);
        *self.shared.crews.lock().unwrap_or_else(PoisonError::into_inner) = crews;
        // The new driver may have room for fewer connections.
        let config = self.made_with.clone();
        self.change_bounds(&config);
        Ok(wanted)
    }

    /// Ends the workers with the sockets on which others listen now.
    fn exchange(&mut self, started: &mut Started, to: DriverName) {
        let (at, index) = started.at;
        let Some(handle) = started.handle.take() else { return };
        let new = self.group(handle, Audience::Public, to);
        let Some(one) = self.listening.get_mut(at) else { return };
        one.groups.push(new);
        let Some(old) = one.groups.get_mut(index) else { return };
        let sockets = std::mem::take(&mut started.sockets);
        let released = old.handle.release(sockets);
        let group = (old.handle.workers() == 0).then(|| (old.id, old.handle.stats()));
        self.leaving.push(Leaving { released, since: Instant::now(), group });
    }

    /// Moves workers as asked over the control socket, and answers there.
    pub fn move_asked(&mut self, asked: &Move) {
        let Move { from, to, workers, answer } = asked;
        let moved = match self.move_workers(*from, *to, *workers) {
            Ok(workers) => {
                self.shared.events.report(Event::Moved { from: *from, to: *to, workers });
                Ok(Event::Moved { from: *from, to: *to, workers }.to_string())
            }
            Err(why) => Err(why.to_string()),
        };
        // The asking client may have gone.
        let _ = answer.send(moved);
    }

    /// Forgets workers that have left their sockets and ended; their counts stay.
    pub(super) fn forget_left(&mut self) {
        let (ended, left) = std::mem::take(&mut self.leaving).into_iter().partition(Leaving::has_ended);
        self.leaving = left;
        for one in ended {
            if let Err(why) = one.wait(&self.shared) {
                let request = "workers that were moved to another driver".to_owned();
                self.shared.events.report(Event::Fault { request, why: why.to_string() });
            }
        }
    }
}

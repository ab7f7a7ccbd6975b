//! A server that runs: started from a configuration, changed by another, stopped.
//!
//! Each address has workers of its own. What a reload changes is what is answered: routes, files, the log, addresses
//! that come and go. Listeners that stay are not touched, so nobody who is connecting is turned away. Start at
//! [`Service::start`].

use crate::config::{Config, ConfigError, Kind};
use crate::event::{Event, Voice};
use crate::log::Log;
use crate::metrics::Counts;
use crate::worker::{self, Audience, Plan, Worker};
use ringroad_engine::choose::{Choice, Wish, choose};
use ringroad_engine::{Builder, Name};
use ringroad_http::{Handle, Server, ServerError, Stats};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

/// Where a configuration comes from, each time it is read.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// A folder, whose files are served.
    Folder {
        /// The folder.
        path: PathBuf,
        /// Folders without an index file are listed.
        autoindex: bool,
    },
}

/// What the command line says, which counts more than a file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Where to listen, and nowhere else.
    pub listen: Option<SocketAddr>,
    /// Threads.
    pub workers: Option<usize>,
    /// Other processes may listen there too.
    pub reuse_port: bool,
    /// The kernel's interface.
    pub driver: Option<Wish>,
    /// Requests are logged to standard output, where the file has no log.
    pub log: Option<crate::config::LogTo>,
}

/// Why a server does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is wrong.
    Config(ConfigError),
    /// The folder cannot be served.
    Folder(PathBuf, std::io::Error),
    /// The log cannot be opened.
    Log(String, std::io::Error),
    /// No driver, or an address that is not to be had.
    Server(ServerError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Config(why) => write!(f, "{why}"),
            StartError::Folder(path, why) => write!(f, "serve, on {}: {why}", path.display()),
            StartError::Log(target, why) => write!(f, "access log, on {target}: {why}"),
            StartError::Server(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Config(why) => Some(why),
            StartError::Folder(_, why) | StartError::Log(_, why) => Some(why),
            StartError::Server(why) => Some(why),
        }
    }
}

impl From<ServerError> for StartError {
    fn from(why: ServerError) -> StartError {
        StartError::Server(why)
    }
}

/// Reads the configuration, with what the command line says.
///
/// # Errors
/// It is wrong, or cannot be read.
pub fn load(source: &Source, overrides: &Overrides) -> Result<Config, StartError> {
    let mut config = match source {
        Source::File(path) => Config::load(path).map_err(StartError::Config)?,
        Source::Folder { path, autoindex } => {
            Config::of_folder(path, *autoindex).map_err(|why| StartError::Folder(path.clone(), why))?
        }
    };
    if let Some(listen) = overrides.listen {
        config.listen = vec![listen];
    }
    config.workers = overrides.workers.unwrap_or(config.workers);
    config.reuse_port |= overrides.reuse_port;
    config.log = config.log.or_else(|| overrides.log.clone());
    Ok(config)
}

/// What workers of all addresses know.
pub(crate) struct Shared {
    plan: Mutex<Arc<Plan>>,
    /// Raised behind each new plan.
    pub(crate) generation: AtomicU64,
    pub(crate) stopping: AtomicBool,
    pub(crate) members: Mutex<Vec<Arc<Counts>>>,
    /// Of each address that there is or was, so that no count ever goes back.
    pub(crate) stats: Mutex<Vec<(String, Stats)>>,
    pub(crate) choice: Choice,
    pub(crate) reloads: Reloads,
    pub(crate) started: SystemTime,
    pub(crate) voice: Voice,
}

/// Times the configuration was read again.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    pub(crate) taken: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Shared {
    pub(crate) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn log_dropped(&self) -> u64 {
        self.plan().log.as_ref().map_or(0, |log| log.dropped())
    }
}

/// A server that runs.
pub struct Service {
    shared: Arc<Shared>,
    groups: Vec<Group>,
    source: Source,
    overrides: Overrides,
    /// What the workers were made with.
    made_with: Config,
    /// Logs of earlier plans, to which some worker may still have something to say.
    old_logs: Vec<Arc<Log>>,
}

/// The workers of one address.
struct Group {
    /// As it was asked for, where the port may be 0.
    listen: SocketAddr,
    audience: Audience,
    handle: Handle,
}

/// Buffers for large bodies: a receive has its price, whatever it brings, and what comes in one piece is sent on without
/// a copy. Drivers that wait for readiness use one after another, so a few are enough. io_uring's are all with the kernel,
/// where each takes one answer: as many as ever, of which small requests touch one page each, as they would of small ones.
/// On `threads` each worker has one of its own: there small ones stay.
fn receive_buffers(driver: Name) -> impl Fn(Builder) -> Builder {
    const BYTES: usize = 60 * 1024;
    move |builder| match driver {
        Name::Epoll | Name::Poll | Name::Select => builder.buffers(16, BYTES),
        Name::IoUring => builder.buffers(128, BYTES),
        _ => builder,
    }
}

impl Service {
    /// Starts to serve.
    ///
    /// # Errors
    /// No driver, an address that is not to be had, a log that cannot be opened: then nothing runs.
    pub fn start(
        source: Source,
        overrides: Overrides,
        config: Config,
        voice: Voice,
    ) -> Result<Service, StartError> {
        let choice = choose(overrides.driver, config.driver).map_err(ServerError::Driver)?;
        let log = open_log(&config, &voice)?;
        let plan = Arc::new(Plan { config: config.clone(), log });
        let shared = Arc::new(Shared {
            plan: Mutex::new(plan),
            generation: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            members: Mutex::default(),
            stats: Mutex::default(),
            choice,
            reloads: Reloads::default(),
            started: SystemTime::now(),
            voice,
        });
        let mut service = Service {
            shared,
            groups: Vec::new(),
            source,
            overrides,
            made_with: config.clone(),
            old_logs: Vec::new(),
        };
        // What was started before something fails is stopped by being dropped.
        for (listen, audience) in addresses(&config) {
            let group = service.group(listen, audience)?;
            service.groups.push(group);
        }
        Ok(service)
    }

    fn group(&self, listen: SocketAddr, audience: Audience) -> Result<Group, ServerError> {
        let config = &self.made_with;
        let shared = Arc::clone(&self.shared);
        let workers = if audience == Audience::Public { config.threads() } else { 1 };
        let handle = Server::with_state(move || Worker::new(Arc::clone(&shared), audience))
            .bind(listen)?
            .workers(workers)
            .driver(Wish::Named(self.shared.choice.driver()))
            .reuse_port(config.reuse_port)
            .connections_max(self.connections_max())
            .limits(config.limits.clone())
            .deadlines(config.deadlines.clone())
            .drain(config.drain)
            .tune(receive_buffers(self.shared.choice.driver()))
            .fallback(worker::answer)
            .start()?;
        let named = (handle.address().to_string(), handle.stats());
        self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner).push(named);
        Ok(Group { listen, audience, handle })
    }

    /// Most connections of one worker. Some descriptors are left for files, upstreams and the log, so that who is
    /// connected is served when nobody else can be.
    fn connections_max(&self) -> NonZeroUsize {
        let config = &self.made_with;
        let workers = config.threads() * config.listen.len();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let free =
            connections(self.shared.choice.driver(), usize::try_from(limit).unwrap_or(usize::MAX), workers);
        let most = config.connections_max.unwrap_or(free);
        NonZeroUsize::new(most / workers).unwrap_or(NonZeroUsize::MIN)
    }

    /// Where it listens; an address of its own for metrics last.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.groups.iter().map(|group| group.handle.address())
    }

    /// The driver, and how it came to that.
    pub fn choice(&self) -> &Choice {
        &self.shared.choice
    }

    /// Workers of each address.
    pub fn workers(&self) -> usize {
        self.made_with.threads()
    }

    /// Reads the configuration again and puts it in force, or says why not: then everything stays as it is.
    pub fn reload(&mut self) {
        let event = match load(&self.source, &self.overrides) {
            Ok(config) => match self.change(config) {
                Ok(waiting) => Event::Reloaded { waiting },
                Err(why) => Event::ReloadFailed(why.to_string()),
            },
            Err(StartError::Config(why)) => Event::ReloadRefused(why),
            Err(why) => Event::ReloadFailed(why.to_string()),
        };
        let taken = matches!(event, Event::Reloaded { .. });
        let count = if taken { &self.shared.reloads.taken } else { &self.shared.reloads.refused };
        count.fetch_add(1, Ordering::Relaxed);
        self.shared.voice.say(event);
    }

    fn change(&mut self, config: Config) -> Result<Vec<&'static str>, StartError> {
        let old = self.shared.plan();
        let log = match &old.log {
            Some(log) if Some(&log.to) == config.log.as_ref() => {
                log.reopen();
                Some(Arc::clone(log))
            }
            _ => open_log(&config, &self.shared.voice)?,
        };
        let wanted: Vec<_> = addresses(&config).collect();
        let mut new = Vec::new();
        for (listen, audience) in &wanted {
            let there = |group: &Group| group.listen == *listen && group.audience == *audience;
            if !self.groups.iter().any(there) {
                new.push(self.group(*listen, *audience)?);
            }
        }
        let waiting = self.waiting(&config);
        let same = |log: &Arc<Log>| old.log.as_ref().is_some_and(|old| Arc::ptr_eq(old, log));
        if !log.as_ref().is_some_and(same) {
            self.old_logs.extend(old.log.clone());
        }
        drop(old);
        let plan = Arc::new(Plan { config, log });
        *self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
        // Pairs with the acquire load of each worker.
        self.shared.generation.fetch_add(1, Ordering::Release);
        // Nobody else has it any more: it is complete.
        self.old_logs.retain(|log| {
            let used = Arc::strong_count(log) > 1;
            if !used {
                log.finish();
            }
            used
        });
        self.groups.append(&mut new);
        let stays = |group: &Group| wanted.contains(&(group.listen, group.audience));
        let (stay, go) = std::mem::take(&mut self.groups).into_iter().partition(stays);
        self.groups = stay;
        for Group { handle, .. } in go {
            // It drains, which takes as long as its slowest request; dropping the handle waits for that.
            let _ = thread::Builder::new().name("ringroad-drain".to_owned()).spawn(move || drop(handle));
        }
        Ok(waiting)
    }

    /// What of a new configuration needs workers that are made anew.
    fn waiting(&self, config: &Config) -> Vec<&'static str> {
        let made = &self.made_with;
        let all = [
            ("workers", made.workers != config.workers),
            ("reuse_port", made.reuse_port != config.reuse_port),
            ("max_connections", made.connections_max != config.connections_max),
            ("driver", made.driver != config.driver),
            ("drain", made.drain != config.drain),
            ("limits", made.limits != config.limits),
            ("timeouts", made.deadlines != config.deadlines),
        ];
        all.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// Whether some worker has ended by itself, which is an error that [`stop`](Self::stop) tells.
    pub fn has_failed(&self) -> bool {
        self.groups.iter().any(|group| group.handle.has_ended())
    }

    /// Stops: no more connections, what has begun is finished within the time for that, the log is written.
    ///
    /// # Errors
    /// The first worker's that ended by an error or a panic.
    pub fn stop(self) -> Result<(), ServerError> {
        self.shared.stopping.store(true, Ordering::Relaxed);
        for group in &self.groups {
            group.handle.stop();
        }
        let mut ended = Ok(());
        // All are waited for; the first that failed is told.
        for group in self.groups {
            ended = ended.and(group.handle.wait());
        }
        for log in self.old_logs.iter().chain(&self.shared.plan().log) {
            log.finish();
        }
        ended
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("addresses", &self.addresses().collect::<Vec<_>>()).finish()
    }
}

/// Every address, and who is answered there.
fn addresses(config: &Config) -> impl Iterator<Item = (SocketAddr, Audience)> {
    let own = config.routes.iter().filter_map(|route| match route.kind {
        Kind::Metrics(own) => own,
        _ => None,
    });
    let public = config.listen.iter().map(|listen| (*listen, Audience::Public));
    public.chain(own.map(|listen| (listen, Audience::Own(listen))))
}

fn open_log(config: &Config, voice: &Voice) -> Result<Option<Arc<Log>>, StartError> {
    let open = |to| Log::open(to, voice).map_err(|why| StartError::Log(to.target.to_string(), why));
    config.log.as_ref().map(open).transpose()
}

/// Connections that a process may have under a limit of open files.
fn connections(driver: Name, limit: usize, workers: usize) -> usize {
    let (limit, each, ahead) = match driver {
        // Its sets end there.
        Name::Select => (limit.min(1024), 1, 0),
        // One that waits has a worker, which has a descriptor too.
        Name::Threads => (limit, 2, 0),
        // The kernel takes so many out of the backlog before anybody asks.
        Name::IoUring => (limit, 1, 64 * workers),
        _ => (limit, 1, 0),
    };
    let left = (limit / 4).clamp(64, 512) + ahead;
    (limit - left.min(limit / 2)) / each
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_what_is_no_connection() {
        for (driver, limit, workers, most) in [
            (Name::Epoll, 20_000, 1, 19_488),
            (Name::IoUring, 20_000, 2, 19_360),
            (Name::Threads, 20_000, 1, 9_744),
            (Name::Select, 20_000, 1, 768),
            (Name::Epoll, 1024, 1, 768),
            (Name::IoUring, 256, 1, 128),
            (Name::Poll, 64, 1, 32),
        ] {
            assert_eq!(connections(driver, limit, workers), most, "{driver} {limit} {workers}");
        }
    }
}

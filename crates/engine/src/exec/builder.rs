//! How a runtime is made: its driver, and the driver's settings within their ranges.
//!
//! Start at [`Builder::build`].

use super::{Core, Runtime};
use crate::driver::features::Features;
use crate::driver::sim::{Faults, Sim, SimConfig};
use crate::driver::{Driver, Settings, epoll, poll, readiness, select, threads, uring};
use crate::error::{Error, Result};
use crate::name::Name;
use std::io;

/// How a runtime is made.
#[derive(Clone, Debug)]
pub struct Builder {
    driver: Name,
    settings: Settings,
    sim: SimConfig,
}

impl Builder {
    /// On this driver.
    pub fn new(driver: Name) -> Builder {
        Builder { driver, settings: Settings::default(), sim: SimConfig::new(0, Faults::none()) }
    }

    /// Submission queue entries of io_uring, rounded up to a power of two. 1024 by default, halved as long as
    /// the kernel says ENOMEM (RLIMIT_MEMLOCK).
    pub fn entries(mut self, entries: u32) -> Builder {
        self.settings.entries = entries;
        self
    }

    /// Completion queue entries of io_uring; four times the submission entries by default.
    pub fn completion_entries(mut self, entries: u32) -> Builder {
        self.settings.completions = Some(entries);
        self
    }

    /// Receive buffers: how many (a power of two, 128 by default) of how many bytes each (4096; at most 60 KiB).
    /// An idle connection holds none.
    pub fn buffers(mut self, count: u16, bytes: usize) -> Builder {
        self.settings.buffers = count;
        self.settings.buffer_bytes = bytes;
        self
    }

    /// Worker threads of the threads driver at most: as many operations can wait at a time, and one more fails. 4096 by
    /// default, since each costs a thread (its stack takes about 8 KiB), two mappings and a descriptor.
    pub fn workers(mut self, workers: u32) -> Builder {
        self.settings.workers = workers;
        self
    }

    /// Places of connections in io_uring's own table, at most: see [`into_direct`](crate::net::TcpStream::into_direct), and
    /// [`Runtime::direct_places`]. The kernel takes no table with more places than a process may have descriptors; without
    /// this it has as many as that, and at most 65,536 (512 KiB of the kernel's memory). It is made when the first is taken.
    pub fn direct_places(mut self, places: u32) -> Builder {
        self.settings.places = Some(places);
        self
    }

    /// What of the kernel's abilities may be used.
    pub fn features(mut self, features: Features) -> Builder {
        self.settings.features = features;
        self
    }

    /// Seed and faults of the simulation; for [`Name::Sim`].
    pub fn sim(mut self, sim: SimConfig) -> Builder {
        self.sim = sim;
        self
    }

    /// Makes the runtime, for the thread that calls this.
    ///
    /// # Errors
    /// The driver is not to be had here (for io_uring: ENOSYS, EPERM, ENOMEM, or an ability it lacks), or a
    /// setting is out of its range.
    pub fn build(self) -> Result<Runtime> {
        let Builder { driver: name, settings, sim } = self;
        // What the kernel takes (`IORING_MAX_ENTRIES`), before it says EINVAL, which can mean anything.
        const ENTRIES_MAX: u32 = 32_768;
        let bad = |why: String| {
            Err(Error::new("making a runtime", io::Error::new(io::ErrorKind::InvalidInput, why)))
        };
        if !settings.buffers.is_power_of_two() || settings.buffers < 2 {
            return bad(format!("{} buffers: a power of two is wanted, at least 2", settings.buffers));
        }
        if !(1..=crate::pool::BUFFER_BYTES_MAX).contains(&settings.buffer_bytes) {
            let max = crate::pool::BUFFER_BYTES_MAX;
            return bad(format!("buffers of {} bytes: 1 to {max} are possible", settings.buffer_bytes));
        }
        if settings.entries > ENTRIES_MAX || settings.completions.is_some_and(|most| most > 2 * ENTRIES_MAX) {
            let most = 2 * ENTRIES_MAX;
            return bad(format!(
                "a ring has at most {ENTRIES_MAX} submission and {most} completion entries, not {} and {}",
                settings.entries,
                settings.completions.unwrap_or(settings.entries.saturating_mul(4)),
            ));
        }
        let failed = |call: &'static str| move |why| Error::new(call, why).by(name);
        let driver: Box<dyn Driver> = match name {
            Name::Epoll => {
                let poller = epoll::Epoll::new().map_err(failed("epoll_create1"))?;
                Box::new(readiness::Readiness::new(poller, &settings).map_err(failed("mmap"))?)
            }
            Name::Poll => {
                let poller = poll::PollSet::new().map_err(failed("eventfd"))?;
                Box::new(readiness::Readiness::new(poller, &settings).map_err(failed("mmap"))?)
            }
            Name::Select => {
                let poller = select::Select::new().map_err(failed("eventfd"))?;
                Box::new(readiness::Readiness::new(poller, &settings).map_err(failed("mmap"))?)
            }
            Name::Threads => Box::new(threads::Threads::new(&settings).map_err(failed("eventfd"))?),
            Name::IoUring => Box::new(uring::Uring::new(&settings)?),
            Name::Sim => Box::new(Sim::new(&sim, &settings).map_err(failed("mmap"))?),
        };
        Ok(Runtime { core: Core::new(driver)? })
    }
}

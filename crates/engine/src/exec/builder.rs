//! The builder of a runtime: its driver, and the driver's settings within their ranges.
//!
//! Start at [`Builder::build`].

use super::{Core, Runtime};
use crate::driver::features::Features;
#[cfg(feature = "sim")]
use crate::driver::sim::{Faults, Sim, SimConfig};
use crate::driver::{Driver, Settings, epoll, poll, readiness, select, threads, uring};
use crate::error::{Error, Result};
use crate::name::DriverName;
use std::io;

/// Settings of a new runtime.
#[derive(Clone, Debug)]
pub struct Builder {
    driver: DriverName,
    settings: Settings,
    #[cfg(feature = "sim")]
    sim: SimConfig,
}

impl Builder {
    /// Creates a builder for this driver.
    pub fn new(driver: DriverName) -> Builder {
        Builder {
            driver,
            settings: Settings::default(),
            #[cfg(feature = "sim")]
            sim: SimConfig::new(0, Faults::none()),
        }
    }

    /// Sets the submission queue entries of io_uring, rounded up to a power of two. Default: 1024, halved
    /// while the kernel returns ENOMEM (RLIMIT_MEMLOCK).
    pub fn entries(mut self, entries: u32) -> Builder {
        self.settings.entries = entries;
        self
    }

    /// Sets the completion queue entries of io_uring. Default: four times the submission entries.
    pub fn completion_entries(mut self, entries: u32) -> Builder {
        self.settings.completions = Some(entries);
        self
    }

    /// Sets the receive buffers: their number (a power of two, default 128), and their size in bytes (default
    /// 4096, at most 60 KiB). An idle connection holds none.
    pub fn buffers(mut self, count: u16, bytes: usize) -> Builder {
        self.settings.buffers = count;
        self.settings.buffer_bytes = bytes;
        self
    }

    /// Sets the maximum number of workers of the threads driver. That many operations can wait at a time; one
    /// more fails. A worker that a cancel or a close has called back does not count any more. Default: 4096.
    /// Each worker costs a thread (with about 8 KiB of stack), two mappings and a descriptor.
    pub fn workers(mut self, workers: u32) -> Builder {
        self.settings.workers = workers;
        self
    }

    /// Sets the maximum number of direct connections on io_uring: see
    /// [`into_direct`](crate::net::TcpStream::into_direct) and [`Runtime::direct_places`]. The kernel's limit
    /// is the process's descriptor limit. Default: that limit, at most 65,536 (512 KiB of kernel memory). The
    /// table is created with the first direct connection.
    pub fn direct_places(mut self, places: u32) -> Builder {
        self.settings.places = Some(places);
        self
    }

    /// Sets the kernel features that may be used.
    pub fn features(mut self, features: Features) -> Builder {
        self.settings.features = features;
        self
    }

    /// Sets the seed and faults of the simulation, for [`DriverName::Sim`]. Requires the feature `sim`.
    #[cfg(feature = "sim")]
    pub fn sim(mut self, sim: SimConfig) -> Builder {
        self.sim = sim;
        self
    }

    /// Builds the runtime, for the calling thread.
    ///
    /// # Errors
    /// The driver is not available here (for io_uring: ENOSYS, EPERM, ENOMEM, or a missing feature), or a
    /// setting is out of range.
    pub fn build(self) -> Result<Runtime> {
        let Builder { driver: name, settings, .. } = self;
        // The kernel's limit (`IORING_MAX_ENTRIES`). Checked here because the kernel's EINVAL has many
        // possible causes.
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
            DriverName::Epoll => {
                let poller = epoll::Epoll::new().map_err(failed("epoll_create1"))?;
                Box::new(readiness::Readiness::new(poller, &settings).map_err(failed("mmap"))?)
            }
            DriverName::Poll => {
                let poller = poll::PollSet::new().map_err(failed("eventfd"))?;
                Box::new(readiness::Readiness::new(poller, &settings).map_err(failed("mmap"))?)
            }
            DriverName::Select => {
                let poller = select::Select::new().map_err(failed("eventfd"))?;
                Box::new(readiness::Readiness::new(poller, &settings).map_err(failed("mmap"))?)
            }
            DriverName::Threads => Box::new(threads::Threads::new(&settings).map_err(failed("eventfd"))?),
            DriverName::IoUring => Box::new(uring::Uring::new(&settings)?),
            #[cfg(feature = "sim")]
            DriverName::Sim => Box::new(Sim::new(&self.sim, &settings).map_err(failed("mmap"))?),
            #[cfg(not(feature = "sim"))]
            DriverName::Sim => {
                let why = "the simulation is not in this build".to_owned();
                return bad(why)
                    .map_err(|why| why.hint("build ringroad-engine with the feature `sim`, for tests"));
            }
        };
        Ok(Runtime { core: Core::new(driver)? })
    }
}

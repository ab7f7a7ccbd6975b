//! Pins server, client and harness to separate cores, within the affinity of this process.
//!
//! A child inherits the affinity of the thread that starts it. So a thread takes the child's CPUs, starts the
//! child, and takes its own CPUs back: the child never runs elsewhere. `host::topology` decides which CPUs
//! each of them gets. Start at [`Cores::of_this_process`].

use crate::error::Error;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// The CPUs of server, client and harness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// CPUs of the program under test.
    pub server: Vec<u32>,
    /// CPUs of the client.
    pub client: Vec<u32>,
    /// CPUs of the harness.
    pub harness: Vec<u32>,
}

impl Cores {
    /// Parts the CPUs this thread may use.
    ///
    /// # Errors
    /// [`Error::Machine`] when the kernel does not tell the affinity.
    pub fn of_this_process() -> Result<Cores, Error> {
        let set = sched_getaffinity(None).map_err(|errno| Error::Machine {
            what: "read the CPU affinity".to_owned(),
            source: errno.into(),
        })?;
        let cpus: Vec<u32> =
            (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect();
        let (server, client, harness) = ringroad_host::topology::split_cores(&cpus);
        Ok(Cores { server, client, harness })
    }

    /// Returns whether server and client have no core of their own each.
    pub fn shared(&self) -> bool {
        self.server.iter().any(|cpu| self.client.contains(cpu))
    }
}

/// This thread's affinity is changed while this lives.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Moves this thread, and every process and thread it starts from now on, to `cpus`.
    ///
    /// # Errors
    /// The kernel's error; `InvalidInput` for no CPU at all.
    pub fn to(cpus: &[u32]) -> io::Result<Pinned> {
        let before = sched_getaffinity(None)?;
        let mut set = CpuSet::new();
        for &cpu in cpus.iter().filter(|cpu| (**cpu as usize) < CpuSet::MAX_CPU) {
            set.set(cpu as usize);
        }
        if set.count() == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "pin to no CPU at all"));
        }
        sched_setaffinity(None, &set)?;
        Ok(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The set was this thread's own; the kernel refuses it only if its last CPU went offline meanwhile,
        // and then it has already moved the thread.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_pinned_thread_gets_its_affinity_back() {
        let before = sched_getaffinity(None).unwrap();
        let cores = Cores::of_this_process().unwrap();
        {
            let _pinned = Pinned::to(&cores.server).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap().count() as usize, cores.server.len());
        }
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn no_party_gets_a_cpu_outside_the_given_affinity() {
        let set = sched_getaffinity(None).unwrap();
        let cores = Cores::of_this_process().unwrap();
        for cpu in cores.server.iter().chain(&cores.client).chain(&cores.harness) {
            assert!(set.is_set(*cpu as usize), "CPU {cpu}");
        }
        assert_eq!(cores.shared(), set.count() == 1);
    }

    #[test]
    fn pinning_to_nothing_is_refused() {
        assert_eq!(Pinned::to(&[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

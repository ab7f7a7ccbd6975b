//! Tasks of an application that wait for a task worker, and what has become of the others.
//!
//! A task is submitted by a worker (TASK_SUBMIT) or over the task socket, waits in one queue, oldest first,
//! and goes to a task worker that has none. Its result goes back to the submitter. A task is begun once: one
//! that had begun when its process ended is not repeated.

use crate::status::counted;
use ringroad_wire::rwp::Outcome;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Instant;

/// Bytes of all tasks that wait.
const QUEUE_BYTES_MAX: usize = 256 << 20;

/// Where the result of a task goes.
#[derive(Debug)]
pub(crate) enum Origin {
    /// To a process, under its number.
    Worker { process: u64, number: u32 },
    /// To a connection of the task socket, with the question's `id`.
    Socket { connection: u64, id: Value },
    /// Nowhere.
    Forgotten,
}

/// A task.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) number: u32,
    pub(crate) origin: Origin,
    /// The slot of the submitter, as on the wire.
    pub(crate) from: u16,
    /// The task worker that it is for.
    pub(crate) slot: Option<u16>,
    pub(crate) payload: Vec<u8>,
}

/// The task that a task worker has.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) number: u32,
    pub(crate) origin: Origin,
    pub(crate) since: Instant,
}

/// Tasks of one application.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    queue: VecDeque<Job>,
    bytes: usize,
    next: u32,
    /// Takes no more.
    pub(crate) is_closed: bool,
    /// Those that are over, by [`Outcome`].
    pub(crate) over: [u64; 6],
    /// Time that task workers had tasks.
    pub(crate) seconds: f64,
}

impl Tasks {
    /// Puts a task into the queue, which takes `most`. `Err`: why not, with its origin.
    pub(crate) fn submit(
        &mut self,
        origin: Origin,
        from: u16,
        slot: Option<u16>,
        payload: &[u8],
        workers: usize,
        most: usize,
    ) -> Result<(), (Origin, String)> {
        let why = if self.is_closed {
            "the application stops".to_owned()
        } else if workers == 0 {
            "the application has no task workers (`tasks`)".to_owned()
        } else if slot.is_some_and(|slot| usize::from(slot) >= workers) {
            format!("there is no task worker {}, of {workers}", slot.unwrap_or_default())
        } else if self.queue.len() >= most || self.bytes + payload.len() > QUEUE_BYTES_MAX {
            format!("the queue is full (`task_queue`): {} waiting", counted(self.queue.len(), "task"))
        } else {
            self.next = self.next.checked_add(1).unwrap_or(1);
            self.bytes += payload.len();
            self.queue.push_back(Job { number: self.next, origin, from, slot, payload: payload.to_vec() });
            return Ok(());
        };
        Err((origin, why))
    }

    /// Takes the oldest task that one of these slots may have, with that slot; `idle` has no other.
    pub(crate) fn take(&mut self, idle: &[u16]) -> Option<(u16, Job)> {
        let free = |job: &Job| match job.slot {
            Some(wanted) => idle.iter().copied().find(|slot| *slot == wanted),
            None => idle.first().copied(),
        };
        let (at, slot) = self.queue.iter().enumerate().find_map(|(at, job)| Some((at, free(job)?)))?;
        let job = self.queue.remove(at)?;
        self.bytes -= job.payload.len();
        Some((slot, job))
    }

    /// Those that wait for a task worker that there is not any more, of `workers`.
    pub(crate) fn without_worker(&mut self, workers: usize) -> Vec<Job> {
        let (stay, go) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|job| workers > 0 && job.slot.is_none_or(|slot| usize::from(slot) < workers));
        self.queue = stay;
        self.bytes = self.queue.iter().map(|job| job.payload.len()).sum();
        Vec::from(go)
    }

    /// All that wait, when nothing is to be begun any more.
    pub(crate) fn close(&mut self) -> Vec<Job> {
        self.is_closed = true;
        self.bytes = 0;
        self.queue.drain(..).collect()
    }

    /// Tasks that wait.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Notes how one ended.
    pub(crate) fn note(&mut self, outcome: Outcome) {
        if let Some(count) = self.over.get_mut(outcome as usize) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn submit(tasks: &mut Tasks, slot: Option<u16>, payload: &[u8]) -> Result<(), String> {
        tasks.submit(Origin::Forgotten, 0, slot, payload, 2, 3).map_err(|(_, why)| why)
    }

    #[test]
    fn the_oldest_task_that_a_slot_may_have_is_taken() {
        let mut tasks = Tasks::default();
        for (slot, payload) in [(Some(1), b"a"), (None, b"b"), (Some(0), b"c")] {
            submit(&mut tasks, slot, payload).unwrap();
        }
        assert!(submit(&mut tasks, None, b"d").unwrap_err().ends_with(": 3 tasks waiting"));
        assert!(tasks.take(&[]).is_none());
        let taken = |got: Option<(u16, Job)>| got.map(|(slot, job)| (slot, job.payload)).unwrap();
        assert_eq!(taken(tasks.take(&[0])), (0, b"b".to_vec()));
        assert_eq!(taken(tasks.take(&[0, 1])), (1, b"a".to_vec()));
        assert_eq!(taken(tasks.take(&[0])), (0, b"c".to_vec()));
        assert_eq!((tasks.queued(), tasks.bytes), (0, 0));
    }

    #[test]
    fn what_cannot_be_begun_is_refused_with_the_reason() {
        let mut tasks = Tasks::default();
        assert!(submit(&mut tasks, Some(2), b"").unwrap_err().contains("no task worker 2"));
        let none = tasks.submit(Origin::Forgotten, 0, None, b"", 0, 3);
        assert!(none.unwrap_err().1.contains("no task workers"));
        submit(&mut tasks, None, b"x").unwrap();
        assert_eq!(tasks.close().len(), 1);
        assert_eq!(submit(&mut tasks, None, b"x").unwrap_err(), "the application stops");
    }

    #[test]
    fn tasks_of_a_worker_that_is_gone_are_given_up() {
        let mut tasks = Tasks::default();
        for (slot, payload) in [(Some(1), b"a"), (None, b"b"), (Some(0), b"c")] {
            submit(&mut tasks, slot, payload).unwrap();
        }
        let gone = tasks.without_worker(1);
        assert_eq!(gone.iter().map(|job| &job.payload[..]).collect::<Vec<_>>(), [b"a"]);
        assert_eq!((tasks.queued(), tasks.bytes), (2, 2));
        assert_eq!(tasks.without_worker(0).len(), 2);
        assert_eq!((tasks.queued(), tasks.bytes), (0, 0));
    }

    #[test]
    fn long_tasks_fill_the_queue_before_their_number_does() {
        let mut tasks = Tasks::default();
        let long = vec![0; QUEUE_BYTES_MAX / 2 + 1];
        submit(&mut tasks, None, &long).unwrap();
        assert!(submit(&mut tasks, None, &long).is_err());
    }
}

//! Loom model of the hand-shake between driver and worker: every order of events up to a number of
//! preemptions.
//!
//! The main thread of the model does what `mod.rs` does: it takes messages, sleeps only if there are none,
//! and takes what a worker has received. A wake that is lost, or a worker that is not called back, is a
//! deadlock, which loom reports.

use super::ground::Bell;
use super::worker::{Job, Post, Worker};
use crate::counters::Counters;
use crate::driver::alarm;
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

/// Preemptions per execution. All orders of three threads take hours; with two preemptions the model takes
/// seconds and still finds the known mistakes.
const INTERRUPTIONS: usize = 2;

const ROOM: usize = 1;
const EVENTS: i16 = libc::POLLIN;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(INTERRUPTIONS);
    builder.check(model);
}

/// A driver with one worker.
struct Rig {
    worker: Arc<Worker>,
    post: Arc<Post>,
    bell: Bell,
    thread: JoinHandle<()>,
    taken: usize,
}

impl Rig {
    #[allow(clippy::expect_used, reason = "a model has descriptors")]
    fn new() -> Rig {
        let alarm = alarm::waiting().expect("an eventfd");
        let (bell, post) = (Bell::default(), Arc::new(Post::new(Arc::new(alarm))));
        let worker = Arc::new(Worker::new(bell.clone()));
        let thread = {
            let (worker, post) = (Arc::clone(&worker), Arc::clone(&post));
            thread::spawn(move || worker.work(0, &post, &mut Counters::default()))
        };
        Rig { worker, post, bell, thread, taken: 0 }
    }

    fn peer_sends(&self, bytes: usize) -> JoinHandle<()> {
        let bell = self.bell.clone();
        thread::spawn(move || bell.send(bytes))
    }

    /// Does what `Threads::wait` and `Threads::receive` do, until the worker has left.
    fn wait_until_it_has_left(&mut self) {
        loop {
            let mut told = Vec::new();
            if self.post.take(&mut told, true) {
                self.post.rung.wait();
                self.post.take(&mut told, false);
            }
            for told in told {
                let mut state = self.worker.state();
                self.taken += std::mem::take(&mut state.received).len();
                if told.left {
                    return;
                }
                self.worker.taken(state);
            }
        }
    }

    #[allow(clippy::unwrap_used)]
    fn end(self) -> usize {
        self.worker.dismiss(&mut Counters::default());
        self.thread.join().unwrap();
        let filled = self.worker.state().received.len();
        self.taken + filled + self.bell.left()
    }
}

#[test]
fn a_watch_ends_when_there_is_input_and_the_driver_is_notified() {
    check(|| {
        let mut rig = Rig::new();
        let peer = rig.peer_sends(1);
        rig.worker.assign(Job::Watch { number: 0, events: EVENTS });
        rig.wait_until_it_has_left();
        assert!(peer.join().is_ok());
        assert_eq!(rig.end(), 1, "a watch takes nothing");
    });
}

#[test]
fn a_worker_called_back_at_any_moment_leaves_and_every_byte_is_accounted_for() {
    check(|| {
        let mut rig = Rig::new();
        rig.worker.assign(Job::Receive { number: 0, room_bytes: ROOM });
        let peer = rig.peer_sends(2);
        rig.worker.call_back(&mut Counters::default());
        rig.wait_until_it_has_left();
        assert!(peer.join().is_ok());
        assert_eq!(rig.end(), 2);
    });
}

#[test]
fn a_bell_rung_too_late_does_not_end_the_next_job() {
    check(|| {
        let mut rig = Rig::new();
        let first = rig.peer_sends(1);
        rig.worker.assign(Job::Watch { number: 0, events: EVENTS });
        // It may be about to leave by itself.
        rig.worker.call_back(&mut Counters::default());
        rig.wait_until_it_has_left();
        assert!(first.join().is_ok());
        rig.worker.assign(Job::Receive { number: 0, room_bytes: ROOM });
        // The byte has arrived and is received: the worker is not called back from this job.
        while rig.taken == 0 {
            let mut told = Vec::new();
            if rig.post.take(&mut told, true) {
                rig.post.rung.wait();
                rig.post.take(&mut told, false);
            }
            for told in told {
                assert!(!told.left);
                let mut state = rig.worker.state();
                rig.taken += std::mem::take(&mut state.received).len();
                rig.worker.taken(state);
            }
        }
        assert_eq!(rig.end(), 1);
    });
}

#[test]
fn a_worker_dismissed_at_any_moment_ends_its_thread() {
    check(|| {
        let rig = Rig::new();
        rig.worker.assign(Job::Receive { number: 0, room_bytes: ROOM });
        let peer = rig.peer_sends(2);
        assert_eq!(rig.worker.state().end, None);
        // The worker is idle, in its wait, or waits for room that never comes.
        let all = rig.end();
        assert!(peer.join().is_ok());
        assert!(all <= 2);
    });
}

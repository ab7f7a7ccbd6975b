//! `shed = "100ms"`: refuses the requests of a route of low priority while its worker has too much to do.
//!
//! A worker that has too much to do is late: what is ready waits in line before it. A task on each worker
//! with such a route makes something ready again and again ([`Probe`]) and notes how long that has waited.
//! Where each of the last second waited longer than the bound, the route answers 503 at once, so that the
//! others get the time.

use crate::chain::{Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope};
use crate::flow::{Flow, Local};
use crate::metrics::Families;
use crate::page;
use crate::stage::Stage;
use ringroad_engine::{PollFd, spawn, time};
use ringroad_http::Status;
use ringroad_settings::{Key, Section, value};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "shed",
        form: "time, as `\"100ms\"`",
        default: "-",
        meaning: "A route of low priority: its requests are refused with 503 while whatever is ready has waited longer than this for its worker, for a second.",
    },
    tables: &[],
    scope: Scope::Route,
    read,
    named: None,
};

/// Between two looks.
const EVERY: Duration = Duration::from_millis(50);

/// Waits that long for so long are too much.
const WINDOW: Duration = Duration::from_secs(1);

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let bound = section.read(DECLARATION.key.name, |value| value::span(value, Duration::from_millis(1)))?;
    Some(Arc::new(Shed { bound, refused: AtomicU64::new(0) }))
}

#[derive(Debug)]
struct Shed {
    bound: Duration,
    refused: AtomicU64,
}

impl Configured for Shed {
    fn same_as(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Shed>().is_some_and(|other| self.bound == other.bound)
    }

    fn adopt(&self, before: &dyn Any) {
        if let Some(before) = before.downcast_ref::<Shed>() {
            self.refused.fetch_add(before.refused.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn metrics(&self, labels: &str, out: &mut Families) {
        let help = "Requests refused because their worker had too much to do.";
        out.family("ringroad_shed_total", "counter", help).sample(labels, self.refused.load(Ordering::Relaxed));
    }
}

impl Feature for Shed {
    fn install(self: Arc<Self>, local: &Rc<Local>, chain: &mut Builder) {
        chain.add(Stage::Admit, Rc::new(Refusing { shed: self, turns: local.own::<Turns>() }));
    }
}

/// How late the timers of a worker were, for as long as a route needs to know.
#[derive(Default)]
struct Turns {
    late: RefCell<Lateness>,
    watched: Cell<bool>,
}

/// The lateness of each look of the last second.
#[derive(Debug, Default)]
struct Lateness {
    looks: VecDeque<(Instant, Duration)>,
    /// The first look of all.
    begun: Option<Instant>,
}

impl Lateness {
    fn note(&mut self, now: Instant, late: Duration) {
        self.begun.get_or_insert(now);
        while self.looks.front().is_some_and(|(then, _)| now.saturating_duration_since(*then) > WINDOW) {
            self.looks.pop_front();
        }
        self.looks.push_back((now, late));
    }

    /// Returns the least of the last second; zero where there was no whole second of looks.
    fn least(&self) -> Duration {
        let (Some(begun), Some((last, _))) = (self.begun, self.looks.back()) else { return Duration::ZERO };
        if last.saturating_duration_since(begun) < WINDOW {
            return Duration::ZERO;
        }
        self.looks.iter().map(|(_, late)| *late).min().unwrap_or_default()
    }
}

impl Turns {
    /// Begins to look, on the first request. The task ends with the worker's last route of this kind.
    fn watch(self: &Rc<Self>) {
        if self.watched.replace(true) {
            return;
        }
        let turns: Weak<Turns> = Rc::downgrade(self);
        spawn(async move {
            // Without descriptors there is the timer.
            let probe = Probe::new().ok();
            loop {
                let late = match &probe {
                    Some(probe) => probe.look().await,
                    None => late_after(EVERY).await,
                };
                let Some(turns) = turns.upgrade() else { return };
                turns.late.borrow_mut().note(Instant::now(), late);
            }
        })
        .detach();
    }
}

/// Returns how much longer than this a wait has taken.
async fn late_after(span: Duration) -> Duration {
    let begun = Instant::now();
    time::sleep(span).await;
    begun.elapsed().saturating_sub(span)
}

/// Measures how long what is ready waits for its worker.
///
/// The lateness of a timer is the length of a turn, which is not all of that wait: io_uring hands over a few
/// completions in a turn and keeps the others in line. So a wait for a pipe is begun, a byte is written into
/// it, and the end of the wait takes its place in the same line as requests.
struct Probe {
    ready: PollFd<PipeReader>,
    tell: PipeWriter,
}

impl Probe {
    fn new() -> io::Result<Probe> {
        let (ready, tell) = io::pipe()?;
        Ok(Probe { ready: PollFd::new(ready), tell })
    }

    /// Takes a look after [`EVERY`].
    async fn look(&self) -> Duration {
        let mut wait = pin!(self.ready.readable());
        // It has begun before there is something to read.
        let begun = poll_fn(|context| Poll::Ready(wait.as_mut().poll(context))).await;
        let late = late_after(EVERY).await;
        let told = Instant::now();
        if begun.is_ready() || (&self.tell).write(&[1]).is_err() {
            return late;
        }
        let waited = wait.await.map_or(Duration::ZERO, |()| told.elapsed());
        // It does not block: what was written is there.
        let mut pipe = self.ready.get_ref();
        let _ = pipe.read(&mut [0; 8]);
        late.max(waited)
    }
}

struct Refusing {
    shed: Arc<Shed>,
    turns: Rc<Turns>,
}

impl Filter for Refusing {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        self.turns.watch();
        if self.turns.late.borrow().least() <= self.shed.bound {
            return Step::Next;
        }
        self.shed.refused.fetch_add(1, Ordering::Relaxed);
        let what = "There is too much to do now.";
        Step::Answer(page::refusal_for(1, Status::SERVICE_UNAVAILABLE, &flow.context, what))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_engine::choose;
    use ringroad_engine::net::UnixStream;
    use ringroad_engine::{DriverName, Runtime};

    /// Hands a byte on for ever; each time it has something to do.
    async fn busy(mut stream: UnixStream, work: Duration) {
        loop {
            if stream.recv().await.is_ok_and(|bytes| bytes.is_empty()) {
                return;
            }
            let begun = Instant::now();
            while begun.elapsed() < work {
                std::hint::spin_loop();
            }
            if stream.write_all(&b"x"[..]).await.0.is_err() {
                return;
            }
        }
    }

    #[test]
    fn what_is_ready_waits_for_all_that_was_ready_before_it() {
        // Each in line has so much to do; a turn of io_uring has fewer of them.
        let (pairs, work) = (150, Duration::from_micros(200));
        for driver in [
            DriverName::IoUring,
            DriverName::Epoll,
            DriverName::Poll,
            DriverName::Select,
            DriverName::Threads,
        ] {
            if let Err(refusal) = choose::probe(driver) {
                eprintln!("skipped: {refusal}");
                continue;
            }
            let waits = Runtime::new(driver).unwrap().block_on(async move {
                let probe = Probe::new().unwrap();
                for _ in 0..pairs {
                    let (mut one, other) = UnixStream::pair().unwrap();
                    one.write_all(&b"x"[..]).await.0.unwrap();
                    spawn(busy(one, work)).detach();
                    spawn(busy(other, work)).detach();
                }
                // In the first ones the line is still being made.
                for _ in 0..3 {
                    probe.look().await;
                }
                [probe.look().await, probe.look().await, probe.look().await]
            });
            let least = waits.unwrap().into_iter().min().unwrap();
            assert!(least >= work * pairs / 3, "{driver}: {least:?}");
        }
    }

    #[test]
    fn a_worker_has_too_much_to_do_when_every_turn_of_a_second_was_long() {
        let begun = Instant::now();
        let at = |millis: u64| begun + Duration::from_millis(millis);
        let long = Duration::from_millis(200);
        let mut late = Lateness::default();
        late.note(at(0), long);
        late.note(at(250), long);
        assert_eq!(late.least(), Duration::ZERO, "not for a second");
        for step in 2..6 {
            late.note(at(step * 250), long);
        }
        assert_eq!(late.least(), long);
        late.note(at(1500), Duration::ZERO);
        assert_eq!(late.least(), Duration::ZERO, "one turn in time is enough");
        for step in 7..12 {
            late.note(at(step * 250), long);
        }
        assert_eq!(late.least(), long, "it is forgotten after a second");
    }
}

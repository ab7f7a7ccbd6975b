//! `shed = "100ms"`: refuses the requests of a route of low priority while its worker has too much to do.
//!
//! A worker that has too much to do is late: a timer of it fires when the turn of its loop is over. A task on
//! each worker that has such a route sets one again and again and notes how late it was. Where each of the
//! last second was later than the bound, the route answers 503 at once, so that the others get the time.

use crate::chain::{Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope};
use crate::flow::{Flow, Local};
use crate::metrics::Families;
use crate::page;
use crate::stage::Stage;
use ringroad_engine::{spawn, time};
use ringroad_http::Status;
use ringroad_settings::{Key, Section, value};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "shed",
        form: "time, as `\"100ms\"`",
        default: "-",
        meaning: "A route of low priority: its requests are refused with 503 while every turn of the worker's loop has taken longer than this for a second.",
    },
    tables: &[],
    scope: Scope::Route,
    read,
    named: None,
};

/// Between two looks.
const EVERY: Duration = Duration::from_millis(50);

/// Turns that long for so long are too much.
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

    /// The least of the last second; zero where there was no whole second of looks.
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
            loop {
                let begun = Instant::now();
                time::sleep(EVERY).await;
                let Some(turns) = turns.upgrade() else { return };
                let now = Instant::now();
                let late = now.saturating_duration_since(begun).saturating_sub(EVERY);
                turns.late.borrow_mut().note(now, late);
            }
        })
        .detach();
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
        let what = "There is too much to do now. Try again later.";
        let mut response = page::refusal(Status::SERVICE_UNAVAILABLE, &flow.context, what);
        // It is a value of a header line.
        let _ = response.set_header("Retry-After", "1");
        Step::Answer(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Starts of processes: which slots get one, how many at a time, and tries after failures.

use super::{GROW_AFTER, Phase, Proc, Supervisor, slot_text, slots};
use crate::goridge::Relay;
use crate::head::Codec;
use crate::lines::{Lines, Tail};
use crate::mold::Mold;
use crate::printed::Printed;
use crate::process;
use crate::settings::{Protocol, Settings};
use crate::slot::TASK_SLOT;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

impl Supervisor {
    /// Returns the mold of a generation, and starts it if there is none. `None`: it is not ready yet.
    pub(super) fn mold(&mut self, settings: &Arc<Settings>, generation: u64) -> io::Result<Option<&Mold>> {
        match self.molds.iter().position(|mold| mold.generation == generation) {
            Some(at) => {
                let mold = self.molds.get(at).filter(|mold| mold.is_ready);
                if mold.is_some() {
                    self.mold_failures = 0;
                }
                Ok(mold)
            }
            None => {
                let mut mold = Mold::start(settings, &self.ground, generation)?;
                if self.serves() {
                    mold.process().lower(&self.ground);
                }
                self.molds.push(mold);
                Ok(None)
            }
        }
    }

    /// Starts missing processes and replacements, and grows or shrinks the number of slots.
    pub(super) fn fill(&mut self, now: Instant) {
        if self.reload.is_none() {
            self.grow_or_shrink(now);
        }
        self.fill_reload();
        // A new generation replaces everything. Processes that end meanwhile are still replaced.
        let settings = Arc::clone(&self.settings);
        let generation = self.generation;
        for slot in slots(self.target, settings.tasks) {
            let there = self.procs.iter().any(|proc| {
                proc.slot == slot
                    && proc.generation == generation
                    && matches!(proc.phase, Phase::Starting | Phase::Ready)
            });
            let due = self.slots.entry(slot).or_default().next_try.is_none_or(|next| now >= next);
            if !there && due && self.lets_start(now, &settings) {
                self.try_start(slot, generation, &settings, None, now);
            }
        }
        // One replacement at a time: the others continue to serve.
        let replacing =
            self.procs.iter().any(|proc| proc.phase == Phase::Starting && proc.replaces.is_some());
        let wanted = self.procs.iter().find(|proc| {
            proc.wanted.is_some()
                && proc.phase == Phase::Ready
                && self.slots.get(&proc.slot).is_none_or(|slot| slot.next_try.is_none_or(|next| now >= next))
        });
        let wanted = wanted.filter(|_| !replacing && self.reload.is_none()).map(|one| (one.id, one.slot));
        if let Some((id, slot)) = wanted
            && self.lets_start(now, &settings)
        {
            self.try_start(slot, generation, &settings, Some(id), now);
        }
    }

    /// Starts the missing processes of a new generation.
    pub(super) fn fill_reload(&mut self) {
        let Some(reload) = &self.reload else { return };
        let (generation, target, settings) = (reload.generation, reload.target, Arc::clone(&reload.settings));
        for slot in slots(target, settings.tasks) {
            let there = |proc: &Proc| proc.slot == slot && proc.generation == generation;
            if self.procs.iter().any(there) {
                continue;
            }
            if self.starting() >= self.starts_at_once(&settings) {
                return;
            }
            if let Err(why) = self.spawn(slot, generation, &settings, None) {
                let why = why.to_string();
                return self.give_up_reload(&why, &why);
            }
        }
    }

    /// Returns the number of starting processes that no mold forked.
    pub(super) fn starting(&self) -> usize {
        self.procs.iter().filter(|proc| proc.phase == Phase::Starting && !proc.forked).count()
    }

    /// Returns how many processes may start at a time: a quarter of the CPUs while a worker serves, since it
    /// needs them too. No limit otherwise, nor for forks by a mold, which cost almost nothing.
    pub(super) fn starts_at_once(&self, settings: &Settings) -> usize {
        if settings.forks() || !self.serves() {
            return usize::MAX;
        }
        thread::available_parallelism().map_or(1, |count| count.get().div_ceil(4))
    }

    pub(super) fn lets_start(&self, now: Instant, settings: &Settings) -> bool {
        self.crash.lets_start(now) && self.starting() < self.starts_at_once(settings)
    }

    /// Starts a process of the serving generation.
    pub(super) fn try_start(
        &mut self,
        slot: u32,
        generation: u64,
        settings: &Arc<Settings>,
        replaces: Option<u64>,
        now: Instant,
    ) {
        let before = self.procs.len();
        self.slots.entry(slot).or_default().next_try = None;
        if let Err(why) = self.spawn(slot, generation, settings, replaces) {
            return self.not_spawned(slot, replaces, &why);
        }
        // No process exists yet if a mold has to import first.
        if self.procs.len() > before {
            let wait = self.slow_wait();
            self.crash.tries(now, wait);
        }
    }

    pub(super) fn not_spawned(&mut self, slot: u32, replaces: Option<u64>, why: &io::Error) {
        let now = Instant::now();
        let why = why.to_string();
        let failures = {
            let slot = self.slots.entry(slot).or_default();
            slot.failures += 1;
            slot.failures
        };
        // A refusal by the kernel may be temporary, but a retry within 100 ms is too early.
        let wait =
            self.start_failed(failures, &why, now).max(self.settings.backoff.1.min(Duration::from_secs(1)));
        self.slots.entry(slot).or_default().next_try = Some(now + wait);
        (self.say)(format!("app {}[{}]: {why}", self.settings.name, slot_text(slot)));
        match replaces {
            Some(old) => self.not_replaced(old, slot, &why),
            None if slot & TASK_SLOT == 0 => self.refuse_requests(why, now + wait),
            None => {}
        }
    }

    pub(super) fn grow_or_shrink(&mut self, now: Instant) {
        let (least, most) = (self.settings.workers.max(1), self.settings.most());
        if most <= least && self.target <= least {
            return;
        }
        let waiting_since = self.shared.state().waiting_since;
        let starting = self.procs.iter().any(|proc| proc.phase == Phase::Starting && !proc.is_task());
        if self.target < most
            && !starting
            && waiting_since.is_some_and(|since| now.duration_since(since) >= GROW_AFTER)
        {
            self.grown = now;
            return self.resize(self.target + 1);
        }
        let idle = self.settings.idle;
        // No shrinking while requests wait: they wait for a worker that starts, however long that takes.
        if self.target > least
            && waiting_since.is_none()
            && !idle.is_zero()
            && now.duration_since(self.grown) >= idle
        {
            // Dispatch prefers low numbers, so the last slot is the most idle one.
            let serving = self.procs.iter().filter(|proc| proc.phase == Phase::Ready && !proc.is_task());
            let workers: Vec<_> = serving.filter_map(|proc| proc.worker.as_ref()).collect();
            let load: u64 = workers.iter().map(|one| u64::from(one.in_flight.load(Ordering::Relaxed))).sum();
            let last = self.target - 1;
            let others = workers.iter().filter(|one| (one.slot as usize) < last);
            let places: u64 = others.map(|one| u64::from(one.concurrency)).sum();
            self.grown = now;
            if load <= places {
                self.resize(last);
            }
        }
    }

    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(1);
        crate::pool::mix(self.random)
    }

    pub(super) fn spawn(
        &mut self,
        slot: u32,
        generation: u64,
        settings: &Arc<Settings>,
        replaces: Option<u64>,
    ) -> io::Result<()> {
        let id = crate::pool::next_id();
        let forked = settings.forks();
        let (control, process, listening);
        let mut relay = None;
        if forked {
            // Tried again when the mold is ready.
            let Some(mold) = self.mold(settings, generation)? else { return Ok(()) };
            let (ours, child) = mold.fork(slot)?;
            (control, process, listening) = (Some(Arc::new(ours)), child, None);
        } else {
            let link = process::link(settings)?;
            let (ours, mut theirs) = link.map_or((None, None), |(ours, theirs)| (Some(ours), Some(theirs)));
            if settings.launch.protocol() == Protocol::Goridge {
                let (ours, end) = Relay::pair()?;
                (relay, theirs) = (Some(Arc::new(ours)), Some(end));
            }
            listening = self.ground.listening(settings, id)?;
            process = process::start(settings, &self.ground, slot, generation, theirs, listening.as_ref())?;
            control = ours;
        }
        let mut process = process;
        if !forked && self.serves() {
            process.lower(&self.ground);
        }
        let printed = Arc::new(Printed::new(process.out.as_ref(), process.err.as_ref()));
        let now = Instant::now();
        // Output that a client provokes cannot imitate the mark of another request.
        let mark = format!("{:016x}", RandomState::new().build_hasher().finish());
        // Shortened by a random part, so that workers that started together are not replaced together.
        let part = 1.0 - settings.jitter.clamp(0.0, 1.0) * (self.random() as f64 / u64::MAX as f64);
        self.procs.push(Proc {
            id,
            slot,
            generation,
            process,
            control,
            relay,
            received: Vec::new(),
            listening,
            greeted: false,
            probe: None,
            next_probe: now,
            printed,
            out: Lines::marked(&mark),
            err: Lines::marked(&mark),
            mark,
            marks: false,
            tail: Tail::default(),
            phase: Phase::Starting,
            since: now,
            started: now,
            worker: None,
            concurrency: 1,
            codec: Codec::Json,
            takes_sockets: false,
            forked,
            replaces,
            wanted: None,
            failure: None,
            step: None,
            ending: None,
            requests_max: if settings.max_requests == 0 {
                0
            } else {
                ((settings.max_requests as f64 * part) as u64).max(1)
            },
            age_max: settings.max_age.mul_f64(part),
            lost: None,
            terminated: false,
            asked: None,
            next_ping: now + settings.ping,
            lag: Duration::ZERO,
            memory: 0,
            cpu: 0.0,
            task: None,
        });
        Ok(())
    }
}

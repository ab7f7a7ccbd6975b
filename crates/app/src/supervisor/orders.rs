//! Commands: status, restart, scale and reload.

use super::{Order, Phase, Reload, Supervisor, slot_text};
use crate::pool::{Command, Trouble, Worker};
use crate::settings::{Launch, Protocol, Settings};
use crate::slot::SlotId;
use crate::status::{CrashStatus, SlotStatus, Status, counted};
use ringroad_wire::rwp::Outcome;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

impl Supervisor {
    /// Keeps the old workers. `brief` is for the log, `why` for the page and the requester.
    pub(super) fn give_up_reload(&mut self, brief: &str, why: &str) {
        let Some(reload) = self.reload.take() else { return };
        for at in 0..self.procs.len() {
            if self.procs.get(at).is_some_and(|proc| proc.generation == reload.generation) {
                self.tell_stop(at);
            }
        }
        let name = &self.settings.name;
        (self.say)(format!("app {name}: not reloaded, the old workers stay: {brief}"));
        if self.settings.dev {
            // The page shows it until the next change.
            let next_try = Instant::now() + Duration::from_secs(1);
            self.shared.state().trouble = Some(Trouble { why: why.to_owned(), next_try });
        }
        for tell in reload.tell {
            let _ = tell.send(Err(why.to_owned()));
        }
    }

    /// Executes the queued commands.
    pub(super) fn obey(&mut self, now: Instant) {
        let (commands, stuck, broken, leaving, lost) = {
            let mut state = self.shared.state();
            let broken = std::mem::take(&mut state.broken);
            let (leaving, lost) = (std::mem::take(&mut state.leaving), std::mem::take(&mut state.lost));
            (std::mem::take(&mut state.commands), std::mem::take(&mut state.stuck), broken, leaving, lost)
        };
        for id in lost {
            if let Some(at) = self.procs.iter().position(|proc| proc.id == id) {
                self.lost(at);
            }
        }
        for (id, why) in broken {
            if let Some(at) = self.procs.iter().position(|proc| proc.id == id) {
                self.kill(at, "protocol", &why);
            }
        }
        for id in leaving {
            if let Some(at) = self.procs.iter().position(|proc| proc.id == id) {
                self.retire(at, "asked");
            }
        }
        for id in stuck {
            if let Some(at) = self.procs.iter().position(|proc| proc.id == id) {
                self.stuck(at);
            }
        }
        for command in commands {
            match command {
                Command::Status(tell) => drop(tell.send(self.status(now))),
                Command::Reload(settings, tell) => self.reload(settings.map(|one| *one), tell),
                Command::Restart(slot, tell) => self.restart(slot, tell, now),
                // The requester may have left.
                Command::Scale(workers, tasks, tell) => drop(tell.send(self.scale(workers, tasks))),
            }
        }
    }

    /// Handles a request that its worker did not abandon. The process is killed if it has no other request;
    /// otherwise it is replaced, and its other requests are completed.
    pub(super) fn stuck(&mut self, at: usize) {
        let text = "a request that was given up goes on";
        let Some(proc) = self.procs.get_mut(at) else { return };
        let busy = proc.worker.as_ref().map_or(0, |one| one.in_flight.load(Ordering::Relaxed));
        if busy <= 1 {
            return self.kill_hanging(at, "timeout", text);
        }
        if proc.phase == Phase::Ready && proc.wanted.is_none() {
            proc.wanted = Some("timeout");
            let label = format!("app {}[{}]", self.settings.name, slot_text(proc.slot));
            (self.say)(format!("{label}: {text}: it is replaced, and its other requests are finished"));
        }
    }

    /// Has a process, or all one after another, replaced.
    pub(super) fn restart(
        &mut self,
        slot: Option<SlotId>,
        tell: mpsc::Sender<Result<String, String>>,
        now: Instant,
    ) {
        let mut left = Vec::new();
        for proc in &mut self.procs {
            if slot.is_none_or(|slot| slot.raw() == proc.slot) && proc.phase == Phase::Ready {
                proc.wanted = Some("asked");
                left.push(proc.id);
                self.slots.entry(proc.slot).or_default().next_try = None;
            }
        }
        let why = match (left.len(), slot) {
            (0, Some(slot)) => {
                let count = if slot.is_task { self.settings.tasks } else { self.target };
                let is_coming = (slot.number as usize) < count;
                let yet = if is_coming { " yet: it is starting, or waits for its next try" } else { "" };
                format!("slot {slot} has no process that serves{yet}")
            }
            (0, None) => "no worker serves".to_owned(),
            (count, _) => {
                // It was ordered, so it does not wait for the next try of a crash loop.
                self.crash.hurry(now);
                return self.orders.push(Order { left, count, tell });
            }
        };
        let _ = tell.send(Err(why));
    }

    pub(super) fn scale(&mut self, workers: Option<usize>, tasks: Option<usize>) -> Result<String, String> {
        if let Some(workers) = workers.filter(|workers| !(1..=1024).contains(workers)) {
            return Err(format!("expected 1 to 1024 workers, found {workers}"));
        }
        if let Some(tasks) = tasks.filter(|tasks| *tasks > 1024) {
            return Err(format!("expected 0 to 1024 task workers, found {tasks}"));
        }
        if tasks.is_some_and(|tasks| tasks > 0) && self.settings.launch.protocol() != Protocol::Ringroad {
            return Err("this application runs no tasks".to_owned());
        }
        let by_program = self.molds.iter().any(|mold| mold.generation == self.generation && mold.tasks > 0);
        if tasks == Some(0) && by_program {
            return Err("the program gives tasks to task workers: expected at least 1".to_owned());
        }
        let scaled = |settings: &Settings| {
            let mut settings = settings.clone();
            if let Some(tasks) = tasks {
                (settings.tasks, settings.tasks_by_program) = (tasks, false);
            }
            if let Some(workers) = workers {
                settings.workers = workers;
                settings.workers_max = settings.workers_max.max(workers);
            }
            Arc::new(settings)
        };
        self.settings = scaled(&self.settings);
        self.shared.state().settings = Arc::clone(&self.settings);
        if let Some(reload) = &mut self.reload {
            // This also applies to a generation that is starting, because the order is newer.
            reload.settings = scaled(&reload.settings);
            reload.target = workers.unwrap_or(reload.target);
        }
        let mut parts = Vec::new();
        if let Some(workers) = workers {
            self.resize(workers);
            parts.push(counted(workers, "worker"));
        }
        if let Some(tasks) = tasks {
            self.retire_slots(|slot| slot.is_task && slot.number as usize >= tasks);
            for job in self.tasks.without_worker(tasks) {
                let why = b"its task worker is gone: there are fewer now";
                self.task_told(job.origin, Outcome::Refused, why);
            }
            parts.push(counted(tasks, "task worker"));
        }
        self.switch_if_complete();
        Ok(parts.join(", "))
    }

    pub(super) fn reload(&mut self, settings: Option<Settings>, tell: mpsc::Sender<Result<String, String>>) {
        if let Some(reload) = self.reload.take() {
            // Starting processes have the old settings.
            for at in 0..self.procs.len() {
                if self.procs.get(at).is_some_and(|proc| proc.generation == reload.generation) {
                    self.tell_stop(at);
                }
            }
            for tell in reload.tell {
                let _ = tell.send(Err("another reload came".to_owned()));
            }
        }
        let settings = settings.map_or_else(|| Arc::clone(&self.settings), Arc::new);
        let target = settings.workers.max(1);
        let generation =
            self.procs.iter().map(|proc| proc.generation).max().unwrap_or(0).max(self.generation) + 1;
        self.sources = self.look_at_files();
        {
            let mut state = self.shared.state();
            if state.workers.is_empty() && !settings.dev {
                // No worker serves: requests wait for the new ones.
                state.trouble = None;
            }
        }
        self.slots.values_mut().for_each(|slot| slot.next_try = None);
        self.reload = Some(Reload { generation, target, settings, tell: vec![tell] });
    }

    pub(super) fn resize(&mut self, target: usize) {
        self.target = target;
        self.shared.state().slots = target as u32;
        self.retire_slots(|slot| !slot.is_task && slot.number as usize >= target);
    }

    /// Ends the processes of removed slots, also of a generation that is starting.
    pub(super) fn retire_slots(&mut self, is_over: impl Fn(SlotId) -> bool) {
        let over: Vec<u64> = self
            .procs
            .iter()
            .filter(|proc| proc.generation >= self.generation && is_over(SlotId::of(proc.slot)))
            .map(|proc| proc.id)
            .collect();
        for id in over {
            if let Some(at) = self.procs.iter().position(|proc| proc.id == id) {
                self.retire(at, "scale");
            }
        }
    }

    pub(super) fn status(&self, now: Instant) -> Status {
        let state = self.shared.state();
        let mut workers: Vec<_> = self
            .procs
            .iter()
            .map(|proc| {
                let number = |count: fn(&Worker) -> u64| proc.worker.as_deref().map_or(0, count);
                SlotStatus {
                    slot: SlotId::of(proc.slot),
                    state: proc.phase.word(),
                    pid: proc.process.pid(),
                    generation: proc.generation,
                    in_flight: number(|worker| u64::from(worker.in_flight.load(Ordering::Relaxed))) as u32,
                    sockets: number(|worker| u64::from(worker.sockets.load(Ordering::Relaxed))) as u32,
                    served: number(|worker| worker.served.load(Ordering::Relaxed)),
                    busy_seconds: number(|worker| worker.busy_ns.load(Ordering::Relaxed)) as f64 / 1e9,
                    memory_bytes: proc.memory,
                    cpu_seconds: proc.cpu,
                    lag_seconds: proc.lag.as_secs_f64(),
                    age: now.duration_since(proc.started),
                }
            })
            .collect();
        workers.sort_by_key(|one| (one.slot.is_task, one.slot.number, one.generation));
        Status {
            app: self.settings.name.clone(),
            command: match &self.settings.launch {
                Launch::Python { target, .. } => target.clone(),
                Launch::Php { file, .. } => file.display().to_string(),
                Launch::Command { line, .. } => line.join(" "),
            },
            generation: self.generation,
            waiting: state.waiting(),
            rate: state.rate,
            trouble: state
                .trouble
                .as_ref()
                .map(|trouble| trouble.why.clone())
                .or_else(|| self.crash.open().map(|open| open.why.clone())),
            crash_loop: self.crash.open().map(|open| CrashStatus {
                failures: open.failures,
                next_try: open.next_try.saturating_duration_since(now),
            }),
            workers,
            restarts: self.restarts.iter().map(|(why, count)| (*why, *count)).collect(),
            tasks: (self.settings.tasks > 0).then(|| self.tasks_status(now)),
        }
    }
}

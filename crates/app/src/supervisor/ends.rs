//! Ends of processes: stopping one in favour of another, killing it, and what follows its end.

use super::{Ending, LAST_WORDS, Phase, Proc, Supervisor, labelled, nanos, slot_text, with_tail};
use crate::left::Left;
use crate::pool::Trouble;
use crate::process::End;
use crate::settings::Launch;
use crate::status::counted;
use ringroad_policy::backoff;
use ringroad_wire::rwp::{Kind, Outcome};
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

impl Supervisor {
    /// Removes a process from dispatch.
    pub(super) fn withdraw(&mut self, at: usize) {
        let Some(proc) = self.procs.get(at) else { return };
        if let Some(worker) = &proc.worker {
            worker.draining.store(true, Ordering::Relaxed);
        }
        let mut state = self.shared.state();
        let before = state.workers.len();
        state.workers.retain(|worker| worker.id != proc.id);
        if before > 0 && state.workers.is_empty() && !self.settings.dev {
            // Failed starts beside it say nothing about its successor, for which requests wait.
            state.trouble = None;
        }
    }

    /// Ends a process without affecting requests: it gets no more, finishes the present ones, then ends.
    pub(super) fn retire(&mut self, at: usize, why: &'static str) {
        let Some(proc) = self.procs.get(at) else { return };
        let (id, phase) = (proc.id, proc.phase);
        self.replaced(id);
        match phase {
            Phase::Ready => {
                *self.restarts.entry(why).or_default() += 1;
                self.withdraw(at);
                self.enter(at, Phase::Draining);
                if self.settings.dev
                    && let Some(proc) = self.procs.get(at)
                {
                    // Open pages reconnect at once, to the new code. A worker that has ended has no streams.
                    proc.control.iter().for_each(|control| drop(control.send(Kind::PART, &[], &[])));
                    proc.worker.iter().for_each(|worker| worker.parting.cancel());
                }
            }
            Phase::Starting | Phase::Standby => self.tell_stop(at),
            Phase::Draining | Phase::Stopping | Phase::Killed => {}
        }
    }

    /// Handles a process that was replaced or has ended: the order is complete with the last one.
    pub(super) fn replaced(&mut self, id: u64) {
        self.orders.retain_mut(|order| {
            order.left.retain(|left| *left != id);
            if order.left.is_empty() {
                // The requester may have left.
                let _ = order.tell.send(Ok(format!("{} replaced", order.count)));
            }
            !order.left.is_empty()
        });
    }

    /// Handles a replacement of the process `id` that did not become ready. The order is abandoned.
    pub(super) fn not_replaced(&mut self, id: u64, slot: u32, why: &str) {
        let mut given_up = Vec::new();
        self.orders.retain_mut(|order| {
            let concerned = order.left.contains(&id);
            if concerned {
                let text = format!("slot {}: not replaced, the old process stays: {why}", slot_text(slot));
                let _ = order.tell.send(Err(text));
                given_up.append(&mut order.left);
            }
            !concerned
        });
        for proc in &mut self.procs {
            if given_up.contains(&proc.id) && proc.wanted == Some("asked") {
                proc.wanted = None;
            }
        }
    }

    pub(super) fn tell_stop(&mut self, at: usize) {
        let span = self.settings.stop_timeout;
        let Some(proc) = self.procs.get_mut(at) else { return };
        let told = proc.control.as_ref().is_some_and(|control| {
            let span = u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
            control.send(Kind::STOP, &span.to_le_bytes(), &[]).is_ok()
        });
        let told = told || proc.relay.as_ref().is_some_and(|relay| relay.stop());
        if !told || proc.phase == Phase::Starting {
            proc.terminate();
        }
        if self.serves()
            && let Some(proc) = self.procs.get(at)
        {
            // No request waits for its end.
            proc.process.lower_to_the_end();
        }
        self.enter(at, Phase::Stopping);
    }

    pub(super) fn kill(&mut self, at: usize, why: &'static str, text: &str) {
        self.end_by_force(at, why, text, false);
    }

    /// Kills a hanging process. A Python program first prints where it hangs.
    pub(super) fn kill_hanging(&mut self, at: usize, why: &'static str, text: &str) {
        let tells = matches!(self.settings_of(at).launch, Launch::Python { .. });
        self.end_by_force(at, why, text, tells);
    }

    pub(super) fn end_by_force(&mut self, at: usize, why: &'static str, text: &str, tells: bool) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        if proc.phase == Phase::Killed {
            return;
        }
        *self.restarts.entry(why).or_default() += 1;
        if proc.phase == Phase::Starting {
            proc.failure.get_or_insert_with(|| text.to_owned());
        }
        if tells && !proc.process.is_unknown() {
            let until = Instant::now() + LAST_WORDS;
            let reads = proc.phase == Phase::Starting
                && !proc.greeted
                && proc.step.as_ref().is_some_and(|step| step.reads);
            let asked = reads
                && proc.control.as_ref().is_some_and(|control| control.send(Kind::LATE, &[], &[]).is_ok());
            if !asked {
                proc.process.abort();
            }
            proc.ending = Some(if asked { Ending::Asked(until) } else { Ending::Aborted(until) });
        } else {
            proc.process.kill();
        }
        (self.say)(format!("app {}[{}]: killed: {text}", self.settings.name, slot_text(proc.slot)));
        self.withdraw(at);
        self.enter(at, Phase::Killed);
        self.lose_task(at, Outcome::Died, &format!("the task worker was killed: {text}"));
    }

    /// Handles the end of a process. `None`: it did not start.
    pub(super) fn ended(&mut self, at: usize, end: Option<End>) {
        self.withdraw(at);
        let status = end.map_or_else(|| "it did not start".to_owned(), |end| end.to_string());
        self.lose_task(at, Outcome::Died, &format!("the task worker ended with {status}"));
        let mut proc = self.procs.remove(at);
        if proc.forked && !proc.process.is_unknown() {
            let mold = self.molds.iter().find(|mold| mold.generation == proc.generation);
            mold.into_iter().for_each(|mold| mold.reap(proc.process.pid()));
        }
        if let Some(mut left) = Left::of(proc.process.pid()) {
            if proc.listening.is_some() || proc.ending.is_some() {
                // The rest of a command's group serves a socket that is no longer used, or the process was
                // ended by force.
                left.terminate();
            }
            self.left.push(left);
        }
        let label = format!("app {}[{}]", self.settings.name, slot_text(proc.slot));
        let (say, tail) = (&self.say, &mut proc.tail);
        proc.err.finish(|id, line| {
            say(labelled(&label, id, &line));
            tail.push(line);
        });
        let unready = matches!(proc.phase, Phase::Starting | Phase::Standby)
            || proc.phase == Phase::Killed && proc.worker.is_none();
        self.replaced(proc.id);
        if matches!(proc.phase, Phase::Draining | Phase::Stopping) && !unready {
            return;
        }
        let brief = proc.failure.take().unwrap_or_else(|| format!("ended with {status}"));
        let why = with_tail(&brief, proc.tail.text());
        if self.reload.as_ref().is_some_and(|reload| reload.generation == proc.generation) {
            // Its lines are in the log already.
            return self.give_up_reload(brief.lines().next().unwrap_or_default(), &why);
        }
        if proc.phase == Phase::Stopping {
            return;
        }
        if proc.phase != Phase::Killed {
            *self.restarts.entry(if unready { "failed" } else { "died" }).or_default() += 1;
            (self.say)(format!("{label}: {}: {status}", if unready { "did not start" } else { "died" }));
        }
        let now = Instant::now();
        let slot = self.slots.entry(proc.slot).or_default();
        // It had started and was killed from outside, which says nothing about the next start.
        let is_outside = !unready && proc.phase != Phase::Killed && end.is_some_and(End::is_by_kill);
        let has_settled = !unready && proc.has_settled(now);
        if has_settled {
            slot.failures = 0;
        } else if !is_outside {
            slot.failures += 1;
        }
        let failures = slot.failures;
        let wait = if has_settled || is_outside {
            // At once, since most ends are single. In a crash loop as well, because this was not a failed
            // start.
            self.crash.hurry(now);
            Duration::ZERO
        } else {
            self.start_failed(failures, &why, now)
        };
        self.slots.entry(proc.slot).or_default().next_try = Some(now + wait);
        match proc.replaces {
            Some(old) if unready => self.not_replaced(old, proc.slot, &why),
            // Requests do not need task workers.
            None if !wait.is_zero() && (unready || self.crash.open().is_some()) && !proc.is_task() => {
                self.refuse_requests(why, now + wait);
            }
            _ => {}
        }
    }

    /// Records a failed start, the `failures`th in a row. Returns the time until the next one.
    pub(super) fn start_failed(&mut self, failures: u32, why: &str, now: Instant) -> Duration {
        let slow = self.slow_wait();
        if self.crash.failed(failures, why, now, slow) {
            let serving = self.procs.iter().filter(|proc| proc.phase == Phase::Ready && !proc.is_task());
            (self.say)(format!(
                "app {}: crash loop: {failures} starts in a row have failed; from now on one is tried about each {:?}. \
                 Workers that serve: {}. The last lines:\n{why}",
                self.settings.name,
                self.settings.backoff.1,
                serving.count(),
            ));
        }
        if self.crash.open().is_some() {
            return slow;
        }
        let (first, longest) = self.settings.backoff;
        let jitter = backoff::wait(failures - 1, nanos(first), nanos(longest), self.random());
        // Half of the wait is fixed, so that an application that cannot start does not use a whole CPU.
        first.min(longest) / 2 + Duration::from_nanos(jitter)
    }

    /// Returns the time between two starts in a crash loop: random, with the longest back-off as its mean.
    pub(super) fn slow_wait(&mut self) -> Duration {
        let longest = self.settings.backoff.1;
        longest / 2 + Duration::from_nanos(backoff::wait(0, nanos(longest), nanos(longest), self.random()))
    }

    /// Refuses the waiting requests: there is no worker, and none can be started.
    pub(super) fn refuse_requests(&mut self, why: String, next_try: Instant) {
        let wakers = {
            let mut state = self.shared.state();
            state.trouble = Some(Trouble { why, next_try });
            if state.workers.is_empty() { state.refuse_waiting() } else { Vec::new() }
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends all processes. Requests and tasks in progress are completed within the time limit. Workers end
    /// first, since their requests may wait for tasks.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        if let Some(reload) = self.reload.take() {
            for tell in reload.tell {
                let _ = tell.send(Err("the application stops".to_owned()));
            }
        }
        for order in std::mem::take(&mut self.orders) {
            let _ = order.tell.send(Err("the application stops".to_owned()));
        }
        let wakers = self.shared.state().refuse_waiting();
        wakers.into_iter().for_each(Waker::wake);
        self.end_those(|proc| !proc.is_task());
        let lost = self.tasks.close();
        if !lost.is_empty() {
            let lost = counted(lost.len(), "task");
            (self.say)(format!("app {}: {lost} waiting at the stop: lost", self.settings.name));
        }
        for job in lost {
            self.task_told(job.origin, Outcome::Died, b"the application stops");
        }
        self.end_those(|_| true);
        self.left.iter_mut().for_each(Left::terminate);
        while !self.left.is_empty() {
            self.turn_to_the_end();
        }
    }

    pub(super) fn end_those(&mut self, chosen: fn(&Proc) -> bool) {
        for at in 0..self.procs.len() {
            if self.procs.get(at).is_some_and(chosen) {
                self.retire(at, "stop");
            }
        }
        while self.procs.iter().any(chosen) {
            self.turn_to_the_end();
        }
    }

    /// Runs a turn in which no process is started.
    pub(super) fn turn_to_the_end(&mut self) {
        self.look_at_clocks(Instant::now());
        self.wait();
        self.shared.woken();
        self.hear();
    }
}

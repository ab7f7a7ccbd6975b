//! Tasks: from the worker that gives one to the task worker that runs it, and the outcome back.

use super::{MESSAGES_BYTES_MAX, Phase, Proc, Supervisor, slot_text};
use crate::settings::Settings;
use crate::slot::TASK_SLOT;
use crate::status::TasksStatus;
use crate::task_socket::TaskSocket;
use crate::tasks::{Origin, Running};
use ringroad_wire::rwp::{Kind, Outcome, TaskFrame};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Supervisor {
    /// Applies the number of task workers that programs request, if the configuration has none.
    pub(super) fn count_tasks(&mut self) {
        for mold in self.molds.iter().filter(|mold| mold.is_ready) {
            let settings = match &mut self.reload {
                Some(reload) if reload.generation == mold.generation => &mut reload.settings,
                _ if self.generation == mold.generation => &mut self.settings,
                _ => continue,
            };
            let is_open = settings.tasks == 0 || settings.tasks_by_program;
            if is_open && settings.tasks != mold.tasks {
                *settings = Arc::new(Settings {
                    tasks: mold.tasks,
                    tasks_by_program: true,
                    ..Settings::clone(settings)
                });
            }
        }
    }

    /// Handles a worker that submits a task, has completed one, or sends a message to another worker.
    pub(super) fn task_frame(&mut self, at: usize, frame: TaskFrame<'_>) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        let (process, from) = (proc.id, proc.slot as u16);
        match frame {
            TaskFrame::Submit { number, slot, forget, payload } => {
                let origin = if forget { Origin::Forgotten } else { Origin::Worker { process, number } };
                if let Err(why) = self.submit(origin, from, slot, payload)
                    && forget
                {
                    let label = format!("app {}[{}]", self.settings.name, slot_text(u32::from(from)));
                    (self.say)(format!("{label}: a task is refused: {why}"));
                }
            }
            // A task that was too late is answered already.
            TaskFrame::Done { task, outcome, payload } => {
                if let Some(running) = proc.task.take_if(|running| running.number == task) {
                    if let Some(worker) = &proc.worker {
                        worker.set_request("");
                        worker.in_flight.store(0, Ordering::Relaxed);
                        worker.served.fetch_add(1, Ordering::Relaxed);
                        let busy = u64::try_from(running.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
                        worker.busy_ns.fetch_add(busy, Ordering::Relaxed);
                    }
                    self.task_over(running, outcome, payload);
                }
            }
            TaskFrame::Message { to, payload } => {
                let generation = proc.generation;
                let receivers = self.procs.iter().filter(|proc| {
                    let serves = matches!(proc.phase, Phase::Standby | Phase::Ready);
                    proc.slot == u32::from(to) && serves && proc.hears()
                });
                // A worker of the same generation is preferred.
                let receiver = receivers.max_by_key(|proc| proc.generation == generation);
                let control = receiver.and_then(|proc| proc.control.as_ref());
                let sent = control.is_some_and(|control| {
                    control.pending_bytes() < MESSAGES_BYTES_MAX
                        && control.send_task(Kind::MESSAGE, from, 0, payload).is_ok()
                });
                if !sent {
                    let name = &self.settings.name;
                    let (from, to) = (slot_text(u32::from(from)), slot_text(u32::from(to)));
                    (self.say)(format!("app {name}[{from}]: a message to {to} is dropped: it does not read"));
                }
            }
        }
    }

    /// Queues a task. `Err`: it was refused, and its submitter was told.
    pub(super) fn submit(
        &mut self,
        origin: Origin,
        from: u16,
        slot: Option<u16>,
        payload: &[u8],
    ) -> Result<(), String> {
        let (workers, most) = (self.settings.tasks, self.settings.task_queue);
        self.tasks.submit(origin, from, slot, payload, workers, most).map_err(|(origin, why)| {
            self.task_told(origin, Outcome::Refused, why.as_bytes());
            why
        })
    }

    /// Gives queued tasks to idle task workers.
    pub(super) fn give_tasks(&mut self) {
        while self.tasks.queued() > 0 {
            let idle: Vec<u16> = self
                .procs
                .iter()
                .filter(|proc| proc.is_free_for_task())
                .map(|proc| (proc.slot & !TASK_SLOT) as u16)
                .collect();
            let Some((slot, job)) = self.tasks.take(&idle) else { return };
            // One of those above: a task is taken only for an existing process.
            let free = |proc: &Proc| proc.slot == TASK_SLOT | u32::from(slot) && proc.is_free_for_task();
            let Some(at) = self.procs.iter().position(free) else { return };
            let Some(proc) = self.procs.get_mut(at) else { return };
            let Some(control) = proc.control.clone() else { return };
            proc.task = Some(Running { number: job.number, origin: job.origin, since: Instant::now() });
            if let Some(worker) = &proc.worker {
                worker.in_flight.store(1, Ordering::Relaxed);
                worker.set_request(&format!("task {}", job.number));
            }
            if control.send_task(Kind::TASK, job.from, job.number, &job.payload).is_err() {
                self.kill(at, "protocol", "does not read its control link");
            }
        }
    }

    /// Handles the end of a running task.
    pub(super) fn task_over(&mut self, running: Running, outcome: Outcome, payload: &[u8]) {
        self.tasks.seconds += running.since.elapsed().as_secs_f64();
        if matches!(running.origin, Origin::Forgotten) && matches!(outcome, Outcome::TooLate | Outcome::Died)
        {
            let why = String::from_utf8_lossy(payload);
            (self.say)(format!("app {}: task {}: {why}", self.settings.name, running.number));
        }
        self.task_told(running.origin, outcome, payload);
    }

    /// Reports the outcome of a task to its submitter.
    pub(super) fn task_told(&mut self, origin: Origin, outcome: Outcome, payload: &[u8]) {
        self.tasks.note(outcome);
        match origin {
            Origin::Worker { process, number } => {
                // A submitter that has ended no longer waits for it.
                let Some(at) = self.procs.iter().position(|proc| proc.id == process) else { return };
                let control = self.procs.get(at).and_then(|proc| proc.control.clone());
                let told = control.is_none_or(|control| {
                    control.send_task(Kind::TASK_RESULT, outcome as u16, number, payload).is_ok()
                });
                if !told {
                    self.kill(at, "protocol", "does not read its control link");
                }
            }
            Origin::Socket { connection, id } => {
                if let Some(socket) = &mut self.task_socket {
                    socket.answer(connection, id, outcome, payload);
                }
            }
            Origin::Forgotten => {}
        }
    }

    /// Fails the task of a process that has ended or will be killed.
    pub(super) fn lose_task(&mut self, at: usize, outcome: Outcome, why: &str) {
        if let Some(running) = self.procs.get_mut(at).and_then(|proc| proc.task.take()) {
            self.task_over(running, outcome, why.as_bytes());
        }
    }

    /// Listens at the new settings' address, if it differs.
    pub(super) fn reopen_task_socket(&mut self) {
        let wanted = self.settings.task_socket.clone();
        if self.task_socket.as_ref().map(TaskSocket::path) == wanted.as_deref() {
            return;
        }
        self.task_socket = None;
        if let Some(path) = wanted {
            match TaskSocket::open(&path, self.settings.user) {
                Ok(socket) => self.task_socket = Some(socket),
                Err(why) => (self.say)(format!("app {}: {why}", self.settings.name)),
            }
        }
    }

    pub(super) fn tasks_status(&self, now: Instant) -> TasksStatus {
        let all = [
            Outcome::Done,
            Outcome::Silent,
            Outcome::Raised,
            Outcome::Refused,
            Outcome::TooLate,
            Outcome::Died,
        ];
        let running = self.procs.iter().filter_map(|proc| proc.task.as_ref());
        let since: f64 = running.clone().map(|task| now.duration_since(task.since).as_secs_f64()).sum();
        TasksStatus {
            queued: self.tasks.queued(),
            running: running.count(),
            over: all
                .map(|how| (how.as_str(), self.tasks.over.get(how as usize).copied().unwrap_or(0)))
                .to_vec(),
            seconds: self.tasks.seconds + since,
        }
    }
}

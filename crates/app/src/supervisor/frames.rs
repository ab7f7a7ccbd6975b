//! What workers say: printed lines, frames on their control links, and answers to probes.

use super::{PROBE_EVERY, Phase, Proc, Step, Supervisor, labelled, slot_text};
use crate::goridge::Greeting;
use crate::head::Codec;
use crate::printed::Which;
use crate::probe::{Probe, Probed};
use crate::settings::Protocol;
use crate::slot::TASK_SLOT;
use ringroad_wire::rwp::{self, Frame, Kind, TaskFrame};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

impl Supervisor {
    pub(super) fn read_lines(&mut self, at: usize) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        let label = format!("app {}[{}]", self.settings.name, slot_text(proc.slot));
        let mut buffer = [0_u8; 16 << 10];
        let Proc { process, printed, out, err, tail, .. } = proc;
        let say = &self.say;
        for (which, lines, pipe) in [(Which::Out, out, &mut process.out), (Which::Err, err, &mut process.err)]
        {
            let mut told = |id: &str, line: String| {
                say(labelled(&label, id, &line));
                if matches!(which, Which::Err) {
                    tail.push(line);
                }
            };
            // A worker that prints without end must not delay the others.
            for _ in 0..if pipe.is_some() { 16 } else { 0 } {
                let read = printed.read(which, &mut buffer, |request, bytes| {
                    lines.turn(request, &mut told);
                    lines.push(bytes, &mut told);
                });
                match read {
                    Ok(0) => {
                        lines.finish(&mut told);
                        *pipe = None;
                        break;
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }
    }

    pub(super) fn read_control(&mut self, at: usize) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        let Some(control) = proc.control.clone() else { return };
        let open = control.flush().is_ok();
        let open = control.receive(&mut proc.received).unwrap_or(false) && open;
        let received = std::mem::take(&mut proc.received);
        let mut place = 0;
        loop {
            match rwp::next(&received, &mut place) {
                Ok(Some(frame)) => match TaskFrame::read(&frame) {
                    Ok(Some(about)) => self.task_frame(at, about),
                    Ok(None) if frame.stream == 0 => self.control_frame(at, &frame),
                    Ok(None) => {}
                    Err(why) => self.kill(at, "protocol", &why.to_string()),
                },
                Ok(None) => break,
                Err(why) => {
                    self.kill(at, "protocol", &format!("{why} on the control link"));
                    place = received.len();
                    break;
                }
            }
        }
        let Some(proc) = self.procs.get_mut(at) else { return };
        proc.received = received.get(place..).unwrap_or_default().to_vec();
        if !open {
            // The end of the process follows, or the process is useless.
            proc.control = None;
            self.lost(at);
        }
    }

    /// Handles a process that closed a link: it gets no more requests. The phase stays until its exit status
    /// is known.
    pub(super) fn lost(&mut self, at: usize) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        if !matches!(proc.phase, Phase::Stopping | Phase::Killed) && proc.lost.is_none() {
            proc.lost = Some(Instant::now());
            self.withdraw(at);
        }
    }

    pub(super) fn control_frame(&mut self, at: usize, frame: &Frame<'_>) {
        let (kind, payload) = (frame.kind, frame.payload);
        let settings = self.settings_of(at);
        let Some(proc) = self.procs.get_mut(at) else { return };
        match kind {
            Kind::HELLO => {
                let hello: Value = serde_json::from_slice(payload).unwrap_or_default();
                let field = |key: &str| hello.get(key).cloned().unwrap_or_default();
                if field("version") != json!(rwp::VERSION) {
                    let why =
                        format!("speaks version {} of the protocol, not {}", field("version"), rwp::VERSION);
                    return self.kill(at, "protocol", &why);
                }
                if proc.process.is_unknown() {
                    let pid = field("pid").as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
                    if let Err(why) = proc.process.is_known_as(pid) {
                        return self.kill(at, "protocol", &format!("its process {pid}: {why}"));
                    }
                }
                let wanted = field("concurrency").as_u64().unwrap_or(1).clamp(1, 1 << 20) as u32;
                proc.concurrency =
                    if proc.is_task() { 1 } else { settings.concurrency.unwrap_or(wanted).max(1) };
                proc.codec = Codec::of(field("codec").as_str().unwrap_or_default());
                proc.marks = field("marks").as_bool().unwrap_or(false);
                let welcome = json!({
                    "version": rwp::VERSION,
                    "app": settings.name,
                    "slot": proc.slot & !TASK_SLOT,
                    "task": proc.is_task(),
                    "workers": settings.workers,
                    "tasks": settings.tasks,
                    "generation": proc.generation,
                    "window": rwp::WINDOW_BYTES,
                    "concurrency": settings.concurrency,
                    "factory": settings.factory,
                    "root_path": settings.root_path,
                    "stop_timeout_ms": settings.stop_timeout.as_millis() as u64,
                    "dev": settings.dev,
                    "mark": proc.mark,
                    "features": ["trailers", "sendfile", "informational"],
                });
                if let Some(control) = proc.control.clone()
                    && control.send(Kind::WELCOME, welcome.to_string().as_bytes(), &[]).is_err()
                {
                    self.kill(at, "protocol", "does not read its control link");
                }
            }
            Kind::READY if proc.phase == Phase::Starting => {
                // The concurrency is known only after the application was imported.
                let ready: Value = serde_json::from_slice(payload).unwrap_or_default();
                let wanted = ready.get("concurrency").and_then(Value::as_u64);
                if let Some(wanted) = wanted.filter(|_| !proc.is_task()) {
                    let wanted = wanted.clamp(1, 1 << 20) as u32;
                    proc.concurrency = settings.concurrency.unwrap_or(wanted).max(1);
                }
                if let Some(codec) = ready.get("codec").and_then(Value::as_str) {
                    proc.codec = Codec::of(codec);
                }
                if let Some(marks) = ready.get("marks").and_then(Value::as_bool) {
                    proc.marks = marks;
                }
                proc.takes_sockets = ready.get("websocket").and_then(Value::as_bool).unwrap_or(false);
                if settings.health.is_some() && !proc.is_task() {
                    // It is ready when it has answered that check.
                    (proc.greeted, proc.next_probe) = (true, Instant::now());
                    self.read_probe(at);
                } else {
                    self.ready(at);
                }
            }
            Kind::PONG => {
                proc.asked = None;
                if let Some((_, rest)) = rwp::split_u32(payload)
                    && let Some((lag, _)) = rwp::split_u32(rest)
                {
                    proc.lag = Duration::from_micros(u64::from(lag));
                }
            }
            Kind::STEP => {
                let what = String::from_utf8_lossy(payload).into_owned();
                proc.step = Some(Step { what, reads: frame.aux & rwp::READS != 0 });
            }
            Kind::DRAIN => proc.wanted = proc.wanted.or(Some("asked")),
            Kind::FAILED => proc.failure = Some(String::from_utf8_lossy(payload).into_owned()),
            Kind::LOG => {
                let label = format!("app {}[{}]", self.settings.name, slot_text(proc.slot));
                for line in String::from_utf8_lossy(payload).lines() {
                    (self.say)(format!("{label}: {line}"));
                    proc.tail.push(line.to_owned());
                }
            }
            _ => {}
        }
    }

    pub(super) fn read_greeting(&mut self, at: usize) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        let Some(relay) = proc.relay.as_ref().filter(|_| proc.phase == Phase::Starting) else { return };
        match relay.greeting(&mut proc.received) {
            Greeting::None => {}
            Greeting::Ready => self.ready(at),
            Greeting::Wrong(why) => self.kill(at, "protocol", &why),
        }
    }

    pub(super) fn read_probe(&mut self, at: usize) {
        let settings = self.settings_of(at);
        let now = Instant::now();
        let Some(proc) = self.procs.get_mut(at) else { return };
        if proc.phase != Phase::Starting {
            return;
        }
        let strict = settings.health.is_some();
        let path = settings.health.as_deref().unwrap_or("/");
        match &mut proc.probe {
            None if now >= proc.next_probe => {
                proc.next_probe = now + PROBE_EVERY;
                proc.probe = match (&proc.listening, &proc.control) {
                    (Some(listening), _) if settings.launch.protocol() == Protocol::FastCgi => {
                        Probe::begin_fastcgi(&listening.path)
                    }
                    (Some(listening), _) => {
                        Probe::begin(&listening.path, if strict { "GET" } else { "HEAD" }, path)
                    }
                    (None, Some(control)) if proc.greeted => {
                        Probe::begin_frames(control, proc.codec, path, &settings.root_path)
                    }
                    _ => None,
                };
            }
            None => {}
            Some(probe) => match probe.look(strict) {
                Probed::Waiting => {}
                Probed::Serves => {
                    proc.probe = None;
                    self.ready(at);
                }
                Probed::Not(why) => {
                    proc.probe = None;
                    proc.failure = Some(format!("the health check {why}"));
                    proc.next_probe = now + 4 * PROBE_EVERY;
                }
            },
        }
    }
}

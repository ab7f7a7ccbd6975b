//! A process that has imported the application and forks its workers, which share its memory.
//!
//! It is started once for each generation, with the runner and a control link of its own. FORK carries the
//! worker's control link and the write ends of its pipes. The worker tells its process id with HELLO. A
//! worker that has ended stays a zombie until the mold gets EXITED: so its id is not used again before.

use crate::control::Control;
use crate::lines::{Lines, Tail};
use crate::pool::Say;
use crate::process::{self, Ground, Process};
use crate::settings::Settings;
use ringroad_wire::rwp::{self, Kind};
use rustix::event::{PollFd, PollFlags};
use serde_json::json;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time that a mold may take to end when it is told to.
const ORDERLY: Duration = Duration::from_secs(1);

/// Task workers that a program may ask for, as a configuration may.
const TASKS_MAX: u64 = 1024;

/// A mold of one generation.
pub(crate) struct Mold {
    pub(crate) generation: u64,
    pub(crate) started: Instant,
    pub(crate) is_ready: bool,
    /// Task workers that the program wants.
    pub(crate) tasks: usize,
    settings: Arc<Settings>,
    process: Process,
    control: Arc<Control>,
    received: Vec<u8>,
    out: Lines,
    err: Lines,
    tail: Tail,
    failure: Option<String>,
    /// What it is at before it is ready.
    step: Option<String>,
    /// It was sent SIGABRT, and is killed at this time.
    killed_at: Option<Instant>,
}

impl Mold {
    /// Starts it: it imports the application.
    pub(crate) fn start(settings: &Arc<Settings>, ground: &Ground, generation: u64) -> io::Result<Mold> {
        let (ours, theirs) = Control::pair()?;
        let process = process::start(settings, ground, 0, generation, Some(theirs.into()), None)?;
        Ok(Mold {
            generation,
            started: Instant::now(),
            is_ready: false,
            tasks: 0,
            settings: Arc::clone(settings),
            process,
            control: Arc::new(ours),
            received: Vec::new(),
            out: Lines::default(),
            err: Lines::default(),
            tail: Tail::default(),
            failure: None,
            step: None,
            killed_at: None,
        })
    }

    /// Its process.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What it is waited for.
    pub(crate) fn poll_fds<'m>(&'m self, fds: &mut Vec<PollFd<'m>>) {
        fds.extend(self.process.pidfd().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        fds.push(PollFd::new(&*self.control, PollFlags::IN));
        let pipes = [&self.process.out, &self.process.err];
        fds.extend(pipes.into_iter().flatten().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    }

    /// Takes what it has sent and printed. `Err`: it has ended, and why.
    pub(crate) fn hear(&mut self, say: &Say, ground: &Ground) -> Result<(), String> {
        let ended = self.process.ended();
        let label = format!("app {}[preload]", self.settings.name);
        let Mold { process, out, err, tail, .. } = self;
        read(&mut process.out, out, |_, line| say(format!("{label}: {line}")));
        read(&mut process.err, err, |_, line| {
            say(format!("{label}: {line}"));
            tail.push(line);
        });
        // The end of the link is followed by the end of the process.
        let _ = self.control.flush();
        let _ = self.control.receive(&mut self.received);
        let received = std::mem::take(&mut self.received);
        let mut place = 0;
        while let Ok(Some(frame)) = rwp::next(&received, &mut place) {
            match frame.kind {
                Kind::HELLO => {
                    let welcome = json!({
                        "version": rwp::VERSION, "app": self.settings.name, "generation": self.generation,
                        "factory": self.settings.factory, "mold": true,
                        "tasks": if self.settings.tasks_by_program { 0 } else { self.settings.tasks },
                    });
                    let told = self.control.send(Kind::WELCOME, welcome.to_string().as_bytes(), &[]);
                    if told.is_err() {
                        self.process.kill();
                    }
                }
                Kind::READY => {
                    // Workers inherit its priority.
                    self.process.restore(ground);
                    self.is_ready = true;
                    let ready: serde_json::Value = serde_json::from_slice(frame.payload).unwrap_or_default();
                    let wanted = ready.get("tasks").and_then(serde_json::Value::as_u64).unwrap_or(0);
                    self.tasks = wanted.min(TASKS_MAX) as usize;
                }
                Kind::STEP => self.step = Some(String::from_utf8_lossy(frame.payload).into_owned()),
                Kind::FAILED => self.failure = Some(String::from_utf8_lossy(frame.payload).into_owned()),
                _ => {}
            }
        }
        self.received = received.get(place..).unwrap_or_default().to_vec();
        let Some(status) = ended else { return Ok(()) };
        let tail = self.tail.text();
        Err(match self.failure.take() {
            // What it printed is where it was.
            Some(why) if self.killed_at.is_some() => format!("{why}\n{tail}").trim_end().to_owned(),
            _ if !tail.is_empty() => tail,
            Some(why) => why,
            None => format!("the process that imports ended with {status}"),
        })
    }

    /// Forks a worker: its control link, and its process, the id of which is not known yet.
    pub(crate) fn fork(&self, slot: u32) -> io::Result<(Control, Process)> {
        let (ours, theirs) = Control::pair()?;
        let (out, their_out) = io::pipe()?;
        let (err, their_err) = io::pipe()?;
        let mut names = serde_json::Map::new();
        names.insert("RINGROAD_GENERATION".to_owned(), json!(self.generation.to_string()));
        names.extend(
            process::slot_names(slot).into_iter().map(|(name, value)| (name.to_owned(), json!(value))),
        );
        let descriptors = [theirs.as_fd(), their_out.as_fd(), their_err.as_fd()];
        self.control.send(
            Kind::FORK,
            serde_json::Value::Object(names).to_string().as_bytes(),
            &descriptors,
        )?;
        Ok((ours, Process::forked(out, err)?))
    }

    /// Tells that a worker has ended.
    pub(crate) fn reap(&self, pid: u32) {
        // A mold that does not read has ended or is killed for that.
        let _ = self.control.send(Kind::EXITED, &pid.to_le_bytes(), &[]);
    }

    /// It did not become ready within `span`: it prints where it is, and ends; after `patience` by force.
    pub(crate) fn give_up(&mut self, span: Duration, now: Instant, patience: Duration) {
        match self.killed_at {
            None => {
                let step = self.step.as_deref().map(|step| format!(": {step} has not ended"));
                self.failure = Some(format!("not imported within {span:?}{}", step.unwrap_or_default()));
                self.killed_at = Some(now + patience);
                self.process.abort();
            }
            Some(at) if now >= at => self.process.kill(),
            Some(_) => {}
        }
    }
}

impl Drop for Mold {
    fn drop(&mut self) {
        // It removes what it has made, such as the locks of Swoole's programs. One that does not is killed.
        let span = (ORDERLY.as_millis() as u32).to_le_bytes();
        if self.is_ready && self.control.send(Kind::STOP, &span, &[]).is_ok() {
            self.process.wait(ORDERLY);
        }
    }
}

fn read(pipe: &mut Option<Arc<std::fs::File>>, lines: &mut Lines, mut line: impl FnMut(&str, String)) {
    let mut buffer = [0_u8; 4096];
    while let Some(file) = pipe {
        match file.read(&mut buffer) {
            Ok(0) => {
                lines.finish(&mut line);
                *pipe = None;
            }
            Ok(count) => lines.push(buffer.get(..count).unwrap_or_default(), &mut line),
            Err(_) => return,
        }
    }
}

//! A load from several processes, each with the descriptors it may have.
//!
//! Every process has the whole plan and takes its part of it by its number alone ([`Plan::part`]), so nothing
//! is handed out while it runs. They connect, say so, and begin at one word. Once a second each hands on its
//! histograms, which are added: every percentile is as exact as that of one process. One that is lost has
//! told its seconds until then, and the outcome says that it is lost.
//!
//! What is spoken is JSON, a line each, over pipes. Start at [`conduct`]; [`part`] is the other end.

use crate::course::Course;
use crate::error::Error;
use crate::plan::Plan;
use crate::run::{Event, LOOK, Outcome, Point, run};
use crate::site::Address;
use crate::tally::Tally;
use ringroad_engine::choose::Choice;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

/// The word to begin. Whatever else is heard, or nothing any more, is the word to stop.
const BEGIN: u8 = b'b';

/// What a process tells.
#[derive(Serialize, Deserialize)]
enum Word {
    /// So many of its connections are there, and others are on their way.
    Connecting { connections: u32 },
    /// Its connections are there, or as many as can be had.
    Ready { connections: u32 },
    /// A second of its measured time.
    Second { second: u32, tally: Box<Tally> },
    /// All of it.
    Done(Box<Outcome>),
    /// It could not do its part.
    Failed { message: String, usage: bool, interrupted: bool },
}

/// Does this process's part of a load, told what to do and telling what happens over `input` and `output`.
///
/// # Errors
/// The conducting process does not read what this one reports.
pub fn part(
    plan: &Plan,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
    input: impl Read + Send + 'static,
    mut output: impl Write,
) -> Result<(), Error> {
    let (go, begun) = mpsc::channel();
    let ends = Arc::clone(stop);
    // It reads until the process ends, so it is never joined.
    let listener = thread::Builder::new().name("orders".to_owned()).spawn(move || {
        for byte in BufReader::new(input).bytes() {
            match byte {
                Ok(BEGIN) if go.send(()).is_ok() => {}
                _ => break,
            }
        }
        // The conducting process wants no more, or has ended.
        ends.store(true, Ordering::Relaxed);
    });
    listener.map_err(|why| Error::failed(format!("starting a thread: {why}")))?;
    let mut unheard = None;
    let mut tell = |word: &Word| {
        // Numbers, strings and lists of ours: there is no value that JSON could not hold.
        let mut line = serde_json::to_vec(word).unwrap_or_default();
        line.push(b'\n');
        if let Err(why) = output.write_all(&line).and_then(|()| output.flush()) {
            unheard.get_or_insert(why);
            stop.store(true, Ordering::Relaxed);
        }
    };
    // The conducting process merges whole seconds.
    let plan = &Plan { slices: 1, ..plan.clone() };
    let outcome = run(plan, choice, stop, &mut |event| match event {
        Event::Connecting { connections, .. } => tell(&Word::Connecting { connections: *connections }),
        Event::Connected { connections, .. } => {
            tell(&Word::Ready { connections: *connections });
            // A closed channel: the load is over before it begins.
            let _ = begun.recv();
        }
        Event::Second { point, tally, .. } => {
            tell(&Word::Second { second: point.at_s, tally: Box::new((*tally).clone()) });
        }
        Event::Slice { .. } | Event::Probe { .. } => {}
    });
    tell(&match outcome {
        Ok(outcome) => Word::Done(Box::new(outcome)),
        Err(why) => Word::Failed {
            message: why.to_string(),
            usage: why.is_usage(),
            interrupted: why.is_interrupted(),
        },
    });
    match unheard {
        Some(why) => Err(Error::failed(format!("telling what happened: {why}"))),
        None => Ok(()),
    }
}

/// Has a load put on by these processes, each of which does its [`part`], and waits for its end.
///
/// # Errors
/// As [`run()`]; and a process that is lost before it begins.
pub fn conduct(
    plan: &Plan,
    commands: impl IntoIterator<Item = Command>,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Event<'_>),
) -> Result<Outcome, Error> {
    plan.check()?;
    let addresses = plan.places().map(|place| place.resolve()).collect::<Result<Vec<_>, _>>()?;
    let (tell, heard) = mpsc::channel();
    let mut parts = Vec::new();
    for (index, command) in commands.into_iter().enumerate() {
        parts.push(Part::start(index, command, tell.clone())?);
    }
    drop(tell);
    let mut all = Processes {
        parts,
        heard,
        wanted: plan.own().connections,
        is_stopped: false,
        seconds: BTreeMap::new(),
        course: Course::new(plan),
    };
    all.listen(stop, |part| matches!(part.state, State::Connecting), observe)?;
    let interrupted = || Error::before_the_load(&plan.target);
    if let Some(lost) = all.parts.iter().find_map(Part::lost) {
        // The signal that ends a load may reach its processes as well.
        return Err(match stop.load(Ordering::Relaxed) {
            true => interrupted(),
            false => Error::failed(format!("{lost} before the load began")),
        });
    }
    let connections = all.parts.iter().map(|part| part.connections).sum();
    observe(&Event::Connected { connections, wanted: all.wanted });
    // What observes a part has waited for the start of all.
    if !plan.split.is_whole() && stop.load(Ordering::Relaxed) {
        return Err(interrupted());
    }
    all.parts.iter_mut().for_each(|part| part.say(BEGIN));
    all.listen(stop, |part| matches!(part.state, State::Connecting | State::Running), observe)?;
    // What not all have told: the last of each, and where one ended before others.
    for (second, sum) in std::mem::take(&mut all.seconds) {
        let point = all.course.add(second, &sum);
        observe(&Event::Second { point, tally: &sum, whole: false });
    }
    all.outcome(addresses, connections)
}

struct Processes {
    parts: Vec<Part>,
    heard: mpsc::Receiver<(usize, Option<Word>)>,
    /// Connections of all of them, as planned.
    wanted: u32,
    /// They have been told to stop.
    is_stopped: bool,
    /// Seconds that not all have told yet.
    seconds: BTreeMap<u32, Tally>,
    course: Course,
}

impl Processes {
    /// Takes in what is told as long as any of the processes is like this.
    fn listen(
        &mut self,
        stop: &AtomicBool,
        is_awaited: impl Fn(&Part) -> bool,
        observe: &mut dyn FnMut(&Event<'_>),
    ) -> Result<(), Error> {
        while self.parts.iter().any(&is_awaited) {
            if stop.load(Ordering::Relaxed) && !self.is_stopped {
                self.is_stopped = true;
                self.parts.iter_mut().for_each(Part::hush);
            }
            let (index, word) = match self.heard.recv_timeout(LOOK) {
                Ok(news) => news,
                Err(mpsc::RecvTimeoutError::Timeout) => continue,
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let of = self.parts.len();
            let Some(part) = self.parts.get_mut(index) else { continue };
            match word {
                Some(Word::Connecting { connections }) => {
                    part.connections = connections;
                    let connections = self.parts.iter().map(|part| part.connections).sum();
                    observe(&Event::Connecting { connections, wanted: self.wanted });
                    continue;
                }
                Some(Word::Ready { connections }) => {
                    part.connections = connections;
                    part.state = State::Running;
                }
                Some(Word::Second { second, tally }) => {
                    part.told = part.told.max(second + 1);
                    match self.seconds.entry(second) {
                        std::collections::btree_map::Entry::Vacant(place) => drop(place.insert(*tally)),
                        std::collections::btree_map::Entry::Occupied(mut sum) => sum.get_mut().add(&tally),
                    }
                }
                Some(Word::Done(outcome)) => part.state = State::Done(outcome),
                Some(Word::Failed { message, usage, interrupted }) => {
                    return Err(match (usage, interrupted) {
                        (true, _) => Error::usage(message),
                        (false, true) => Error::interrupted(message),
                        (false, false) => Error::failed(message),
                    });
                }
                None => part.ended(index, of),
            }
            self.hand_on(observe);
        }
        Ok(())
    }

    /// Reports the seconds for which all running processes have sent their part.
    fn hand_on(&mut self, observe: &mut dyn FnMut(&Event<'_>)) {
        let running =
            self.parts.iter().filter(|part| matches!(part.state, State::Connecting | State::Running));
        let told = running.map(|part| part.told).min().unwrap_or(0);
        while let Some(first) = self.seconds.first_entry().filter(|first| *first.key() < told) {
            let (second, sum) = first.remove_entry();
            let point: Point = self.course.add(second, &sum);
            observe(&Event::Second { point, tally: &sum, whole: true });
        }
    }

    /// Everything added up.
    fn outcome(mut self, addresses: Vec<Vec<Address>>, connected: u32) -> Result<Outcome, Error> {
        let lost: Vec<String> = self.parts.iter().filter_map(Part::lost).collect();
        let mut outcomes = self.parts.iter_mut().filter_map(|part| match &mut part.state {
            State::Done(outcome) => Some(std::mem::take(&mut **outcome)),
            _ => None,
        });
        let Some(mut sum) = outcomes.next() else {
            return Err(Error::failed(format!("no process of the load is left: {}", lost.join("; "))));
        };
        outcomes.for_each(|other| sum.join(&other));
        self.course.last(sum.window);
        let Course { total, series, stages, .. } = self.course;
        let addresses = addresses.iter().flatten().filter_map(Address::ip);
        Ok(Outcome { addresses: addresses.collect(), connected, tally: total, series, stages, lost, ..sum })
    }
}

/// A process, and what it has told.
struct Part {
    process: process::Child,
    orders: Option<ChildStdin>,
    state: State,
    connections: u32,
    /// How many seconds it has told.
    told: u32,
}

enum State {
    Connecting,
    Running,
    Done(Box<Outcome>),
    Lost(String),
}

impl Part {
    fn start(
        index: usize,
        mut command: Command,
        tell: mpsc::Sender<(usize, Option<Word>)>,
    ) -> Result<Part, Error> {
        let failed = |why: std::io::Error| Error::failed(format!("starting a process of the load: {why}"));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (orders, said) = (process.stdin.take(), process.stdout.take());
        let part = Part { process, orders, state: State::Connecting, connections: 0, told: 0 };
        let listener = thread::Builder::new().name(format!("part {index}")).spawn(move || {
            let lines = said.map(|said| BufReader::new(said).lines()).into_iter().flatten();
            for line in lines.map_while(Result::ok) {
                // What cannot be read is not what this program says: it is treated as the end.
                let Ok(word) = serde_json::from_str(&line) else { break };
                if tell.send((index, Some(word))).is_err() {
                    return;
                }
            }
            let _ = tell.send((index, None));
        });
        listener.map_err(failed)?;
        Ok(part)
    }

    /// Its end was reached. If it had not told everything, it is lost.
    fn ended(&mut self, index: usize, of: usize) {
        if matches!(self.state, State::Connecting | State::Running) {
            // It may have printed lines that are not of the protocol, and still run.
            let _ = self.process.kill();
            let how = self.process.wait().map_or_else(|why| why.to_string(), how);
            self.state = State::Lost(format!("process {} of {of} was lost ({how})", index + 1));
        }
    }

    fn lost(&self) -> Option<String> {
        match &self.state {
            State::Lost(how) => Some(how.clone()),
            _ => None,
        }
    }

    fn say(&mut self, order: u8) {
        // One that is gone is noticed by its silence.
        let _ = self.orders.as_mut().map(|orders| orders.write_all(&[order]));
    }

    /// Lets it end.
    fn hush(&mut self) {
        self.orders = None;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.hush();
        if !matches!(self.state, State::Done(_)) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// Returns how a process ended, in words.
fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("ended by signal {signal}"),
        (None, Some(code)) => format!("it exited with code {code}"),
        (None, None) => "it ended".to_owned(),
    }
}

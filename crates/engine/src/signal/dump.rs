//! What every runtime of the process is doing, told when a signal comes: for a server that stands still and nobody
//! knows why.
//!
//! Each runtime is asked through its inbox and answers between two of its turns, so it is never looked at while it
//! works. One that does not answer in time is named with its thread, which is what a debugger wants to know; should
//! it answer yet, that is told too.

use super::{Signal, Signals};
use crate::error::{Error, Result};
use crate::exec::{Core, Who, everybody};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A turn takes well below a millisecond, unless a task does not yield.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whenever `signal` comes, tells `sink` what each runtime of this process is doing: operations in flight, tasks,
/// counters. For the rest of the process.
///
/// `sink` gets a text of several lines for each runtime, on a thread of its own, which may wait. A runtime that does
/// not answer within a second, because a task of it does not yield, is named with its thread, and keeps nobody else
/// from answering; its own answer follows when it can give it. One that nobody runs at the moment is named too.
///
/// ```no_run
/// use ringroad_engine::signal::{Signal, dump_on};
///
/// dump_on(Signal::SIGUSR1, |text| eprint!("{text}"))?;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
///
/// # Errors
/// As [`Signals::new`]; EAGAIN: no thread.
pub fn dump_on(signal: Signal, sink: impl FnMut(&str) + Send + 'static) -> Result<()> {
    let (tell, hear) = channel();
    let asks = tell.clone();
    let signals = Signals::telling(&[signal], move || drop(asks.send(Event::Asked)))?;
    let thread = thread::Builder::new().name("ringroad-dump".into());
    let thread = thread.spawn(move || {
        let _signals = signals;
        Dumper { tell, awaited: Vec::new(), sink }.run(&hear);
    });
    thread.map(drop).map_err(|why| Error::new("starting a thread", why))
}

enum Event {
    /// The signal has come.
    Asked,
    /// What a runtime does; `None`: it is gone.
    Answer(Arc<Who>, Option<String>),
}

/// A question on its way. It is answered also by being thrown away with everything else that a runtime was sent.
struct Question {
    asked: Arc<Who>,
    answers: Option<Sender<Event>>,
}

impl Question {
    fn answer(&mut self, text: Option<String>) {
        if let Some(answers) = self.answers.take() {
            // Nobody hears it: the process ends.
            let _ = answers.send(Event::Answer(Arc::clone(&self.asked), text));
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.answer(None);
    }
}

/// A runtime that has been asked. It is asked again only when it has answered.
struct Awaited {
    who: Arc<Who>,
    until: Instant,
    named: bool,
}

struct Dumper<S> {
    tell: Sender<Event>,
    awaited: Vec<Awaited>,
    sink: S,
}

impl<S: FnMut(&str)> Dumper<S> {
    fn run(mut self, hear: &Receiver<Event>) {
        loop {
            let next =
                self.awaited.iter().filter(|awaited| !awaited.named).map(|awaited| awaited.until).min();
            let event = match next {
                None => hear.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => hear.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(Event::Asked) => self.ask(),
                Ok(Event::Answer(who, text)) => self.answered(&who, text),
                Err(RecvTimeoutError::Timeout) => self.name_the_silent(),
                // We hold a sender.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn ask(&mut self) {
        for (who, remote) in everybody() {
            if let Some(awaited) = self.awaited.iter_mut().find(|awaited| Arc::ptr_eq(&awaited.who, &who)) {
                // Since an earlier time: it is named again.
                (awaited.until, awaited.named) = (Instant::now() + PATIENCE, false);
                continue;
            }
            if !who.runs() {
                (self.sink)(&format!("{who}: nobody runs it at the moment\n"));
                continue;
            }
            let mut question = Question { asked: Arc::clone(&who), answers: Some(self.tell.clone()) };
            // Refused by one that is just shut down: then the question is dropped, which is an answer.
            let _ = remote.call(move |core: &Core| question.answer(Some(core.dump())));
            self.awaited.push(Awaited { who, until: Instant::now() + PATIENCE, named: false });
        }
    }

    fn answered(&mut self, who: &Arc<Who>, text: Option<String>) {
        self.awaited.retain(|awaited| !Arc::ptr_eq(&awaited.who, who));
        match text {
            Some(text) => (self.sink)(&format!("{who}:\n{text}")),
            None => (self.sink)(&format!("{who}: has been shut down\n")),
        }
    }

    fn name_the_silent(&mut self) {
        let now = Instant::now();
        for awaited in self.awaited.iter_mut().filter(|awaited| !awaited.named && awaited.until <= now) {
            awaited.named = true;
            let who = &awaited.who;
            (self.sink)(&match who.runs() {
                true => format!(
                    "{who}: does not answer: a task of it does not yield (see what thread {} does: gdb -p, or \
                     /proc/self/task/{}/stack)\n",
                    who.thread_id(),
                    who.thread_id()
                ),
                false => format!("{who}: nobody runs it any more\n"),
            });
        }
    }
}

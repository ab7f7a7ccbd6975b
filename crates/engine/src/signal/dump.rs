//! Dumps the state of every runtime of the process on a signal: for a server that hangs for an unknown
//! reason.
//!
//! Each runtime gets a request through its inbox and answers between two of its turns, so it is never
//! inspected while it runs tasks. A runtime that does not answer in time is named with its thread, for use
//! with a debugger; a later answer is printed too.

use super::{Signal, Signals};
use crate::error::{Error, Result};
use crate::exec::{Core, Identity, runtimes};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a runtime has to answer. A turn takes well below a millisecond, unless a task does not yield.
const PATIENCE: Duration = Duration::from_secs(1);

/// On each `signal`, passes to `sink` a description of what each runtime of this process is doing: operations
/// in flight, tasks, counters. For the rest of the process.
///
/// `sink` gets a text of several lines for each runtime. It runs on a separate thread, so it may block. A
/// runtime that does not answer within a second, because one of its tasks does not yield, is named with its
/// thread, and does not delay the others; its own answer follows when it can give it. A runtime that is not
/// inside `block_on` is named too.
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
    /// The signal arrived.
    Asked,
    /// The dump of a runtime; `None`: it was shut down.
    Answer(Arc<Identity>, Option<String>),
}

/// A pending request. Dropping it, as a runtime that shuts down does with its messages, is an answer too.
struct Question {
    asked: Arc<Identity>,
    answers: Option<Sender<Event>>,
}

impl Question {
    fn answer(&mut self, text: Option<String>) {
        if let Some(answers) = self.answers.take() {
            // The receiver was dropped: the process ends.
            let _ = answers.send(Event::Answer(Arc::clone(&self.asked), text));
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.answer(None);
    }
}

/// A runtime with a pending request. It gets no further one until it has answered.
struct Awaited {
    identity: Arc<Identity>,
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
                Ok(Event::Answer(identity, text)) => self.answered(&identity, text),
                Err(RecvTimeoutError::Timeout) => self.name_the_silent(),
                // Cannot happen: `self` holds a sender.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn ask(&mut self) {
        for (identity, remote) in runtimes() {
            if let Some(awaited) =
                self.awaited.iter_mut().find(|awaited| Arc::ptr_eq(&awaited.identity, &identity))
            {
                // Still pending from an earlier signal: it is named again.
                (awaited.until, awaited.named) = (Instant::now() + PATIENCE, false);
                continue;
            }
            if !identity.runs() {
                (self.sink)(&format!("{identity}: not running at the moment\n"));
                continue;
            }
            let mut question = Question { asked: Arc::clone(&identity), answers: Some(self.tell.clone()) };
            // A runtime that is just shut down refuses the request and drops it, which is an answer.
            let _ = remote.call(move |core: &Core| question.answer(Some(core.dump())));
            self.awaited.push(Awaited { identity, until: Instant::now() + PATIENCE, named: false });
        }
    }

    fn answered(&mut self, identity: &Arc<Identity>, text: Option<String>) {
        self.awaited.retain(|awaited| !Arc::ptr_eq(&awaited.identity, identity));
        match text {
            Some(text) => (self.sink)(&format!("{identity}:\n{text}")),
            None => (self.sink)(&format!("{identity}: has been shut down\n")),
        }
    }

    fn name_the_silent(&mut self) {
        let now = Instant::now();
        for awaited in self.awaited.iter_mut().filter(|awaited| !awaited.named && awaited.until <= now) {
            awaited.named = true;
            let identity = &awaited.identity;
            (self.sink)(&match identity.runs() {
                true => format!(
                    "{identity}: does not answer: a task of it does not yield (see what thread {} does: gdb -p, or \
                     /proc/self/task/{}/stack)\n",
                    identity.thread_id(),
                    identity.thread_id()
                ),
                false => format!("{identity}: no longer running\n"),
            });
        }
    }
}

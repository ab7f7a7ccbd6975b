//! One request on its way through the tool: what answering it needs to know, and what becomes of it.
//!
//! An answer whose length is known is recorded when it is given. One that is made while it is sent is recorded when that
//! ends, however it ends: its [`Tally`] counts, and the last one to drop it tells the log.

use crate::log::Caught;
use crate::worker::Worker;
use ringroad_http::{Body, EncodeError, Request, Response, State};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What handlers know of a request besides itself.
pub(crate) struct Asking<'a> {
    worker: &'a Worker,
    /// The header line that tells the id, if one does.
    pub(crate) id_line: Option<&'a str>,
    id: OnceCell<String>,
    /// The client is somebody who looks at pages.
    pub(crate) html: bool,
    /// What went wrong behind the answer, for the log.
    error: RefCell<Option<String>>,
    upstream: RefCell<Option<Upstream>>,
    /// Method and target, for what is said of a failure.
    name: RefCell<String>,
}

/// Who answered behind us.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    pub(crate) address: String,
    /// Until the head of its answer.
    pub(crate) took: Duration,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(worker: &'a Worker, id_line: Option<&'a str>, request: &Request) -> Asking<'a> {
        let html = request.header("accept").is_some_and(|types| types.contains("text/html"));
        Asking {
            worker,
            id_line,
            id: OnceCell::new(),
            html,
            error: RefCell::default(),
            upstream: RefCell::default(),
            name: RefCell::default(),
        }
    }

    /// The request's id.
    pub(crate) fn id(&self) -> &str {
        self.id.get_or_init(|| self.worker.next_id())
    }

    /// Something of ours, or behind us, has failed.
    pub(crate) fn fault(&self, why: String) {
        *self.error.borrow_mut() = Some(why);
    }

    /// Keeps the request's name.
    pub(crate) fn name(&self, request: &Request) {
        *self.name.borrow_mut() = format!("{} {}", request.method_name(), request.head().target());
    }

    /// Keeps the request's name if something has failed, or may yet.
    pub(crate) fn name_if_needed(&self, request: &Request, answered: &Result<Answer, EncodeError>) {
        let streams = matches!(answered, Ok(Answer { sent: Sent::Tally(_), .. }));
        if streams || self.error.borrow().is_some() {
            self.name(request);
        }
    }

    pub(crate) fn answered_by(&self, upstream: Upstream) {
        *self.upstream.borrow_mut() = Some(upstream);
    }

    /// What is to be recorded.
    pub(crate) fn record(self, began: Instant, status: u16, caught: Option<Box<Caught>>) -> Record {
        let named = caught.is_some() || self.error.borrow().is_some() || !self.name.borrow().is_empty();
        let id = if named { self.id().to_owned() } else { String::new() };
        Record {
            began,
            status,
            id,
            name: self.name.into_inner(),
            caught,
            error: self.error.into_inner(),
            upstream: self.upstream.into_inner(),
        }
    }
}

/// What is said of a request when it is over.
pub(crate) struct Record {
    pub(crate) began: Instant,
    pub(crate) status: u16,
    /// Where there is a log, or something failed.
    pub(crate) id: String,
    /// Method and target, where something may have failed.
    pub(crate) name: String,
    pub(crate) caught: Option<Box<Caught>>,
    pub(crate) error: Option<String>,
    pub(crate) upstream: Option<Upstream>,
}

/// An answer, and how its bytes are counted.
pub(crate) struct Answer {
    pub(crate) response: Response,
    pub(crate) sent: Sent,
}

/// How many bytes of body an answer has.
pub(crate) enum Sent {
    Bytes(u64),
    Tally(Rc<Tally>),
}

impl Answer {
    /// One whose body is so long.
    pub(crate) fn known(response: Response, bytes: u64) -> Answer {
        Answer { response, sent: Sent::Bytes(bytes) }
    }

    /// One without a body.
    pub(crate) fn empty(response: Response) -> Answer {
        Answer::known(response, 0)
    }

    /// One with these bytes.
    pub(crate) fn of(body: impl Into<Vec<u8>>) -> Answer {
        let body = body.into();
        let bytes = body.len() as u64;
        Answer::known(Response::new(Body::from(body)), bytes)
    }

    /// The same with its response changed.
    pub(crate) fn with(
        self,
        change: impl FnOnce(Response) -> Result<Response, EncodeError>,
    ) -> Result<Answer, EncodeError> {
        Ok(Answer { response: change(self.response)?, sent: self.sent })
    }
}

/// Counts the bytes of a body that is made while it is sent.
pub(crate) struct Tally {
    bytes: Cell<u64>,
    record: RefCell<Option<(Record, State<Worker>)>>,
}

impl Tally {
    pub(crate) fn new() -> Rc<Tally> {
        Rc::new(Tally { bytes: Cell::new(0), record: RefCell::default() })
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// The body failed.
    pub(crate) fn fault(&self, why: &str) {
        if let Some((record, _)) = &mut *self.record.borrow_mut() {
            record.error.get_or_insert_with(|| why.to_owned());
        }
    }

    /// What is recorded when it is over.
    pub(crate) fn record_with(&self, record: Record, worker: State<Worker>) {
        *self.record.borrow_mut() = Some((record, worker));
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if let Some((record, worker)) = self.record.take() {
            worker.finish(record, self.bytes.get());
        }
    }
}

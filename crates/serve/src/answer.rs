//! Answers of this server's endpoints, and the record of a request.
//!
//! A request is recorded when nothing more of its answer will be sent, with the bytes that were sent: the
//! HTTP library reports when that is. If the client disconnects before its answer, the request is recorded
//! when its handler is dropped ([`InFlight`]).

use crate::worker::Worker;
use ringroad_gate::flow::{End, Flow};
use ringroad_http::{Body, EncodeError, OnSent, Outcome, Response, Sent, State};
use std::cell::RefCell;
use std::time::{Duration, Instant};

pub(crate) use ringroad_gate::flow::{AnsweredBy, Context, Tally, Watch};

/// A request in progress. If it is dropped before its answer, its body was refused by the protocol layer, or
/// the client has disconnected: 499, as in nginx.
pub(crate) struct InFlight(Box<Record>);

/// What is recorded of a request. Its memory is the worker's, and used again.
struct Record {
    /// `None` when it was recorded.
    flow: Option<Flow>,
    worker: Option<State<Worker>>,
    status: u16,
    watch: Watch,
}

/// Records that are not in use.
#[derive(Default)]
#[allow(clippy::vec_box, reason = "a request holds its record by the box, which is what is used again")]
pub(crate) struct Spare(RefCell<Vec<Box<Record>>>);

/// Most records that are kept for reuse; each takes some 500 bytes.
const SPARE_MAX: usize = 256;

/// The status in the log when the client disconnected before an answer.
const CLIENT_GONE: u16 = 499;

impl InFlight {
    pub(crate) fn new(worker: State<Worker>, flow: Flow) -> InFlight {
        let spare = worker.spare.0.borrow_mut().pop();
        InFlight(match spare {
            Some(mut record) => {
                record.flow = Some(flow);
                record.worker = Some(worker);
                record
            }
            None => {
                let (flow, worker) = (Some(flow), Some(worker));
                Box::new(Record { flow, worker, status: CLIENT_GONE, watch: Watch::Sent })
            }
        })
    }

    /// Returns the flow, until it is recorded.
    pub(crate) fn flow(&mut self) -> &mut Flow {
        #[allow(clippy::expect_used, reason = "it is taken where this is consumed or dropped")]
        self.0.flow.as_mut().expect("a request has its flow until it is recorded")
    }

    /// Records the request when its answer has been sent.
    pub(crate) fn recorded(mut self, response: Response) -> Response {
        let status = response.status_code().code();
        let flow = self.flow();
        // A body that is not read is thrown away by the connection, which waits for this.
        drop(std::mem::take(flow.request.body()));
        let watch = std::mem::take(&mut flow.context.watch);
        let mut record = self.0;
        record.status = status;
        match watch {
            Watch::Tunnel(tally) => {
                tally.at_end(move |bytes, fault| {
                    let took = record.began().map(|began| began.elapsed()).unwrap_or_default();
                    record.end(bytes, took, fault, None);
                });
                response
            }
            watch => {
                record.watch = watch;
                response.report_to(record)
            }
        }
    }
}

impl OnSent for Record {
    fn began(&self) -> Option<Instant> {
        self.flow.as_ref().map(|flow| flow.context.began)
    }

    fn sent(mut self: Box<Record>, sent: &Sent) {
        let fault = match std::mem::take(&mut self.watch) {
            Watch::Stream(tally) => tally.take_fault(),
            _ => None,
        };
        self.end(sent.body_bytes, sent.took, fault, cut(sent.outcome));
    }
}

impl Record {
    /// Records a request that is over.
    fn end(
        mut self: Box<Record>,
        bytes: u64,
        took: Duration,
        fault: Option<String>,
        cut: Option<&'static str>,
    ) {
        let Some(worker) = self.worker.take() else { return };
        if let Some(flow) = &self.flow {
            if let Some(fault) = fault.filter(|_| !flow.context.has_failed()) {
                flow.context.fault(fault);
            }
            worker.finish(flow, &End { status: self.status, bytes, took, cut });
        }
        // What steps have left with the request is dropped here, with nothing borrowed.
        self.flow = None;
        let mut spare = worker.spare.0.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(self);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let (Some(flow), Some(worker)) = (self.flow.take(), self.worker.take()) {
            let took = flow.context.began.elapsed();
            let end = match flow.request.refused_with() {
                Some(status) => End { status: status.code(), bytes: 0, took, cut: None },
                None => End { status: CLIENT_GONE, bytes: 0, took, cut: Some("client_gone") },
            };
            worker.finish(&flow, &end);
        }
    }
}

/// Returns the log's word for an answer that was not sent whole.
fn cut(outcome: Outcome) -> Option<&'static str> {
    Some(match outcome {
        Outcome::Complete => return None,
        Outcome::ClientGone => "client_gone",
        Outcome::TooSlow => "client_too_slow",
        Outcome::BodyFailed => "body_failed",
        Outcome::Dropped => "stopped",
        _ => "cut",
    })
}

/// An answer, and how its end becomes known.
pub(crate) struct Answer {
    pub(crate) response: Response,
    pub(crate) watch: Watch,
}

impl Answer {
    /// Wraps a response with a body that needs no watching.
    pub(crate) fn plain(response: Response) -> Answer {
        Answer { response, watch: Watch::Sent }
    }

    /// Makes an answer with these bytes.
    pub(crate) fn of(body: impl Into<Vec<u8>>) -> Answer {
        Answer::plain(Response::new(Body::from(body.into())))
    }

    /// Changes the response.
    pub(crate) fn with(
        self,
        change: impl FnOnce(Response) -> Result<Response, EncodeError>,
    ) -> Result<Answer, EncodeError> {
        Ok(Answer { response: change(self.response)?, watch: self.watch })
    }
}

//! Answers of this server's endpoints, and the record of a request.
//!
//! A request is recorded when nothing more of its answer will be sent, with the bytes that were sent: the
//! HTTP library reports when that is. If the client disconnects before its answer, the request is recorded
//! when its handler is dropped ([`InFlight`]).

use crate::worker::Worker;
use ringroad_gate::flow::{End, Flow};
use ringroad_http::{Body, EncodeError, Outcome, Response, State};
use std::time::Instant;

pub(crate) use ringroad_gate::flow::{AnsweredBy, Context, Tally, Watch};

/// A request in progress. If it is dropped before its answer, its body was refused by the protocol layer, or
/// the client has disconnected: 499, as in nginx.
pub(crate) struct InFlight {
    /// `None` when it was recorded.
    flow: Option<Flow>,
    worker: State<Worker>,
}

/// The status in the log when the client disconnected before an answer.
const CLIENT_GONE: u16 = 499;

impl InFlight {
    pub(crate) fn new(flow: Flow, worker: State<Worker>) -> InFlight {
        InFlight { flow: Some(flow), worker }
    }

    /// The flow, until it is recorded.
    pub(crate) fn flow(&mut self) -> &mut Flow {
        #[allow(clippy::expect_used, reason = "it is taken where this is consumed or dropped")]
        self.flow.as_mut().expect("a request has its flow until it is recorded")
    }

    /// Records the request when its answer has been sent.
    pub(crate) fn recorded(mut self, response: Response) -> Response {
        let status = response.status_code().code();
        let flow = self.flow();
        // A body that is not read is thrown away by the connection, which waits for this.
        drop(std::mem::take(flow.request.body()));
        match std::mem::take(&mut flow.context.watch) {
            Watch::Tunnel(tally) => {
                tally.at_end(move |bytes, fault| self.record(status, bytes, fault, None, Instant::now()));
                response
            }
            watch => response.on_sent(move |sent| {
                let fault = match &watch {
                    Watch::Stream(tally) => tally.take_fault(),
                    _ => None,
                };
                self.record(status, sent.body_bytes, fault, cut(sent.outcome), sent.ended);
            }),
        }
    }

    fn record(
        mut self,
        status: u16,
        bytes: u64,
        fault: Option<String>,
        cut: Option<&'static str>,
        ended: Instant,
    ) {
        if let Some(flow) = self.flow.take() {
            if let Some(fault) = fault.filter(|_| !flow.context.has_failed()) {
                flow.context.fault(fault);
            }
            let took = ended.saturating_duration_since(flow.context.began);
            self.worker.finish(&flow, &End { status, bytes, took, cut });
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(flow) = self.flow.take() {
            let took = flow.context.began.elapsed();
            let end = match flow.request.refused_with() {
                Some(status) => End { status: status.code(), bytes: 0, took, cut: None },
                None => End { status: CLIENT_GONE, bytes: 0, took, cut: Some("client_gone") },
            };
            self.worker.finish(&flow, &end);
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

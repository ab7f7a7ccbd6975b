//! The steps of one route on one worker, and how a request passes through them.
//!
//! A [`Filter`] is one step. Each of its hooks is ready at once unless it returns `Wait`, so that the usual
//! chain allocates nothing. An [`Endpoint`] answers at the end of the chain. [`Chain::run`] is the way.

use crate::flow::{AtEnd, End, Flow};
use crate::page;
use crate::stage::Stage;
use ringroad_engine::time;
use ringroad_http::{Response, Status};
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Something that is ready later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What a step does with a request.
pub enum Step<'a> {
    /// Lets the next step have it.
    Next,
    /// Answers it: later steps and the endpoint do not see it.
    Answer(Response),
    /// Decides later: an answer, or `None` for the next step.
    Wait(Later<'a, Option<Response>>),
}

/// What a step does with an answer.
pub enum Answering<'a> {
    /// Hands this one on.
    Now(Response),
    /// Hands one on later.
    Wait(Later<'a, Response>),
}

/// A step of a request's way, on one worker.
pub trait Filter {
    /// Takes a request on its way in. It may change it, and note what later steps need to know in the
    /// request's [extensions](ringroad_http::Request::extensions_mut). A value in there is dropped when the
    /// answer was sent, so a guard in there is held until then.
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        let _ = flow;
        Step::Next
    }

    /// Takes an answer on its way out, if this step has taken the request. It may change the head and wrap
    /// the body.
    fn response<'a>(&'a self, flow: &'a mut Flow, response: Response) -> Answering<'a> {
        let _ = flow;
        Answering::Now(response)
    }

    /// Gets the flow once more when all of the answer was sent, or when no more of it will be. Called for
    /// every step of the chain, also where an earlier step has answered.
    fn done(&self, flow: &Flow, end: &End) {
        let _ = (flow, end);
    }
}

/// The end of a chain: files, a fixed answer, a group of servers, an application.
pub trait Endpoint {
    /// Answers the request. The flow stays with the chain; the body may be taken out of it.
    #[allow(async_fn_in_trait, reason = "a chain and its endpoints are on one thread")]
    async fn answer(&self, flow: &mut Flow) -> Response;
}

/// The steps of one route on one worker, in their order.
#[derive(Clone, Default)]
pub struct Chain(Option<Rc<Filters>>);

struct Filters(Box<[Rc<dyn Filter>]>);

/// Takes the steps of a chain in any order.
#[derive(Default)]
pub struct Builder(Vec<(Stage, Rc<dyn Filter>)>);

impl Builder {
    /// Adds a step. Of one stage, the one that is added first takes the request first.
    pub fn add(&mut self, stage: Stage, filter: Rc<dyn Filter>) {
        self.0.push((stage, filter));
    }

    /// Puts the steps in the order of their stages.
    pub fn finish(mut self) -> Chain {
        if self.0.is_empty() {
            return Chain(None);
        }
        self.0.sort_by_key(|(stage, _)| *stage);
        let filters = self.0.into_iter().map(|(_, filter)| filter).collect();
        Chain(Some(Rc::new(Filters(filters))))
    }
}

impl Chain {
    fn filters(&self) -> &[Rc<dyn Filter>] {
        self.0.as_ref().map_or(&[], |filters| &filters.0)
    }

    /// Takes a request through the steps to the endpoint, and the answer back. Without steps this is the
    /// endpoint's own future.
    pub async fn run(&self, flow: &mut Flow, endpoint: &impl Endpoint) -> Response {
        let filters = self.filters();
        if filters.is_empty() {
            return endpoint.answer(flow).await;
        }
        if let Some(filters) = &self.0 {
            flow.context.call_at_end(Rc::clone(filters) as Rc<dyn AtEnd>);
        }
        let mut answered = None;
        let mut taken = 0;
        for filter in filters {
            taken += 1;
            let waits;
            answered = {
                let step = filter.request(flow);
                waits = matches!(step, Step::Wait(_));
                match step {
                    Step::Next => None,
                    Step::Answer(response) => Some(response),
                    Step::Wait(later) => later.await,
                }
            };
            flow.context.waited |= waits;
            if answered.is_some() {
                break;
            }
        }
        let mut response = match answered {
            Some(response) => response,
            None => reach(flow, endpoint).await,
        };
        for filter in filters.iter().take(taken).rev() {
            response = match filter.response(flow, response) {
                Answering::Now(response) => response,
                Answering::Wait(later) => later.await,
            };
        }
        response
    }
}

/// Returns the endpoint's answer, within the deadline that a step has set.
pub async fn reach(flow: &mut Flow, endpoint: &impl Endpoint) -> Response {
    match flow.context.time_left() {
        None => endpoint.answer(flow).await,
        Some(left) => in_time(left, flow, endpoint).await,
    }
}

/// Returns the endpoint's answer, if its head is there in time. Otherwise the endpoint's work is dropped, as
/// when the client has gone.
async fn in_time(left: Duration, flow: &mut Flow, endpoint: &impl Endpoint) -> Response {
    match time::timeout(left, endpoint.answer(flow)).await {
        Ok(response) => response,
        Err(_) => {
            let span = flow.context.deadline.unwrap_or(left);
            flow.context.fault(format!("no answer within {span:?} (timeouts.answer of the route)"));
            page::refusal(Status::GATEWAY_TIMEOUT, &flow.context, "The answer took too long.")
        }
    }
}

impl AtEnd for Filters {
    fn done(&self, flow: &Flow, end: &End) {
        for filter in self.0.iter().rev() {
            filter.done(flow, end);
        }
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({} steps)", self.filters().len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::flow::Local;
    use ringroad_http::{FieldBlock, Request, RequestBody};
    use std::cell::RefCell;
    use std::future::{poll_fn, ready};
    use std::task::{Context as Task, Poll, Waker};
    use std::time::Instant;

    type Journal = Rc<RefCell<Vec<String>>>;

    struct Noted {
        name: &'static str,
        journal: Journal,
        answers: bool,
        waits: bool,
    }

    impl Noted {
        fn note(&self, what: &str) {
            self.journal.borrow_mut().push(format!("{what} {}", self.name));
        }
    }

    impl Filter for Noted {
        fn request<'a>(&'a self, _: &'a mut Flow) -> Step<'a> {
            self.note("in");
            let answer = self.answers.then(|| Response::empty(Status::FORBIDDEN));
            match (self.waits, answer) {
                (true, answer) => Step::Wait(Box::pin(ready(answer))),
                (false, Some(answer)) => Step::Answer(answer),
                (false, None) => Step::Next,
            }
        }

        fn response<'a>(&'a self, _: &'a mut Flow, response: Response) -> Answering<'a> {
            self.note("out");
            if self.waits { Answering::Wait(Box::pin(ready(response))) } else { Answering::Now(response) }
        }

        fn done(&self, _: &Flow, end: &End) {
            self.note(&format!("done {}", end.status));
        }
    }

    struct Page(Journal);

    impl Endpoint for Page {
        async fn answer(&self, _: &mut Flow) -> Response {
            self.0.borrow_mut().push("endpoint".to_owned());
            Response::empty(Status::OK)
        }
    }

    fn at_once<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut task = Task::from_waker(Waker::noop());
        match future.as_mut().poll(&mut task) {
            Poll::Ready(done) => done,
            Poll::Pending => panic!("the chain waits"),
        }
    }

    fn run(steps: &[(Stage, &'static str, bool, bool)]) -> (u16, String) {
        let journal = Journal::default();
        let mut builder = Builder::default();
        for (stage, name, answers, waits) in steps {
            let (journal, answers, waits) = (Rc::clone(&journal), *answers, *waits);
            builder.add(*stage, Rc::new(Noted { name, journal, answers, waits }));
        }
        let chain = builder.finish();
        let request = Request::from_parts("GET", "/", "a", &FieldBlock::new(), RequestBody::empty()).unwrap();
        let mut flow = Flow::new(request, &Local::new(Instant::now()), &Rc::default());
        let status = at_once(chain.run(&mut flow, &Page(Rc::clone(&journal)))).status_code().code();
        flow.done(&End { status, bytes: 0, took: Duration::ZERO, cut: None });
        let told = journal.borrow().join(", ");
        (status, told)
    }

    #[test]
    fn steps_take_the_request_in_the_order_of_their_stages_and_the_answer_in_reverse() {
        let (status, told) = run(&[
            (Stage::Store, "store", false, false),
            (Stage::Shape, "shape", false, true),
            (Stage::Admit, "admit 1", false, false),
            (Stage::Admit, "admit 2", false, false),
        ]);
        assert_eq!(status, 200);
        assert_eq!(
            told,
            "in shape, in admit 1, in admit 2, in store, endpoint, out store, out admit 2, out admit 1, \
             out shape, done 200 store, done 200 admit 2, done 200 admit 1, done 200 shape"
        );
    }

    #[test]
    fn a_step_that_answers_is_the_last_to_take_the_request_and_the_first_to_take_the_answer() {
        for waits in [false, true] {
            let (status, told) = run(&[
                (Stage::Shape, "shape", false, false),
                (Stage::Admit, "admit", true, waits),
                (Stage::Store, "store", false, false),
            ]);
            assert_eq!(status, 403);
            assert_eq!(
                told,
                "in shape, in admit, out admit, out shape, done 403 store, done 403 admit, done 403 shape"
            );
        }
    }

    #[test]
    fn a_chain_without_steps_is_its_endpoint() {
        assert_eq!(run(&[]), (200, "endpoint".to_owned()));
        // A poll function keeps the test's executor honest: it reports what is not ready.
        assert!(std::panic::catch_unwind(|| at_once(poll_fn(|_| Poll::<()>::Pending))).is_err());
    }
}

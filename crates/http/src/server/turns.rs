//! Handlers with large futures: run without an allocation and without moving the future.
//!
//! Moving a future of several KB into a box costs more than a small handler. So each box holds an endless
//! loop: it takes a request from its [`Desk`], answers it, and puts the response there. The handler's future
//! is a part of the loop's future, and is made where it is polled.

use super::boxes::FreeList;
use super::route::{Panicked, Route, Running, Started, State};
use crate::message::{Request, Response};
use pin_project_lite::pin_project;
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

/// The slot for a request to a loop, then for its response.
#[derive(Default)]
struct Desk {
    request: Cell<Option<Request>>,
    response: Cell<Option<Response>>,
}

/// A handler with what its loops share.
struct Handled<H, S, C> {
    handler: H,
    state: State<S>,
    call: C,
}

/// Answers one request after another.
async fn answer_in_turns<H, S, F, C>(handled: Rc<Handled<H, S, C>>, desk: Rc<Desk>)
where
    F: Future<Output = Response>,
    C: Fn(&H, Request, &State<S>) -> F,
{
    let Handled { handler, state, call } = &*handled;
    loop {
        let asked = |_: &mut Context<'_>| desk.request.take().map_or(Poll::Pending, Poll::Ready);
        let request = poll_fn(asked).await;
        let response = call(handler, request, state).await;
        desk.response.set(Some(response));
    }
}

/// The boxes of one handler.
struct InTurns<L, M> {
    free: Rc<FreeList<Turns<L>>>,
    make: M,
}

pin_project! {
    /// A box with its loop.
    struct Turns<L> {
        #[pin]
        answers: L,
        desk: Rc<Desk>,
        // Whether the loop has answered its request. A loop that has not is not reused.
        is_over: bool,
        home: Weak<FreeList<Turns<L>>>,
    }
}

/// Makes the endpoint of a handler.
pub(super) fn endpoint<H, S, F, C>(handler: H, state: State<S>, call: C) -> Rc<dyn Route>
where
    H: 'static,
    S: 'static,
    F: Future<Output = Response> + 'static,
    C: Fn(&H, Request, &State<S>) -> F + 'static,
{
    let handled = Rc::new(Handled { handler, state, call });
    let make = move |desk| answer_in_turns(Rc::clone(&handled), desk);
    Rc::new(InTurns { free: Rc::default(), make })
}

impl<L: Future<Output = ()> + 'static, M: Fn(Rc<Desk>) -> L> InTurns<L, M> {
    #[cold]
    fn new_box(&self) -> Pin<Box<Turns<L>>> {
        let desk = Rc::<Desk>::default();
        let answers = (self.make)(Rc::clone(&desk));
        Box::pin(Turns { answers, desk, is_over: true, home: Rc::downgrade(&self.free) })
    }
}

impl<L: Future<Output = ()> + 'static, M: Fn(Rc<Desk>) -> L> Route for InTurns<L, M> {
    #[inline]
    fn start(&self, request: Request, context: &mut Context<'_>) -> Started {
        let mut turns = self.free.take().unwrap_or_else(|| self.new_box());
        let this = turns.as_mut().project();
        *this.is_over = false;
        this.desk.request.set(Some(request));
        match turns.as_mut().look(context) {
            Poll::Ready(Ok(response)) => {
                self.free.put(turns);
                Started::Done(response)
            }
            Poll::Ready(Err(Panicked)) => Started::Panicked,
            Poll::Pending => Started::Running(turns),
        }
    }
}

impl<L: Future<Output = ()>> Turns<L> {
    /// Polls the loop, and takes the response.
    #[inline]
    fn look(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Response, Panicked>> {
        let this = self.project();
        // A panic of a handler leaves no inconsistent state: its future is dropped with this box.
        let polled = catch_unwind(AssertUnwindSafe(|| this.answers.poll(context)));
        match (polled, this.desk.response.take()) {
            (Ok(Poll::Pending), Some(response)) => {
                *this.is_over = true;
                Poll::Ready(Ok(response))
            }
            (Ok(Poll::Pending), None) => Poll::Pending,
            // The loop itself never ends.
            (Err(_) | Ok(Poll::Ready(())), _) => Poll::Ready(Err(Panicked)),
        }
    }
}

impl<L: Future<Output = ()> + 'static> Running for Turns<L> {
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Response, Panicked>> {
        self.look(context)
    }

    fn recycle(self: Pin<Box<Self>>) {
        if let Some(home) = self.home.upgrade().filter(|_| self.is_over) {
            return home.put(self);
        }
        // A panic in a drop of the handler does not concern its connection.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(self)));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::message::{IntoResponse, RequestBody};
    use ringroad_wire::FieldBlock;
    use std::cell::RefCell;
    use std::task::Waker;

    fn request(path: &str) -> Request {
        Request::from_parts("GET", path, "a", &FieldBlock::new(), RequestBody::empty()).unwrap()
    }

    /// Tells in a journal when it is dropped.
    struct Noted(Rc<RefCell<Vec<String>>>, String);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.borrow_mut().push(std::mem::take(&mut self.1));
        }
    }

    /// Answers with the path; waits once on `/wait`, for ever on `/ever`, and panics on `/panic`.
    async fn handler(request: Request, journal: Rc<RefCell<Vec<String>>>) -> Response {
        let path = request.path().to_owned();
        let _noted = Noted(journal, path.clone());
        let mut looks = 0;
        poll_fn(|_| {
            looks += 1;
            match path.as_str() {
                "/wait" if looks == 1 => Poll::Pending,
                "/ever" => Poll::Pending,
                "/panic" => panic!("as it should"),
                _ => Poll::Ready(()),
            }
        })
        .await;
        path.into_response()
    }

    fn text(response: Response) -> String {
        let mut response = response;
        String::from_utf8(response.body().as_bytes().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn requests_are_answered_in_the_same_box_and_one_that_was_left_or_panicked_in_is_not_used_again() {
        let journal = Rc::<RefCell<Vec<String>>>::default();
        let own = Rc::clone(&journal);
        let call = move |_: &(), request, _: &State<()>| handler(request, Rc::clone(&own));
        let route = endpoint((), State(Rc::new(())), call);
        let mut context = Context::from_waker(Waker::noop());
        let mut done = |path: &str| match route.start(request(path), &mut context) {
            Started::Done(response) => text(response),
            _ => panic!("{path} is not over"),
        };
        assert_eq!((done("/1"), done("/2")), ("/1".to_owned(), "/2".to_owned()));
        assert_eq!(journal.take(), ["/1", "/2"], "a handler's own is dropped before its response goes");

        let start = |path: &str, context: &mut Context<'_>| route.start(request(path), context);
        let mut context = Context::from_waker(Waker::noop());
        let place = |running: &Pin<Box<dyn Running>>| std::ptr::from_ref(&**running).cast::<()>().addr();
        let Started::Running(mut waiting) = start("/wait", &mut context) else { panic!("it waits") };
        let used = place(&waiting);
        let Poll::Ready(Ok(response)) = waiting.as_mut().poll(&mut context) else { panic!("it has waited") };
        assert_eq!(text(response), "/wait");
        waiting.recycle();
        let Started::Running(ever) = start("/ever", &mut context) else { panic!("it waits") };
        assert_eq!(place(&ever), used);
        assert_eq!(journal.take(), ["/wait"]);
        ever.recycle();
        assert_eq!(journal.take(), ["/ever"]);
        assert!(matches!(start("/panic", &mut context), Started::Panicked));
        assert_eq!(journal.take(), ["/panic"]);
        let Started::Done(response) = start("/3", &mut context) else { panic!("it is over") };
        assert_eq!(text(response), "/3");
    }
}

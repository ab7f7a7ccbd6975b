//! Which handler answers which request, and how a handler is run without a word to the allocator.
//!
//! Handlers are given once ([`Handler`], [`Methods`]) and cloned for each worker, which makes a [`Router`] of them
//! on its own thread: from there on nothing is shared between threads. The type of a handler's future is known in
//! its [`Endpoint`] and nowhere else, so each endpoint keeps a list of boxes for them: a future is moved into one
//! that was used before, polled, and the box goes back.

use crate::encode::refusal;
use crate::request::Request;
use crate::response::{IntoResponse, Response};
use pin_project_lite::pin_project;
use ringroad_wire::{Method, RequestHead, Status};
use std::cell::RefCell;
use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};

/// What a worker's handlers share, made on its thread: [`Server::with_state`](crate::Server::with_state).
#[derive(Debug)]
pub struct State<S>(pub(crate) Rc<S>);

impl<S> Clone for State<S> {
    fn clone(&self) -> State<S> {
        State(Rc::clone(&self.0))
    }
}

impl<S> Deref for State<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

/// Answers requests: `async fn(Request) -> impl IntoResponse`, or `async fn(Request, State<S>) -> …`.
///
/// `Kind` tells the two apart, and is never written by hand. A handler is cloned for each worker.
pub trait Handler<S, Kind>: Clone + Send + 'static {
    /// What it does for one request.
    type Future: Future<Output = Response> + 'static;

    /// Begins to answer a request.
    fn call(&self, request: Request, state: &State<S>) -> Self::Future;
}

/// The kind of a handler that takes a request.
#[derive(Debug)]
pub struct Plain(());

/// The kind of a handler that takes a request and the worker's state.
#[derive(Debug)]
pub struct WithState(());

impl<S, F, Fut, R> Handler<S, Plain> for F
where
    F: Fn(Request) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = R> + 'static,
    R: IntoResponse,
{
    type Future = Answering<Fut>;

    #[inline]
    fn call(&self, request: Request, _: &State<S>) -> Answering<Fut> {
        Answering { future: self(request) }
    }
}

impl<S, F, Fut, R> Handler<S, WithState> for F
where
    F: Fn(Request, State<S>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = R> + 'static,
    R: IntoResponse,
{
    type Future = Answering<Fut>;

    #[inline]
    fn call(&self, request: Request, state: &State<S>) -> Answering<Fut> {
        Answering { future: self(request, state.clone()) }
    }
}

pin_project! {
    /// A handler's future, and what it returns as a response.
    #[derive(Debug)]
    pub struct Answering<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future<Output: IntoResponse>> Future for Answering<F> {
    type Output = Response;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        Poll::Ready(ready!(self.project().future.poll(context)).into_response())
    }
}

/// A handler panicked. What it said is told by the panic hook.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panicked;

/// Where a handler has come to.
pub(crate) enum Started {
    Done(Response),
    Running(Pin<Box<dyn Running>>),
    Panicked,
}

/// A handler on a worker.
pub(crate) trait Route {
    /// Begins to answer, and polls once.
    fn start(&self, request: Request, context: &mut Context<'_>) -> Started;
}

/// A handler that has begun.
pub(crate) trait Running {
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Response, Panicked>>;
    /// It is over, or given up.
    fn recycle(self: Pin<Box<Self>>);
}

struct Endpoint<H, S, F> {
    handler: H,
    state: State<S>,
    free: Rc<FreeList<F>>,
    call: fn(&H, Request, &State<S>) -> F,
}

/// Boxes that futures of this type were in.
struct FreeList<F>(RefCell<Vec<Pin<Box<Slot<F>>>>>);

/// Most boxes an endpoint keeps.
const KEPT: usize = 64;

pin_project! {
    struct Slot<F> {
        #[pin]
        future: Option<F>,
        home: Weak<FreeList<F>>,
    }
}

impl<F> FreeList<F> {
    #[inline]
    fn take(self: &Rc<Self>) -> Pin<Box<Slot<F>>> {
        let used = self.0.borrow_mut().pop();
        used.unwrap_or_else(|| Box::pin(Slot { future: None, home: Rc::downgrade(self) }))
    }

    #[inline]
    fn put(&self, slot: Pin<Box<Slot<F>>>) {
        let mut free = self.0.borrow_mut();
        if free.len() < KEPT {
            free.push(slot);
        }
    }
}

impl<H, S, F> Route for Endpoint<H, S, F>
where
    F: Future<Output = Response> + 'static,
{
    #[inline]
    fn start(&self, request: Request, context: &mut Context<'_>) -> Started {
        let mut slot = self.free.take();
        // Nothing of ours is half done when a handler panics: its future is dropped with its box.
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let mut future = slot.as_mut().project().future;
            future.set(Some((self.call)(&self.handler, request, &self.state)));
            match future.as_mut().as_pin_mut().map(|future| future.poll(context)) {
                Some(Poll::Ready(response)) => {
                    future.set(None);
                    Some(response)
                }
                _ => None,
            }
        }));
        match polled {
            Ok(Some(response)) => {
                self.free.put(slot);
                Started::Done(response)
            }
            Ok(None) => Started::Running(slot),
            Err(_) => Started::Panicked,
        }
    }
}

impl<F: Future<Output = Response>> Running for Slot<F> {
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Response, Panicked>> {
        let future = self.project().future.as_pin_mut();
        let Some(future) = future else { return Poll::Ready(Err(Panicked)) };
        match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    }

    fn recycle(mut self: Pin<Box<Self>>) {
        let dropped = catch_unwind(AssertUnwindSafe(|| self.as_mut().project().future.set(None)));
        if dropped.is_ok()
            && let Some(home) = self.as_mut().project().home.upgrade()
        {
            home.put(self);
        }
    }
}

/// Makes a handler's endpoint on a worker's thread.
trait Make<S>: Send {
    fn make(&self, state: &State<S>) -> Rc<dyn Route>;
    fn clone_box(&self) -> Box<dyn Make<S>>;
}

/// A handler, with the way to call it, which has forgotten its kind.
#[derive(Clone)]
struct Made<H, F, S> {
    handler: H,
    call: fn(&H, Request, &State<S>) -> F,
}

impl<H, F, S> Make<S> for Made<H, F, S>
where
    H: Clone + Send + 'static,
    F: Future<Output = Response> + 'static,
    S: 'static,
{
    fn make(&self, state: &State<S>) -> Rc<dyn Route> {
        let free = Rc::new(FreeList(RefCell::new(Vec::new())));
        Rc::new(Endpoint { handler: self.handler.clone(), state: state.clone(), free, call: self.call })
    }

    fn clone_box(&self) -> Box<dyn Make<S>> {
        Box::new(Made { handler: self.handler.clone(), call: self.call })
    }
}

/// A method's place in a table; none for those that only [`any`] takes.
fn place(method: Method) -> Option<usize> {
    match method {
        Method::Get => Some(0),
        Method::Head => Some(1),
        Method::Post => Some(2),
        Method::Put => Some(3),
        Method::Delete => Some(4),
        Method::Patch => Some(5),
        Method::Options => Some(6),
        Method::Connect | Method::Trace | Method::Other => None,
    }
}

const METHODS: [Method; 7] =
    [Method::Get, Method::Head, Method::Post, Method::Put, Method::Delete, Method::Patch, Method::Options];

/// The handlers of one pattern, by method: `get(show).post(store)`.
///
/// HEAD is answered by GET's handler without the body, OPTIONS by the list of methods, other methods by 405 with
/// that list, unless they have a handler of their own.
pub struct Methods<S> {
    by_method: [Option<Box<dyn Make<S>>>; METHODS.len()],
    any: Option<Box<dyn Make<S>>>,
}

impl<S: 'static> Methods<S> {
    fn none() -> Methods<S> {
        Methods { by_method: [const { None }; METHODS.len()], any: None }
    }

    /// The same with a handler for this method; with one for all that have none of their own, where the method is
    /// neither a usual one.
    pub fn on<K, H: Handler<S, K>>(mut self, method: Method, handler: H) -> Methods<S> {
        let made: Box<dyn Make<S>> = Box::new(Made { handler, call: H::call });
        match place(method).and_then(|place| self.by_method.get_mut(place)) {
            Some(slot) => *slot = Some(made),
            None => self.any = Some(made),
        }
        self
    }

    /// The same with a handler for every method that has none of its own.
    pub fn any<K, H: Handler<S, K>>(mut self, handler: H) -> Methods<S> {
        self.any = Some(Box::new(Made { handler, call: H::call }));
        self
    }
}

impl<S> Clone for Methods<S> {
    fn clone(&self) -> Methods<S> {
        let copy = |made: &Option<Box<dyn Make<S>>>| made.as_ref().map(|made| made.clone_box());
        let [a, b, c, d, e, f, g] = &self.by_method;
        Methods { by_method: [a, b, c, d, e, f, g].map(copy), any: copy(&self.any) }
    }
}

impl<S> std::fmt::Debug for Methods<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Methods")
    }
}

macro_rules! methods {
    ($($name:ident $method:ident $word:literal;)*) => {
        impl<S: 'static> Methods<S> {
            $(
                #[doc = concat!("The same with a handler for ", $word, ".")]
                pub fn $name<K, H: Handler<S, K>>(self, handler: H) -> Methods<S> {
                    self.on(Method::$method, handler)
                }
            )*
        }
        $(
            #[doc = concat!("A handler for ", $word, ".")]
            pub fn $name<S: 'static, K, H: Handler<S, K>>(handler: H) -> Methods<S> {
                Methods::none().on(Method::$method, handler)
            }
        )*
    };
}
methods! {
    get Get "GET, and for HEAD, whose body is not sent";
    post Post "POST";
    put Put "PUT";
    delete Delete "DELETE";
    patch Patch "PATCH";
    options Options "OPTIONS";
}

/// A handler for every method.
pub fn any<S: 'static, K, H: Handler<S, K>>(handler: H) -> Methods<S> {
    Methods::none().any(handler)
}

/// Patterns with their handlers, before any worker has begun.
pub(crate) struct Routes<S> {
    by_pattern: Vec<(String, Methods<S>)>,
    fallback: Option<Box<dyn Make<S>>>,
}

impl<S> Clone for Routes<S> {
    fn clone(&self) -> Routes<S> {
        Routes {
            by_pattern: self.by_pattern.clone(),
            fallback: self.fallback.as_ref().map(|made| made.clone_box()),
        }
    }
}

impl<S: 'static> Routes<S> {
    pub(crate) fn new() -> Routes<S> {
        Routes { by_pattern: Vec::new(), fallback: None }
    }

    pub(crate) fn add(&mut self, pattern: &str, methods: Methods<S>) {
        self.by_pattern.push((pattern.to_owned(), methods));
    }

    pub(crate) fn set_fallback<K, H: Handler<S, K>>(&mut self, handler: H) {
        self.fallback = Some(Box::new(Made { handler, call: H::call }));
    }

    /// The router of one worker.
    ///
    /// # Errors
    /// A pattern and what is wrong with it.
    pub(crate) fn make(&self, state: &State<S>) -> Result<Router, (String, String)> {
        let mut router = Router { matcher: matchit::Router::new(), routes: Vec::new(), fallback: None };
        router.fallback = self.fallback.as_ref().map(|made| enlist(&mut router.routes, made.make(state)));
        for (pattern, methods) in &self.by_pattern {
            let resource = Resource::new(pattern, methods, state, &mut router.routes);
            router.matcher.insert(pattern, resource).map_err(|why| (pattern.clone(), why.to_string()))?;
        }
        Ok(router)
    }
}

/// One worker's handlers.
pub(crate) struct Router {
    matcher: matchit::Router<Resource>,
    routes: Vec<Rc<dyn Route>>,
    fallback: Option<RouteId>,
}

/// A handler's place in its router.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RouteId(u32);

fn enlist(routes: &mut Vec<Rc<dyn Route>>, route: Rc<dyn Route>) -> RouteId {
    routes.push(route);
    RouteId(routes.len() as u32 - 1)
}

/// The handlers of one pattern.
struct Resource {
    by_method: [Option<RouteId>; METHODS.len()],
    any: Option<RouteId>,
    /// What `Allow` says.
    allow: String,
    /// Its parameters, if it has any.
    names: Option<Rc<[Box<str>]>>,
}

impl Resource {
    fn new<S>(
        pattern: &str,
        methods: &Methods<S>,
        state: &State<S>,
        routes: &mut Vec<Rc<dyn Route>>,
    ) -> Resource {
        let [a, b, c, d, e, f, g] = &methods.by_method;
        let mut make = |made: &Option<Box<dyn Make<S>>>| Some(enlist(routes, made.as_ref()?.make(state)));
        let by_method = [a, b, c, d, e, f, g].map(&mut make);
        let any = make(&methods.any);
        let has = |method| place(method).is_some_and(|at| by_method.get(at).is_some_and(Option::is_some));
        let allowed = METHODS.into_iter().filter(|method| match method {
            Method::Options => true,
            Method::Head => has(Method::Head) || has(Method::Get),
            method => has(*method),
        });
        let allow = allowed.map(Method::name).collect::<Vec<_>>().join(", ");
        let names: Vec<Box<str>> = parameters(pattern).map(Box::from).collect();
        Resource { allow, any, names: (!names.is_empty()).then(|| names.into()), by_method }
    }

    #[inline]
    fn route(&self, method: Method) -> Option<RouteId> {
        let of = |method| place(method).and_then(|at| *self.by_method.get(at)?);
        of(method).or_else(|| if method == Method::Head { of(Method::Get) } else { None }).or(self.any)
    }
}

/// The names of a pattern's parameters, in order. Braces that are doubled are themselves.
fn parameters(pattern: &str) -> impl Iterator<Item = &str> {
    let mut rest = pattern;
    std::iter::from_fn(move || {
        loop {
            let (_, after) = rest.split_once('{')?;
            if let Some(literal) = after.strip_prefix('{') {
                rest = literal;
                continue;
            }
            let (name, after) = after.split_once('}')?;
            rest = after;
            return Some(name.trim_start_matches('*'));
        }
    })
}

/// Who answers.
pub(crate) enum Found<'a> {
    /// A handler, with the parameters' names if the pattern has some.
    Route(RouteId, Option<&'a Rc<[Box<str>]>>),
    /// We do.
    Answer(Response),
}

impl Router {
    /// The handler that was found.
    #[inline]
    pub(crate) fn route(&self, id: RouteId) -> &dyn Route {
        #[allow(
            clippy::indexing_slicing,
            reason = "only this router gives its handlers' places, and keeps them"
        )]
        &*self.routes[id.0 as usize]
    }

    /// Finds who answers `head`; parameters' places in its path are appended to `params`.
    #[inline]
    pub(crate) fn find(&self, head: &RequestHead<'_>, params: &mut Vec<(u16, u16)>) -> Found<'_> {
        let (method, path) = (head.method(), head.path());
        let Ok(matched) = self.matcher.at(path) else { return self.elsewhere(method, path) };
        let resource = matched.value;
        let Some(route) = resource.route(method) else { return Found::Answer(resource.refuse(method)) };
        if resource.names.is_some() {
            // A parameter is a part of the path: its place is what the request keeps.
            let start = path.as_ptr().addr();
            params.extend(matched.params.iter().map(|(_, value)| {
                let from = value.as_ptr().addr() - start;
                (from as u16, (from + value.len()) as u16)
            }));
        }
        Found::Route(route, resource.names.as_ref())
    }

    #[cold]
    fn elsewhere(&self, method: Method, path: &str) -> Found<'_> {
        if method == Method::Options && path == "*" {
            return Found::Answer(allowing(Status::NO_CONTENT, &METHODS.map(Method::name).join(", ")));
        }
        match self.fallback {
            Some(route) => Found::Route(route, None),
            None => Found::Answer(refusal(Status::NOT_FOUND)),
        }
    }
}

impl Resource {
    #[cold]
    fn refuse(&self, method: Method) -> Response {
        if method == Method::Options {
            return allowing(Status::NO_CONTENT, &self.allow);
        }
        allowing(Status::METHOD_NOT_ALLOWED, &self.allow)
    }
}

fn allowing(status: Status, methods: &str) -> Response {
    let response = refusal(status).header("Allow", methods);
    // A list of names is a valid value.
    response.unwrap_or_else(|_| refusal(Status::INTERNAL_SERVER_ERROR))
}

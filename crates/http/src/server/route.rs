//! Routing of requests to handlers, and running a handler without an allocation.
//!
//! Handlers are added once ([`Handler`], [`Methods`]) and cloned for each worker. The worker makes a
//! [`Router`] of them on its own thread; from then on threads share nothing. Only a handler's [`Endpoint`]
//! knows the type of its future, so each endpoint keeps a list of boxes: a future is moved into a free box
//! and polled, and the box is returned to the list.

use super::boxes::FreeList;
use super::router::{Layer, MakeLayer, Stack};
use super::turns;
use crate::message::{HeadRoute, IntoResponse, Request, Response, refusal};
use pin_project_lite::pin_project;
use ringroad_wire::{Method, RequestHead, Status};
use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};

/// State that a worker's handlers share, made on its thread:
/// [`Server::with_state`](crate::Server::with_state).
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of a server with the state `{S}`",
    label = "not a handler",
    note = "a handler is an async function or closure of `Request`, of `Request` and `State<{S}>`, or of up to six extractors (`Path<_>`, `Query<_>`, `Json<_>`, `State<{S}>`, …) or nothing",
    note = "what it returns must be `IntoResponse`: `Response`, `Status`, text, bytes, `Html<_>`, `Json<_>`, or a `Result` of these",
    note = "it is cloned for each worker and sent to its thread: what a closure captures must be `Clone + Send + 'static`"
)]
pub trait Handler<S, Kind>: Clone + Send + 'static {
    /// The future that answers one request.
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
    /// A handler's future. It converts the output to a response.
    #[derive(Debug)]
    pub struct Answering<F> {
        #[pin]
        future: F,
    }
}

impl<F> Answering<F> {
    pub(super) fn new(future: F) -> Answering<F> {
        Answering { future }
    }
}

impl<F: Future<Output: IntoResponse>> Future for Answering<F> {
    type Output = Response;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        Poll::Ready(ready!(self.project().future.poll(context)).into_response())
    }
}

/// A handler panicked. The panic hook has shown the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panicked;

/// The state of a handler.
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

/// A running handler.
pub(crate) trait Running {
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Response, Panicked>>;
    /// Takes the box back, after the end of the handler or its drop.
    fn recycle(self: Pin<Box<Self>>);
}

struct Endpoint<H, S, F, C> {
    handler: H,
    state: State<S>,
    free: Rc<FreeList<Slot<F>>>,
    call: C,
}

/// Maximum size of a future, in bytes, that is moved into its box. Larger ones are made where they are polled
/// ([`turns`]), which costs about 30 instructions.
const MOVED_BYTES_MAX: usize = 1024;

pin_project! {
    struct Slot<F> {
        #[pin]
        future: Option<F>,
        home: Weak<FreeList<Slot<F>>>,
    }
}

impl<H, S, F, C> Route for Endpoint<H, S, F, C>
where
    F: Future<Output = Response> + 'static,
    C: Fn(&H, Request, &State<S>) -> F,
{
    #[inline]
    fn start(&self, request: Request, context: &mut Context<'_>) -> Started {
        let mut slot = self
            .free
            .take()
            .unwrap_or_else(|| Box::pin(Slot { future: None, home: Rc::downgrade(&self.free) }));
        // A panic of a handler leaves no inconsistent state: its future is dropped with its box.
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

/// A handler, and the way to call it, without its kind.
#[derive(Clone)]
struct Made<H, C> {
    handler: H,
    call: C,
}

impl<H, F, S, C> Make<S> for Made<H, C>
where
    H: Clone + Send + 'static,
    F: Future<Output = Response> + 'static,
    S: 'static,
    C: Fn(&H, Request, &State<S>) -> F + Copy + Send + 'static,
{
    fn make(&self, state: &State<S>) -> Rc<dyn Route> {
        endpoint(self.handler.clone(), state.clone(), self.call)
    }

    fn clone_box(&self) -> Box<dyn Make<S>> {
        Box::new(Made { handler: self.handler.clone(), call: self.call })
    }
}

/// Returns the index of a method in the table; `None` for methods that only [`any`] takes.
fn method_index(method: Method) -> Option<usize> {
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
/// Unless other handlers are added, HEAD is answered by GET's handler without the body, OPTIONS by the list
/// of methods, and other methods by 405 with that list.
pub struct Methods<S> {
    by_method: [Option<Box<dyn Make<S>>>; METHODS.len()],
    any: Option<Box<dyn Make<S>>>,
    body_bytes_max: u64,
}

impl<S: 'static> Methods<S> {
    fn none() -> Methods<S> {
        Methods { by_method: [const { None }; METHODS.len()], any: None, body_bytes_max: u64::MAX }
    }

    /// Limits the bodies of requests to `bytes`: 413 otherwise. It lowers
    /// [`Limits::body_bytes`](crate::Limits::body_bytes) of the server for these handlers, and cannot raise
    /// it.
    #[must_use]
    pub fn body_bytes_max(mut self, bytes: u64) -> Methods<S> {
        self.body_bytes_max = bytes;
        self
    }

    /// Adds a handler for this method. For CONNECT, TRACE and extension methods it is a handler for every
    /// method that has none of its own.
    pub fn on<K: 'static, H: Handler<S, K>>(mut self, method: Method, handler: H) -> Methods<S> {
        self.set(method, Box::new(Made { handler, call: H::call }));
        self
    }

    fn set(&mut self, method: Method, made: Box<dyn Make<S>>) {
        match method_index(method).and_then(|place| self.by_method.get_mut(place)) {
            Some(slot) => *slot = Some(made),
            None => self.any = Some(made),
        }
    }

    /// Adds a handler for every method without one of its own.
    pub fn any<K: 'static, H: Handler<S, K>>(mut self, handler: H) -> Methods<S> {
        self.any = Some(Box::new(Made { handler, call: H::call }));
        self
    }
}

impl<S> Clone for Methods<S> {
    fn clone(&self) -> Methods<S> {
        let copy = |made: &Option<Box<dyn Make<S>>>| made.as_ref().map(|made| made.clone_box());
        let [a, b, c, d, e, f, g] = &self.by_method;
        let by_method = [a, b, c, d, e, f, g].map(copy);
        Methods { by_method, any: copy(&self.any), body_bytes_max: self.body_bytes_max }
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
                pub fn $name<K: 'static, H: Handler<S, K>>(self, handler: H) -> Methods<S> {
                    self.on(Method::$method, handler)
                }
            )*
        }
        $(
            #[doc = concat!("A handler for ", $word, ".")]
            pub fn $name<S: 'static, K: 'static, H: Handler<S, K>>(handler: H) -> Methods<S> {
                Methods::none().on(Method::$method, handler)
            }
        )*
    };
}
methods! {
    get Get "GET, and for HEAD, without the body";
    post Post "POST";
    put Put "PUT";
    delete Delete "DELETE";
    patch Patch "PATCH";
    options Options "OPTIONS";
}

/// Returns a handler for every method.
pub fn any<S: 'static, K: 'static, H: Handler<S, K>>(handler: H) -> Methods<S> {
    Methods::none().any(handler)
}

/// Patterns with their handlers, before a worker starts.
pub(crate) struct Routes<S> {
    by_pattern: Vec<(String, Methods<S>)>,
    fallback: Option<Box<dyn Make<S>>>,
    /// The first layer gets a request first.
    layers: Vec<Box<dyn MakeLayer<S>>>,
    /// Routers with layers of their own, and the patterns of the requests that they get.
    mounted: Vec<(Vec<String>, Routes<S>)>,
}

impl<S> Clone for Routes<S> {
    fn clone(&self) -> Routes<S> {
        Routes {
            by_pattern: self.by_pattern.clone(),
            fallback: self.fallback.as_ref().map(|made| made.clone_box()),
            layers: self.layers.iter().map(|layer| layer.clone_box()).collect(),
            mounted: self.mounted.clone(),
        }
    }
}

impl<S: 'static> Routes<S> {
    pub(crate) fn new() -> Routes<S> {
        Routes { by_pattern: Vec::new(), fallback: None, layers: Vec::new(), mounted: Vec::new() }
    }

    pub(crate) fn add(&mut self, pattern: &str, methods: Methods<S>) {
        self.by_pattern.push((pattern.to_owned(), methods));
    }

    pub(crate) fn set_fallback<K: 'static, H: Handler<S, K>>(&mut self, handler: H) {
        self.fallback = Some(Box::new(Made { handler, call: H::call }));
    }

    pub(super) fn add_layer(&mut self, layer: impl Layer<S>) {
        self.layers.push(Box::new(layer));
    }

    /// Adds `other` beneath `prefix`.
    pub(super) fn nest(&mut self, prefix: &str, mut other: Routes<S>) {
        let prefix = prefix.trim_end_matches('/');
        other.move_beneath(prefix);
        if other.layers.is_empty() && other.fallback.is_none() {
            return self.merge(other);
        }
        // Patterns for everything beneath the prefix, so that the nested layers and fallback also get
        // requests without a route.
        let mut patterns = vec![format!("{prefix}/"), format!("{prefix}/{{*beneath}}")];
        if !prefix.is_empty() {
            patterns.push(prefix.to_owned());
        }
        self.mounted.push((patterns, other));
    }

    fn move_beneath(&mut self, prefix: &str) {
        let moved = |pattern: &mut String| {
            // The root of the nested router is the prefix itself.
            *pattern = match pattern.as_str() {
                "/" if !prefix.is_empty() => prefix.to_owned(),
                other => format!("{prefix}{other}"),
            };
        };
        self.by_pattern.iter_mut().for_each(|(pattern, _)| moved(pattern));
        for (patterns, routes) in &mut self.mounted {
            patterns.iter_mut().for_each(moved);
            routes.move_beneath(prefix);
        }
    }

    /// Adds the routes of `other`.
    pub(super) fn merge(&mut self, other: Routes<S>) {
        if other.layers.is_empty() {
            self.by_pattern.extend(other.by_pattern);
            self.mounted.extend(other.mounted);
            return;
        }
        let mut patterns: Vec<String> = other.by_pattern.iter().map(|(pattern, _)| pattern.clone()).collect();
        patterns.extend(other.mounted.iter().flat_map(|(patterns, _)| patterns.iter().cloned()));
        self.mounted.push((patterns, other));
    }

    /// Returns the router of one worker.
    ///
    /// # Errors
    /// A pattern, and what is wrong with it.
    pub(crate) fn make(&self, state: &State<S>) -> Result<Router, (String, String)> {
        let mut router = Router {
            matcher: matchit::Router::new(),
            routes: Vec::new(),
            body_bytes_max: Vec::new(),
            fallback: None,
        };
        router.fallback = self.fallback.as_ref().map(|made| enlist(&mut router.routes, made.make(state)));
        for (pattern, methods) in &self.by_pattern {
            router.body_bytes_max.resize(router.routes.len(), u64::MAX);
            let resource = Resource::new(pattern, methods, state, &mut router.routes);
            router.body_bytes_max.resize(router.routes.len(), methods.body_bytes_max);
            router.matcher.insert(pattern, resource).map_err(|why| (pattern.clone(), why.to_string()))?;
        }
        for (patterns, routes) in &self.mounted {
            let inner = Rc::new(routes.make(state)?);
            let route = enlist(&mut router.routes, endpoint(inner, state.clone(), pass_on));
            for pattern in patterns {
                let resource = Resource::for_all(route);
                router.matcher.insert(pattern, resource).map_err(|why| (pattern.clone(), why.to_string()))?;
            }
        }
        if self.layers.is_empty() {
            return Ok(router);
        }
        let layers = self.layers.iter().map(|layer| layer.make()).collect();
        let stack = Rc::new(Stack { layers, router, state: state.clone() });
        let mut front = Router {
            matcher: matchit::Router::new(),
            routes: Vec::new(),
            body_bytes_max: Vec::new(),
            fallback: None,
        };
        let route = endpoint(stack, state.clone(), Stack::answer);
        front.fallback = Some(enlist(&mut front.routes, route));
        Ok(front)
    }
}

fn endpoint<H, S, F, C>(handler: H, state: State<S>, call: C) -> Rc<dyn Route>
where
    H: 'static,
    S: 'static,
    F: Future<Output = Response> + 'static,
    C: Fn(&H, Request, &State<S>) -> F + 'static,
{
    // A constant, so that only one of the two is compiled for a handler.
    if const { size_of::<F>() > MOVED_BYTES_MAX } {
        return turns::endpoint(handler, state, call);
    }
    Rc::new(Endpoint { handler, state, free: Rc::default(), call })
}

/// Answers through the table of a router that has layers of its own.
fn pass_on<S>(router: &Rc<Router>, request: Request, _: &State<S>) -> PassedOn {
    PassedOn { router: Rc::clone(router), dispatch: Dispatch::new(request) }
}

/// The answer of another table.
struct PassedOn {
    router: Rc<Router>,
    dispatch: Dispatch,
}

impl Future for PassedOn {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let this = &mut *self;
        this.dispatch.poll(&this.router, context).map(|answered| match answered {
            Ok(response) => response,
            // The panic hook has shown the message. The outermost catch counts it.
            Err(Panicked) => resume_unwind(Box::new("a handler panicked")),
        })
    }
}

/// A request in a table.
pub(super) struct Dispatch(Stage);

enum Stage {
    Asked(Request),
    Running(Pin<Box<dyn Running>>),
    Over,
}

impl Dispatch {
    pub(super) fn new(request: Request) -> Dispatch {
        Dispatch(Stage::Asked(request))
    }

    pub(super) fn poll(
        &mut self,
        router: &Router,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response, Panicked>> {
        match std::mem::replace(&mut self.0, Stage::Over) {
            Stage::Asked(mut request) => {
                let mut params = request.take_params();
                let route = match router.find(&request.head(), &mut params) {
                    Matched::Route(route, names) => {
                        request.set_params(params, names);
                        route
                    }
                    Matched::Answer(response) => return Poll::Ready(Ok(response)),
                };
                if request.body().limit(router.body_bytes_max(route)).is_err() {
                    return Poll::Ready(Ok(refusal(Status::CONTENT_TOO_LARGE)));
                }
                match router.route(route).start(request, context) {
                    Started::Done(response) => Poll::Ready(Ok(response)),
                    Started::Panicked => Poll::Ready(Err(Panicked)),
                    Started::Running(running) => {
                        self.0 = Stage::Running(running);
                        Poll::Pending
                    }
                }
            }
            Stage::Running(mut running) => match running.as_mut().poll(context) {
                Poll::Ready(answered) => {
                    running.recycle();
                    Poll::Ready(answered)
                }
                Poll::Pending => {
                    self.0 = Stage::Running(running);
                    Poll::Pending
                }
            },
            // Polled after its end.
            Stage::Over => Poll::Ready(Err(Panicked)),
        }
    }
}

impl Drop for Dispatch {
    fn drop(&mut self) {
        if let Stage::Running(running) = std::mem::replace(&mut self.0, Stage::Over) {
            running.recycle();
        }
    }
}

/// One worker's handlers.
pub(crate) struct Router {
    matcher: matchit::Router<Resource>,
    routes: Vec<Rc<dyn Route>>,
    /// Limits by handler; other handlers have none.
    body_bytes_max: Vec<u64>,
    fallback: Option<HeadRoute>,
}

fn enlist(routes: &mut Vec<Rc<dyn Route>>, route: Rc<dyn Route>) -> HeadRoute {
    routes.push(route);
    HeadRoute(routes.len() as u32 - 1)
}

/// The handlers of one pattern.
struct Resource {
    by_method: [Option<HeadRoute>; METHODS.len()],
    any: Option<HeadRoute>,
    /// The value of `Allow`.
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
        let has =
            |method| method_index(method).is_some_and(|at| by_method.get(at).is_some_and(Option::is_some));
        let allowed = METHODS.into_iter().filter(|method| match method {
            Method::Options => true,
            Method::Head => has(Method::Head) || has(Method::Get),
            method => has(*method),
        });
        let allow = allowed.map(Method::name).collect::<Vec<_>>().join(", ");
        let names: Vec<Box<str>> = parameters(pattern).map(Box::from).collect();
        Resource { allow, any, names: (!names.is_empty()).then(|| names.into()), by_method }
    }

    /// Returns the handler of every method.
    fn for_all(route: HeadRoute) -> Resource {
        Resource { by_method: [None; METHODS.len()], any: Some(route), allow: String::new(), names: None }
    }

    #[inline]
    fn route(&self, method: Method) -> Option<HeadRoute> {
        let of = |method| method_index(method).and_then(|at| *self.by_method.get(at)?);
        of(method).or_else(|| if method == Method::Head { of(Method::Get) } else { None }).or(self.any)
    }
}

/// Returns the names of a pattern's parameters, in order. Doubled braces are literal.
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

/// The endpoint of a request.
pub(crate) enum Matched<'a> {
    /// A handler, with the parameters' names if the pattern has some.
    Route(HeadRoute, Option<&'a Rc<[Box<str>]>>),
    /// This response, without a handler.
    Answer(Response),
}

impl Router {
    /// Returns the handler that was found.
    #[inline]
    pub(crate) fn route(&self, id: HeadRoute) -> &dyn Route {
        #[allow(
            clippy::indexing_slicing,
            reason = "only this router gives its handlers' places, and keeps them"
        )]
        &*self.routes[id.0 as usize]
    }

    /// Returns the maximum body size of a handler.
    pub(crate) fn body_bytes_max(&self, id: HeadRoute) -> u64 {
        self.body_bytes_max.get(id.0 as usize).copied().unwrap_or(u64::MAX)
    }

    /// Finds the handler of `head`, and appends the positions of the parameters in its path to `params`.
    #[inline]
    pub(crate) fn find(&self, head: &RequestHead<'_>, params: &mut Vec<(u16, u16)>) -> Matched<'_> {
        let (method, path) = (head.method(), head.path());
        let Ok(matched) = self.matcher.at(path) else { return self.elsewhere(method, path) };
        let resource = matched.value;
        let Some(route) = resource.route(method) else { return Matched::Answer(resource.refuse(method)) };
        if resource.names.is_some() {
            // A parameter is a part of the path, so the request keeps its position.
            let start = path.as_ptr().addr();
            params.extend(matched.params.iter().map(|(_, value)| {
                let from = value.as_ptr().addr() - start;
                (from as u16, (from + value.len()) as u16)
            }));
        }
        Matched::Route(route, resource.names.as_ref())
    }

    #[cold]
    fn elsewhere(&self, method: Method, path: &str) -> Matched<'_> {
        if method == Method::Options && path == "*" && self.fallback.is_none() {
            return Matched::Answer(allowing(Status::NO_CONTENT, &METHODS.map(Method::name).join(", ")));
        }
        match self.fallback {
            Some(route) => Matched::Route(route, None),
            None => Matched::Answer(refusal(Status::NOT_FOUND)),
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

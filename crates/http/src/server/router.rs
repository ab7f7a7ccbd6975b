//! Routes with layers around them: common work is written once, and also applies to refusals.
//!
//! A [`Router`] is data until a worker makes a table of it on its own thread ([`Routes::make`]). With layers,
//! the table has one handler, the [`Stack`]: a request passes its layers, then the table of routes. A router
//! without layers costs nothing.

use super::error::ServerError;
use super::route::{self, Dispatch, Handler, Methods, Routes, State};
use crate::message::{IntoResponse, Request, Response};
use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;

/// Routes, and layers around them.
///
/// ```
/// use ringroad_http::{Next, Request, Response, Router, Server, get};
///
/// async fn tagged(request: Request, next: Next) -> Response {
///     let mut response = next.run(request).await;
///     let _ = response.set_header("X-Tag", "yes");
///     response
/// }
///
/// let api = Router::new().route("/items/{id}", get(async |_: Request| "an item")).layer(tagged);
/// let server = Server::new().router(Router::new().nest("/api", api));
/// ```
pub struct Router<S = ()> {
    pub(super) routes: Routes<S>,
}

impl<S: 'static> Default for Router<S> {
    fn default() -> Router<S> {
        Router::new()
    }
}

impl<S: 'static> Router<S> {
    /// Makes a router without routes.
    pub fn new() -> Router<S> {
        Router { routes: Routes::new() }
    }

    /// Answers requests with a path that fits `pattern`, as [`Server::route`](crate::Server::route).
    #[must_use]
    pub fn route(mut self, pattern: &str, methods: Methods<S>) -> Router<S> {
        self.routes.add(pattern, methods);
        self
    }

    /// Sets the handler of requests without a route; 404 by default.
    #[must_use]
    pub fn fallback<K: 'static, H: Handler<S, K>>(mut self, handler: H) -> Router<S> {
        self.routes.set_fallback(handler);
        self
    }

    /// Adds a layer around everything in this router, including routes that are added later, the fallback,
    /// 404 and 405. A request passes the layers in the order in which they were added, and its response in
    /// reverse.
    ///
    /// Each layer costs a request one allocation.
    #[must_use]
    pub fn layer(mut self, layer: impl Layer<S>) -> Router<S> {
        self.routes.add_layer(layer);
        self
    }

    /// Adds the routes of another router beneath `prefix`, with its layers and its fallback around them: they
    /// get every request beneath the prefix. Handlers see the whole path.
    #[must_use]
    pub fn nest(mut self, prefix: &str, router: Router<S>) -> Router<S> {
        self.routes.nest(prefix, router.routes);
        self
    }

    /// Adds the routes of another router. Its layers stay around its routes; its fallback is left out.
    #[must_use]
    pub fn merge(mut self, router: Router<S>) -> Router<S> {
        self.routes.merge(router.routes);
        self
    }
}

impl<S> Clone for Router<S> {
    fn clone(&self) -> Router<S> {
        Router { routes: self.routes.clone() }
    }
}

impl<S> fmt::Debug for Router<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Router")
    }
}

/// A step around routes: `async fn(Request, Next<S>) -> impl IntoResponse`. It is cloned for each worker.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer of a router with the state `{S}`",
    note = "a layer is an async function or closure of `Request` and `Next<{S}>`",
    note = "it is cloned for each worker and sent to its thread: what a closure captures must be `Clone + Send + 'static`"
)]
pub trait Layer<S>: Clone + Send + 'static {
    /// The future that answers one request.
    type Future: Future<Output = Response> + 'static;

    /// Begins to answer a request. [`Next::run`] calls the next layer or the handler.
    fn call(&self, request: Request, next: Next<S>) -> Self::Future;
}

impl<S, F, Fut, R> Layer<S> for F
where
    F: Fn(Request, Next<S>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = R> + 'static,
    R: IntoResponse,
{
    type Future = route::Answering<Fut>;

    fn call(&self, request: Request, next: Next<S>) -> route::Answering<Fut> {
        route::Answering::new(self(request, next))
    }
}

/// The future of the answer that a layer wraps.
type Boxed = Pin<Box<dyn Future<Output = Response>>>;

/// A layer without its type.
trait AnyLayer<S> {
    fn call(&self, request: Request, next: Next<S>) -> Boxed;
}

impl<S, L: Layer<S>> AnyLayer<S> for L {
    fn call(&self, request: Request, next: Next<S>) -> Boxed {
        Box::pin(Layer::call(self, request, next))
    }
}

/// A layer before a worker starts.
pub(super) trait MakeLayer<S>: Send {
    fn make(&self) -> MadeLayer<S>;
    fn clone_box(&self) -> Box<dyn MakeLayer<S>>;
}

impl<S, L: Layer<S>> MakeLayer<S> for L {
    fn make(&self) -> MadeLayer<S> {
        MadeLayer(Rc::new(self.clone()))
    }

    fn clone_box(&self) -> Box<dyn MakeLayer<S>> {
        Box::new(self.clone())
    }
}

/// A layer on a worker.
pub(super) struct MadeLayer<S>(Rc<dyn AnyLayer<S>>);

/// Layers on a worker, and the table of routes behind them.
pub(super) struct Stack<S> {
    pub(super) layers: Vec<MadeLayer<S>>,
    pub(super) router: route::Router,
    pub(super) state: State<S>,
}

impl<S: 'static> Stack<S> {
    /// Answers a request: the handler of the outer table.
    pub(super) fn answer(stack: &Rc<Stack<S>>, mut request: Request, _: &State<S>) -> Boxed {
        // The head may be reused, and then has the parameters of its last use.
        request.forget_params();
        Next { stack: Rc::clone(stack), at: 0 }.begin(request)
    }
}

/// The rest of the chain within a layer: other layers, and the handler.
pub struct Next<S = ()> {
    stack: Rc<Stack<S>>,
    at: usize,
}

impl<S: 'static> Next<S> {
    /// Returns the worker's state.
    pub fn state(&self) -> &State<S> {
        &self.stack.state
    }

    /// Answers the request with the response of the next layer or of the handler, or with 404 or 405.
    ///
    /// # Panics
    /// The handler panics. The panic passes the layers and is answered 500, unless a layer is
    /// [`catch_panic`](crate::layers::catch_panic).
    pub async fn run(self, request: Request) -> Response {
        self.begin(request).await
    }

    fn begin(mut self, request: Request) -> Boxed {
        let stack = Rc::clone(&self.stack);
        let Some(MadeLayer(layer)) = stack.layers.get(self.at) else {
            return Box::pin(Innermost { stack, dispatch: Dispatch::new(request) });
        };
        self.at += 1;
        layer.call(request, self)
    }
}

impl<S> fmt::Debug for Next<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Next")
    }
}

/// The answer of the table behind all layers.
struct Innermost<S> {
    stack: Rc<Stack<S>>,
    dispatch: Dispatch,
}

impl<S> Future for Innermost<S> {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Response> {
        let this = &mut *self;
        this.dispatch.poll(&this.stack.router, context).map(|answered| match answered {
            Ok(response) => response,
            // The panic hook has shown the message. The layers see the panic as one of their own.
            Err(_) => resume_unwind(Box::new("a handler panicked")),
        })
    }
}

/// A server's routes on this thread, without a socket: for tests, and for requests that arrive in another
/// way. See [`Server::local`](crate::Server::local).
pub struct LocalServer {
    router: Rc<route::Router>,
}

impl LocalServer {
    pub(super) fn new<S: 'static>(routes: &Routes<S>, state: S) -> Result<LocalServer, ServerError> {
        let router = routes.make(&State(Rc::new(state)));
        let router = router.map_err(|(pattern, why)| ServerError::Route { pattern, why })?;
        Ok(LocalServer { router: Rc::new(router) })
    }

    /// Answers a request as the server would: layers, routes, 404, 405, limits of bodies, and 500 for a
    /// handler that panics. Properties of a connection are missing: deadlines, the other limits, `Date`, the
    /// lines of the framing. The answer to HEAD still has its body.
    pub async fn call(&self, mut request: Request) -> Response {
        request.forget_params();
        let mut dispatch = Dispatch::new(request);
        let answered = std::future::poll_fn(|context| dispatch.poll(&self.router, context)).await;
        answered.unwrap_or_else(|_| crate::message::refusal(ringroad_wire::Status::INTERNAL_SERVER_ERROR))
    }
}

impl fmt::Debug for LocalServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalServer")
    }
}

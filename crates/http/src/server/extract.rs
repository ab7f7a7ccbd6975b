//! Handler arguments that are extracted from the request: `async fn(Path<u64>, Query<Search>) -> …`.
//!
//! A handler of [`Request`], or of `Request` and [`State`], gets the request itself and allocates nothing. A
//! handler of extractors gets values instead, and its future is boxed. An invalid request is answered with
//! the rejection, and the handler is not called.

use super::route::{Answering, Handler, State};
#[cfg(feature = "json")]
use crate::message::Json;
use crate::message::{BodyError, IntoResponse, Rejection, Request, Response};
#[cfg(feature = "json")]
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, ready};
use std::marker::PhantomData;
use std::pin::Pin;

/// A value that a handler takes as an argument, extracted from the request.
///
/// ```
/// use ringroad_http::{FromRequest, Path, Rejection, Request, Server, State, get};
///
/// struct Token(String);
///
/// impl<S: 'static> FromRequest<S> for Token {
///     type Rejection = Rejection;
///
///     async fn from_request(request: &mut Request, _: &State<S>) -> Result<Token, Rejection> {
///         let token = request.header("x-token").ok_or_else(|| Rejection::header("X-Token is missing"))?;
///         Ok(Token(token.to_owned()))
///     }
/// }
///
/// async fn item(Path(id): Path<u64>, token: Token) -> String {
///     format!("item {id} for {}", token.0)
/// }
/// let server = Server::new().route("/items/{id}", get(item));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken out of a request",
    note = "extractors are `Path`, `Query`, `Json`, `Form`, `Cookies`, `Extension`, `State`, `String`, `Vec<u8>`, `Option` and `Result` of these",
    note = "`Request` stands alone, or before `State`: it is no extractor"
)]
pub trait FromRequest<S>: Sized + 'static {
    /// The answer if the request has no such value.
    type Rejection: IntoResponse;

    /// Extracts the value. Arguments are extracted in order, and an extractor of the body consumes it: only
    /// the first of several gets the body.
    fn from_request(
        request: &mut Request,
        state: &State<S>,
    ) -> impl Future<Output = Result<Self, Self::Rejection>>;
}

/// The parameters of the path: a struct with their names, a tuple in their order, or the only one.
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<T>(pub T);

/// The query, as a value.
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<T>(pub T);

/// The body, as a form (`application/x-www-form-urlencoded`).
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form<T>(pub T);

/// A value that a layer has put into the [extensions](Request::extensions), cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<T>(pub T);

/// The cookies of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cookies(Vec<(String, String)>);

impl Cookies {
    /// Returns the value of the first cookie of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

#[cfg(feature = "json")]
impl<S: 'static, T: DeserializeOwned + 'static> FromRequest<S> for Path<T> {
    type Rejection = Rejection;

    fn from_request(request: &mut Request, _: &State<S>) -> impl Future<Output = Result<Path<T>, Rejection>> {
        ready(request.params_as().map(Path))
    }
}

#[cfg(feature = "json")]
impl<S: 'static, T: DeserializeOwned + 'static> FromRequest<S> for Query<T> {
    type Rejection = Rejection;

    fn from_request(
        request: &mut Request,
        _: &State<S>,
    ) -> impl Future<Output = Result<Query<T>, Rejection>> {
        ready(request.query_as().map(Query))
    }
}

#[cfg(feature = "json")]
impl<S: 'static, T: DeserializeOwned + 'static> FromRequest<S> for Json<T> {
    type Rejection = BodyError;

    /// Extracts a body with a JSON media type; others are answered 415.
    async fn from_request(request: &mut Request, _: &State<S>) -> Result<Json<T>, BodyError> {
        request.json_only().await.map(Json)
    }
}

#[cfg(feature = "json")]
impl<S: 'static, T: DeserializeOwned + 'static> FromRequest<S> for Form<T> {
    type Rejection = BodyError;

    async fn from_request(request: &mut Request, _: &State<S>) -> Result<Form<T>, BodyError> {
        request.form().await.map(Form)
    }
}

impl<S: 'static> FromRequest<S> for Vec<u8> {
    type Rejection = BodyError;

    async fn from_request(request: &mut Request, _: &State<S>) -> Result<Vec<u8>, BodyError> {
        request.bytes(usize::MAX).await
    }
}

impl<S: 'static> FromRequest<S> for String {
    type Rejection = BodyError;

    async fn from_request(request: &mut Request, _: &State<S>) -> Result<String, BodyError> {
        request.text().await
    }
}

impl<S: 'static> FromRequest<S> for State<S> {
    type Rejection = Infallible;

    fn from_request(_: &mut Request, state: &State<S>) -> impl Future<Output = Result<State<S>, Infallible>> {
        ready(Ok(state.clone()))
    }
}

impl<S: 'static, T: Clone + 'static> FromRequest<S> for Extension<T> {
    type Rejection = Rejection;

    /// Extracts a clone. If nothing has inserted the value, the answer is 500, because that is a bug of the
    /// program.
    fn from_request(
        request: &mut Request,
        _: &State<S>,
    ) -> impl Future<Output = Result<Extension<T>, Rejection>> {
        let found = request.extensions().get::<T>().cloned();
        ready(found.map(Extension).ok_or_else(|| Rejection::missing(std::any::type_name::<T>())))
    }
}

impl<S: 'static> FromRequest<S> for Cookies {
    type Rejection = Infallible;

    fn from_request(
        request: &mut Request,
        _: &State<S>,
    ) -> impl Future<Output = Result<Cookies, Infallible>> {
        let all = request.cookies().map(|(name, value)| (name.to_owned(), value.to_owned()));
        ready(Ok(Cookies(all.collect())))
    }
}

impl<S: 'static, T: FromRequest<S>> FromRequest<S> for Option<T> {
    type Rejection = Infallible;

    async fn from_request(request: &mut Request, state: &State<S>) -> Result<Option<T>, Infallible> {
        Ok(T::from_request(request, state).await.ok())
    }
}

impl<S: 'static, T: FromRequest<S>> FromRequest<S> for Result<T, T::Rejection>
where
    T::Rejection: 'static,
{
    type Rejection = Infallible;

    async fn from_request(
        request: &mut Request,
        state: &State<S>,
    ) -> Result<Result<T, T::Rejection>, Infallible> {
        Ok(T::from_request(request, state).await)
    }
}

/// The kind of a handler of extractors.
pub struct Extracted<A>(PhantomData<A>);

impl<A> fmt::Debug for Extracted<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Extracted")
    }
}

/// A handler without arguments.
impl<S, F, Fut, R> Handler<S, Extracted<()>> for F
where
    F: Fn() -> Fut + Clone + Send + 'static,
    Fut: Future<Output = R> + 'static,
    R: IntoResponse,
{
    type Future = Answering<Fut>;

    fn call(&self, request: Request, _: &State<S>) -> Answering<Fut> {
        drop(request);
        Answering::new(self())
    }
}

macro_rules! handlers {
    ($($($name:ident)+;)*) => {$(
        impl<S, F, Fut, R, $($name),+> Handler<S, Extracted<($($name,)+)>> for F
        where
            S: 'static,
            F: Fn($($name),+) -> Fut + Clone + Send + 'static,
            Fut: Future<Output = R> + 'static,
            R: IntoResponse,
            $($name: FromRequest<S>,)+
        {
            type Future = Pin<Box<dyn Future<Output = Response>>>;

            #[allow(non_snake_case, reason = "a value has the name of its type")]
            fn call(&self, mut request: Request, state: &State<S>) -> Self::Future {
                let (handler, state) = (self.clone(), state.clone());
                Box::pin(async move {
                    $(
                        let $name = match $name::from_request(&mut request, &state).await {
                            Ok(value) => value,
                            Err(why) => return why.into_response(),
                        };
                    )+
                    drop(request);
                    handler($($name),+).await.into_response()
                })
            }
        }
    )*};
}
handlers! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E G;
}

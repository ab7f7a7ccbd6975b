//! The contents of a request as typed values: path parameters, query, forms, cookies.
//!
//! Each is a method, for handlers that take the whole request; `server/extract.rs` has the same as arguments
//! of a handler. With `?`, an error is the answer.

use super::{BodyError, Rejection, Request};
use std::fmt;
use std::str::FromStr;

/// The type of a form.
#[cfg(feature = "json")]
const FORM: &str = "application/x-www-form-urlencoded";
/// The type of JSON.
const JSON: &str = "application/json";

impl Request {
    /// Returns the value of `{name}` in the path, converted to a type.
    ///
    /// # Errors
    /// The route has no such parameter, or its value cannot be converted: 400 with `?`.
    ///
    /// ```
    /// use ringroad_http::{Rejection, Request, Server, get};
    ///
    /// async fn item(request: Request) -> Result<String, Rejection> {
    ///     let id: u64 = request.param_as("id")?;
    ///     Ok(format!("item {id}"))
    /// }
    /// let server = Server::new().route("/items/{id}", get(item));
    /// ```
    pub fn param_as<T: FromStr<Err: fmt::Display>>(&self, name: &str) -> Result<T, Rejection> {
        let text = self.param(name).ok_or_else(|| Rejection::path(format_args!("it has no {name}")))?;
        text.parse().map_err(|why| Rejection::path(format_args!("{name}: {why}")))
    }

    /// Returns the media type of the body, without its parameters.
    pub fn media_type(&self) -> Option<&str> {
        self.header("content-type").map(|line| line.split(';').next().unwrap_or_default().trim())
    }

    /// Returns whether the body declares this media type, whatever its parameters are.
    pub fn is_of_type(&self, media_type: &str) -> bool {
        self.media_type().is_some_and(|told| told.eq_ignore_ascii_case(media_type))
    }

    /// Returns whether the body declares JSON: `application/json`, or `application/…+json` (RFC 6839).
    pub fn is_json(&self) -> bool {
        self.media_type().is_some_and(|told| {
            let told = told.to_ascii_lowercase();
            told == JSON || (told.starts_with("application/") && told.ends_with("+json"))
        })
    }

    /// Returns the cookies, as they were sent: names and values (RFC 6265).
    pub fn cookies(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.headers().get_all("cookie").filter_map(|line| str::from_utf8(line).ok());
        lines.flat_map(|line| line.split(';')).filter_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            let value = value.trim();
            let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            Some((name.trim(), bare.unwrap_or(value)))
        })
    }

    /// Returns the value of the first cookie of this name.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Refuses a body that does not declare JSON. A page of another site can make a browser send JSON as a
    /// form without permission, but not with this type.
    #[cfg(feature = "json")]
    pub(crate) fn must_be_json(&self) -> Result<(), BodyError> {
        if self.is_json() { Ok(()) } else { Err(BodyError::Type(JSON)) }
    }

    /// Receives text; the server's limits bound its length.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); [`BodyError::NotText`] (400).
    pub async fn text(&mut self) -> Result<String, BodyError> {
        String::from_utf8(self.bytes(usize::MAX).await?).map_err(|_| BodyError::NotText)
    }
}

#[cfg(feature = "json")]
mod values {
    use super::{BodyError, FORM, Rejection, Request};
    use crate::message::params;
    use serde::de::DeserializeOwned;

    impl Request {
        /// Returns the parameters of the path as a value: a struct with their names, a tuple in their order,
        /// or the value of the only one.
        ///
        /// # Errors
        /// They cannot be converted: 400 with `?`.
        ///
        /// ```
        /// use ringroad_http::{Rejection, Request, Server, get};
        ///
        /// async fn item(request: Request) -> Result<String, Rejection> {
        ///     let (shop, id): (String, u64) = request.params_as()?;
        ///     Ok(format!("item {id} of {shop}"))
        /// }
        /// let server = Server::new().route("/shops/{shop}/items/{id}", get(item));
        /// ```
        pub fn params_as<T: DeserializeOwned>(&self) -> Result<T, Rejection> {
            params::read(self.params().collect()).map_err(Rejection::path)
        }

        /// Returns the query as a value: a struct with a field for each name. A name that may come several
        /// times is a `Vec` with `#[serde(default)]`, one that may be missing an `Option`.
        ///
        /// # Errors
        /// The query does not match the struct: 400 with `?`.
        pub fn query_as<T: DeserializeOwned>(&self) -> Result<T, Rejection> {
            serde_html_form::from_str(self.query().unwrap_or_default()).map_err(Rejection::query)
        }

        /// Receives a form (`application/x-www-form-urlencoded`) as a value, as [`query_as`](Self::query_as);
        /// at most as long as the server's limits allow.
        ///
        /// # Errors
        /// [`BodyError::Type`] (415) for another media type, [`BodyError::Form`] (422) if it cannot be
        /// converted; else as [`bytes`](Self::bytes).
        pub async fn form<T: DeserializeOwned>(&mut self) -> Result<T, BodyError> {
            if !self.is_of_type(FORM) {
                return Err(BodyError::Type(FORM));
            }
            let bytes = self.bytes(usize::MAX).await?;
            serde_html_form::from_bytes(&bytes).map_err(|why| BodyError::Form(why.to_string()))
        }

        /// Receives JSON as [`json`](Self::json) does, from a body that declares JSON. A page of another site
        /// can make a browser send JSON as a form without permission, but not with this type.
        ///
        /// # Errors
        /// [`BodyError::Type`] (415) for another media type; else as [`json`](Self::json).
        pub async fn json_only<T: DeserializeOwned>(&mut self) -> Result<T, BodyError> {
            self.must_be_json()?;
            self.json().await
        }
    }
}

#[cfg(all(test, feature = "json"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::message::IntoResponse;
    use ringroad_wire::Status;
    use serde::Deserialize;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[derive(Debug, Deserialize, PartialEq)]
    struct Search {
        text: String,
        #[serde(default)]
        tag: Vec<String>,
        page: Option<u32>,
    }

    fn request(target: &str, lines: &[(&str, &str)], body: &str) -> Request {
        let made = lines
            .iter()
            .fold(Request::builder("POST", target), |made, (name, value)| made.header(name, value));
        made.body(body.to_owned().into_bytes()).finish().unwrap()
    }

    /// Polls a future that does not wait.
    fn at_once<F: Future>(future: F) -> F::Output {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => unreachable!("the body is there"),
        }
    }

    #[test]
    fn a_query_becomes_a_value_or_a_400_with_the_reason() {
        let found: Search = request("/?text=a+b%26&tag=x&tag=y", &[], "").query_as().unwrap();
        let expected = Search { text: "a b&".into(), tag: vec!["x".into(), "y".into()], page: None };
        assert_eq!(found, expected);
        let why = request("/?text=a&page=x", &[], "").query_as::<Search>().unwrap_err();
        assert!(why.to_string().starts_with("query: "), "{why}");
        assert_eq!(why.into_response().status_code(), Status::BAD_REQUEST);
        assert!(request("/", &[], "").query_as::<Search>().is_err());
        assert!(request("/", &[], "").param_as::<u32>("id").is_err());
    }

    #[test]
    fn a_form_must_say_that_it_is_one_and_so_must_strict_json() {
        const FORM: &[(&str, &str)] = &[("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")];
        let found: Search = at_once(request("/", FORM, "text=x&page=3").form()).unwrap();
        assert_eq!((found.text.as_str(), found.page), ("x", Some(3)));
        let why = at_once(request("/", FORM, "page=3").form::<Search>()).unwrap_err();
        assert_eq!(why.status(), Status::UNPROCESSABLE_CONTENT);
        let why = at_once(request("/", &[], "text=x").form::<Search>()).unwrap_err();
        assert_eq!(why.status(), Status::UNSUPPORTED_MEDIA_TYPE);
        let why = at_once(request("/", FORM, "[1]").json_only::<Vec<u8>>()).unwrap_err();
        assert_eq!(why.status(), Status::UNSUPPORTED_MEDIA_TYPE);
        for told in ["Application/JSON", "application/problem+json; charset=utf-8"] {
            let json = &[("Content-Type", told)];
            assert_eq!(at_once(request("/", json, "[1]").json_only::<Vec<u8>>()).unwrap(), [1]);
        }
    }

    #[test]
    fn json_that_is_none_is_400_and_json_of_another_shape_is_422() {
        let status =
            |body: &str| at_once(request("/", &[], body).json::<Vec<u8>>()).unwrap_err().status().code();
        assert_eq!((status("[1,"), status("[1}"), status("[300]"), status("{}")), (400, 400, 422, 422));
    }

    #[test]
    fn cookies_come_by_name_from_all_lines() {
        let lines = &[("Cookie", "a=1; session=\"x=y\""), ("Cookie", "b = 2;; broken; a=3")];
        let request = request("/", lines, "");
        assert_eq!((request.cookie("a"), request.cookie("session")), (Some("1"), Some("x=y")));
        let names: Vec<_> = request.cookies().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "session", "b", "a"]);
        assert_eq!((request.cookie("b"), request.cookie("c")), (Some("2"), None));
    }
}

//! Requests that a program builds: for tests of handlers and servers.

#[cfg(feature = "json")]
use super::BodyError;
use super::{Request, RequestBody};
use ringroad_wire::{EncodeError, FieldBlock};
use std::fmt;

/// Builds a request: see [`Request::builder`].
#[must_use = "it is a request after `finish`"]
pub struct RequestBuilder {
    method: String,
    target: String,
    authority: String,
    lines: FieldBlock,
    body: RequestBody,
    /// The first invalid argument.
    wrong: Option<EncodeError>,
}

impl Request {
    /// Begins a request without a connection, with a method and a path, perhaps with a query. Its host is
    /// `localhost`.
    ///
    /// ```
    /// use ringroad_http::Request;
    ///
    /// let request = Request::builder("POST", "/notes?draft").header("X-Token", "1").body("text").finish()?;
    /// assert_eq!((request.path(), request.header("x-token")), ("/notes", Some("1")));
    /// # Ok::<(), ringroad_http::EncodeError>(())
    /// ```
    pub fn builder(method: &str, target: &str) -> RequestBuilder {
        RequestBuilder {
            method: method.to_owned(),
            target: target.to_owned(),
            authority: "localhost".to_owned(),
            lines: FieldBlock::new(),
            body: RequestBody::empty(),
            wrong: None,
        }
    }
}

impl RequestBuilder {
    /// Sets the host, with its port if it has one.
    pub fn authority(mut self, authority: &str) -> RequestBuilder {
        authority.clone_into(&mut self.authority);
        self
    }

    /// Adds a header line. An invalid one is reported by [`finish`](Self::finish).
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> RequestBuilder {
        if let Err(why) = self.lines.push(name.as_ref(), value.as_ref()) {
            self.wrong = self.wrong.or(Some(why));
        }
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<RequestBody>) -> RequestBuilder {
        self.body = body.into();
        self
    }

    /// Sets the body to this value as JSON, with its type.
    ///
    /// # Errors
    /// [`BodyError::Json`]: the value cannot be serialised.
    #[cfg(feature = "json")]
    pub fn json(self, value: &(impl serde::Serialize + ?Sized)) -> Result<RequestBuilder, BodyError> {
        let bytes = serde_json::to_vec(value).map_err(BodyError::Json)?;
        Ok(self.header("Content-Type", "application/json").body(bytes))
    }

    /// Sets the body to this value as a form, with its type.
    ///
    /// # Errors
    /// [`BodyError::Form`]: the value cannot be serialised.
    #[cfg(feature = "json")]
    pub fn form(self, value: &impl serde::Serialize) -> Result<RequestBuilder, BodyError> {
        let text = serde_html_form::to_string(value).map_err(|why| BodyError::Form(why.to_string()))?;
        Ok(self.header("Content-Type", "application/x-www-form-urlencoded").body(text.into_bytes()))
    }

    /// Makes the request.
    ///
    /// # Errors
    /// A header line, the method, the target or the host is invalid, or they are longer than 64 KiB in all.
    pub fn finish(self) -> Result<Request, EncodeError> {
        match self.wrong {
            Some(why) => Err(why),
            None => Request::from_parts(&self.method, &self.target, &self.authority, &self.lines, self.body),
        }
    }
}

impl fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.target)
    }
}

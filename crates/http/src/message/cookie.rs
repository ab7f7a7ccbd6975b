//! A cookie that a response sets (RFC 6265).

use super::Response;
use ringroad_wire::EncodeError;
use std::fmt;
use std::time::Duration;

/// When a browser sends a cookie with requests of other sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SameSite {
    /// Never.
    Strict,
    /// Only when the user follows a link here.
    #[default]
    Lax,
    /// Always. Browsers require [`Cookie::secure`] with it.
    None,
}

/// A cookie to set. By default it is for every path, kept until the browser is closed, sent only over https,
/// hidden from scripts, and not sent with requests that other sites make.
///
/// ```
/// use ringroad_http::{Cookie, Response};
/// use std::time::Duration;
///
/// let cookie = Cookie::new("session", "f81d4fae").max_age(Duration::from_secs(3600));
/// let response = Response::text("hello").set_cookie(&cookie)?;
/// assert_eq!(
///     response.header_value("set-cookie"),
///     Some(&b"session=f81d4fae; Path=/; Max-Age=3600; Secure; HttpOnly; SameSite=Lax"[..]),
/// );
/// # Ok::<(), ringroad_http::EncodeError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is set with `Response::set_cookie`"]
pub struct Cookie {
    name: String,
    value: String,
    path: String,
    domain: Option<String>,
    max_age: Option<Duration>,
    secure: bool,
    http_only: bool,
    same_site: SameSite,
}

impl Cookie {
    /// Makes a cookie.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Cookie {
        Cookie {
            name: name.into(),
            value: value.into(),
            path: "/".to_owned(),
            domain: None,
            max_age: None,
            secure: true,
            http_only: true,
            same_site: SameSite::default(),
        }
    }

    /// Makes a cookie that removes the cookie of this name.
    pub fn removal(name: impl Into<String>) -> Cookie {
        Cookie::new(name, "").max_age(Duration::ZERO)
    }

    /// Sets the path: the cookie is sent for it and for the paths beneath.
    pub fn path(mut self, path: impl Into<String>) -> Cookie {
        self.path = path.into();
        self
    }

    /// Sets the domain: the cookie is sent to it and to all hosts beneath. By default it is sent to the host
    /// that sets it.
    pub fn domain(mut self, domain: impl Into<String>) -> Cookie {
        self.domain = Some(domain.into());
        self
    }

    /// Sets the lifetime, in whole seconds.
    pub fn max_age(mut self, age: Duration) -> Cookie {
        self.max_age = Some(age);
        self
    }

    /// Sets whether the cookie is sent over https only.
    pub fn secure(mut self, secure: bool) -> Cookie {
        self.secure = secure;
        self
    }

    /// Sets whether the cookie is hidden from scripts of the page.
    pub fn http_only(mut self, http_only: bool) -> Cookie {
        self.http_only = http_only;
        self
    }

    /// Sets whether the cookie is sent with requests that other sites make.
    pub fn same_site(mut self, same_site: SameSite) -> Cookie {
        self.same_site = same_site;
        self
    }

    /// Returns whether every part has only bytes that RFC 6265 §4.1.1 allows, so that none can end the cookie
    /// and begin another attribute.
    fn is_valid(&self) -> bool {
        let token = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte);
        let octet = |byte: u8| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte);
        let attribute = |text: &str| text.bytes().all(|byte| (b' '..0x7f).contains(&byte) && byte != b';');
        !self.name.is_empty()
            && self.name.bytes().all(token)
            && self.value.bytes().all(octet)
            && attribute(&self.path)
            && self.domain.as_deref().is_none_or(attribute)
    }
}

impl fmt::Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}; Path={}", self.name, self.value, self.path)?;
        if let Some(domain) = &self.domain {
            write!(f, "; Domain={domain}")?;
        }
        if let Some(age) = self.max_age {
            write!(f, "; Max-Age={}", age.as_secs())?;
        }
        if self.secure {
            f.write_str("; Secure")?;
        }
        if self.http_only {
            f.write_str("; HttpOnly")?;
        }
        f.write_str(match self.same_site {
            SameSite::Strict => "; SameSite=Strict",
            SameSite::Lax => "; SameSite=Lax",
            SameSite::None => "; SameSite=None",
        })
    }
}

impl Response {
    /// Adds a cookie to the response.
    ///
    /// # Errors
    /// The name or value has bytes that a cookie cannot have: encode the value.
    pub fn set_cookie(mut self, cookie: &Cookie) -> Result<Response, EncodeError> {
        if !cookie.is_valid() {
            return Err(EncodeError::Value);
        }
        self.add_header("Set-Cookie", cookie.to_string())?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn several_cookies_are_several_lines() {
        let plain = Cookie::new("b", "2").secure(false).http_only(false).same_site(SameSite::Strict);
        let response =
            Response::text("").set_cookie(&Cookie::removal("a").path("/in").domain("a.test")).unwrap();
        let response = response.set_cookie(&plain).unwrap();
        let set = response.headers().filter(|line| line.name == b"Set-Cookie");
        let lines: Vec<_> = set.map(|line| String::from_utf8_lossy(line.value).into_owned()).collect();
        assert_eq!(
            lines,
            [
                "a=; Path=/in; Domain=a.test; Max-Age=0; Secure; HttpOnly; SameSite=Lax",
                "b=2; Path=/; SameSite=Strict"
            ]
        );
    }

    #[test]
    fn a_part_that_would_begin_another_attribute_is_refused() {
        for bad in [
            Cookie::new("", "x"),
            Cookie::new("a b", ""),
            Cookie::new("a", "x; Domain=b"),
            Cookie::new("a", "é"),
        ] {
            assert!(Response::text("").set_cookie(&bad).is_err(), "{bad}");
        }
        assert!(Response::text("").set_cookie(&Cookie::new("a", "1").path("/;")).is_err());
        assert!(Response::text("").set_cookie(&Cookie::new("a", "1").domain("x\r\ny")).is_err());
    }
}

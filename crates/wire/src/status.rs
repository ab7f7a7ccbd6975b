//! Status codes and their reason phrases.

use std::fmt;

/// A status code, 100 to 999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

impl Status {
    /// Returns the status `code`, if it is one of three digits that does not begin with 0.
    pub const fn new(code: u16) -> Option<Status> {
        if code >= 100 && code <= 999 { Some(Status(code)) } else { None }
    }

    /// Returns the number.
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Returns whether another response to the same request follows (1xx other than 101).
    pub const fn is_interim(self) -> bool {
        self.0 < 200 && self.0 != 101
    }

    /// Returns whether a response of this status never has a body (RFC 9110 §6.4.1).
    pub const fn forbids_body(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }

    /// Returns whether it says the request succeeded (2xx).
    pub const fn is_success(self) -> bool {
        self.0 >= 200 && self.0 < 300
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.reason())
    }
}

macro_rules! statuses {
    ($($code:literal $name:ident $reason:literal;)*) => {
        impl Status {
            $(
                #[doc = concat!("`", stringify!($code), " ", $reason, "`")]
                pub const $name: Status = Status($code);
            )*

            /// Returns the registered phrase, or an empty one.
            pub const fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "",
                }
            }

            /// Returns the whole status line of the registered codes.
            pub(crate) const fn line(self) -> Option<&'static [u8]> {
                match self.0 {
                    $($code => Some(concat!("HTTP/1.1 ", stringify!($code), " ", $reason, "\r\n").as_bytes()),)*
                    _ => None,
                }
            }
        }
    };
}

// RFC 9110 §15, and the registered codes a server of files and a proxy meet.
statuses! {
    100 CONTINUE "Continue";
    101 SWITCHING_PROTOCOLS "Switching Protocols";
    102 PROCESSING "Processing";
    103 EARLY_HINTS "Early Hints";
    200 OK "OK";
    201 CREATED "Created";
    202 ACCEPTED "Accepted";
    203 NON_AUTHORITATIVE "Non-Authoritative Information";
    204 NO_CONTENT "No Content";
    205 RESET_CONTENT "Reset Content";
    206 PARTIAL_CONTENT "Partial Content";
    300 MULTIPLE_CHOICES "Multiple Choices";
    301 MOVED_PERMANENTLY "Moved Permanently";
    302 FOUND "Found";
    303 SEE_OTHER "See Other";
    304 NOT_MODIFIED "Not Modified";
    307 TEMPORARY_REDIRECT "Temporary Redirect";
    308 PERMANENT_REDIRECT "Permanent Redirect";
    400 BAD_REQUEST "Bad Request";
    401 UNAUTHORIZED "Unauthorized";
    402 PAYMENT_REQUIRED "Payment Required";
    403 FORBIDDEN "Forbidden";
    404 NOT_FOUND "Not Found";
    405 METHOD_NOT_ALLOWED "Method Not Allowed";
    406 NOT_ACCEPTABLE "Not Acceptable";
    407 PROXY_AUTHENTICATION_REQUIRED "Proxy Authentication Required";
    408 REQUEST_TIMEOUT "Request Timeout";
    409 CONFLICT "Conflict";
    410 GONE "Gone";
    411 LENGTH_REQUIRED "Length Required";
    412 PRECONDITION_FAILED "Precondition Failed";
    413 CONTENT_TOO_LARGE "Content Too Large";
    414 URI_TOO_LONG "URI Too Long";
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type";
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable";
    417 EXPECTATION_FAILED "Expectation Failed";
    421 MISDIRECTED_REQUEST "Misdirected Request";
    422 UNPROCESSABLE_CONTENT "Unprocessable Content";
    425 TOO_EARLY "Too Early";
    426 UPGRADE_REQUIRED "Upgrade Required";
    428 PRECONDITION_REQUIRED "Precondition Required";
    429 TOO_MANY_REQUESTS "Too Many Requests";
    431 HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large";
    500 INTERNAL_SERVER_ERROR "Internal Server Error";
    501 NOT_IMPLEMENTED "Not Implemented";
    502 BAD_GATEWAY "Bad Gateway";
    503 SERVICE_UNAVAILABLE "Service Unavailable";
    504 GATEWAY_TIMEOUT "Gateway Timeout";
    505 HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported";
    507 INSUFFICIENT_STORAGE "Insufficient Storage";
    511 NETWORK_AUTHENTICATION_REQUIRED "Network Authentication Required";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_three_digits_that_do_not_begin_with_zero() {
        assert_eq!(
            [0, 99, 100, 999, 1000].map(|code| Status::new(code).is_some()),
            [false, false, true, true, false]
        );
    }

    #[test]
    fn an_unregistered_status_has_no_phrase_and_no_ready_line() {
        let odd = Status::new(299).unwrap_or(Status::OK);
        assert_eq!((odd.reason(), odd.line()), ("", None));
        assert_eq!(Status::NOT_FOUND.line(), Some(&b"HTTP/1.1 404 Not Found\r\n"[..]));
    }
}

//! A failed exchange: the step that failed, and how much of the request was sent by then. Whether the
//! exchange may be repeated follows from these, from the method, and from a budget.

use super::error::ClientError;
use ringroad_wire::Method;
use std::fmt;

/// Why a request got no response.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The step that failed.
    pub at: FailedAt,
    /// How much of the request the server may have.
    pub sent: SentSoFar,
    /// What went wrong.
    pub why: ClientError,
}

/// A step of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailedAt {
    /// Making the request: its URL, a header line or its body is invalid.
    Request,
    /// Finding the server's addresses.
    Resolve,
    /// Connecting to it.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Sending the request.
    Send,
    /// Waiting for the head of the response: no byte of it has arrived.
    Head,
    /// Reading the head of the response, of which some bytes have arrived.
    HeadBegun,
    /// Reading the body of the response.
    Body,
}

/// How much of a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SentSoFar {
    /// No byte: any request can be sent again.
    Nothing,
    /// Some of it: the server may have begun to act on it.
    Part,
    /// All of it: the server may have acted on it.
    All,
}

impl FailedAt {
    /// Returns whether a request that failed at this step may be sent again, to this server or another. It
    /// may if nothing of it was sent, or if its method is idempotent (RFC 9110 §9.2.2) and no byte of a
    /// response has arrived. The caller decides whether it still has the body, and how long and how often it
    /// tries.
    pub fn may_repeat(self, sent: SentSoFar, method: Method) -> bool {
        let idempotent = !matches!(method, Method::Post | Method::Patch | Method::Connect | Method::Other);
        match self {
            FailedAt::Request | FailedAt::HeadBegun | FailedAt::Body => false,
            FailedAt::Resolve | FailedAt::Connect | FailedAt::Tls | FailedAt::Send | FailedAt::Head => {
                sent == SentSoFar::Nothing || idempotent
            }
        }
    }
}

impl Failure {
    pub(super) fn new(at: FailedAt, sent: SentSoFar, why: impl Into<ClientError>) -> Failure {
        Failure { at, sent, why: why.into() }
    }

    pub(super) fn of_request(why: ClientError) -> Failure {
        Failure::new(FailedAt::Request, SentSoFar::Nothing, why)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}

impl From<Failure> for ClientError {
    fn from(failure: Failure) -> ClientError {
        failure.why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_repeated_if_nothing_was_sent_or_if_it_is_idempotent_and_unanswered() {
        use FailedAt::{Body, Connect, Head, HeadBegun, Request, Send};
        for (at, sent, post, get) in [
            (Request, SentSoFar::Nothing, false, false),
            (Connect, SentSoFar::Nothing, true, true),
            (Send, SentSoFar::Nothing, true, true),
            (Send, SentSoFar::Part, false, true),
            (Head, SentSoFar::All, false, true),
            (HeadBegun, SentSoFar::All, false, false),
            (Body, SentSoFar::All, false, false),
        ] {
            let both = (at.may_repeat(sent, Method::Post), at.may_repeat(sent, Method::Put));
            assert_eq!(both, (post, get), "{at:?} {sent:?}");
        }
    }
}
